/*
 * Made-up steps small enough to try each plan. A step has up to 8 spans with lives inside the step,
 * across its end and beyond it. A seed gives the same step on each machine. One thread.
 */
#ifndef PENSTOCK_TESTS_UNIT_SMALL_STEPS_H
#define PENSTOCK_TESTS_UNIT_SMALL_STEPS_H

#include <stdlib.h>
#include <string.h>

#include "penstock/policy.h"
#include "policy/planner/gaps.h"

#define SMALL_SPANS 8
#define SMALL_LAUNCHES 12
#define SMALL_MOMENTS (SMALL_LAUNCHES + 2 * SMALL_SPANS)
#define SMALL_USES (SMALL_SPANS * SMALL_LAUNCHES)

struct small_step {
    struct penstock_step step;
    struct penstock_launch launch[SMALL_LAUNCHES];
    struct penstock_step_span span[SMALL_SPANS];
    struct penstock_layer layer;
    uint32_t use[SMALL_USES];
    int64_t demand[SMALL_MOMENTS];
    int64_t peak;
};

static inline uint64_t small_random(uint64_t *state, uint64_t below)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (*state >> 11) % below;
}

/* Lays out lives by slots: the events of slot l happen before launch l. */
static inline void small_step_lay_out(struct small_step *s, const uint32_t *born, const uint32_t *freed,
                                      uint64_t *state)
{
    uint32_t moment = 0;

    for (uint32_t l = 0; l < s->step.launches; l++) {
        bool frees_first = small_random(state, 2);
        for (int pass = 0; pass < 2; pass++) {
            for (uint32_t i = 0; i < s->step.spans; i++) {
                bool frees = (pass == 0) == frees_first;
                if (s->span[i].born == PENSTOCK_NEVER)
                    continue;
                if (frees && freed[i] == l)
                    s->span[i].freed = moment++;
                if (!frees && born[i] == l)
                    s->span[i].born = moment++;
            }
        }
        s->launch[l].moment = moment++;
    }
    s->step.moments = moment;
}

/* Returns the bytes held at the worst moment if all spans that can be evicted are evicted. */
static inline int64_t small_step_least(const struct small_step *s)
{
    int64_t held[SMALL_MOMENTS], least = 0;

    memcpy(held, s->demand, sizeof held);
    for (uint32_t i = 0; i < s->step.spans; i++) {
        for (uint32_t u = 0; u < s->span[i].uses && !s->span[i].fixed; u++) {
            struct ps_gap gap = ps_gap_after(&s->step, i, s->span[i].first_use + u);
            for (uint32_t n = 0; n < gap.cover.count; n++)
                held[(gap.cover.from + n) % s->step.moments] -= (int64_t)s->span[i].bytes;
        }
    }
    for (uint32_t m = 0; m < s->step.moments; m++)
        least = held[m] > least ? held[m] : least;
    return least;
}

/* A step with at most `gaps_max` uses. */
static inline void small_step_make(struct small_step *s, uint64_t seed, uint32_t gaps_max)
{
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 88172645463325252u;
    uint32_t born[SMALL_SPANS], freed[SMALL_SPANS];

    for (int i = 0; i < 10; i++)
        small_random(&state, 2);
    do {
        memset(s, 0, sizeof *s);
        uint32_t launches = 2 + (uint32_t)small_random(&state, SMALL_LAUNCHES - 1),
                 spans = 1 + (uint32_t)small_random(&state, SMALL_SPANS);
        s->step = (struct penstock_step){.launches = launches,
                                         .spans = spans,
                                         .layers = 1,
                                         .launch = s->launch,
                                         .span = s->span,
                                         .use = s->use,
                                         .layer = &s->layer};
        for (uint32_t l = 0; l < launches; l++)
            s->launch[l].duration_ns = small_random(&state, 8) == 0 ? 0 : 1000 * (1 + small_random(&state, 200));
        uint64_t often = 2 + small_random(&state, 4);
        for (uint32_t i = 0; i < spans; i++) {
            struct penstock_step_span *span = &s->span[i];
            span->bytes = (1 + small_random(&state, 30)) << 20;
            span->fixed = small_random(&state, 12) == 0;
            span->first_use = s->step.uses;
            born[i] = (uint32_t)small_random(&state, launches);
            freed[i] = (born[i] + 1 + (uint32_t)small_random(&state, launches - 1)) % launches;
            if (small_random(&state, 5) < 2)
                span->born = span->freed = PENSTOCK_NEVER;
            for (uint32_t l = 0; l < launches; l++) {
                bool lives = span->born == PENSTOCK_NEVER ||
                             (born[i] < freed[i] ? l >= born[i] && l < freed[i] : l >= born[i] || l < freed[i]);
                bool edge = span->born != PENSTOCK_NEVER && (l == born[i] || (l + 1) % launches == freed[i]);
                if (lives && (edge ? small_random(&state, 4) > 0 : small_random(&state, often) == 0))
                    s->use[s->step.uses++] = l;
            }
            span->uses = s->step.uses - span->first_use;
        }
        small_step_lay_out(s, born, freed, &state);
    } while (s->step.uses > gaps_max || s->step.uses == 0);
    ps_demand(&s->step, s->demand);
    for (uint32_t m = 0; m < s->step.moments; m++)
        s->peak = s->demand[m] > s->peak ? s->demand[m] : s->peak;
    /*
     * The links range from ones that move almost nothing in a step to ones that move all of it at
     * once.
     */
    uint64_t rate = UINT64_C(4000000000) << small_random(&state, 12);
    s->step.links = (struct penstock_links){
        rate, rate + rate / 20, rate - rate / 10, rate, small_random(&state, 2) * 3000, small_random(&state, 2) * 2000,
        0};
    uint64_t least = (uint64_t)small_step_least(s), span = (uint64_t)s->peak - least;
    bool any = small_random(&state, 8) == 0;
    s->step.budget_bytes = any ? (uint64_t)s->peak * (30 + small_random(&state, 71)) / 100
                               : least + span * small_random(&state, 101) / 100;
    s->step.slab_bytes =
        small_random(&state, 6) == 0 ? (uint64_t)s->peak * (10 + small_random(&state, 50)) / 100 : UINT64_MAX;
}

#endif
