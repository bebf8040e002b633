/*
 * The least budget that is good enough for a recorded step. Budgets are as the user names them: a plan leaves its margin of each (margin.h).
 *
 * Pure: memory from the caller. Threads: one search each.
 */
#ifndef PS_LEAST_BUDGET_H
#define PS_LEAST_BUDGET_H

#include <stdbool.h>

#include "penstock/policy.h"

/* A planned step that takes no more than this of the plain one, in thousandths, has lost nothing: what two runs differ by. */
#define PS_NOTHING_LOST 1005u

/* A step that is planned again and again. */
struct ps_replanned {
    struct penstock_step *step; /* its budget is written to */
    const struct penstock_policy *policy;
    const struct penstock_policy_options *options;
    void *workspace;           /* for the policy and for penstock_predict */
    struct penstock_plan plan; /* the last one; with moves for step->uses */
    uint64_t best_ns; /* what the step takes under a budget with which nothing moves: mappings may cost something even so; 0: not known */
    const char *why;  /* a constant string, if it was none */
};

/* Plans the step as it stands. 0; -ERANGE: it does not fit, the plan is the best there is; other -errno: there is no plan. */
int ps_replan(struct ps_replanned *again);

/* Whether the planned step waits for no transfer: it takes as long as the plain one, but for what mappings cost. */
bool ps_plan_waits_for_nothing(const struct penstock_plan *plan);

/* What a budget is to be good for; called by ps_least_budget. False also where there is no plan. */
bool ps_budget_fits(struct ps_replanned *again, uint64_t budget);
bool ps_budget_waits_for_nothing(struct ps_replanned *again, uint64_t budget);
bool ps_budget_loses_nothing(struct ps_replanned *again, uint64_t budget); /* nor do mappings cost more than under the budget of best_ns */

/* The least multiple of `unit` above `from`, and up to `enough`, which is, that is good; more is taken to be no worse. One plan for each halving. */
uint64_t ps_least_budget(struct ps_replanned *again, uint64_t unit, uint64_t from, uint64_t enough,
                         bool (*is_good)(struct ps_replanned *again, uint64_t budget));

#endif
