/*
 * The trace's records as events of the Chrome trace format. Steps and layers have one track each
 * (where the host is). So do the waits of the program's stream, and the link in each direction
 * (where the device is). Each waiting thread has a track of its own.
 *
 * Moves and stalls are kept until ps_trace_format_settle, and come out in the order of the device.
 * Steps and layers always pair up, whatever records were dropped. Threads: one at a time.
 */
#ifndef PS_TRACE_FORMAT_H
#define PS_TRACE_FORMAT_H

#include "observe/trace_file.h"
#include "residency/event_ring.h"

/* Begins the trace of a process named `process`. Writes to `file`, which is open. */
void ps_trace_format_begin(struct ps_trace_file *file, const char *process);

/* Names the tracks of a device. `budget`: bytes, UINT64_MAX: none. */
void ps_trace_format_device(unsigned device, int ordinal, uint64_t budget);

/*
 * Writes the record's levels: held bytes, live bytes, slab in use, queued copies. Call it in the
 * order in which records come.
 */
void ps_trace_format_levels(const struct ps_event_record *record);
/* Adds the rest of the record, once begin_ns and end_ns of moves are known, or 0 for good. */
void ps_trace_format_add(const struct ps_event_record *record);
/* Writes the kept moves and stalls, in the order of the device. */
void ps_trace_format_settle(void);

/* Ends open events and the file. Returns the file's error. */
int ps_trace_format_end(uint64_t now_ns, uint64_t events, uint64_t dropped, uint64_t clock_error_ns);

#endif
