/*
 * penstock-trade: the time of a recorded step under each budget, and how much larger its batch
 * could be, as JSON on standard output; for `penstock advise`. Takes the arguments of `penstock
 * plan`. --budget is the memory for the batch; by default it is the device memory in the recording.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "plan_input.h"
#include "policy/planner/least_budget.h"

/* The most budgets that are listed between the least one and the one under which nothing moves. */
#define POINTS_MAX 16u
/* The largest batch that is tried, in thousandths of the recorded one. */
#define BATCH_MAX 16000u
#define BATCH_STEP 50u

struct trade {
    struct plan_input input;
    struct penstock_step
        step; /* the one that is planned: it has its own budget, and for another batch its own durations and sizes */
    struct penstock_launch *launch;
    struct penstock_step_span *span;
    struct ps_replanned again;
};

/* Plans `step` as it is now. Returns true if it fits its budget. */
static bool look(struct trade *t)
{
    int r = ps_replan(&t->again);

    if (r != 0 && r != -ERANGE)
        plan_refuse("%s: no plan: %s", t->input.path, t->again.why ? t->again.why : strerror(-r));
    return r == 0;
}

/* ---- another batch ---- */

/*
 * True if a larger batch makes the span larger: the step allocates it, and it is no gradient of a
 * parameter.
 */
static bool grows(const struct penstock_step_span *span)
{
    return span->born != PENSTOCK_NEVER && span->class_ != PENSTOCK_CLASS_GRADIENT;
}

static void set_batch(struct trade *t, uint64_t thousandths)
{
    for (uint32_t i = 0; i < t->step.launches; i++)
        t->launch[i].duration_ns = t->input.step.launch[i].duration_ns * thousandths / 1000;
    for (uint32_t i = 0; i < t->step.spans; i++) {
        const struct penstock_step_span *span = &t->input.step.span[i];
        t->span[i].bytes = grows(span) ? span->bytes * thousandths / 1000 : span->bytes;
    }
}

enum batch { FITS_PLAIN, LOSES_NOTHING, FITS_AT_ALL };

static bool batch_is(struct trade *t, uint64_t thousandths, enum batch wanted)
{
    set_batch(t, thousandths);
    bool fits = look(t);
    switch (wanted) {
    case FITS_PLAIN:
        return fits && !t->again.plan.moves;
    case LOSES_NOTHING:
        /*
         * The time of mappings does not count: its share falls as the batch grows, and the search
         * needs a condition that only gets harder.
         */
        return fits && ps_plan_waits_for_nothing(&t->again.plan);
    default:
        return fits;
    }
}

/*
 * Returns the largest batch for which `wanted` holds, in thousandths; 0 if it holds for no batch.
 */
static uint64_t largest_batch(struct trade *t, enum batch wanted, struct penstock_plan *its_plan)
{
    uint64_t good = 0, bad = BATCH_MAX / BATCH_STEP + 1;

    while (bad - good > 1) {
        uint64_t middle = good + (bad - good) / 2;
        if (batch_is(t, middle * BATCH_STEP, wanted)) {
            good = middle;
            *its_plan = t->again.plan;
        } else {
            bad = middle;
        }
    }
    return good * BATCH_STEP;
}

/* ---- output ---- */

static void write_point(struct ps_json *j, struct trade *t, uint64_t budget)
{
    t->step.budget_bytes = ps_budget_for_plan(budget);
    look(t);
    ps_json_begin_object(j, NULL);
    ps_json_u64(j, "budget_bytes", budget);
    ps_json_u64(j, "predicted_ns", t->again.plan.predicted_ns);
    ps_json_u64(j, "evicted_bytes", t->again.plan.evicted_bytes);
    ps_json_u64(j, "held_bytes", t->again.plan.peak_bytes);
    ps_json_end(j);
}

static void write_budgets(struct ps_json *j, struct trade *t)
{
    const uint64_t peak = t->input.peak;
    uint64_t unit = 4096;

    while (unit < peak / 4096) /* the precision of budgets, as a share of the peak */
        unit *= 2;
    const uint64_t all = (ps_budget_with_margin(peak) + unit - 1) / unit * unit;
    t->again.best_ns = ps_budget_fits(&t->again, all) ? t->again.plan.predicted_ns : 0;
    const uint64_t fewest = ps_least_budget(&t->again, unit, 0, all, ps_budget_fits),
                   free = ps_least_budget(&t->again, unit, 0, all, ps_budget_loses_nothing);
    ps_json_u64(j, "nothing_moves_bytes", all);
    ps_json_u64(j, "nothing_lost_bytes", free);
    ps_json_u64(j, "least_bytes", fewest);
    while ((all - fewest) / unit > POINTS_MAX)
        unit *= 2;
    ps_json_begin_array(j, "points");
    write_point(j, t, all);
    for (uint64_t budget = (all - 1) / unit * unit; budget > fewest; budget -= unit)
        write_point(j, t, budget);
    if (fewest < all)
        write_point(j, t, fewest);
    ps_json_end(j);
}

static void write_batches(struct ps_json *j, struct trade *t)
{
    static const char *const names[] = {"fits_plain", "loses_nothing", "fits_at_all"};
    const uint64_t device =
        t->input.step.budget_bytes; /* without the margin, which is already subtracted in the recording */

    if (device == UINT64_MAX)
        return;
    t->step.budget_bytes = device;
    ps_json_begin_object(j, "batch");
    ps_json_u64(j, "budget_bytes", device);
    for (enum batch wanted = FITS_PLAIN; wanted <= FITS_AT_ALL; wanted++) {
        struct penstock_plan plan = {0};
        ps_json_begin_object(j, names[wanted]);
        ps_json_u64(j, "thousandths", largest_batch(t, wanted, &plan));
        ps_json_u64(j, "plain_ns", plan.plain_ns);
        ps_json_u64(j, "predicted_ns", plan.predicted_ns);
        ps_json_end(j);
    }
    ps_json_end(j);
}

int main(int argc, char **argv)
{
    static struct trade t;
    char buffer[1024];
    int out = STDOUT_FILENO;
    struct ps_json json;

    plan_input_read(&t.input, argc, argv);
    t.step = t.input.step;
    t.launch = plan_allocate(t.step.launches * sizeof *t.launch);
    t.span = plan_allocate(t.step.spans * sizeof *t.span);
    memcpy(t.launch, t.step.launch, t.step.launches * sizeof *t.launch);
    memcpy(t.span, t.step.span, t.step.spans * sizeof *t.span);
    t.step.launch = t.launch;
    t.step.span = t.span;
    const size_t plan_bytes = penstock_policy_plan.workspace_bytes(&t.step),
                 predict_bytes = penstock_predict_workspace_bytes(&t.step);
    t.again = (struct ps_replanned){
        .step = &t.step,
        .policy = &penstock_policy_plan,
        .options = &t.input.options,
        .workspace = plan_allocate(plan_bytes > predict_bytes ? plan_bytes : predict_bytes),
        .plan = {.move = plan_allocate(t.step.uses * sizeof(struct penstock_move)), .capacity = t.step.uses}};

    ps_json_init_sink(&json, buffer, sizeof buffer, ps_json_sink_fd, &out);
    ps_json_begin_object(&json, NULL);
    ps_json_u64(&json, "launches", t.step.launches);
    ps_json_u64(&json, "spans", t.step.spans);
    ps_json_u64(&json, "peak_bytes", t.input.peak);
    look(&t);
    ps_json_u64(&json, "plain_ns", t.again.plan.plain_ns);
    write_budgets(&json, &t);
    write_batches(&json, &t);
    ps_json_end(&json);
    if (ps_json_finish(&json) != 0) {
        fputs("penstock-trade: standard output can't be written\n", stderr);
        return 1;
    }
    return 0;
}
