/*
 * The least budget that is good enough for a recorded step. Budgets are those that users name; a
 * plan leaves a margin of them free.
 *
 * Pure: memory from the caller. Threads: each thread has its own search.
 */
#ifndef PS_LEAST_BUDGET_H
#define PS_LEAST_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "penstock/policy.h"

/* The margin of plans: the bytes of a budget that a plan leaves free. */
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

/*
 * A planned step has lost nothing if it takes at most this many thousandths of the plain step's
 * time. Two runs differ by as much.
 */
#define PS_NOTHING_LOST 1005u

/* A step that is planned again and again. */
struct ps_replanned {
    struct penstock_step *step; /* the search writes its budget */
    const struct penstock_policy *policy;
    const struct penstock_policy_options *options;
    void *workspace;           /* for the policy and for penstock_predict */
    struct penstock_plan plan; /* the last plan; it has room for step->uses moves */
    /*
     * The step's time under a budget with which no span moves; 0: not known. Even then mappings may
     * cost some time.
     */
    uint64_t best_ns;
    const char *why; /* a constant string: the problem, if the last plan was not valid */
};

/*
 * Plans the step as it stands. Returns 0 or a negative errno. -ERANGE: the step does not fit the
 * budget, and the plan is the best possible. Any other error: the step has no plan.
 */
int ps_replan(struct ps_replanned *again);

/*
 * Returns whether the planned step waits for no transfer. Apart from the cost of mappings it then
 * takes as long as the plain step.
 */
bool ps_plan_waits_for_nothing(const struct penstock_plan *plan);

/* Criteria for ps_least_budget. Each plans the step under `budget`; false if that gives no plan. */

/* Returns whether the step fits the budget. */
bool ps_budget_fits(struct ps_replanned *again, uint64_t budget);

/* Returns whether the step fits the budget and waits for no transfer. */
bool ps_budget_waits_for_nothing(struct ps_replanned *again, uint64_t budget);

/*
 * Returns whether the step fits the budget and loses no time, neither to waits nor to mappings.
 * Mappings may cost as much as they do in best_ns.
 */
bool ps_budget_loses_nothing(struct ps_replanned *again, uint64_t budget);

/*
 * Returns the least good budget that is a multiple of `unit`, above `from` and up to `enough`. The
 * caller knows that `enough` is good, and `from` is not. A larger budget is assumed to be no worse.
 * Each halving makes one plan.
 */
uint64_t ps_least_budget(struct ps_replanned *again, uint64_t unit, uint64_t from, uint64_t enough,
                         bool (*is_good)(struct ps_replanned *again, uint64_t budget));

#endif
