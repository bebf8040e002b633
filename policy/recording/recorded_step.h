/* Steps made from a range of recorded launches. Without a lock: the caller has one. */
#ifndef PS_RECORDED_STEP_H
#define PS_RECORDED_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "penstock/policy.h"
#include "policy/recording/recorder.h"

/*
 * Writes to *bytes the memory that ps_recorded_step_make wants for these launches. Returns 0, or
 * -ENODATA if they are no longer kept.
 */
int ps_recorded_step_bytes(const struct ps_recorder *recorder, uint64_t first, uint32_t length, size_t *bytes);

/* Details of a recorded step that struct penstock_step does not have. */
struct ps_recorded_details {
    const uint64_t *number; /* by span: the caller's number for it, in the recorded round */
    /* By use: its place among the accesses of its launch, counted from 0; repeats count too. */
    const uint16_t *ordinal;
    /* By launch: its duration was measured, or the launch is known to take none; false: a guess. */
    const bool *timed;
};

/*
 * Makes a step from `length` launches, beginning with launch `first` (counted from 0 since the
 * start). `memory` has the size that ps_recorded_step_bytes gave, and is aligned for any type; *out
 * and *details point into it. Links, budget and slab are left 0. Returns 0, or -ENODATA if the
 * launches are no longer kept.
 *
 * The step guesses a duration that is not known: the mean of the same kernel elsewhere in the step,
 * or else the mean of all launches. If a stream has no timed launch, and another stream has some,
 * the launches of the first take no time. They delay only the launch that waits for them, and its
 * duration shows that. (FSDP2 on two H200s runs its collectives on their own streams. With guesses
 * for them, its step of 302 ms came to 424 to 500 ms.)
 *
 * Layers come from the markers. Without markers they come from the launches alone
 * (policy/recording/auto_layers.h). Classes come from lives and uses.
 */
int ps_recorded_step_make(const struct ps_recorder *recorder, uint64_t first, uint32_t length, void *memory,
                          struct penstock_step *out, struct ps_recorded_details *details);

/* Returns whether these launches are kept, with everything that the step is made from. */
bool ps_recorded_step_is_kept(const struct ps_recorder *recorder, uint64_t first, uint32_t length);

#endif
