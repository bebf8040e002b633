/*
 * The report's figures of a planned step: its layers with their device time, and the bytes born,
 * evicted and reloaded in them. As rounds go by, they gain the exposed time of each layer: how long
 * the stream waited in it.
 *
 * Threads: the caller serialises; in the library that is the registry lock.
 */
#ifndef PS_STEP_FIGURES_H
#define PS_STEP_FIGURES_H

#include <stdint.h>

#include "base/json.h"
#include "penstock/policy.h"
#include "plan/step_profile.h"
#include "policy/recording/recorder.h"

#define PS_ROUNDS_KEPT 4u

struct ps_step_figures;

/*
 * Makes the figures from copies of both; layer names must live as long as the figures. NULL: no
 * memory.
 */
struct ps_step_figures *ps_step_figures_make(const struct penstock_step *step, const struct penstock_plan *plan);
void ps_step_figures_free(struct ps_step_figures *figures); /* NULL is nothing */

/*
 * The stream waited `ns` before launch `place` of round `round`. Rounds are numbered in order; the
 * last PS_ROUNDS_KEPT are kept.
 */
void ps_step_figures_waited(struct ps_step_figures *figures, uint64_t round, uint32_t place, uint64_t ns);

/*
 * Returns the waits of a round by launch; NULL if none was reported or the round is no longer kept.
 */
const uint64_t *ps_step_figures_waits(const struct ps_step_figures *figures, uint64_t round);

/* Returns the sum of a round's waits, if the round is kept. */
uint64_t ps_step_figures_exposed_ns(const struct ps_step_figures *figures, uint64_t round);

/*
 * Gives the layer of the step that launch `place` lies in. Its `stretch` is a number of its own in
 * the step.
 */
void ps_step_figures_layer(const struct ps_step_figures *figures, uint32_t place, struct ps_recorded_layer *layer);

/*
 * Adds "layers": [...] to the open object. Exposed time is that of round `round`. The profile gives
 * the start of each layer, unless it is NULL.
 */
void ps_step_figures_write(const struct ps_step_figures *figures, uint64_t round, const struct ps_step_profile *profile,
                           struct ps_json *json);

#endif
