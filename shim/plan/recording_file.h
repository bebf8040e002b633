/*
 * PENSTOCK_RECORDING: the step that was recorded last, in a file; for `penstock plan`, and for tests of the planner.
 *
 * Threads: the planning thread alone, without the registry lock.
 */
#ifndef PS_RECORDING_FILE_H
#define PS_RECORDING_FILE_H

#include "penstock/policy.h"

/* Nothing where none is wanted. What can't be written is said once. */
void ps_recording_file_write(const struct penstock_step *step);

#endif
