#include "movable.h"

#include <stdlib.h>

#include "log.h"
#include "policies.h"
#include "registry.h"

/* Launches up to and including a moment's own come before it in the order of the step; the layer is that of the next one. */
static uint32_t layer_at(const struct penstock_step *step, uint32_t moment)
{
    uint32_t low = 0, high = step->launches;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (step->launch[middle].moment < moment)
            low = middle + 1;
        else
            high = middle;
    }
    return step->launch[low < step->launches ? low : step->launches - 1].layer;
}

struct birth {
    uint32_t moment, span;
};

static int by_moment(const void *a, const void *b)
{
    uint32_t one = ((const struct birth *)a)->moment, other = ((const struct birth *)b)->moment;

    return one < other ? -1 : one > other;
}

static void judge(const struct penstock_step *step, struct penstock_step_span *span, uint32_t layer, uint32_t birth)
{
    bool inside = layer != PENSTOCK_NEVER;
    struct ps_span_facts facts = {.bytes = span->bytes,
                                  .learnt = true,
                                  .layer = inside ? step->layer[layer].number : PENSTOCK_NEVER,
                                  .name = inside ? step->layer[layer].name : NULL,
                                  .birth = birth,
                                  .class_ = span->class_};

    if (!ps_policies_may_move(&facts))
        span->fixed = true;
}

void ps_movable_learnt(const struct penstock_step *step, struct penstock_step_span *span, const uint64_t *numbers)
{
    struct birth *births = calloc(step->spans + 1u, sizeof *births);
    uint32_t n = 0, layer = PENSTOCK_NEVER, order = 0;

    if (!births)
        ps_log_warn_once(POLICY, "no memory to apply PENSTOCK_RULES to a step: nothing in it moves");
    for (uint32_t i = 0; i < step->spans; i++) {
        if (!births) {
            span[i].fixed = true;
        } else if (span[i].born != PENSTOCK_NEVER) {
            births[n++] = (struct birth){span[i].born, i};
        } else {
            judge(step, &span[i], PENSTOCK_NEVER, PENSTOCK_NEVER);
            struct ps_span *outlives = ps_registry_numbered(numbers[i]);
            if (outlives)
                outlives->excluded = span[i].fixed;
        }
    }
    if (!births)
        return;
    qsort(births, n, sizeof *births, by_moment);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t in = layer_at(step, births[i].moment);
        order = in == layer ? order + 1 : 0;
        layer = in;
        judge(step, &span[births[i].span], layer, order);
    }
    free(births);
}
