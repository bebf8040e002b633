/*
 * The trace that PENSTOCK_TRACE asks for: what events.h is told of, as a file that Perfetto and chrome://tracing show. A thread of its own writes it, so
 * that the program's threads do no more than put records into a ring.
 */
#ifndef PS_TRACE_H
#define PS_TRACE_H

#include <stdbool.h>

#include "residency/event_ring.h"

/*
 * Opens the file and starts the thread; from then on what happens at the device that the thread is at is traced. A file that can't be had is said in one line.
 * `path` stays where it is; "": there is no trace. Once, in the set-up, when the first device has been added; its context is current.
 */
void ps_trace_open(const char *path);

/* A further device is about to be added. Nothing while there is no trace. */
void ps_trace_add_device(void);

/* Takes the record over, for the device that the thread is at; false: it is dropped, and counted unless the trace has ended. Any thread, any lock. */
bool ps_trace_put(struct ps_event_record *record);

/*
 * Nothing that happens from here on is in it. / The same, and the rest is written and the file ended, if that can be done within two seconds; the writer makes no
 * driver call afterwards. Once, then nothing. [unlocked] Async-signal-safe but for logging.
 */
void ps_trace_stop(void);
void ps_trace_finish(void);

/* A forked child, which writes nothing. */
void ps_trace_forget(void);

#endif
