/* The step detector behind a made-up program (trace.h), for the tests of its answers. */
#ifndef PENSTOCK_TESTS_UNIT_WATCH_STEPS_H
#define PENSTOCK_TESTS_UNIT_WATCH_STEPS_H

#include <stdlib.h>

#include "expect.h"
#include "policy/steps/detector.h"
#include "trace.h"

/* The detector behind a trace, and its answers. */
struct watch {
    struct trace trace;
    struct ps_steps *steps;
    struct ps_steps_state state; /* the latest */
    uint64_t events[PS_STEPS_LOST + 1];
    uint64_t found_at[32]; /* launches observed when the nth step was found */
    uint32_t found_length[32];
    uint64_t recognised_at; /* the latest */
    uint64_t lost_at;
    uint64_t slowest;       /* the most launches from a loss until a step was recognised or found */
    uint64_t *fingerprints; /* the fingerprints of all launches so far */
    uint64_t capacity;
    bool wrong; /* a state that contradicts the trace */
};

/* Steps of at least this many launches are accepted when a quarter has come again. */
#define EARLY_FROM 1024u

/*
 * Checks the detector's answers against the trace. FOUND means two equal rounds, or, of a long
 * step, at least the latest launches.
 */
static inline void check_state(struct watch *watch)
{
    const struct ps_steps_state *state = &watch->state;
    uint64_t now = watch->trace.launches;

    watch->wrong |= state->following && (state->position >= state->length || state->pattern >= PS_PATTERNS_MAX);
    if (state->event == PS_STEPS_FOUND) {
        uint64_t equal = state->length >= EARLY_FROM ? 8 : state->length;
        watch->wrong |= state->position != 0 || state->length + equal > now;
        for (uint64_t i = 1; i <= equal && !watch->wrong; i++)
            watch->wrong |= watch->fingerprints[now - i] != watch->fingerprints[now - i - state->length];
    }
    watch->wrong |= state->event == PS_STEPS_WRAPPED && state->position != 0;
    watch->wrong |= state->event == PS_STEPS_LOST && state->following;
}

static inline void watch_launch(void *context, struct ps_step_launch launch, const uint64_t *span,
                                const uint64_t *bytes, int n)
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
    if ((watch->state.event == PS_STEPS_FOUND || watch->state.event == PS_STEPS_RECOGNISED) && watch->lost_at != 0 &&
        watch->trace.launches - watch->lost_at > watch->slowest)
        watch->slowest = watch->trace.launches - watch->lost_at;
    watch->events[watch->state.event]++;
    check_state(watch);
}

static inline struct watch *watch_start(void)
{
    struct watch *watch = calloc(1, sizeof *watch);

    if (!watch || !(watch->steps = calloc(1, ps_steps_bytes())))
        abort();
    watch->trace.context = watch;
    watch->trace.launched = watch_launch;
    ps_steps_init(watch->steps);
    return watch;
}

static inline struct ps_steps_summary watch_end(struct watch *watch)
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

/* A made-up step of n launches, all different. */
static inline void watch_step_of(struct watch *watch, uint64_t span, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        trace_launch(&watch->trace, i, 1, span);
}

#endif
