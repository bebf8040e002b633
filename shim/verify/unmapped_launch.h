/*
 * Makes spans bare for one launch: their addresses lead nowhere while it runs, whatever the policy
 * has done. Afterwards they lead where they did before. No byte moves. Also finds spans that the
 * launch could reach without naming them: their addresses lie in memory that its parameters lead
 * to.
 *
 * Threads: one at a time, the holder of verify.c's lock. All functions are [unlocked].
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
 * Waits until evictions under way are over, or a second has passed. The spans have then left, and
 * an access to them can't be missed. Under PS_GUARD_HOST evicted spans are led to their slots now,
 * and nothing moves until ps_verify_go_on. A span that moves leads nowhere for a moment, whether or
 * not the task asks for that.
 */
void ps_verify_settle(enum ps_guard guard);
void ps_verify_go_on(enum ps_guard guard);

/*
 * Takes away the addresses of idle spans that the task wants and no launch holds, this one
 * included. A span is idle if more launches than PENSTOCK_GRACE have passed since one named it. A
 * span that plans give no grace is idle after any launch. With a function, marks the spans that it
 * could reach through memory that its parameters lead to. Returns the number of spans made bare.
 */
size_t ps_verify_unmap_idle(const struct ps_verify_task *task, uint32_t grace, CUfunction function, void **parameters,
                            void **extra);

/*
 * Leads the addresses where they led before. In a broken context mapping fails, and that does no
 * harm.
 */
void ps_verify_remap(void);

/* No span was made bare: the evicted spans that lead nowhere are reported in their place. */
void ps_verify_take_evicted(void);

/*
 * Adds an array "spans": those that lead nowhere ("bare"), and others that memory given to the
 * launch leads to. Takes no lock.
 */
void ps_verify_write_spans(struct ps_json *json);

#endif
