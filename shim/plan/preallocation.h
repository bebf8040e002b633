/*
 * Preparing: while a plan is followed, a thread of its own makes spans for allocations that come
 * soon. It lays them with the freed spans. The launching thread finds them there and makes no
 * driver call. Beside a D2H the driver takes 1 ms to map one handle (70 us else). It makes the next
 * caller wait for that, 3 ms and more (H200, driver 580).
 *
 * These allocations are observed, not predicted: they found no freed span when the step last came
 * to them. Nothing depends on it: a span that is not ready when the program asks is made then.
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

/* NULL: no memory */
struct ps_preallocation *ps_preallocation_make(const struct penstock_step *step);
void ps_preallocation_free(struct ps_preallocation *preparing); /* [locked] */

/*
 * The program is about to queue launch `place` of the step: allocations soon after it are due now.
 * [locked]
 */
void ps_preallocation_at(struct ps_preallocation *preparing, uint32_t place);

/* No plan is followed any more. [locked] */
void ps_preallocation_leave(void);

/* The program asks for a span of `bytes`; `found`: a freed span served it. [locked] */
void ps_preallocation_allocated(size_t bytes, bool found);

/*
 * Returns whether a span of that size is just being made. Waiting for it takes less time than
 * making another. [locked]
 */
bool ps_preallocation_is_making(size_t bytes);

/*
 * Returns whether more freed spans of that size exist than allocations that come soon need. Then
 * the span's pages may serve something else. [locked]
 */
bool ps_preallocation_can_spare(const struct ps_span *span);

/* Figures since the start. */
struct ps_preallocation_figures {
    uint64_t made;    /* spans made ahead */
    uint64_t missing; /* allocations under a plan that found no freed span */
};
struct ps_preallocation_figures ps_preallocation_figures(void); /* [locked] or at the end */

#endif
