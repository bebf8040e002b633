/*
 * When launches are traced. Seeing every launch costs a launch-bound program a few per cent, most
 * of it CUPTI's own share. No launch has to be seen before a span may have to leave. So with a
 * budget that the user named, tracing starts with the first allocation. Under `auto` it starts when
 * three quarters of the budget are in use. Under `auto` and `unlimited` it also starts when the
 * device has no more pages. It starts there, too, when the program begins to capture a graph.
 *
 * Two clocks: accesses are noted from the moment the source is there; launches before that are
 * unknown. So a helper thread waits for the device, however long that takes. A stream may hold work
 * that waits for a later action of a program thread. So none of those threads waits that long.
 * After the wait every use is known and tracing is on. Until then nothing leaves; the last quarter
 * of the budget is for that time. cudaFree waits for the device as the real one does, and
 * stream-ordered memory keeps the order of its stream.
 */
#ifndef PS_START_H
#define PS_START_H

#include <stdbool.h>
#include <stdint.h>

#include "base/settings.h"
#include "base/state.h"

/*
 * Keeps the settings, and starts tracing if `at_once`. Returns 0; or -errno with `*why` if tracing
 * should start and can't. Called once, in the set-up.
 */
int ps_tracing_open(bool at_once, const struct ps_settings *settings, const char **why);

/*
 * Returns the source of launches, for the report: "cupti" (unless CUPTI was left to another tool),
 * "hook" or "none".
 */
const char *ps_tracing_source(void);

/*
 * Another tool asks for CUPTI and was refused: leaves CUPTI to it if possible. Returns whether it
 * did. Any thread, inside Penstock.
 */
bool ps_tracing_leave_cupti(void);

/* For unit tests: the caller itself will report every access, through residency.h. */
void ps_tracing_assume(void);

/*
 * Starts tracing unless it has started. `reason`: for the log. Waits for nothing. If tracing can't
 * start, a line says so, and Penstock stands aside from then on. Without the registry lock, inside
 * Penstock. Any thread.
 */
void ps_tracing_start(const char *reason);

/*
 * If tracing has started, waits until it is on: at most 10 s in the life of the process. Without
 * the registry lock. Any thread of the program's.
 */
void ps_tracing_wait(void);

/*
 * Starts tracing if an allocation of `bytes` brings the use to three quarters of the budget.
 * Without the registry lock, inside Penstock.
 */
void ps_tracing_start_if_due(uint64_t bytes);

#endif
