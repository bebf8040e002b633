/*
 * The trace that PENSTOCK_TRACE asks for: the events that events.h receives, as a file for Perfetto
 * and chrome://tracing. A thread of its own writes it. The program's threads only put records into
 * a ring.
 */
#ifndef PS_EVENT_TRACE_H
#define PS_EVENT_TRACE_H

/*
 * Opens the file and starts the thread. From then on events at the thread's device are traced. A
 * file that can't be opened is logged in one line. `path` must stay valid; "": there is no trace.
 * Fills the trace's part of the table of observers.
 * Once, in the set-up, when the first device has been added; its context is current.
 */
void ps_event_trace_open(const char *path);

/* A further device is about to be added. Does nothing while there is no trace. */
void ps_event_trace_add_device(void);

/* Ends tracing: later events are not in the file. Any lock. Async-signal-safe. */
void ps_event_trace_stop(void);
/*
 * Like ps_event_trace_stop, and writes the rest and ends the file if that takes at most two
 * seconds. The writer makes no driver call afterwards. Once, then nothing. [unlocked]
 * Async-signal-safe but for logging.
 */
void ps_event_trace_finish(void);

/* For a forked child, which writes nothing. */
void ps_event_trace_forget(void);

#endif
