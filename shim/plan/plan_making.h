/*
 * Plans of a recorded step: the policy makes them, here they get their memory and are checked.
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

/* 0; -ERANGE: the best there is, and reacting does the rest; other -errno: there is no plan. `plan->move` is the caller's to free in any case. */
int ps_plan_make(const struct ps_plan_making *making, struct penstock_plan *plan);

/* The least budget, above `limit`, under which the step would lose nothing, to a thousandth; 0: not known. Some ten plans. */
uint64_t ps_plan_find_enough(const struct ps_plan_making *making, uint64_t limit, uint64_t peak);

#endif
