/*
 * The profile of a planned step (policy/planner/profile.h), in memory of its own, and as the report has it.
 *
 * Threads: made by one, and constant from then on.
 */
#ifndef PS_STEP_PROFILE_H
#define PS_STEP_PROFILE_H

#include <stdint.h>

#include "base/json.h"
#include "penstock/policy.h"

struct ps_step_profile;

/* Of a plan as penstock_predict has left it. Copies what it needs of both. About as long as predicting takes. NULL: no memory. */
struct ps_step_profile *ps_step_profile_make(const struct penstock_step *step, const struct penstock_plan *plan);
void ps_step_profile_free(struct ps_step_profile *profile); /* NULL is nothing */

/* When the launch begins, in the step as it is predicted. */
uint64_t ps_step_profile_at_ns(const struct ps_step_profile *profile, uint32_t launch);

/* Adds to the open object what the launch needs back: "layer", an index, "bytes", and of the largest span of these "largest_bytes" and "class". */
void ps_step_profile_write_reloads(const struct ps_step_profile *profile, uint32_t launch, struct ps_json *json);

/* Adds "profile": {...} to the open object. */
void ps_step_profile_write(const struct ps_step_profile *profile, struct ps_json *json);

#endif
