/*
 * The profile of a planned step (policy/planner/profile.h), in memory of its own, and its form in
 * the report.
 *
 * Threads: one thread makes it; it is constant from then on.
 */
#ifndef PS_STEP_PROFILE_H
#define PS_STEP_PROFILE_H

#include <stdint.h>

#include "base/json.h"
#include "penstock/policy.h"

struct ps_step_profile;

/*
 * Makes the profile of a plan as penstock_predict has left it, from copies of both. Takes about as
 * long as predicting. NULL: no memory.
 */
struct ps_step_profile *ps_step_profile_make(const struct penstock_step *step, const struct penstock_plan *plan);
void ps_step_profile_free(struct ps_step_profile *profile); /* NULL is nothing */

/* Returns when the launch begins, in the predicted step. */
uint64_t ps_step_profile_at_ns(const struct ps_step_profile *profile, uint32_t launch);

/*
 * Adds the launch's reloads to the open object: "layer", an index, and "bytes". For the largest
 * span of these it adds "largest_bytes" and "class".
 */
void ps_step_profile_write_reloads(const struct ps_step_profile *profile, uint32_t launch, struct ps_json *json);

/* Adds "profile": {...} to the open object. */
void ps_step_profile_write(const struct ps_step_profile *profile, struct ps_json *json);

#endif
