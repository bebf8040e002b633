/* Steps found and recognised in the launches of made-up trainers (trace.h). */
#include "steps.h"

#include <stdlib.h>

#include "expect.h"
#include "trace.h"

/* The detector behind a trace, and what it said. */
struct watch {
    struct trace trace;
    struct ps_steps *steps;
    struct ps_steps_state state; /* the latest */
    uint64_t events[PS_STEPS_LOST + 1];
    uint64_t found_at[32]; /* launches observed when the nth was found */
    uint32_t found_length[32];
    uint64_t recognised_at; /* the latest */
    uint64_t lost_at;
    uint64_t *fingerprints; /* of all launches so far */
    uint64_t capacity;
    bool wrong; /* a state that contradicts the trace */
};

/* What is said of a pattern has to hold for the trace: FOUND means two equal rounds. */
static void check_state(struct watch *watch)
{
    const struct ps_steps_state *state = &watch->state;
    uint64_t now = watch->trace.launches;

    watch->wrong |= state->following && (state->position >= state->length || state->pattern >= PS_PATTERNS_MAX);
    if (state->event == PS_STEPS_FOUND) {
        watch->wrong |= state->position != 0 || 2ull * state->length > now;
        for (uint64_t i = 1; i <= state->length && !watch->wrong; i++)
            watch->wrong |= watch->fingerprints[now - i] != watch->fingerprints[now - i - state->length];
    }
    watch->wrong |= state->event == PS_STEPS_WRAPPED && state->position != 0;
    watch->wrong |= state->event == PS_STEPS_LOST && state->following;
}

static void watch_launch(void *context, struct ps_step_launch launch, const uint64_t *span, const uint64_t *bytes, int n)
{
    struct watch *watch = context;

    (void)span, (void)bytes, (void)n;
    if (watch->trace.launches > watch->capacity) {
        watch->capacity = 2 * watch->trace.launches + 1024;
        watch->fingerprints = realloc(watch->fingerprints, watch->capacity * sizeof *watch->fingerprints);
        if (!watch->fingerprints)
            abort();
    }
    watch->fingerprints[watch->trace.launches - 1] = launch.fingerprint;
    watch->state = ps_steps_observe(watch->steps, launch);
    if (watch->state.event == PS_STEPS_FOUND) {
        uint64_t n_found = watch->events[PS_STEPS_FOUND] % 32;
        watch->found_at[n_found] = watch->trace.launches;
        watch->found_length[n_found] = watch->state.length;
    }
    if (watch->state.event == PS_STEPS_RECOGNISED)
        watch->recognised_at = watch->trace.launches;
    if (watch->state.event == PS_STEPS_LOST)
        watch->lost_at = watch->trace.launches;
    watch->events[watch->state.event]++;
    check_state(watch);
}

static struct watch *watch_start(void)
{
    struct watch *watch = calloc(1, sizeof *watch);

    if (!watch || !(watch->steps = calloc(1, ps_steps_bytes())))
        abort();
    watch->trace.context = watch;
    watch->trace.launched = watch_launch;
    ps_steps_init(watch->steps);
    return watch;
}

static struct ps_steps_summary watch_end(struct watch *watch)
{
    struct ps_steps_summary summary;

    ps_steps_summary(watch->steps, &summary);
    EXPECT(!watch->wrong);
    EXPECT_U64(watch->trace.launches, summary.launches);
    free(watch->steps);
    free(watch->fingerprints);
    trace_destroy(&watch->trace);
    free(watch);
    return summary;
}

/* The first step makes the optimizer's state: the second and the third are alike, and when the third ends, the step is known. */
static void test_plain_loop(void)
{
    for (int layers = 4; layers <= 124; layers = 3 * layers + 1) {
        struct watch *watch = watch_start();
        struct trainer trainer;
        uint64_t after[5];
        trainer_init(&trainer, &watch->trace, layers);
        for (int i = 0; i < 5; i++) {
            EXPECT_U64(i >= 3, watch->events[PS_STEPS_FOUND]);
            trainer_step(&trainer, 50);
            after[i] = watch->trace.launches;
        }
        uint32_t length = (uint32_t)(after[4] - after[3]);
        EXPECT(watch->found_at[0] > after[1] && watch->found_at[0] <= after[2]);
        EXPECT_U64(length, watch->found_length[0]);
        EXPECT(watch->state.following);
        for (int i = 0; i < 95; i++)
            trainer_step(&trainer, 50);
        EXPECT_U64(0, watch->events[PS_STEPS_LOST]);
        uint64_t in_pattern = watch->trace.launches - watch->found_at[0];
        struct ps_steps_summary summary = watch_end(watch);
        EXPECT_U64(1, summary.found);
        EXPECT_U64(1, summary.patterns);
        EXPECT_U64(in_pattern, summary.in_pattern);
        EXPECT_U64(in_pattern / length, summary.rounds[0]);
        EXPECT_U64(in_pattern / length, summary.steps);
    }
}

/* A program that marks its steps gets them as it marked them. */
static void test_marks_turn_the_step(void)
{
    struct watch *watch = watch_start();
    struct trainer trainer;
    uint64_t first = 0;

    trainer_init(&trainer, &watch->trace, 4);
    for (int i = 0; i < 10; i++) {
        ps_steps_mark(watch->steps);
        if (i == 3)
            first = watch->trace.launches;
        trainer_step(&trainer, 50);
    }
    EXPECT_U64(1, watch->events[PS_STEPS_FOUND]);
    EXPECT_U64(first, watch->found_at[0]);
    EXPECT_U64(0, watch->state.position);
    EXPECT_INT(PS_STEPS_WRAPPED, watch->state.event);
    struct ps_steps_summary summary = watch_end(watch);
    EXPECT_U64(7, summary.steps);
}

int main(void)
{
    test_plain_loop();
    test_marks_turn_the_step();
    return expect_status();
}
