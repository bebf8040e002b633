/*
 * Correction: predicted against actual waits, round by round, and reloads that begin earlier where a launch waited longer than was predicted.
 *
 * One launch's reloads are shifted at a time, where it waited too long in two rounds running, by the shorter of the two excesses. The second round from then
 * on tells whether it helped, or else the third: if the step's waits have become shorter in neither by a quarter of what was hoped for, the shift is taken
 * back and that launch is left alone. So a link that is busy all the time moves nothing for long, and one round that something else held up nothing at all.
 *
 * Pure: memory from the caller, no clock. Threads: the caller serialises.
 */
#ifndef PENSTOCK_POLICY_CORRECTION_H
#define PENSTOCK_POLICY_CORRECTION_H

#include <stdbool.h>
#include <stddef.h>

#include "penstock/policy.h"

struct ps_correction;

size_t ps_correction_bytes(uint32_t launches, uint32_t moves);

/*
 * In `memory`, of that size and aligned for any type. `move` (the plan's) is the caller's and lives as long; its reload_from are what is changed. No
 * reload is begun sooner than `grace` launches and two more after its eviction.
 */
struct ps_correction *ps_correction_init(void *memory, const struct penstock_step *step, struct penstock_move *move, uint32_t moves,
                                         uint32_t grace);

/*
 * A whole round is over: `waited[l]`, in ns, is how long the stream stood still before launch l; NULL: it never did. True: some reload_from has changed.
 */
bool ps_correction_round(struct ps_correction *correction, const uint64_t *waited);

/* What was predicted for the reloads that launch `launch` needs, ns; 0 when it needs none. */
uint64_t ps_correction_predicted(const struct ps_correction *correction, uint32_t launch);

/* How many reloads launch `launch` needs, and by how many launches they begin earlier than planned (the one that was shifted most). */
uint32_t ps_correction_reloads(const struct ps_correction *correction, uint32_t launch);
uint32_t ps_correction_shift(const struct ps_correction *correction, uint32_t launch);

#endif
