/*
 * The gaps of a recorded step: the stretches in which a span is idle, from one launch that names it to the next, or to its free. And what the
 * step holds at each moment.
 *
 * Pure: memory from the caller; the step is valid.
 */
#ifndef PS_GAPS_H
#define PS_GAPS_H

#include <stdbool.h>

#include "penstock/policy.h"
#include "policy/planner/range_max.h"

struct ps_gap {
    uint32_t span;
    uint32_t use;            /* index into step->use of the launch that opens it: no two gaps have the same */
    uint32_t opened_by;      /* launch */
    uint32_t needed_by;      /* launch; PENSTOCK_NEVER: the gap ends with the free */
    struct ps_stretch cover; /* moments strictly between the two: where evicting the span can help */
};

/* How many launches later `to` comes than `from`, going round the ring. */
static inline uint32_t ps_ring_distance(uint32_t from, uint32_t to, uint32_t length)
{
    return to >= from ? to - from : length - from + to;
}

/* The moments strictly between two; all others when the two are one. */
static inline struct ps_stretch ps_stretch_between(uint32_t after, uint32_t before, uint32_t moments)
{
    struct ps_stretch stretch = {after + 1 < moments ? after + 1 : 0, 0};

    stretch.count = after == before ? moments - 1 : ps_ring_distance(after, before, moments) - 1;
    return stretch;
}

/* The moments at which a span that leaves in such a gap may be in the slab: until the launch that needs it starts, or the free. */
static inline struct ps_stretch ps_slab_stretch(struct ps_stretch cover)
{
    return (struct ps_stretch){cover.from, cover.count + 1};
}

/* Adds to bytes[0..moments) what, summed up from the first on, adds `amount` to each moment of the stretch. */
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

/* The gap that the span's use number `use` (an index into step->use) opens. */
struct ps_gap ps_gap_after(const struct penstock_step *step, uint32_t span, uint32_t use);

/* The gap of the span in which launch `launch` lies, or that it opens. False when there is none: before its first use, or after its free. */
bool ps_gap_at(const struct penstock_step *step, uint32_t span, uint32_t launch, struct ps_gap *gap);

/* Bytes that live at each moment: demand[0..moments). A span counts from the moment of its allocation to the one before its free. */
void ps_demand(const struct penstock_step *step, int64_t *demand);

#endif
