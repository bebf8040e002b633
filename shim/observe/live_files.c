#include "observe/live_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/output.h"
#include "base/settings.h"
#include "observe/live_json.h"

/* ---- a line a step ---- */

static struct {
    int fd; /* valid if is_open */
    bool is_open;
    bool torn; /* only a part of the last line was written: the next one begins with a line break */
    uint64_t written, lost;
} lines;

static void say_lost(int error)
{
    errno = error;
    ps_log_warn_once(REPORT,
                     "PENSTOCK_METRICS=%s: a line could not be written (%m); the number of such "
                     "lines is reported at the end; free some space, or name another file",
                     ps_settings.metrics);
}

/* Opens the file without waiting for the reader of a pipe. */
static bool open_lines(void)
{
    if (lines.is_open)
        return true;
    lines.fd = ps_output_open(ps_settings.metrics, O_APPEND | O_NONBLOCK);
    lines.is_open = lines.fd >= 0;
    if (!lines.is_open)
        errno = -lines.fd;
    return lines.is_open;
}

void ps_live_files_lost(uint64_t steps)
{
    if (!steps)
        return;
    lines.lost += steps;
    ps_log_warn_once(REPORT,
                     "PENSTOCK_METRICS=%s: steps end faster than their lines are written; the number of "
                     "steps without a line is reported at the end; use a faster file system",
                     ps_settings.metrics);
}

void ps_live_files_left_out(uint64_t steps)
{
    lines.lost += steps;
}

void ps_live_files_step(const struct ps_live_step *step, uint64_t ordinal, uint64_t epoch_ns)
{
    char text[4096] = "\n";
    struct ps_json json;

    ps_json_init_line(&json, text + 1, sizeof text - 1);
    ps_json_begin_object(&json, NULL);
    ps_json_u64(&json, "t_ns", step->t_ns + epoch_ns);
    ps_json_u64(&json, "device", ordinal);
    ps_json_bool(&json, "planned", step->planned);
    ps_live_json_device(&json, &step->device);
    ps_live_json_process(&json, &step->process);
    ps_json_end(&json);
    if (ps_json_finish(&json) || !open_lines()) {
        lines.lost++;
        say_lost(errno);
        return;
    }
    const char *from = lines.torn ? text : text + 1;
    size_t bytes = strlen(from);
    ssize_t n = ps_output_write(lines.fd, from, bytes);
    if (n == (ssize_t)bytes) {
        lines.torn = false;
        lines.written++;
        return;
    }
    lines.torn |= n > 0;
    lines.lost++;
    say_lost(n < 0 ? errno : ENOSPC);
}

void ps_live_files_close(void)
{
    if (!*ps_settings.metrics)
        return;
    if (lines.lost)
        ps_log_warn(REPORT, "PENSTOCK_METRICS=%s: %llu steps have no line", ps_settings.metrics,
                    (unsigned long long)lines.lost);
    else if (!lines.written)
        ps_log_warn(REPORT,
                    "PENSTOCK_METRICS=%s: no step was learnt, so there is no line: the program had "
                    "enough memory, or no step repeated (see `learning` in the report)",
                    ps_settings.metrics);
    if (lines.is_open)
        close(lines.fd);
    lines.is_open = false;
}

/* ---- Prometheus ---- */

static void put_value(FILE *file, enum ps_live_unit unit, uint64_t value)
{
    if (unit == PS_LIVE_NS)
        fprintf(file, "%llu.%09llu\n", (unsigned long long)(value / 1000000000u),
                (unsigned long long)(value % 1000000000u));
    else if (unit == PS_LIVE_BYTES && value == UINT64_MAX)
        fputs("+Inf\n", file);
    else
        fprintf(file, "%llu\n", (unsigned long long)value);
}

/* Writes the labels. They tell the processes of one machine apart, in a job or not. */
static void put_labels(FILE *file, const char *metric, const struct ps_live_snapshot *s, const uint64_t *ordinal)
{
    fprintf(file, "penstock_%s{pid=\"%d\",rank=\"", metric, (int)getpid());
    if (s->rank != PS_LIVE_NO_RANK)
        fprintf(file, "%llu", (unsigned long long)s->rank);
    if (ordinal)
        fprintf(file, "\",device=\"%llu", (unsigned long long)*ordinal);
    fputs("\"} ", file);
}

static void put_head(FILE *file, const char *metric, enum ps_live_kind kind, const char *help)
{
    fprintf(file, "# HELP penstock_%s %s\n# TYPE penstock_%s %s\n", metric, help, metric,
            kind == PS_LIVE_COUNTER ? "counter" : "gauge");
}

static int put_all(FILE *file, const void *snapshot)
{
    const struct ps_live_snapshot *s = snapshot;

#define PS_LIVE_PROCESS(name, kind, unit, metric, source, help)                                                        \
    put_head(file, metric, PS_LIVE_##kind, help);                                                                      \
    put_labels(file, metric, s, NULL);                                                                                 \
    put_value(file, PS_LIVE_##unit, s->process.name);
#define PS_LIVE_DEVICE(name, kind, unit, metric, source, help)                                                         \
    put_head(file, metric, PS_LIVE_##kind, help);                                                                      \
    for (unsigned i = 0; i < s->devices; i++) {                                                                        \
        put_labels(file, metric, s, &s->ordinal[i]);                                                                   \
        put_value(file, PS_LIVE_##unit, s->device[i].name);                                                            \
    }
#include "base/live.def"
    return 0;
}

void ps_live_files_prometheus(const struct ps_live_snapshot *snapshot)
{
    int error = ps_output_put_text(ps_settings.prometheus, put_all, snapshot);

    if (!error)
        return;
    errno = -error;
    ps_log_warn_once(
        REPORT, "PENSTOCK_PROMETHEUS=%s: the figures could not be written (%m): free some space, or name another file",
        ps_settings.prometheus);
}
