/*
 * Lines on stderr, written so that they do no harm inside somebody else's process: one write(2) a line, no stdio, no allocation, no lock.
 *
 * Threads: everything here may be called from any thread. Before main: yes (errors and warnings are on until ps_log_configure is called).
 * Signal handlers: yes in practice; the text goes through vsnprintf into a stack buffer, so keep floating point out of messages.
 * errno is left as it was. A line that stderr does not take is dropped: the trainer's output is never worth a blocked or failed call.
 */
#ifndef PS_LOG_H
#define PS_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum ps_log_level {
    PS_LOG_ERROR = 0,
    PS_LOG_WARN,
    PS_LOG_INFO,
    PS_LOG_DEBUG,
};

/* The parts of Penstock that PENSTOCK_LOG can name, as X(enum part, name in PENSTOCK_LOG). */
#define PS_LOG_MODULE_LIST(X)                                                                                                              \
    X(SETTINGS, settings)                                                                                                                  \
    X(HOOKS, hooks)                                                                                                                        \
    X(TRACER, tracer)                                                                                                                      \
    X(LAYOUT, layout)                                                                                                                      \
    X(REGISTRY, registry)                                                                                                                  \
    X(RESIDENCY, residency)                                                                                                                \
    X(BUDGET, budget)                                                                                                                      \
    X(COPIES, copies)                                                                                                                      \
    X(SLAB, slab)                                                                                                                          \
    X(POLICY, policy)                                                                                                                      \
    X(REPORT, report)                                                                                                                      \
    X(PROCESS, process)

enum ps_log_module {
#define X(upper, lower) PS_LOG_MODULE_##upper,
    PS_LOG_MODULE_LIST(X)
#undef X
};

/* How many there are. */
#define X(upper, lower) +1
enum { PS_LOG_MODULES = 0 PS_LOG_MODULE_LIST(X) };
#undef X

/* The loudest level that each module may speak at. */
struct ps_log_levels {
    uint8_t level[PS_LOG_MODULES];
};

/* A line has at most this many bytes, prefix and newline included; a longer one ends in "...". */
#define PS_LOG_LINE_MAX 1024

/* The same warning or error (told by its format string) is written this often; after that only the 2^n-th time, with that number. */
#define PS_LOG_REPEATS_SHOWN 16

/* From now on each line tells that it is from this process of a job. */
void ps_log_set_rank(uint32_t rank);

/* What holds until ps_log_configure: warnings and errors, from every module. */
void ps_log_levels_default(struct ps_log_levels *out);

/*
 * Reads the value of PENSTOCK_LOG: a comma-separated list of LEVEL (every module) and MODULE:LEVEL, later entries win, LEVEL being
 * error, warn, info or debug. Returns 0, or -EINVAL and leaves *out alone.
 */
int ps_log_levels_parse(const char *text, struct ps_log_levels *out);

/* Makes these the levels in force. Copies them. */
void ps_log_configure(const struct ps_log_levels *levels);

/* Whether a line at this level would be written: ask before computing what only the line needs. */
bool ps_log_enabled(enum ps_log_module module, enum ps_log_level level);

/*
 * Writes `penstock: TEXT` as one line if the level is on. `format` is printf's, must be a string literal (repeats are told by its address)
 * and has no newline; control characters in the text become '?', so that one call is one line whatever a file name holds.
 * At info and debug the module's name stands between prefix and text.
 */
void ps_log_write(enum ps_log_module module, enum ps_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* True for the first caller with this flag and false for ever after; `said` starts as false (static storage does). */
bool ps_log_first_time(atomic_bool *said);

#define ps_log_error(module, ...) ps_log_write(PS_LOG_MODULE_##module, PS_LOG_ERROR, __VA_ARGS__)
#define ps_log_warn(module, ...) ps_log_write(PS_LOG_MODULE_##module, PS_LOG_WARN, __VA_ARGS__)
#define ps_log_info(module, ...) ps_log_write(PS_LOG_MODULE_##module, PS_LOG_INFO, __VA_ARGS__)
#define ps_log_debug(module, ...)                                                                                                          \
    do {                                                                                                                                   \
        if (ps_log_enabled(PS_LOG_MODULE_##module, PS_LOG_DEBUG))                                                                          \
            ps_log_write(PS_LOG_MODULE_##module, PS_LOG_DEBUG, __VA_ARGS__);                                                               \
    } while (0)

/* Says it once from this place in the source, however often and from however many threads the place is reached. */
#define ps_log_warn_once(module, ...)                                                                                                      \
    do {                                                                                                                                   \
        static atomic_bool ps_log_said_here;                                                                                               \
        if (ps_log_first_time(&ps_log_said_here))                                                                                          \
            ps_log_warn(module, __VA_ARGS__);                                                                                              \
    } while (0)

#endif
