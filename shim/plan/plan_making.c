#include "plan/plan_making.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "policy/planner/least_budget.h"

/*
 * A step of fewer launches may be a loop inside the real step. Its plan is dropped if the step
 * takes SHORT_LOOP_TIMES as long as without moves.
 */
#define SHORT_LOOP 32u
#define SHORT_LOOP_TIMES 16u

/*
 * Returns whether the plan of a short loop is worse than no plan. One launch of such a loop has no
 * room for all spans that it names. cuDNN's recurrent networks have a loop over the moments of a
 * sequence, and name other spans each time. A plan would move many bytes in each round, and the
 * next round is another one.
 */
static bool is_worse_than_none(const struct penstock_step *step, const struct penstock_plan *plan)
{
    return step->launches < SHORT_LOOP && plan->predicted_ns / SHORT_LOOP_TIMES > plan->plain_ns;
}

/* Returns a workspace for the policy and for penstock_predict; free() releases it. */
static void *new_workspace(const struct ps_plan_making *making)
{
    size_t bytes = making->policy->workspace_bytes ? making->policy->workspace_bytes(making->step) : 0,
           to_predict = penstock_predict_workspace_bytes(making->step);

    return aligned_alloc(64, ((to_predict > bytes ? to_predict : bytes) + 127) & ~(size_t)63);
}

int ps_plan_make(const struct ps_plan_making *making, struct penstock_plan *plan)
{
    const struct penstock_step *step = making->step;
    void *workspace = new_workspace(making);
    const char *why = "";
    int r = -ENOMEM;

    plan->capacity = step->uses;
    plan->move = calloc(plan->capacity + 1u, sizeof *plan->move);
    uint64_t begin_ns = ps_now_ns();
    if (workspace && plan->move)
        r = making->policy->plan(step, making->options, workspace, plan);
    /* The policy may omit the waits. A plan from outside may be invalid. */
    if ((!r || r == -ERANGE) && penstock_predict(step, workspace, plan, &why)) {
        ps_log_warn_once(
            POLICY,
            "the plan of the policy %s is invalid and not followed: %s; correct the policy, or unset PENSTOCK_POLICY",
            making->policy->name, why);
        r = -EINVAL;
    }
    if (r == -ERANGE && is_worse_than_none(step, plan)) {
        plan->moves = 0;
        penstock_predict(step, workspace, plan, &why);
    }
    free(workspace);
    ps_log_info(
        POLICY,
        "planned a step of %u launches, %u spans in %llu ms: %u moves of %llu MiB, %llu ms predicted, %llu ms without (result %d)",
        step->launches, step->spans, (unsigned long long)((ps_now_ns() - begin_ns) / 1000000), plan->moves,
        (unsigned long long)(plan->evicted_bytes >> 20), (unsigned long long)(plan->predicted_ns / 1000000),
        (unsigned long long)(plan->plain_ns / 1000000), r);
    return r;
}

/* A search with a function to call between plans. `again` is its first member. */
struct search {
    struct ps_replanned again;
    void (*meanwhile)(void);
};

static bool waits_for_nothing(struct ps_replanned *again, uint64_t budget)
{
    ((struct search *)again)->meanwhile();
    return ps_budget_waits_for_nothing(again, budget);
}

uint64_t ps_plan_find_enough(const struct ps_plan_making *making, uint64_t limit, uint64_t peak)
{
    struct penstock_step *step = making->step;
    const uint64_t enough = ps_budget_with_margin(peak), unit = enough / 1024 + 1, before = step->budget_bytes;
    struct search search = {
        .again = {.step = step,
                  .policy = making->policy,
                  .options = making->options,
                  .workspace = new_workspace(making)},
        .meanwhile = making->meanwhile,
    };
    struct ps_replanned *again = &search.again;
    uint64_t found = 0;

    again->plan.capacity = step->uses;
    again->plan.move = calloc(step->uses + 1u, sizeof *again->plan.move);
    if (again->workspace && again->plan.move && enough > limit)
        found = ps_least_budget(again, unit, limit, enough, waits_for_nothing);
    step->budget_bytes = before;
    free(again->plan.move);
    free(again->workspace);
    return found;
}
