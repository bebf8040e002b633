/*
 * The files that tell of a process while it runs: a line of JSON for each step (PENSTOCK_METRICS), and the text that Prometheus' node_exporter collects
 * (PENSTOCK_PROMETHEUS). The figures are those of live.def.
 *
 * One thread at a time, without any lock: these write files. What can't be written is said once.
 */
#ifndef PS_LIVE_FILES_H
#define PS_LIVE_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/step_log.h"

/* Appends the line of a step of the device with that ordinal, by one write. `epoch_ns`: what to add to times of ps_now_ns() to have them since 1970. */
void ps_live_files_step(const struct ps_live_step *step, uint64_t ordinal, uint64_t epoch_ns);

/* So many steps had no line, for want of room; told with those that could not be written when there are any. */
void ps_live_files_lost(uint64_t steps);

/* So many had none at the end, for another reason. */
void ps_live_files_left_out(uint64_t steps);

/* At the end: says how many steps have no line, and when there was none at all; closes the file. */
void ps_live_files_close(void);

/* What Prometheus' text is made of. */
struct ps_live_snapshot {
    uint64_t rank; /* PS_LIVE_NO_RANK: none */
    struct ps_live_process_figures process;
    unsigned devices;
    uint64_t ordinal[PS_LIVE_DEVICES_MAX];
    struct ps_live_device_figures device[PS_LIVE_DEVICES_MAX];
};

/* Writes that text under a name of its own and renames it into place. */
void ps_live_files_prometheus(const struct ps_live_snapshot *snapshot);

#endif
