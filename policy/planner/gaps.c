#include "policy/base/lower_bound.h"
#include "policy/planner/gaps.h"

#include <string.h>

static uint32_t moment_of_use(const struct penstock_step *step, uint32_t use)
{
    return step->launch[step->use[use]].moment;
}

/* Returns the number of the span's uses before this moment. */
static uint32_t uses_before(const struct penstock_step *step, const struct penstock_step_span *span, uint32_t moment)
{
    return (uint32_t)PS_LOWER_BOUND(span->uses, i, moment_of_use(step, span->first_use + i) < moment);
}

/*
 * Returns whether this use, counted from the span's first one in the ring, is the last one in its
 * life.
 */
static bool is_last_of_life(const struct penstock_step *step, const struct penstock_step_span *span, uint32_t number)
{
    if (span->born == PENSTOCK_NEVER)
        return false;
    if (span->born <= span->freed)
        return number == span->uses - 1;
    uint32_t in_next_round = uses_before(step, span, span->freed);
    return number == (in_next_round > 0 ? in_next_round - 1 : span->uses - 1);
}

struct ps_gap ps_gap_after(const struct penstock_step *step, uint32_t span, uint32_t use)
{
    const struct penstock_step_span *s = &step->span[span];
    uint32_t number = use - s->first_use;
    struct ps_gap gap = {.span = span, .use = use, .opened_by = step->use[use], .needed_by = PENSTOCK_NEVER};
    uint32_t end;

    if (is_last_of_life(step, s, number)) {
        end = s->freed;
    } else {
        gap.needed_by = step->use[s->first_use + (number + 1 < s->uses ? number + 1 : 0)];
        end = step->launch[gap.needed_by].moment;
    }
    gap.cover = ps_stretch_between(moment_of_use(step, use), end, step->moments);
    return gap;
}

bool ps_gap_at(const struct penstock_step *step, uint32_t span, uint32_t launch, struct ps_gap *gap)
{
    const struct penstock_step_span *s = &step->span[span];
    uint32_t moment = step->launch[launch].moment;

    if (s->uses == 0)
        return false;
    uint32_t before = uses_before(step, s, moment + 1);
    *gap = ps_gap_after(step, span, s->first_use + (before > 0 ? before : s->uses) - 1);
    return moment == step->launch[gap->opened_by].moment ||
           ps_ring_distance(gap->cover.from, moment, step->moments) < gap->cover.count;
}

void ps_demand(const struct penstock_step *step, int64_t *demand)
{
    memset(demand, 0, step->moments * sizeof *demand);
    /* Differences first, then sums. No span has born == freed, because each moment is one event. */
    for (uint32_t i = 0; i < step->spans; i++) {
        const struct penstock_step_span *span = &step->span[i];
        if (span->born == PENSTOCK_NEVER || span->born > span->freed)
            demand[0] += (int64_t)span->bytes;
        if (span->born == PENSTOCK_NEVER)
            continue;
        demand[span->born] += (int64_t)span->bytes;
        demand[span->freed] -= (int64_t)span->bytes;
    }
    for (uint32_t m = 1; m < step->moments; m++)
        demand[m] += demand[m - 1];
}
