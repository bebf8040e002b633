/*
 * What the launches of a recorded step take: on the device, measured or guessed, and on the host. For recorded_step.c.
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

/* Bytes of memory that a step of so many launches wants, aligned for any type. */
size_t ps_recorded_times_bytes(uint32_t length);

/*
 * Fills duration_ns and host_ns of the `length` launches that begin with launch `first`, all of them kept, and `timed`, as ps_recorder_step says (recorder.h). The
 * workspace holds nothing between calls.
 */
void ps_recorded_times(const struct ps_recorder *recorder, uint64_t first, uint32_t length, void *workspace, struct penstock_launch *launch,
                       bool *timed);

#endif
