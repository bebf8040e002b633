/*
 * Figures of any value: bytes that choose a word from a list or make one. The line of
 * PENSTOCK_METRICS is read by another JSON reader, and the text for Prometheus line by line; both
 * have the figures. Byte counts for people are as near as their two decimals allow.
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "base/bytes_text.h"
#include "base/output.h"
#include "observe/live_files.h"
#include "tests/fuzz/json_reader.h"
#include "tests/fuzz/live_figure.h"

struct ps_settings ps_settings = {.metrics = "metrics", .prometheus = "prometheus"};

/* ---- these stand in for shim/base/output.c ---- */

static char line[8192];
static size_t line_bytes;
static char *page;

int ps_output_open(const char *path, int flags)
{
    (void)path;
    (void)flags;
    return 1000;
}

ssize_t ps_output_write(int fd, const void *bytes, size_t count)
{
    (void)fd;
    fuzz_require(count < sizeof line);
    memcpy(line, bytes, count);
    line_bytes = count;
    return (ssize_t)count;
}

int ps_output_write_whole(int fd, const char *text, size_t bytes)
{
    (void)fd;
    (void)text;
    (void)bytes;
    return -EIO;
}

int ps_output_put_text(const char *path, int (*put)(FILE *file, const void *what), const void *what)
{
    size_t bytes;
    FILE *to = open_memstream(&page, &bytes);

    (void)path;
    fuzz_require(to && put(to, what) == 0);
    fclose(to);
    return 0;
}

/* ---- a line ---- */

static void check_line(const struct ps_live_step *step, uint64_t ordinal, uint64_t epoch)
{
    line_bytes = 0;
    ps_live_files_step(step, ordinal, epoch);
    fuzz_require(line_bytes && memchr(line, '\n', line_bytes) == line + line_bytes - 1);
    struct json_value *read = json_read(line, line_bytes);
    fuzz_require(read);
    fuzz_require(json_is_u64(json_member(read, "t_ns"), step->t_ns + epoch));
    fuzz_require(json_is_u64(json_member(read, "device"), ordinal));
    fuzz_require(json_member(read, "planned")->kind == (step->planned ? JSON_TRUE : JSON_FALSE));
#define PS_LIVE_PROCESS(name, kind, unit, metric, source, help)                                                        \
    check_figure(read, #name, PS_LIVE_##unit, step->process.name);
#define PS_LIVE_DEVICE(name, kind, unit, metric, source, help)                                                         \
    check_figure(read, #name, PS_LIVE_##unit, step->device.name);
#include "base/live.def"
    json_free(read);
}

/* ---- Prometheus ---- */

/* Takes the next line of the page, which must be this text. */
static void take_line(char **at, const char *wanted)
{
    size_t length = strlen(wanted);

    fuzz_require(!strncmp(*at, wanted, length) && (*at)[length] == '\n');
    *at += length + 1;
}

static void take_head(char **at, const char *metric, enum ps_live_kind kind, const char *help)
{
    char text[512];

    snprintf(text, sizeof text, "# HELP penstock_%s %s", metric, help);
    take_line(at, text);
    snprintf(text, sizeof text, "# TYPE penstock_%s %s", metric, kind == PS_LIVE_COUNTER ? "counter" : "gauge");
    take_line(at, text);
}

static void take_value(char **at, const char *metric, uint64_t rank, const char *more, enum ps_live_unit unit,
                       uint64_t value)
{
    char text[512], of[24] = "", number[48];

    if (rank != PS_LIVE_NO_RANK)
        snprintf(of, sizeof of, "%" PRIu64, rank);
    snprintf(number, sizeof number, "%" PRIu64, value);
    if (unit == PS_LIVE_NS)
        snprintf(number, sizeof number, "%" PRIu64 ".%09" PRIu64, value / 1000000000, value % 1000000000);
    if (unit == PS_LIVE_BYTES && value == UINT64_MAX)
        strcpy(number, "+Inf");
    snprintf(text, sizeof text, "penstock_%s{pid=\"%d\",rank=\"%s\"%s} %s", metric, (int)getpid(), of, more, number);
    take_line(at, text);
}

static void check_page(const struct ps_live_snapshot *s)
{
    char device[64];

    ps_live_files_prometheus(s);
    char *at = page;
#define PS_LIVE_PROCESS(name, kind, unit, metric, source, help)                                                        \
    take_head(&at, metric, PS_LIVE_##kind, help);                                                                      \
    take_value(&at, metric, s->rank, "", PS_LIVE_##unit, s->process.name);
#define PS_LIVE_DEVICE(name, kind, unit, metric, source, help)                                                         \
    take_head(&at, metric, PS_LIVE_##kind, help);                                                                      \
    for (unsigned i = 0; i < s->devices; i++) {                                                                        \
        snprintf(device, sizeof device, ",device=\"%" PRIu64 "\"", s->ordinal[i]);                                     \
        take_value(&at, metric, s->rank, device, PS_LIVE_##unit, s->device[i].name);                                   \
    }
#include "base/live.def"
    fuzz_require(!*at);
    free(page);
}

/* ---- byte counts ---- */

static void check_bytes_text(uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    const struct ps_bytes_text text = ps_bytes_text(bytes);
    unsigned whole, hundredths, unit = 0;
    char name[8];

    if (bytes < 1024) {
        fuzz_require(sscanf(text.text, "%u %7s", &whole, name) == 2 && whole == bytes && !strcmp(name, "bytes"));
        return;
    }
    fuzz_require(sscanf(text.text, "%u.%2u %7s", &whole, &hundredths, name) == 3);
    while (strcmp(units[unit], name) != 0)
        fuzz_require(++unit < 7);
    fuzz_require(whole >= 1 && whole < 1024 && hundredths < 100);
    /* Rounded down, by 1024ths first: less than two hundredths too little. */
    const __uint128_t shown = ((__uint128_t)whole * 100 + hundredths) << 10 * unit, real = (__uint128_t)bytes * 100;
    fuzz_require(shown <= real && real < shown + ((__uint128_t)2 << 10 * unit));
}

/* A byte that chooses one of the special values, or the next eight bytes. */
static uint64_t take_number(struct fuzz_input *in)
{
    static const uint64_t special[] = {0, 1, UINT64_MAX, INT64_MAX, 1023, 1024, 999999999, 1000000000};
    const unsigned chosen = fuzz_u8(in);

    return chosen < 8 ? special[chosen] : fuzz_u64(in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct ps_live_snapshot snapshot;
    struct fuzz_input in = {data, bytes};
    struct ps_live_step step = {.t_ns = take_number(&in), .planned = bytes & 1};

    check_bytes_text(step.t_ns);
    snapshot = (struct ps_live_snapshot){.rank = take_number(&in), .devices = fuzz_u8(&in) % (PS_LIVE_DEVICES_MAX + 1)};
#define PS_LIVE_PROCESS(name, kind, unit, metric, source, help) step.process.name = take_number(&in);
#define PS_LIVE_DEVICE(name, kind, unit, metric, source, help) step.device.name = take_number(&in);
#include "base/live.def"
    snapshot.process = step.process;
    for (unsigned i = 0; i < snapshot.devices; i++) {
        snapshot.ordinal[i] = take_number(&in);
        snapshot.device[i] = step.device;
        snapshot.device[i].step = snapshot.ordinal[i];
    }
    check_line(&step, snapshot.rank, snapshot.ordinal[0]);
    check_page(&snapshot);
    return 0;
}
