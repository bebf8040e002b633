/*
 * Durations of a step's launches, from measurements of several rounds.
 *
 * A driver lock, a helper thread or an event beside it can hold a launch up in one round. That
 * makes its duration longer, and nothing makes it shorter. So the shortest measured duration of
 * each launch counts. But the device's clock is not the same in all rounds. A device that stands
 * still between launches, waiting for transfers, is cool and runs fast. A device that does not is
 * slower by a twelfth. (H200 at its power limit: the launches took 616 ms while the step was
 * learnt, and 660 ms under a plan.) So the shortest durations are stretched by as much as this
 * round is slower.
 *
 * Pure: memory from the caller, no clock. Threads: the caller serialises.
 */
#ifndef PS_DURATIONS_H
#define PS_DURATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "penstock/policy.h"

/*
 * Returns the bytes of workspace that ps_durations_settle wants for this number of launches. The
 * caller aligns the workspace for any type.
 */
size_t ps_durations_workspace_bytes(uint32_t launches);

/*
 * Changes each `launch[i].duration_ns` to the duration to plan with. On entry it was measured in
 * the round before if `timed[i]`, and is a guess if not. `shortest[i]`, in ns, is the shortest
 * duration of earlier rounds, 0 if unknown; the function updates it. The workspace holds nothing
 * between calls.
 */
void ps_durations_settle(struct penstock_launch *launch, const bool *timed, uint64_t *shortest, uint32_t launches,
                         void *workspace);

#endif
