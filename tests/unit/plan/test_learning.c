/*
 * Learning, with launches that the test makes up and a policy of its own. The tests check the steps
 * that are planned, the data of each plan, and what happens to the plan.
 */
#include "plan/answers.h"
#include "plan/learning.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/policies.h"
#include "base/settings.h"
#include "comes_to.h"
#include "expect.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/slab.h"
#include "plan/following.h"
#include "residency/stopwatch.h"
#include "stub_driver.h"
#include "tracer/start.h"

#define UNIT ((size_t)65536)
#define LIMIT (UINT64_C(64) << 20)
/* Long enough for a thread to do a thing that it must not do. */
#define A_WHILE_US 50000
#define SPANS_MAX 100u
#define BORN_BEFORE 10u /* the launch of a step before which a span is allocated, and which uses the span */
#define FREED_AFTER 20u /* the launch that uses it last; the span is freed after it */

/* ---- the policy ---- */

static enum {
    NOTHING_MOVES,
    SOMETHING_MOVES,
    FAILS,
    DOES_NOT_FIT,
    IS_NO_PLAN
} answer; /* guarded by the registry lock; only one step is planned at a time */
/* the policy blocks once it has made as many plans as `allowed` */
static atomic_uint plans, begun, allowed = UINT_MAX;
static struct penstock_step seen; /* the last step; its arrays are gone */
static struct {
    uint32_t born, lasting, first_use; /* of the span that is born: the launch */
    uint64_t born_bytes;
} seen_spans;
static uint32_t prefetch;

static int plan(const struct penstock_step *step, const struct penstock_policy_options *options, void *workspace,
                struct penstock_plan *out)
{
    (void)workspace;
    atomic_fetch_add(&begun, 1);
    while (atomic_load(&plans) >= atomic_load(&allowed))
        usleep(200);
    seen = *step;
    prefetch = options->prefetch_layers;
    seen_spans.born = seen_spans.lasting = 0;
    for (uint32_t i = 0; i < step->spans; i++)
        if (step->span[i].born == PENSTOCK_NEVER) {
            seen_spans.lasting++;
        } else {
            seen_spans.born++;
            seen_spans.born_bytes = step->span[i].bytes;
            seen_spans.first_use = step->use[step->span[i].first_use];
        }
    out->moves = 0;
    for (uint32_t i = 0; answer == SOMETHING_MOVES && i < step->spans; i++) {
        const uint32_t *use = &step->use[step->span[i].first_use];
        if (step->span[i].born != PENSTOCK_NEVER)
            out->move[out->moves++] = (struct penstock_move){
                .span = i, .evict_after = use[0], .reload_from = use[0] + 1, .needed_by = use[1]};
    }
    if (answer == IS_NO_PLAN) /* it is no span's launch */
        out->move[out->moves++] =
            (struct penstock_move){.span = 0, .evict_after = step->launches, .reload_from = 1, .needed_by = 2};
    int r = answer == FAILS ? -EINVAL : answer == DOES_NOT_FIT ? -ERANGE : 0;
    atomic_fetch_add(&plans, 1);
    return r;
}

static const struct penstock_policy plans_steps = {.name = "test", .plan = plan};
static const struct penstock_policy never_plans = {.name = "test"};
static const struct penstock_policy_options options = {.prefetch_layers = 7};

/* ---- steps ---- */

static struct ps_span *lasting[SPANS_MAX]; /* launch i of every step uses span i */
static uint64_t launches;

static struct ps_span *new_span(size_t units)
{
    struct ps_span *span = ps_registry_new(units * UNIT, units * UNIT);

    span->backing = PS_BACKING_NONE;
    span->residency = PS_RESIDENT;
    TAILQ_INSERT_TAIL(&ps_registry.idle_order, span, listed);
    return span;
}

/* A launch that belongs to no step. */
static void other_launch(void)
{
    struct ps_recorded_layer none = {.number = PENSTOCK_NEVER};

    ps_registry_lock();
    EXPECT_U64(launches++, ps_learning_launch(lasting, 1, 999, 0, none));
    ps_registry_unlock();
}

/*
 * One round of the step that `kernel` identifies. `other`: an extra launch comes before this
 * launch.
 */
static void round_with(uint64_t kernel, uint32_t length, uint32_t other)
{
    struct ps_span *born = NULL;

    for (uint32_t i = 0; i < length; i++) {
        if (i == other)
            other_launch();
        struct ps_span *named[2] = {lasting[i], NULL};
        ps_registry_lock();
        if (i == BORN_BEFORE) {
            born = new_span(3);
            ps_learning_allocated(born);
        }
        if (i == BORN_BEFORE || i == FREED_AFTER)
            named[1] = born;
        struct ps_recorded_layer none = {.number = PENSTOCK_NEVER};
        EXPECT_U64(launches++, ps_learning_launch(named, named[1] ? 2 : 1, kernel * 1000 + i, 0, none));
        if (i == FREED_AFTER) {
            ps_learning_freed(born);
            ps_registry_end_life(born);
            ps_registry_delete(born);
        }
        ps_registry_unlock();
    }
}

static void round_of(uint64_t kernel, uint32_t length)
{
    round_with(kernel, length, PENSTOCK_NEVER);
}

/* As many rounds as are needed, and some more. */
static void rounds_of(uint64_t kernel, uint32_t length)
{
    for (int i = 0; i < 4; i++)
        round_of(kernel, length);
}

static bool is_followed(void)
{
    ps_registry_lock();
    bool is = ps_following_is_on();
    ps_registry_unlock();
    return is;
}

/* Waits for the plan, which is there a moment after the policy has made it. */
static bool comes_to_be_followed(uint64_t kernel, uint32_t length)
{
    uint64_t until_ns = ps_now_ns() + PATIENCE_NS;

    while (!is_followed() && ps_now_ns() < until_ns) {
        usleep(200);
        round_of(kernel, length);
    }
    return is_followed();
}

/* ---- tests ---- */

static void set_answer(int to)
{
    ps_registry_lock();
    answer = to;
    ps_registry_unlock();
}

static void test_without_plans_a_limit_or_a_tracer_nothing_is_learnt(void)
{
    struct ps_recorded_layer none = {.number = PENSTOCK_NEVER};
    struct ps_steps_summary summary;

    ps_budget.limit = LIMIT;
    ps_learning_open(&never_plans, &options);
    ps_budget.limit = UINT64_MAX;
    ps_learning_open(&plans_steps, &options);
    ps_budget.limit = LIMIT;
    ps_tracing_assume();
    EXPECT(!ps_learning_is_on());
    for (int i = 0; i < 300; i++) {
        ps_registry_lock();
        EXPECT_U64(0, ps_learning_launch(lasting, 1, 5 + (uint64_t)(i % 70), 0, none));
        ps_registry_unlock();
    }
    ps_learning_summary(&summary);
    EXPECT_U64(0, summary.launches);
    EXPECT_U64(0, atomic_load(&plans));
    EXPECT_U64(0, ps_learning_named(0, 0));
    EXPECT_U64(0, ps_learning_cost().ns);
}

static void test_a_step_that_repeats_is_planned_for_and_followed(void)
{
    struct ps_steps_summary summary;

    ps_learning_open(&plans_steps, &options);
    EXPECT(ps_learning_is_on());
    round_of(1, 70);
    usleep(A_WHILE_US);
    EXPECT_U64(0, atomic_load(&plans)); /* once is no step */
    rounds_of(1, 70);
    EXPECT(COMES_TO(atomic_load(&plans) == 1));
    EXPECT_U64(70, seen.launches);
    EXPECT_U64(LIMIT - LIMIT / 64, seen.budget_bytes);
    EXPECT_U64(7, prefetch);
    EXPECT_U64(SPANS_MAX, seen_spans.lasting); /* also spans that it does not use: they were there before */
    EXPECT_U64(1, seen_spans.born);
    EXPECT_U64(3 * UNIT, seen_spans.born_bytes);
    EXPECT_U64(72, seen.uses);
    EXPECT(comes_to_be_followed(1, 70));
    ps_registry_lock();
    ps_learning_summary(&summary);
    struct ps_learning_cost cost = ps_learning_cost();
    ps_registry_unlock();
    EXPECT_U64(launches, summary.launches);
    EXPECT(cost.ns && cost.launches >= 140 && cost.launches <= launches);
    EXPECT_U64(1, atomic_load(&plans)); /* a plan without moves needs no new timing */
}

static void test_what_is_older_than_learning_may_be_known_to_any_kernel(void)
{
    struct ps_span *born;

    EXPECT(lasting[0]->grace.known && lasting[SPANS_MAX - 1]->grace.known);
    ps_registry_lock();
    born = new_span(3);
    ps_learning_allocated(born);
    EXPECT(!born->grace.known);
    ps_learning_freed(born);
    ps_registry_end_life(born);
    ps_registry_delete(born);
    ps_registry_unlock();
}

static void test_what_a_launch_named_is_known(void)
{
    ps_registry_lock();
    EXPECT_U64(lasting[69]->number, ps_learning_named(launches - 1, 0));
    EXPECT_U64(lasting[4]->number, ps_learning_named(launches - 66, 0));
    EXPECT_U64(0, ps_learning_named(launches - 1, 1));
    EXPECT_U64(0, ps_learning_named(launches, 0));
    ps_registry_unlock();
}

static void test_another_step_has_a_plan_of_its_own_and_the_first_is_known_again(void)
{
    struct ps_learning_cost before = ps_learning_cost();

    round_of(2, 80);
    EXPECT(!is_followed());
    rounds_of(2, 80);
    EXPECT(COMES_TO(atomic_load(&plans) == 2));
    EXPECT_U64(80, seen.launches);
    EXPECT(comes_to_be_followed(2, 80));
    round_of(1, 70);
    round_of(1, 70);
    round_of(1, 70);
    EXPECT(is_followed());
    usleep(A_WHILE_US);
    EXPECT_U64(2, atomic_load(&plans));
    EXPECT_U64(before.launches, ps_learning_cost().launches); /* the cost until there was a plan */
    EXPECT_U64(before.ns, ps_learning_cost().ns);
}

/* A few tries and no more; then the step is not timed either. */
static void test_what_is_no_plan_is_not_followed(void)
{
    for (uint64_t kernel = 3; kernel < 5; kernel++) {
        ps_registry_lock();
        answer = kernel == 3 ? FAILS : IS_NO_PLAN;
        ps_registry_unlock();
        unsigned before = atomic_load(&plans);
        for (int i = 0; i < 1000 && atomic_load(&plans) < before + 5; i++) {
            round_of(kernel, 75);
            usleep(1000);
        }
        usleep(A_WHILE_US);
        round_of(kernel, 75);
        usleep(A_WHILE_US);
        EXPECT_U64(before + 5, atomic_load(&plans));
        EXPECT(!is_followed());
        EXPECT(!ps_stopwatch_learns());
    }
    ps_registry_lock();
    answer = NOTHING_MOVES;
    ps_registry_unlock();
}

static void test_the_budget_of_a_plan(void)
{
    static const struct {
        uint64_t limit, there_was, planned_for;
    } cases[] = {
        {UINT64_C(1) << 40, 0, (UINT64_C(1) << 40) - (UINT64_C(640) << 20)}, /* the margin has an end */
        {LIMIT, LIMIT / 2, LIMIT / 2 - LIMIT / 128},                         /* other processes hold the rest */
        {LIMIT, 2 * LIMIT, LIMIT - LIMIT / 64},
    };

    for (uint64_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ps_registry_lock();
        ps_budget.limit = cases[i].limit;
        ps_budget.most_there_was = cases[i].there_was;
        ps_registry_unlock();
        unsigned before = atomic_load(&plans);
        rounds_of(10 + i, 72);
        EXPECT(COMES_TO(atomic_load(&plans) == before + 1));
        EXPECT_U64(cases[i].planned_for, seen.budget_bytes);
    }
}

/*
 * Other processes take a part of the device. A plan for more memory is then made again, once for
 * each time that there is less. So is a plan without moves.
 */
static void test_less_memory_than_was_planned_for(void)
{
    const uint32_t length = 82;

    ps_registry_lock();
    ps_budget.limit = LIMIT;
    ps_budget.most_there_was = 0;
    ps_registry_unlock();
    unsigned before = atomic_load(&plans);
    rounds_of(55, length);
    before++;
    EXPECT(COMES_TO(atomic_load(&plans) == before));
    EXPECT(comes_to_be_followed(55, length));
    for (int i = 0; i < 4; i++)
        round_of(55, length);
    usleep(A_WHILE_US);
    EXPECT_U64(before, atomic_load(&plans));
    for (uint64_t part = 1; part <= 2; part++) {
        ps_registry_lock();
        ps_budget.most_there_was = LIMIT - LIMIT / 100; /* the margin is enough for that */
        ps_registry_unlock();
        round_of(55, length);
        round_of(55, length);
        usleep(A_WHILE_US);
        EXPECT_U64(before, atomic_load(&plans));
        ps_registry_lock();
        ps_budget.most_there_was = LIMIT / (2 * part);
        ps_registry_unlock();
        round_of(55, length);
        EXPECT(COMES_TO(atomic_load(&plans) == before + 1));
        EXPECT_U64(LIMIT / (2 * part) - LIMIT / (2 * part) / 64, seen.budget_bytes);
        usleep(A_WHILE_US);
        for (int i = 0; i < 4; i++)
            round_of(55, length);
        usleep(A_WHILE_US);
        EXPECT_U64(++before, atomic_load(&plans));
    }
    ps_registry_lock();
    ps_budget.most_there_was = 0;
    ps_registry_unlock();
}

/*
 * A step that does not fit may have been recorded in an odd round. It is tried again now and then,
 * but not for ever.
 */
static void test_what_does_not_fit_is_planned_anew(void)
{
    unsigned before = atomic_load(&plans);

    set_answer(DOES_NOT_FIT);
    for (int i = 0; i < 100; i++) {
        round_of(56, 83);
        usleep(2000);
    }
    EXPECT(is_followed());
    EXPECT_U64(before + 4, atomic_load(&plans));
    set_answer(NOTHING_MOVES);
}

/*
 * A span may be alive while a step is recorded, and not used in it. It may be an activation of an
 * unknown layer, so it stays if a rule speaks of layers.
 */
static void test_what_the_step_does_not_use_stays_unknown(void)
{
    const uint32_t length = 73;
    unsigned before = atomic_load(&plans);

    EXPECT_INT(0, ps_span_rules_parse("exclude layer=2", &ps_settings.rules, NULL));
    ps_policies_open(&ps_settings);
    ps_registry_lock();
    for (uint32_t i = 0; i < SPANS_MAX; i++)
        lasting[i]->holds.excluded = true; /* as at the birth of a span that a rule may exclude */
    ps_registry_unlock();
    rounds_of(20, length);
    EXPECT(COMES_TO(atomic_load(&plans) == before + 1));
    ps_registry_lock();
    for (uint32_t i = 0; i < SPANS_MAX; i++)
        EXPECT_INT(i >= length, lasting[i]->holds.excluded);
    ps_registry_unlock();
}

/*
 * A step under a plan is timed and planned again. A round in which the step was left and resumed
 * can't be planned from.
 */
static void test_what_is_planned_anew_is_planned_from_a_whole_round(void)
{
    const uint32_t length = 74;
    unsigned before = atomic_load(&plans);

    ps_registry_lock();
    answer = SOMETHING_MOVES;
    ps_registry_unlock();
    rounds_of(30, length);
    EXPECT(COMES_TO(atomic_load(&plans) > before));
    EXPECT(comes_to_be_followed(30, length));
    for (uint32_t i = 0; i < 6; i++) {
        round_with(30, length, 30 + 7 * i); /* the launches in between make no other step */
        usleep(A_WHILE_US);
        EXPECT_U64(BORN_BEFORE, seen_spans.first_use);
    }
    for (int i = 0; i < 100 && atomic_load(&plans) < before + 2; i++) {
        round_of(30, length);
        usleep(2000);
    }
    EXPECT_U64(before + 2, atomic_load(&plans));
    EXPECT_U64(length, seen.launches);
    EXPECT_U64(BORN_BEFORE, seen_spans.first_use);
    ps_registry_lock();
    answer = NOTHING_MOVES;
    ps_registry_unlock();
}

/*
 * The spans that a launch with stale pointers names are named by the launch behind it, once. Spans
 * freed meanwhile are dropped.
 */
static void test_what_no_step_is_made_of_counts_for_the_next_launch(void)
{
    const uint32_t length = 76;
    const unsigned before = atomic_load(&plans);

    for (int round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < length; i++) {
            struct ps_recorded_layer none = {.number = PENSTOCK_NEVER};
            struct ps_span *stale[] = {lasting[3], lasting[i], lasting[3]}, *brief;
            ps_registry_lock();
            if (i == 20) {
                ps_learning_stale_launch(stale, 3);
                brief = new_span(1);
                ps_learning_allocated(brief);
                ps_learning_stale_launch(&brief, 1);
                ps_learning_freed(brief);
                ps_registry_end_life(brief);
                ps_registry_delete(brief);
            }
            EXPECT_U64(launches++, ps_learning_launch(&lasting[i], 1, 40000 + i, 0, none));
            ps_registry_unlock();
        }
    }
    EXPECT(COMES_TO(atomic_load(&plans) == before + 1));
    EXPECT_U64(length, seen.launches);
    EXPECT_U64(length + 1, seen.uses);
}

/* If no plan can be made now, one may be made from a later round. */
static void test_what_could_not_be_planned_is_tried_again(void)
{
    unsigned before = atomic_load(&plans);

    set_answer(FAILS);
    rounds_of(50, 77);
    EXPECT(COMES_TO(atomic_load(&plans) > before));
    EXPECT(!is_followed());
    set_answer(NOTHING_MOVES);
    EXPECT(comes_to_be_followed(50, 77));
}

/*
 * The plan of one step comes while another step without a plan is followed. The other step is still
 * timed.
 */
static void test_a_plan_ends_the_timing_of_its_own_step_alone(void)
{
    unsigned before = atomic_load(&plans);

    atomic_store(&allowed, before);
    rounds_of(53, 79);
    EXPECT(COMES_TO(atomic_load(&begun) == before + 1));
    rounds_of(54, 81);
    EXPECT(ps_stopwatch_learns());
    atomic_store(&allowed, before + 1);
    EXPECT(COMES_TO(atomic_load(&begun) == before + 2));
    EXPECT(ps_stopwatch_learns());
    atomic_store(&allowed, UINT_MAX);
    EXPECT(comes_to_be_followed(54, 81));
    EXPECT(!ps_stopwatch_learns());
}

/* One round of a step whose launches name every span. */
static void wide_round(uint32_t length)
{
    struct ps_recorded_layer none = {.number = PENSTOCK_NEVER};

    for (uint32_t i = 0; i < length; i++) {
        ps_registry_lock();
        EXPECT_U64(launches++, ps_learning_launch(lasting, SPANS_MAX, 52000 + i, 0, none));
        ps_registry_unlock();
    }
}

/* A step of which no whole round is kept is not planned, nor timed for planning. */
static void test_a_step_that_is_not_kept_is_not_timed(void)
{
    const uint32_t length = PS_RECORDER_MOMENTS / SPANS_MAX + 1;
    unsigned before = atomic_load(&plans);

    wide_round(length);
    EXPECT(ps_stopwatch_learns());
    wide_round(length);
    wide_round(length);
    usleep(A_WHILE_US);
    EXPECT(!is_followed());
    EXPECT_U64(before, atomic_load(&plans));
    EXPECT(!ps_stopwatch_learns());
    round_of(1, 70); /* something else: it is timed */
    EXPECT(ps_stopwatch_learns());
}

/* Launches of which none repeats. */
static void odd_launches(unsigned count)
{
    static uint64_t kernel = 1000000;
    struct ps_recorded_layer none = {.number = PENSTOCK_NEVER};

    for (unsigned i = 0; i < count; i++) {
        ps_registry_lock();
        EXPECT_U64(launches++, ps_learning_launch(lasting, 1, kernel++, 0, none));
        ps_registry_unlock();
    }
}

/*
 * With enough memory, a step that may still be found is planned without durations. Once memory is
 * short it is not.
 */
static void test_what_never_repeats_is_timed_for_a_while(void)
{
    rounds_of(55, 83);
    EXPECT(comes_to_be_followed(55, 83));
    EXPECT(!ps_stopwatch_learns());
    odd_launches(4000);
    EXPECT(ps_stopwatch_learns());
    odd_launches(16000);
    EXPECT(!ps_stopwatch_learns());
    ps_registry_lock();
    const uint64_t peak = ps_registry.peak_live_bytes;
    ps_registry.peak_live_bytes = 2 * LIMIT;
    ps_registry_unlock();
    odd_launches(1);
    EXPECT(ps_stopwatch_learns());
    ps_registry_lock();
    ps_registry.peak_live_bytes = peak;
    ps_registry_unlock();
    odd_launches(1);
    EXPECT(!ps_stopwatch_learns());
    round_of(55, 83); /* the step is recognised again, and left again */
    round_of(55, 83);
    EXPECT(!ps_stopwatch_learns());
    odd_launches(4000);
    EXPECT(ps_stopwatch_learns());
}

int main(void)
{
    stub_driver();
    EXPECT_INT(0, ps_registry_open(UNIT, 1, 0));
    for (uint32_t i = 0; i < SPANS_MAX; i++) {
        ps_registry_lock();
        lasting[i] = new_span(1);
        ps_registry_unlock();
    }
    ps_slab_open((struct ps_amount){.kind = PS_AMOUNT_BYTES, .value = LIMIT}, 1, UNIT);
    ps_following_open(0, ps_learning_named);
    ps_plan_answers_open();
    test_without_plans_a_limit_or_a_tracer_nothing_is_learnt();
    test_a_step_that_repeats_is_planned_for_and_followed();
    test_what_is_older_than_learning_may_be_known_to_any_kernel();
    test_what_a_launch_named_is_known();
    test_another_step_has_a_plan_of_its_own_and_the_first_is_known_again();
    test_what_is_no_plan_is_not_followed();
    test_the_budget_of_a_plan();
    test_less_memory_than_was_planned_for();
    test_what_does_not_fit_is_planned_anew();
    test_what_the_step_does_not_use_stays_unknown();
    test_what_is_planned_anew_is_planned_from_a_whole_round();
    test_what_no_step_is_made_of_counts_for_the_next_launch();
    test_what_could_not_be_planned_is_tried_again();
    test_a_plan_ends_the_timing_of_its_own_step_alone();
    test_a_step_that_is_not_kept_is_not_timed();
    test_what_never_repeats_is_timed_for_a_while();
    return expect_status();
}
