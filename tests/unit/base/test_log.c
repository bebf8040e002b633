/*
 * Lines on stderr: their text, that each is written in one piece, their length, and how often one
 * is repeated.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "expect.h"

static int saved_stderr;
static int capture; /* a file, so that long writes don't block */

static void begin_capture(void)
{
    char path[] = "/tmp/penstock-test-log-XXXXXX";

    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    capture = mkstemp(path);
    unlink(path);
    dup2(capture, STDERR_FILENO);
}

/* Returns the text written since begin_capture. It is valid until the next call. */
static const char *end_capture(void)
{
    static char text[1 << 20];

    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    ssize_t got = pread(capture, text, sizeof text - 1, 0);
    close(capture);
    text[got > 0 ? got : 0] = '\0';
    return text;
}

static void set_levels(const char *text)
{
    struct ps_log_levels levels;

    ps_log_levels_default(&levels);
    EXPECT_INT(0, ps_log_levels_parse(text, &levels));
    ps_log_configure(&levels);
}

static size_t count_lines(const char *text)
{
    size_t lines = 0;

    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

static void test_before_configuring(void)
{
    begin_capture();
    ps_log_error(HOOKS, "it broke: %d", 7);
    ps_log_warn(SLAB, "it is %s", "odd");
    ps_log_info(SLAB, "fine");
    ps_log_debug(SLAB, "very fine");
    EXPECT_TEXT("penstock: it broke: 7\npenstock: it is odd\n", end_capture());
}

static void test_levels(void)
{
    set_levels("error,residency:debug,hooks:info");
    EXPECT(ps_log_enabled(PS_LOG_MODULE_RESIDENCY, PS_LOG_DEBUG));
    EXPECT(!ps_log_enabled(PS_LOG_MODULE_HOOKS, PS_LOG_DEBUG));
    EXPECT(!ps_log_enabled(PS_LOG_MODULE_SLAB, PS_LOG_WARN));
    begin_capture();
    ps_log_debug(RESIDENCY, "a");
    ps_log_info(HOOKS, "b");
    ps_log_debug(HOOKS, "c");
    ps_log_warn(SLAB, "d");
    ps_log_error(SLAB, "e");
    EXPECT_TEXT("penstock: residency: a\npenstock: hooks: b\npenstock: e\n", end_capture());

    /* Later entries win. Text that can't be read changes nothing. */
    set_levels("residency:debug,warn");
    EXPECT(!ps_log_enabled(PS_LOG_MODULE_RESIDENCY, PS_LOG_INFO));
    struct ps_log_levels levels;
    ps_log_levels_default(&levels);
    EXPECT_INT(-EINVAL, ps_log_levels_parse("debug,nonsense", &levels));
    EXPECT_INT(-EINVAL, ps_log_levels_parse("debu", &levels));
    EXPECT_INT(-EINVAL, ps_log_levels_parse("debugg", &levels));
    EXPECT_INT(-EINVAL, ps_log_levels_parse("moon:debug", &levels));
    EXPECT_INT(-EINVAL, ps_log_levels_parse("slab", &levels));
    EXPECT_INT(-EINVAL, ps_log_levels_parse("slab:slab", &levels));
    EXPECT_INT(0, ps_log_levels_parse("settings:info", &levels)); /* the first of the list */
    EXPECT(levels.level[PS_LOG_MODULE_SETTINGS] == PS_LOG_INFO);
    levels.level[PS_LOG_MODULE_SETTINGS] = PS_LOG_WARN;
    EXPECT(levels.level[0] == PS_LOG_WARN);
}

static void test_one_call_is_one_line(void)
{
    set_levels("warn");
    begin_capture();
    ps_log_warn(REPORT, "can't write %s", "a\nb\tc\x7f\x1b[31m \xc3\xa9");
    EXPECT_TEXT("penstock: can't write a?b?c??[31m \xc3\xa9\n", end_capture());

    /*
     * This includes characters and single bytes of 0x80 to 0x9f that a terminal obeys, also in an
     * overlong form. It also includes characters that change the direction of text.
     */
    begin_capture();
    ps_log_warn(REPORT, "[%s]",
                "\xc2\x9b|\x9b|\xe0\x82\x9b|\xc2\x9b"
                "31m|\xe2\x80\xae|\xe2\x81\xa6|\xe2\x80\xa8");
    EXPECT_TEXT("penstock: [?|?|\xe0??|?31m|?|?|?]\n", end_capture());
    begin_capture();
    ps_log_warn(REPORT, "[%s]", "\xc2\xa0|\xc3\x9b|\xe2\x82\xac|\xe2\x80\xa6|\xf0\x9f\x9a\xb0|\xe9|\xc2");
    EXPECT_TEXT("penstock: [\xc2\xa0|\xc3\x9b|\xe2\x82\xac|\xe2\x80\xa6|\xf0\x9f\x9a\xb0|\xe9|\xc2]\n", end_capture());
}

static void test_long_lines_are_cut(void)
{
    static char long_text[4000];

    memset(long_text, 'x', sizeof long_text - 1);
    begin_capture();
    ps_log_warn(REPORT, "%s", long_text);
    const char *text = end_capture();
    EXPECT_U64(PS_LOG_LINE_MAX, strlen(text));
    EXPECT_TEXT("xxx...\n", text + strlen(text) - 7);

    /* The longest line that fits is not cut; one byte more is. */
    size_t fits = PS_LOG_LINE_MAX - strlen("penstock: ") - strlen("\n");
    begin_capture();
    ps_log_warn(REPORT, "%.*s", (int)fits, long_text);
    text = end_capture();
    EXPECT(strstr(text, "...") == NULL);
    EXPECT_U64(fits, strspn(text + strlen("penstock: "), "x"));
    begin_capture();
    ps_log_warn(REPORT, "%.*s", (int)fits + 1, long_text);
    EXPECT(strstr(end_capture(), "xx...\n") != NULL);

    /* No character is cut in two: wherever the cut falls, whole two-byte characters remain. */
    for (size_t lead = 0; lead < 2; lead++) {
        memset(long_text, 'x', lead);
        for (size_t i = lead; i + 2 < sizeof long_text; i += 2)
            memcpy(long_text + i, "\xc3\xa9", 2);
        begin_capture();
        ps_log_warn(REPORT, "%.3000s", long_text);
        text = end_capture();
        size_t bytes = strlen(text) - strlen("penstock: ") - strlen("...\n") - lead;
        EXPECT(strlen(text) <= PS_LOG_LINE_MAX && bytes > 900 && bytes % 2 == 0);
    }

    /*
     * Bytes that only continue characters are no UTF-8, and do not take the rest of the line along.
     */
    memset(long_text, '\xa0', sizeof long_text - 1);
    begin_capture();
    ps_log_warn(REPORT, "%s", long_text);
    text = end_capture();
    EXPECT_U64(PS_LOG_LINE_MAX, strlen(text));
    EXPECT(strncmp(text, "penstock: \xa0", 11) == 0);
}

static void test_repeats_are_thinned_out(void)
{
    begin_capture();
    for (int i = 1; i <= 1000; i++)
        ps_log_warn(COPIES, "again %d", i);
    for (int i = 1; i <= 3; i++)
        ps_log_warn(COPIES, "something else %d", i);
    const char *text = end_capture();
    /* The first 16, then the 32nd, 64th, 128th, 256th and 512th. */
    EXPECT_U64(PS_LOG_REPEATS_SHOWN + 5 + 3, count_lines(text));
    EXPECT(strstr(text,
                  "penstock: again 16\npenstock: again 32 (32 times so far)\npenstock: again 64 (64 times so far)\n") !=
           NULL);
    EXPECT(strstr(text, "again 512 (512 times so far)\npenstock: something else 1\n") != NULL);

    /* Lines that the user asked for are not thinned out. */
    set_levels("info");
    begin_capture();
    for (int i = 1; i <= 100; i++)
        ps_log_info(COPIES, "told %d", i);
    EXPECT_U64(100, count_lines(end_capture()));
    set_levels("warn");
}

static void test_once(void)
{
    begin_capture();
    for (int i = 0; i < 5; i++)
        ps_log_warn_once(TRACER, "once, at %d", i);
    EXPECT_TEXT("penstock: once, at 0\n", end_capture());
}

static void test_errno_is_kept(void)
{
    begin_capture();
    errno = ENOENT;
    ps_log_warn(REPORT, "open: %m");
    EXPECT_INT(ENOENT, errno);
    EXPECT_TEXT("penstock: open: No such file or directory\n", end_capture());

    int kept = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    errno = EPERM;
    ps_log_error(REPORT, "nobody hears this");
    EXPECT_INT(EPERM, errno);
    dup2(kept, STDERR_FILENO);
    close(kept);
}

static atomic_bool said_by_threads;
static atomic_uint first_times;

static void *write_many(void *letter)
{
    for (int i = 0; i < 200; i++) {
        if (ps_log_first_time(&said_by_threads))
            atomic_fetch_add(&first_times, 1);
        ps_log_info(BUDGET, "%c%c%c%c%c%c%c%c", *(char *)letter, *(char *)letter, *(char *)letter, *(char *)letter,
                    *(char *)letter, *(char *)letter, *(char *)letter, *(char *)letter);
    }
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[4];
    char letters[] = "abcd";

    set_levels("info");
    begin_capture();
    /*
     * Opened for appending, as a shell's 2>> is, so that lines of several threads don't overwrite
     * one another.
     */
    fcntl(STDERR_FILENO, F_SETFL, O_APPEND);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, write_many, &letters[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    const char *text = end_capture();
    EXPECT_U64(800, count_lines(text));
    for (; *text; text = strchr(text, '\n') + 1) {
        size_t prefix = strlen("penstock: budget: ");
        if (!EXPECT(strncmp(text, "penstock: budget: ", prefix) == 0) ||
            !EXPECT(text[prefix + 8] == '\n' && strspn(text + prefix, (char[]){text[prefix], '\0'}) == 8))
            break;
    }
    EXPECT_U64(1, first_times);
    set_levels("warn");
}

int main(void)
{
    test_before_configuring();
    test_levels();
    test_one_call_is_one_line();
    test_long_lines_are_cut();
    test_repeats_are_thinned_out();
    test_once();
    test_errno_is_kept();
    test_threads();
    return expect_status();
}
