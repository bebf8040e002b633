/*
 * The trace's records as events of the Chrome trace format. Tracks: one each for steps and layers (where the host is), for what the program's stream
 * stands still for, and for the link in each direction (where the device is); and each thread that waits has its own.
 *
 * Moves and stalls are kept until ps_trace_format_settle, and come out in the order of the device. Steps and layers always pair up, whatever records were
 * dropped. Threads: one at a time.
 */
#ifndef PS_TRACE_FORMAT_H
#define PS_TRACE_FORMAT_H

#include "observe/trace_file.h"
#include "residency/event_ring.h"

/* `process`: how it is called. Writes to `file`, which is open. */
void ps_trace_format_begin(struct ps_trace_file *file, const char *process);

/* Names the tracks of a device. `budget`: bytes, UINT64_MAX: none. */
void ps_trace_format_device(unsigned device, int ordinal, uint64_t budget);

/* What the record says of what is held, in the order in which records come; and the rest, once begin_ns and end_ns of moves are known, or 0 for good. */
void ps_trace_format_levels(const struct ps_event_record *record);
void ps_trace_format_add(const struct ps_event_record *record);
void ps_trace_format_settle(void);

/* Ends what is open, and the file. Returns its error. */
int ps_trace_format_end(uint64_t now_ns, uint64_t events, uint64_t dropped, uint64_t clock_error_ns);

#endif
