/*
 * PENSTOCK_RECORDING: writes the step recorded last to a file, for `penstock plan` and for tests of
 * the planner.
 *
 * Threads: the planning thread alone, without the registry lock.
 */
#ifndef PS_RECORDING_FILE_H
#define PS_RECORDING_FILE_H

#include "penstock/policy.h"

/* Writes nothing if no file is wanted. A failure to write is logged once. */
void ps_recording_file_write(const struct penstock_step *step);

#endif
