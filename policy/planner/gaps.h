/*
 * A recorded step by its moments: the launch at a moment, the gaps, and the bytes that live at each
 * moment. In a gap a span is idle, from one launch that names it to the next, or to its free.
 *
 * Pure: memory from the caller. The caller passes a valid step. Threads: any.
 */
#ifndef PS_GAPS_H
#define PS_GAPS_H

#include <stdbool.h>

#include "penstock/policy.h"
#include "policy/base/lower_bound.h"
#include "policy/planner/range_max.h"

struct ps_gap {
    uint32_t span;
    uint32_t use;            /* index into step->use of the opening launch; unique to this gap */
    uint32_t opened_by;      /* launch */
    uint32_t needed_by;      /* launch; PENSTOCK_NEVER: the gap ends with the free */
    struct ps_stretch cover; /* moments strictly between the two: here an eviction can help */
};

/*
 * Returns the first launch at or after a moment. Returns step->launches if this round has no such
 * launch; modulo step->launches that is the first launch of the next round.
 */
static inline uint32_t ps_launch_from(const struct penstock_step *step, uint32_t moment)
{
    return (uint32_t)PS_LOWER_BOUND(step->launches, i, step->launch[i].moment < moment);
}

/* Returns the distance from `from` forward to `to` on a ring of `length` launches or moments. */
static inline uint32_t ps_ring_distance(uint32_t from, uint32_t to, uint32_t length)
{
    return to >= from ? to - from : length - from + to;
}

/* Returns the moments strictly between two; if the two are the same, all other moments. */
static inline struct ps_stretch ps_stretch_between(uint32_t after, uint32_t before, uint32_t moments)
{
    struct ps_stretch stretch = {after + 1 < moments ? after + 1 : 0, 0};

    stretch.count = after == before ? moments - 1 : ps_ring_distance(after, before, moments) - 1;
    return stretch;
}

/*
 * Returns the moments at which a span that leaves in the gap may be in the slab. They end when the
 * launch that needs it starts, or with the free.
 */
static inline struct ps_stretch ps_slab_stretch(struct ps_stretch cover)
{
    return (struct ps_stretch){cover.from, cover.count + 1};
}

/*
 * Adds `amount` to each moment of the stretch. bytes[0..moments) are differences: the value of a
 * moment is the sum of all entries up to it.
 */
static inline void ps_add_difference(int64_t *bytes, uint32_t moments, struct ps_stretch stretch, int64_t amount)
{
    uint64_t end = (uint64_t)stretch.from + stretch.count;

    if (stretch.count == 0)
        return;
    bytes[stretch.from] += amount;
    if (end > moments)
        bytes[0] += amount;
    if (end != moments)
        bytes[end % moments] -= amount;
}

/* Returns the gap that the span's use `use` (an index into step->use) opens. */
struct ps_gap ps_gap_after(const struct penstock_step *step, uint32_t span, uint32_t use);

/*
 * Finds the span's gap in which the launch lies, or that the launch opens. Returns false if the
 * launch comes before the span's first use or after its free.
 */
bool ps_gap_at(const struct penstock_step *step, uint32_t span, uint32_t launch, struct ps_gap *gap);

/*
 * Writes the bytes that live at each moment into demand[0..moments). A span counts from the moment
 * of its allocation to the moment before its free.
 */
void ps_demand(const struct penstock_step *step, int64_t *demand);

#endif
