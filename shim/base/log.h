/*
 * Lines on stderr that do no harm inside the program's process. Each line is one write(2), without
 * stdio, allocation or lock.
 *
 * Threads: any thread may call everything here. Calls before main are fine: errors and warnings are
 * on until ps_log_configure is called. Signal handlers may call it in practice. The text goes
 * through vsnprintf into a stack buffer, so messages must have no floating point. The functions
 * leave errno as it was. A line that stderr does not take is dropped: no line is worth a blocked or
 * failed call.
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
#define PS_LOG_MODULE_LIST(X)                                                                                          \
    X(SETTINGS, settings)                                                                                              \
    X(HOOKS, hooks)                                                                                                    \
    X(TRACER, tracer)                                                                                                  \
    X(LAYOUT, layout)                                                                                                  \
    X(REGISTRY, registry)                                                                                              \
    X(RESIDENCY, residency)                                                                                            \
    X(BUDGET, budget)                                                                                                  \
    X(COPIES, copies)                                                                                                  \
    X(SLAB, slab)                                                                                                      \
    X(POLICY, policy)                                                                                                  \
    X(REPORT, report)                                                                                                  \
    X(PROCESS, process)

enum ps_log_module {
#define X(upper, lower) PS_LOG_MODULE_##upper,
    PS_LOG_MODULE_LIST(X)
#undef X
};

/* The number of modules. */
#define X(upper, lower) +1
enum { PS_LOG_MODULES = 0 PS_LOG_MODULE_LIST(X) };
#undef X

/* The loudest level that each module may speak at. */
struct ps_log_levels {
    uint8_t level[PS_LOG_MODULES];
};

/* The most bytes of a line, prefix and newline included. A longer line is cut and ends in "...". */
#define PS_LOG_LINE_MAX 1024

/*
 * The number of times that the same warning or error is written; its format string identifies it.
 * After that it is written only the 2^n-th time, with that number.
 */
#define PS_LOG_REPEATS_SHOWN 16

/* Makes each later line name this rank. */
void ps_log_set_rank(uint32_t rank);

/* Gives the levels that hold until ps_log_configure: warnings and errors of every module. */
void ps_log_levels_default(struct ps_log_levels *out);

/*
 * Reads the value of PENSTOCK_LOG: a comma-separated list of LEVEL (every module) and MODULE:LEVEL.
 * LEVEL is error, warn, info or debug; later entries win. Modules that are not named keep their
 * level in *out. Returns 0, or -EINVAL and leaves *out unchanged.
 */
int ps_log_levels_parse(const char *text, struct ps_log_levels *out);

/* Puts these levels in force, as a copy. */
void ps_log_configure(const struct ps_log_levels *levels);

/*
 * Says whether a line at this level would be written. Ask before computing values only for a line.
 */
bool ps_log_enabled(enum ps_log_module module, enum ps_log_level level);

/*
 * Writes `penstock: TEXT` as one line if the level is on. `format` is printf's and has no newline.
 * It must be a string literal, because its address identifies repeats. Control characters in the
 * text become '?'. So one call is one line, even with a newline in a file name. At info and debug
 * the module's name stands between prefix and text.
 */
void ps_log_write(enum ps_log_module module, enum ps_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Returns true to the first caller with this flag, and false to all later ones. `said` starts as
 * false, as static storage does.
 */
bool ps_log_first_time(atomic_bool *said);

#define ps_log_error(module, ...) ps_log_write(PS_LOG_MODULE_##module, PS_LOG_ERROR, __VA_ARGS__)
#define ps_log_warn(module, ...) ps_log_write(PS_LOG_MODULE_##module, PS_LOG_WARN, __VA_ARGS__)
#define ps_log_info(module, ...) ps_log_write(PS_LOG_MODULE_##module, PS_LOG_INFO, __VA_ARGS__)
#define ps_log_debug(module, ...)                                                                                      \
    do {                                                                                                               \
        if (ps_log_enabled(PS_LOG_MODULE_##module, PS_LOG_DEBUG))                                                      \
            ps_log_write(PS_LOG_MODULE_##module, PS_LOG_DEBUG, __VA_ARGS__);                                           \
    } while (0)

/* Writes the warning once for this place in the source, even if several threads reach it. */
#define ps_log_warn_once(module, ...)                                                                                  \
    do {                                                                                                               \
        static atomic_bool ps_log_said_here;                                                                           \
        if (ps_log_first_time(&ps_log_said_here))                                                                      \
            ps_log_warn(module, __VA_ARGS__);                                                                          \
    } while (0)

#endif
