/*
 * Makes plans of a recorded step: the policy plans, and this module gives it memory and checks the
 * plans.
 *
 * Threads: the planning thread alone. Nothing here is called with the registry lock held.
 */
#ifndef PS_PLAN_MAKING_H
#define PS_PLAN_MAKING_H

#include <stdint.h>

#include "penstock/policy.h"

struct ps_plan_making {
    const struct penstock_policy *policy;
    const struct penstock_policy_options *options;
    struct penstock_step *step;
    void (*meanwhile)(void); /* called between two plans where many are made */
};

/*
 * Makes a plan. Returns 0, or -ERANGE for the best plan that exists, which reacting must complete.
 * Other -errno: there is no plan. In every case the caller frees `plan->move`.
 */
int ps_plan_make(const struct ps_plan_making *making, struct penstock_plan *plan);

/*
 * Returns the least budget above `limit` under which the step would lose nothing, to a thousandth;
 * 0: not known. Makes about ten plans.
 */
uint64_t ps_plan_find_enough(const struct ps_plan_making *making, uint64_t limit, uint64_t peak);

#endif
