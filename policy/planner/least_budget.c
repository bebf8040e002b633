#include "policy/planner/least_budget.h"

#include <errno.h>

int ps_replan(struct ps_replanned *again)
{
    again->plan.moves = 0;
    int r = again->policy->plan(again->step, again->options, again->workspace, &again->plan);
    if ((!r || r == -ERANGE) && penstock_predict(again->step, again->workspace, &again->plan, &again->why))
        return -EINVAL;
    return r;
}

bool ps_budget_fits(struct ps_replanned *again, uint64_t budget)
{
    again->step->budget_bytes = ps_budget_for_plan(budget);
    return !ps_replan(again);
}

bool ps_plan_waits_for_nothing(const struct penstock_plan *plan)
{
    return plan->predicted_ns - plan->mapping_ns <= plan->plain_ns / 1000 * PS_NOTHING_LOST;
}

bool ps_budget_waits_for_nothing(struct ps_replanned *again, uint64_t budget)
{
    return ps_budget_fits(again, budget) && ps_plan_waits_for_nothing(&again->plan);
}

bool ps_budget_loses_nothing(struct ps_replanned *again, uint64_t budget)
{
    if (!ps_budget_fits(again, budget))
        return false;
    const uint64_t plain = again->plan.plain_ns, best = again->best_ns > plain ? again->best_ns : plain;
    return again->plan.predicted_ns <= best / 1000 * PS_NOTHING_LOST;
}

uint64_t ps_least_budget(struct ps_replanned *again, uint64_t unit, uint64_t from, uint64_t enough,
                         bool (*is_good)(struct ps_replanned *again, uint64_t budget))
{
    uint64_t bad = from / unit, good = enough / unit;

    while (good > bad + 1) {
        uint64_t middle = bad + (good - bad) / 2;
        if (is_good(again, middle * unit))
            good = middle;
        else
            bad = middle;
    }
    return good * unit;
}
