/*
 * The profile of a step: how it goes under its plan, as the playback has it, in a bounded number of figures that a report can hold. Times are ns
 * since the step's begin, in a step that takes as long as the plan predicts. What the step would hold without the plan is told at the same places of the
 * program, so that both can be drawn over one axis.
 *
 * Pure: memory from the caller. Threads: any.
 */
#ifndef PS_PROFILE_H
#define PS_PROFILE_H

#include "penstock/policy.h"

#define PS_PROFILE_BINS 200u /* equal parts of the step's time */
#define PS_PROFILE_SPANS 20u
#define PS_PROFILE_GAPS 6u /* of a span */
#define PS_PROFILE_NEVER UINT64_MAX

struct ps_profile_bin {
    uint64_t demand_bytes; /* the most that lives in it: what would be held without Penstock */
    uint64_t held_bytes;   /* the most that is held */
    uint64_t out_bytes, in_bytes;
};

struct ps_profile_launch {
    uint64_t at_ns;         /* it begins, having waited for what it needs */
    uint64_t reloads_bytes; /* it needs so much of what was away */
    uint32_t largest;       /* a span of the step: the largest of these; PENSTOCK_NEVER: none */
};

/* A stretch in which a span is idle, which may go on in the next round: then it ends before it begins. */
struct ps_profile_gap {
    uint64_t from_ns, to_ns;
    uint64_t leaves_ns, gone_ns; /* its eviction is queued, its pages are free; PS_PROFILE_NEVER: it stays */
    uint64_t comes_ns, back_ns;  /* its reload is begun, and over; PS_PROFILE_NEVER: it is freed where it is */
};

struct ps_profile_span {
    uint32_t span;
    uint32_t uses;
    uint64_t born_ns, freed_ns; /* PS_PROFILE_NEVER: it outlives the step */
    uint32_t born_layer;        /* index; PENSTOCK_NEVER */
    uint32_t moves;             /* in a round */
    uint32_t gaps;
    struct ps_profile_gap gap[PS_PROFILE_GAPS]; /* those in which it leaves, then the longest; in their order */
};

struct ps_profile {
    uint64_t round_ns;
    struct ps_profile_bin bin[PS_PROFILE_BINS];
    uint32_t spans;
    struct ps_profile_span
        span[PS_PROFILE_SPANS];       /* the largest that there are; of equals those that are moved, and then those that are idle longest */
    struct ps_profile_launch *launch; /* by launch: the caller's array */
};

size_t ps_profile_workspace_bytes(const struct penstock_step *step, const struct penstock_plan *plan);

/*
 * `plan`: a valid one, as penstock_predict has left it. `profile->launch` is set. `workspace` is aligned for any type.
 */
void ps_profile_make(const struct penstock_step *step, const struct penstock_plan *plan, void *workspace, struct ps_profile *profile);

#endif
