#include "plan/apply_span_rules.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/observers.h"
#include "base/policies.h"
#include "base/settings.h"
#include "base/state.h"
#include "memory/blocks.h"
#include "memory/registry.h"
#include "policy/planner/gaps.h"

struct birth {
    uint32_t moment, span;
};

static int by_moment(const void *a, const void *b)
{
    uint32_t one = ((const struct birth *)a)->moment, other = ((const struct birth *)b)->moment;

    return one < other ? -1 : one > other;
}

/*
 * Returns whether the rules let the span move; if not, marks it as fixed. `number`: the span's
 * number in the recorded round.
 */
static bool judge(const struct penstock_step *step, struct penstock_step_span *span, uint64_t number, uint64_t nth,
                  uint32_t layer, uint32_t birth)
{
    bool inside = layer != PENSTOCK_NEVER;
    const struct ps_span *lives = ps_registry_numbered(number);
    const struct ps_block *block = lives ? ps_block_whole(lives) : NULL;
    struct ps_span_facts facts = {.bytes = block ? block->bytes : span->bytes,
                                  .nth = nth,
                                  .learnt = true,
                                  .layer = inside ? step->layer[layer].number : PENSTOCK_NEVER,
                                  .name = inside ? step->layer[layer].name : NULL,
                                  .birth = birth,
                                  .class_ = span->class_};

    bool may_move = ps_policies_may_move(&facts);
    span->fixed |= !may_move;
    if (ps_verify_is_on())
        ps_observers.judged(number, &facts, may_move);
    return may_move;
}

/*
 * Returns whether the step surely uses the span in every round. Otherwise the span's layer may not
 * be known yet. It may merely have been alive during the recording (an activation, when the
 * optimizer's loop was found as a step). Or it was born in the recorded round and lives on.
 */
static bool outlives_for_certain(const struct ps_span *lives, const struct penstock_step_span *span, uint64_t first)
{
    return span->uses > 0 && lives->plan.born < first;
}

void ps_apply_span_rules(const struct penstock_step *step, struct penstock_step_span *span, const uint64_t *numbers,
                         uint64_t first)
{
    uint32_t n = 0, layer = PENSTOCK_NEVER, order = 0;

    if (!ps_settings.rules.count && !ps_verify_is_on())
        return; /* every span may move, and no observer asks */
    struct birth *births = calloc(step->spans + 1u, sizeof *births);
    if (!births)
        ps_log_warn_once(POLICY, "no memory to apply PENSTOCK_RULES to a step: nothing in it "
                                 "moves; a lower PENSTOCK_HOST_BUDGET makes the slab smaller");
    for (uint32_t i = 0; i < step->spans; i++) {
        if (!births) {
            span[i].fixed = true;
        } else if (span[i].born != PENSTOCK_NEVER) {
            births[n++] = (struct birth){span[i].born, i};
        } else {
            struct ps_span *outlives = ps_registry_numbered(numbers[i]);
            bool may_move = judge(step, &span[i], numbers[i], outlives ? outlives->plan.nth : PS_SPAN_UNKNOWN_NTH,
                                  PENSTOCK_NEVER, PENSTOCK_NEVER);
            if (outlives && outlives_for_certain(outlives, &span[i], first))
                outlives->holds.excluded = !may_move;
            else if (outlives)
                span[i].fixed |= outlives->holds.excluded;
        }
    }
    if (!births)
        return;
    qsort(births, n, sizeof *births, by_moment);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t in = step->launch[ps_launch_from(step, births[i].moment) % step->launches].layer;
        order = in == layer ? order + 1 : 0;
        layer = in;
        judge(step, &span[births[i].span], numbers[births[i].span], PS_SPAN_NO_NTH, layer, order);
    }
    free(births);
}
