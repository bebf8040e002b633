/*
 * penstock-plan: plans a recorded step (policy/recording/text.h) and prints the cost of the plan.
 * Takes the arguments of `penstock plan`.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes_text.h"
#include "plan_input.h"

static const struct penstock_policy *policy_named(const char *name)
{
    const struct penstock_policy *policies[] = {&penstock_policy_plan, &penstock_policy_lru, &penstock_policy_layers};

    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        if (strcmp(policies[i]->name, name) == 0)
            return policies[i];
    }
    plan_refuse("--policy %s: expected plan, layers or lru", name);
}

static void show_moves(const struct penstock_step *step, const struct penstock_plan *plan)
{
    static const char *const classes[PENSTOCK_CLASSES] = {"unknown",   "activation", "gradient",
                                                          "parameter", "optimizer",  "workspace"};

    puts("  span  bytes        class       evicted after  reloaded from  needed by  wait ms");
    for (uint32_t i = 0; i < plan->moves; i++) {
        const struct penstock_move *move = &plan->move[i];
        const struct penstock_step_span *span = &step->span[move->span];
        printf("%6" PRIu32 "  %-11s  %-10s  %13" PRIu32, move->span, ps_bytes_text(span->bytes).text,
               classes[span->class_], move->evict_after);
        if (move->needed_by == PENSTOCK_NEVER)
            printf("  %13s  %9s  %7s\n", "never", "never", "-");
        else
            printf("  %13" PRIu32 "  %9" PRIu32 "  %7.3f\n", move->reload_from, move->needed_by,
                   (double)move->predicted_wait_ns / 1e6);
    }
}

static void show_plan(const struct plan_input *input, const struct penstock_plan *plan, bool fits)
{
    uint64_t budget = input->step.budget_bytes;

    printf("recording   %" PRIu32 " launches, %" PRIu32 " spans, %" PRIu32 " accesses, %s at the peak\n",
           input->step.launches, input->step.spans, input->step.uses, ps_bytes_text(input->peak).text);
    printf("budget      %s\n", budget == UINT64_MAX ? "unlimited" : ps_bytes_text(budget).text);
    printf("plain       %.3f ms\n", (double)plan->plain_ns / 1e6);
    printf("predicted   %.3f ms\n", (double)plan->predicted_ns / 1e6);
    printf("ratio       %.4f\n", plan->plain_ns ? (double)plan->predicted_ns / (double)plan->plain_ns : 1.0);
    printf("evicted     %s in %" PRIu32 " moves a step\n", ps_bytes_text(plan->evicted_bytes).text, plan->moves);
    printf("held        %s at most%s\n", ps_bytes_text(plan->peak_bytes).text,
           fits ? "" : "; the step does not fit the budget, whatever is evicted");
    if (input->show_moves)
        show_moves(&input->step, plan);
}

int main(int argc, char **argv)
{
    struct plan_input input;

    plan_input_read(&input, argc, argv);
    const struct penstock_policy *policy = policy_named(input.policy);
    struct penstock_plan plan = {.move = plan_allocate(input.step.uses * sizeof *plan.move),
                                 .capacity = input.step.uses};
    const char *why = NULL;
    int rc = 0;
    if (policy->plan) {
        rc = policy->plan(&input.step, &input.options, plan_allocate(policy->workspace_bytes(&input.step)), &plan);
        if (rc != 0 && rc != -ERANGE)
            plan_refuse("%s: the policy %s can't plan it: %s", input.path, input.policy, strerror(-rc));
    }
    /* A policy that reacts makes no plan: the plain step is shown. */
    if (penstock_predict(&input.step, plan_allocate(penstock_predict_workspace_bytes(&input.step)), &plan, &why) != 0)
        plan_refuse("%s: the plan of the policy %s is not valid: %s", input.path, input.policy, why);
    if (!policy->plan && plan.peak_bytes > input.step.budget_bytes)
        rc = -ERANGE;
    show_plan(&input, &plan, rc != -ERANGE);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("penstock-plan: standard output can't be written\n", stderr);
        return 1;
    }
    return rc == -ERANGE ? 1 : 0;
}
