/*
 * Preparing: while a plan is followed, spans for allocations that are soon to come are made ahead, by a thread of their own, and laid with the freed
 * ones. The launching thread then finds them there and makes no driver call: beside a D2H the driver takes 1 ms to map one handle (70 us
 * else) and makes the next caller wait for it, 3 ms and more (H200, driver 580).
 *
 * Which allocations those are is seen, not foretold: the ones that found no freed span when the step last came to them. Nothing depends on it: what
 * isn't there when the program asks is made then.
 *
 * The lock is the registry's: [locked], [unlocked].
 */
#ifndef PS_PREALLOCATION_H
#define PS_PREALLOCATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/span.h"
#include "penstock/policy.h"

/* The allocations of one planned step. */
struct ps_preallocation;

struct ps_preallocation *ps_preallocation_make(const struct penstock_step *step); /* NULL: no memory */
void ps_preallocation_free(struct ps_preallocation *preparing);                   /* [locked] */

/* The program is about to queue launch `place` of the step: what comes soon after it is due now. [locked] */
void ps_preallocation_at(struct ps_preallocation *preparing, uint32_t place);

/* No plan is followed any more. [locked] */
void ps_preallocation_leave(void);

/* The program asks for a span of `bytes`; `found`: there was one among the freed ones. [locked] */
void ps_preallocation_allocated(size_t bytes, bool found);

/* Whether a span of that size is just being made: waiting for it takes less than making another. [locked] */
bool ps_preallocation_is_making(size_t bytes);

/* Whether the freed span's size is not wanted by as many allocations to come soon: its pages may serve something else. [locked] */
bool ps_preallocation_can_spare(const struct ps_span *span);

/* Since the start. */
struct ps_preallocation_figures {
    uint64_t made;    /* spans, ahead */
    uint64_t missing; /* allocations under a plan that found no freed span */
};
struct ps_preallocation_figures ps_preallocation_figures(void); /* [locked] or at the end */

#endif
