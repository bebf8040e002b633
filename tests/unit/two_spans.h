/*
 * A step of two spans whose playback can be worked out by hand. One byte takes a nanosecond, so
 * bytes are times. There is room for other steps as small.
 */
#ifndef PENSTOCK_TESTS_UNIT_TWO_SPANS_H
#define PENSTOCK_TESTS_UNIT_TWO_SPANS_H

#include "penstock/policy.h"

#define NEVER PENSTOCK_NEVER
#define RATE UINT64_C(1000000000)

static struct penstock_launch launches[8];
static struct penstock_step_span spans[4];
static uint32_t uses[16];
static const struct penstock_layer layer;
static struct penstock_move moves[4];
static struct penstock_plan plan = {.move = moves, .capacity = 4};

/*
 * Four launches of 100 `unit` ns. Span 0, 300 units of bytes, outlives the step and is used by
 * launches 0 and 3. Span 1, 300 units, lives while launch 2 runs, and is used by it. Moments:
 * launch 0, launch 1, born, launch 2, freed, launch 3.
 */
static inline struct penstock_step two_spans(uint64_t unit, uint64_t budget)
{
    static const uint32_t moments[] = {0, 1, 3, 5};

    for (uint32_t l = 0; l < 4; l++)
        launches[l] = (struct penstock_launch){.duration_ns = 100 * unit, .moment = moments[l]};
    spans[0] =
        (struct penstock_step_span){.bytes = 300 * unit, .born = NEVER, .freed = NEVER, .first_use = 0, .uses = 2};
    spans[1] = (struct penstock_step_span){.bytes = 300 * unit, .born = 2, .freed = 4, .first_use = 2, .uses = 1};
    uses[0] = 0;
    uses[1] = 3;
    uses[2] = 2;
    plan.moves = 0;
    return (struct penstock_step){.moments = 6,
                                  .launches = 4,
                                  .spans = 2,
                                  .layers = 1,
                                  .uses = 3,
                                  .launch = launches,
                                  .span = spans,
                                  .use = uses,
                                  .layer = &layer,
                                  .links = {RATE, RATE, RATE, RATE, 0, 0, 0},
                                  .budget_bytes = budget * unit,
                                  .slab_bytes = UINT64_MAX};
}

#endif
