/*
 * Spans made bare for one launch: their addresses lead nowhere while it runs, whatever the policy has done, and afterwards to what they led to before. No
 * byte moves. And what the launch could reach without naming it: spans whose addresses lie in memory that its parameters lead to.
 *
 * Threads: one at a time, who holds verify.c's lock. [unlocked], all of it.
 */
#ifndef PS_UNMAPPED_LAUNCH_H
#define PS_UNMAPPED_LAUNCH_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/settings.h"
#include "verify/task.h"

/*
 * Evictions under way are over when this returns (or a second has gone by): what leaves has left, and an access to it can't be missed. Under PS_GUARD_HOST
 * what has left leads to its slot, now, and nothing moves until ps_verify_go_on: while it does its addresses lead nowhere for a moment, whether or not that is
 * looked for.
 */
void ps_verify_settle(enum ps_guard guard);
void ps_verify_go_on(enum ps_guard guard);

/*
 * Takes away the addresses of the spans that the task wants, are idle (for more launches than PENSTOCK_GRACE) and not held by a launch, this one
 * among them. With a function: marks those that it could reach through memory that its parameters lead to.
 * Returns how many were stripped.
 */
size_t ps_verify_unmap_idle(const struct ps_verify_task *task, uint32_t grace, CUfunction function, void **parameters, void **extra);

/* They lead again to where they did. A context that is broken lets nothing be mapped, and that is no matter. */
void ps_verify_remap(void);

/* Nothing was stripped: those that are evicted and lead nowhere take the place of what was, to be told of. */
void ps_verify_take_evicted(void);

/* Adds an array "spans": those that lead nowhere ("bare"), and others that memory leads to which the launch is given. Takes no lock. */
void ps_verify_write_spans(struct ps_json *json);

#endif
