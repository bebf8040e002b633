/*
 * Times of the launches of a recorded step: on the device, measured or guessed, and on the host.
 * Only recorded_step.c uses this.
 *
 * Pure: memory from the caller. Threads: the caller serialises calls on one recorder.
 */
#ifndef PS_RECORDED_TIMES_H
#define PS_RECORDED_TIMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "penstock/policy.h"

struct ps_recorder;

/*
 * Returns the bytes of workspace for a step of `length` launches. The caller aligns the workspace
 * for any type.
 */
size_t ps_recorded_times_bytes(uint32_t length);

/*
 * Fills duration_ns and host_ns of `length` launches from launch `first` on, and `timed`, as
 * ps_recorded_step_make (recorded_step.h) says. The recorder keeps all these launches. The
 * workspace holds nothing between calls.
 */
void ps_recorded_times(const struct ps_recorder *recorder, uint64_t first, uint32_t length, void *workspace,
                       struct penstock_launch *launch, bool *timed);

#endif
