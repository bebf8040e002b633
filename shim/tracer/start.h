/*
 * When launches are traced. Seeing every launch costs a launch-bound program a few per cent (CUPTI's own share is most of it), and nothing has
 * to be seen before something may have to leave. So under the budgets `auto` and `unlimited` tracing starts when three quarters of the budget
 * are held, or when the program begins to capture a graph; with a budget that the user named it starts with the first allocation.
 *
 * Two clocks: accesses are noted from the moment the source is there; what was launched before is unknown, so a helper thread waits for the device, however
 * long that takes: a stream may hold what waits for something that a thread of the program does later, so none of these waits. When it is over every use is known and
 * tracing is on. Until then nothing leaves, which the last quarter of the budget is for, cudaFree waits for the device as the real one does, and stream-ordered
 * memory keeps the order of its stream.
 */
#ifndef PS_START_H
#define PS_START_H

#include <stdbool.h>
#include <stdint.h>

#include "base/settings.h"
#include "base/state.h"

/* Decides by the settings; starts at once if so. 0, or -errno with `*why` when tracing was to start and can't. Once, in the set-up. */
int ps_tracing_open(bool at_once, const struct ps_settings *settings, const char **why);

/* Who tells of launches, for the report: "cupti" (where that is not left to others), "hook" or "none". */
const char *ps_tracing_source(void);

/* Another tool asks for CUPTI and was refused: whether it is left to it now. Any thread, inside Penstock. */
bool ps_tracing_leave_cupti(void);

/* Every access will be told of by the caller itself, through residency.h: for unit tests. */
void ps_tracing_assume(void);

/*
 * Starts it if that has not been done, for the reason given (for the log); waits for nothing. Where it can't be had that is said, and Penstock stands aside
 * from then on. Without the registry lock, inside Penstock. Any thread.
 */
void ps_tracing_start(const char *reason);

/* Started: waits until it is on, but never for long (10 s in the life of the process). Without the registry lock. Any thread of the program's. */
void ps_tracing_wait(void);

/* The same if an allocation of `bytes` brings what is held to where it is time. Without the registry lock, inside Penstock. */
void ps_tracing_start_if_due(uint64_t bytes);

#endif
