/* The margin of plans: what they leave free of the budget. Pure. */
#ifndef PS_MARGIN_H
#define PS_MARGIN_H

#include <stdint.h>

#define PS_MARGIN_MAX (640ull << 20)

/*
 * Bytes that a plan may count on under a budget. The rest is for pages that are on their way from one size to another, and for durations that are not quite
 * what they were. What is on its way is bounded by the copies that are queued at a time, so it does not grow with the budget for ever. (On the H200 half
 * of it made steps at 30 GiB unsteady, 1.41 to 2.02 s; a 64th of 74 GiB cost a sequence of 32,768 7 ms a step.)
 */
static inline uint64_t ps_budget_for_plan(uint64_t budget)
{
    return budget - (budget / 64 < PS_MARGIN_MAX ? budget / 64 : PS_MARGIN_MAX);
}

/* A budget under which a plan may count on so many bytes, and hardly more. */
static inline uint64_t ps_budget_with_margin(uint64_t bytes)
{
    return bytes + (bytes / 63 < PS_MARGIN_MAX ? bytes / 63 + 1 : PS_MARGIN_MAX);
}

#endif
