/*
 * The profile of a step: the course of the step under its plan, as the playback predicts it. It has
 * a bounded number of figures, so that a report can hold it. Times are in ns since the step's
 * begin, in a step that takes the predicted time. The demand without the plan stands at the same
 * places of the program, so one axis can show both.
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
    uint64_t demand_bytes;        /* the most live bytes, which a run without Penstock holds */
    uint64_t held_bytes;          /* the most held bytes */
    uint64_t out_bytes, in_bytes; /* copied to the host, and to the device */
};

struct ps_profile_launch {
    uint64_t at_ns;         /* its begin, after its waits */
    uint64_t reloads_bytes; /* bytes of the reloads that it needs */
    uint32_t largest;       /* the largest span of these reloads; PENSTOCK_NEVER: none */
};

/*
 * A stretch in which a span is idle. A gap that goes on in the next round has an end before its
 * begin.
 */
struct ps_profile_gap {
    uint64_t from_ns, to_ns;
    /* Its eviction is queued; its pages are free. PS_PROFILE_NEVER: the span stays. */
    uint64_t leaves_ns, gone_ns;
    /* Its reload begins; its reload is over. PS_PROFILE_NEVER: it stays, or is freed while away. */
    uint64_t comes_ns, back_ns;
};

struct ps_profile_span {
    uint32_t span;
    uint32_t uses;
    uint64_t born_ns, freed_ns; /* PS_PROFILE_NEVER: it outlives the step */
    uint32_t born_layer;        /* index; or PENSTOCK_NEVER */
    uint32_t moves;             /* in a round */
    uint32_t gaps;
    /*
     * Gaps in which the span leaves are preferred, then the longest; they stand in the step's
     * order.
     */
    struct ps_profile_gap gap[PS_PROFILE_GAPS];
};

struct ps_profile {
    uint64_t round_ns;
    struct ps_profile_bin bin[PS_PROFILE_BINS];
    uint32_t spans;
    /* The largest spans of the step; among equals, spans with moves, then spans idle longest. */
    struct ps_profile_span span[PS_PROFILE_SPANS];
    struct ps_profile_launch *launch; /* by launch: the caller's array */
};

/* Returns the bytes of workspace that ps_profile_make wants. */
size_t ps_profile_workspace_bytes(const struct penstock_step *step, const struct penstock_plan *plan);

/*
 * Fills *profile. The plan is valid, and penstock_predict has filled it. The caller has set
 * `profile->launch`. `workspace` is aligned for any type.
 */
void ps_profile_make(const struct penstock_step *step, const struct penstock_plan *plan, void *workspace,
                     struct ps_profile *profile);

#endif
