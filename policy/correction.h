/*
 * Correction: compares predicted and actual waits, round by round. Where a launch waits longer than
 * predicted, its reloads begin earlier.
 *
 * Only one launch's reloads are shifted at a time. A launch is chosen when it waited too long in
 * two rounds running. The shift is the smaller of the two excesses. The second and the third round
 * after a shift judge it. The shift helped if in one of them the step's waits are shorter by a
 * quarter of the shift. If not, the shift is undone, and that launch is never tried again. So a
 * link that is always busy causes no lasting shift. One round that something else held up causes no
 * shift at all.
 *
 * Pure: memory from the caller, no clock. Threads: the caller serialises.
 */
#ifndef PENSTOCK_POLICY_CORRECTION_H
#define PENSTOCK_POLICY_CORRECTION_H

#include <stdbool.h>
#include <stddef.h>

#include "penstock/policy.h"

struct ps_correction;

/* Returns the bytes of memory that ps_correction_init wants. */
size_t ps_correction_bytes(uint32_t launches, uint32_t moves);

/*
 * Makes a correction in `memory`, which has that size and is aligned for any type. The caller owns
 * `move`, the moves of the plan, and keeps it as long. The correction changes only their
 * reload_from. A reload never begins sooner than `grace` + 2 launches after its eviction.
 */
struct ps_correction *ps_correction_init(void *memory, const struct penstock_step *step, struct penstock_move *move,
                                         uint32_t moves, uint32_t grace);

/*
 * Takes in a whole round. `waited[l]` is the time, in ns, that the stream stood still before launch
 * l; NULL: it never did. Returns true if a reload_from has changed.
 */
bool ps_correction_round(struct ps_correction *correction, const uint64_t *waited);

/* Returns the predicted wait for the reloads that the launch needs, in ns; 0 if it needs none. */
uint64_t ps_correction_predicted(const struct ps_correction *correction, uint32_t launch);

/* Returns the number of reloads that the launch needs. */
uint32_t ps_correction_reloads(const struct ps_correction *correction, uint32_t launch);

/*
 * Returns the number of launches by which the launch's reloads begin earlier than planned; the
 * largest, if they differ.
 */
uint32_t ps_correction_shift(const struct ps_correction *correction, uint32_t launch);

#endif
