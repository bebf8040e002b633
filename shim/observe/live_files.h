/*
 * The files that describe a process while it runs. PENSTOCK_METRICS gets a line of JSON for each
 * step. PENSTOCK_PROMETHEUS gets the text that Prometheus' node_exporter collects. The figures are
 * those of live.def.
 *
 * One thread at a time, without any lock: these functions write files. A failure to write is logged
 * once.
 */
#ifndef PS_LIVE_FILES_H
#define PS_LIVE_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/step_log.h"

/*
 * Appends the line of a step of the device with that ordinal, by one write. Adding `epoch_ns` to
 * times of ps_now_ns() gives times since 1970.
 */
void ps_live_files_step(const struct ps_live_step *step, uint64_t ordinal, uint64_t epoch_ns);

/* Counts `steps` that had no line for want of room; warns once if there are any. */
void ps_live_files_lost(uint64_t steps);

/* Counts `steps` that had no line at the end, for another reason. */
void ps_live_files_left_out(uint64_t steps);

/*
 * At the end: logs the number of steps without a line, or that no line was written; closes the
 * file.
 */
void ps_live_files_close(void);

/* The figures that Prometheus' text is made of. */
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
