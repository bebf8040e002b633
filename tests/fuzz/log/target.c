/*
 * A text, written to the log in a line of each kind, and the value of PENSTOCK_LOG behind it. A
 * line holds the text as far as it fits, and no byte that a terminal obeys.
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>

#include "base/log.h"
#include "base/output.h"
#include "base/plain_text.h"

/* The line that the log writes. It stands in for shim/base/output.c. */
static char line[2 * PS_LOG_LINE_MAX];
static size_t line_bytes;
static unsigned lines;

ssize_t ps_output_write(int fd, const void *bytes, size_t count)
{
    fuzz_require(fd == 2 && count <= PS_LOG_LINE_MAX);
    memcpy(line, bytes, count);
    line_bytes = count;
    lines++;
    return (ssize_t)count;
}

/* Returns the text as a terminal may be given it, which the caller frees. */
static char *plain(const char *text)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t bytes = strlen(text), used = 0;
    char *out = fuzz_allocate(bytes + 1);

    for (size_t i = 0; i < bytes;) {
        uint32_t point = s[i];
        size_t length = fuzz_code_point(s + i, bytes - i, &point);
        if (fuzz_is_obeyed(length ? point : s[i]))
            out[used++] = '?';
        else
            for (size_t k = 0; k < (length ? length : 1); k++)
                out[used++] = (char)s[i + k];
        i += length ? length : 1;
    }
    out[used] = '\0';
    return out;
}

static void check_line(const char *prefix, const char *text)
{
    char *wanted = plain(text);
    size_t before = strlen(prefix);

    fuzz_require(lines == 1 && line_bytes > before && line[line_bytes - 1] == '\n');
    fuzz_require(fuzz_is_plain(line, line_bytes - 1));
    fuzz_require(memcmp(line, prefix, before) == 0);
    if (before + strlen(text) + 1 <= PS_LOG_LINE_MAX) {
        fuzz_require(line_bytes - 1 - before == strlen(wanted));
        fuzz_require(memcmp(line + before, wanted, strlen(wanted)) == 0);
    } else {
        fuzz_require(memcmp(line + line_bytes - 4, "...", 3) == 0);
        /* Behind the dots and the newline, less than one character is left over. */
        if (strlen(wanted) == strlen(text))
            fuzz_require(line_bytes + 3 >= PS_LOG_LINE_MAX - 1);
    }
    free(wanted);
    lines = 0;
}

/* A warning is written, or it came too often. */
static void check_warning(const char *text)
{
    ps_log_warn(REPORT, "%s", text);
    fuzz_require(lines <= 1);
    if (lines)
        fuzz_require(line[line_bytes - 1] == '\n' && fuzz_is_plain(line, line_bytes - 1));
    lines = 0;
}

static void check_plain_text(const char *text)
{
    char *wanted = plain(text), *got = strdup(text);

    fuzz_require(ps_plain_text(got) == strlen(got) && !strcmp(got, wanted));
    free(wanted);
    free(got);
}

static void check_levels(const char *text)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
#define X(upper, lower) #lower,
    static const char *const modules[] = {PS_LOG_MODULE_LIST(X)};
#undef X
    struct ps_log_levels parsed, before, again;
    char printed[1024] = "";

    ps_log_levels_default(&parsed);
    before = parsed;
    int error = ps_log_levels_parse(text, &parsed);
    if (error) {
        fuzz_require(error == -EINVAL && !memcmp(&parsed, &before, sizeof parsed));
        return;
    }
    for (unsigned i = 0; i < PS_LOG_MODULES; i++) {
        fuzz_require(parsed.level[i] <= PS_LOG_DEBUG);
        snprintf(printed + strlen(printed), sizeof printed - strlen(printed), "%s%s:%s", i ? "," : "", modules[i],
                 levels[parsed.level[i]]);
    }
    memset(&again, 0xff, sizeof again);
    fuzz_require(ps_log_levels_parse(printed, &again) == 0 && !memcmp(&again, &parsed, sizeof again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ps_log_levels levels;
    struct fuzz_input in = {data, bytes};
    char *text = fuzz_text(&in, '\0'), *value = fuzz_text(&in, '\0');

    memset(levels.level, PS_LOG_DEBUG, sizeof levels.level);
    ps_log_configure(&levels);
    errno = 123;
    ps_log_debug(SLAB, "%s", text);
    fuzz_require(errno == 123);
    check_line("penstock: slab: ", text);
    check_warning(text);
    check_plain_text(text);
    check_levels(value);
    free(text);
    free(value);
    return 0;
}
