/*
 * Durations of a step's launches, out of those measured in several rounds.
 *
 * What holds a launch up in one round (a lock of the driver's, a helper thread's work, an event beside it) makes its duration longer and nothing makes
 * it shorter, so each launch counts as the shortest seen. But the clock that the device runs at is not the same in all rounds: one that stands still
 * between launches, waiting for transfers, is cool and runs fast, and one that doesn't is slower by a twelfth (H200 at its power limit: 616 ms of
 * launches while the step was learnt, 660 ms under a plan). So the shortest ones are stretched by as much as this round's pace is slower than theirs.
 *
 * Pure: memory from the caller, no clock. Threads: the caller serialises.
 */
#ifndef PS_DURATIONS_H
#define PS_DURATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "penstock/policy.h"

/* For that many launches, aligned for any type. */
size_t ps_durations_workspace_bytes(uint32_t launches);

/*
 * `launch[i].duration_ns`, as measured in the round before if `timed[i]`, else guessed, becomes what is to be planned with. `shortest[i]`, in ns, is the
 * shortest seen in earlier rounds, 0 where there is none; it is brought up to date. The workspace holds nothing between calls.
 */
void ps_durations_settle(struct penstock_launch *launch, const bool *timed, uint64_t *shortest, uint32_t launches, void *workspace);

#endif
