/* The margin of plans: the bytes of the budget that they leave free. Pure. Threads: any. */
#ifndef PS_MARGIN_H
#define PS_MARGIN_H

#include <stdint.h>

#define PS_MARGIN_MAX (640ull << 20)

/*
 * Returns the bytes that a plan may count on under a budget. The margin is for pages that move from
 * one size to another, and for durations that have changed a little. The copies queued at a time
 * bound the moving pages, so the margin has a maximum. (On the H200, half the margin made steps at
 * 30 GiB unsteady, 1.41 to 2.02 s. A 64th of 74 GiB cost a sequence of 32,768 7 ms a step.)
 */
static inline uint64_t ps_budget_for_plan(uint64_t budget)
{
    return budget - (budget / 64 < PS_MARGIN_MAX ? budget / 64 : PS_MARGIN_MAX);
}

/* Returns a budget under which a plan may count on `bytes`, and hardly more. */
static inline uint64_t ps_budget_with_margin(uint64_t bytes)
{
    return bytes + (bytes / 63 < PS_MARGIN_MAX ? bytes / 63 + 1 : PS_MARGIN_MAX);
}

#endif
