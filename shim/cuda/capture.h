/*
 * Stream captures, which Penstock must never break. Calls that the driver calls potentially unsafe
 * invalidate a capture, unless the calling thread's capture mode is relaxed. An event that is
 * recorded on a stream during its capture becomes part of the graph.
 *
 * So Penstock's own threads are always relaxed. The program's threads are relaxed before they make
 * such a call inside Penstock (capture_mode.h). A stream must not begin to be captured between
 * Penstock's check and its record. A capture begins where the program says so. A stream also joins
 * a capture when it waits for one of the capture's events. Penstock's records are held back during
 * both calls.
 *
 * Threads: any, inside Penstock, without the registry lock.
 */
#ifndef PS_CAPTURE_H
#define PS_CAPTURE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>

struct ps_stream;

/*
 * Called before the driver begins a capture of the stream. Penstock records nothing on the stream
 * until ps_capture_began. The thread makes no other call of this header in between.
 */
void ps_capture_begins(CUstream stream, bool per_thread_default);

/* Called after that call of the driver; `succeeded` tells whether the capture began. */
void ps_capture_began(bool succeeded);

/*
 * Called before the program begins a capture on a stream while launches are not traced yet. Nothing
 * counts such a capture until ps_capture_count.
 */
void ps_capture_begins_uncounted(CUstream stream, bool per_thread_default);

/*
 * Returns whether captures that began uncounted may still go on. Of other threads' own default
 * streams only these threads know.
 */
bool ps_capture_some_uncounted(void);

/* Called before the program destroys the stream, or with NULL before a context ends. */
void ps_capture_uncounted_goes(CUstream stream);

/*
 * Counts the captures that began uncounted and still go on. Called once launches are traced, so
 * that their ends are seen.
 */
void ps_capture_count(void);

/*
 * The calling thread may have begun an uncounted capture of its own default stream. Asks the driver
 * whether it goes on, and from then on that capture is like any other. Does nothing between the
 * calls that hold records and let them.
 */
void ps_capture_look_at_own(void);

/*
 * Threads whose own default stream may be in an uncounted capture. While it is not 0, each driver
 * call that is not traced yet is followed by a look: the thread may make no call after the one that
 * ends its capture.
 */
extern atomic_uint ps_capture_own_uncounted;
static inline bool ps_capture_own_are_uncounted(void)
{
    return atomic_load_explicit(&ps_capture_own_uncounted, memory_order_relaxed) != 0;
}

/* The same capture is over, or goes with its thread. Makes no driver call. */
void ps_capture_own_ends(void);

/* Asks the driver whether the stream is captured. Captures that are not counted count here, too. */
bool ps_capture_is_on(CUstream stream);

/*
 * Called before the program's stream waits for an event. The stream joins a capture if the event
 * belongs to one. While a capture is under way, Penstock records nothing on the stream until
 * ps_capture_was_joined.
 */
void ps_capture_may_be_joined(CUstream stream, bool per_thread_default);

/* Called after that wait was queued. */
void ps_capture_was_joined(void);

/* Called when the program has freed memory on a stream, which may be in a capture. */
void ps_capture_freed_on(CUstream stream, bool per_thread_default);

/*
 * Called before the program ends a capture on a stream. The stream first waits for the streams of
 * the capture on which memory was freed. torch's allocator on cudaMallocAsync, which Penstock
 * selects, needs this. It frees memory that several streams have used on a stream of its own. The
 * capture's stream joins that one only after the capture has ended (CUDAGraph::capture_end of
 * 2.11). By then the end has failed, because work was not joined.
 */
void ps_capture_ends(CUstream stream, bool per_thread_default);

/* Called when the program's call that ends a capture of the stream has returned. */
void ps_capture_ended(CUstream stream, bool per_thread_default, CUresult result);

/*
 * Called when the stream was destroyed, or when its thread or context has ended. A capture that
 * began on the stream has ended with it. Makes no driver call.
 */
void ps_capture_ended_with(struct ps_stream *s);

/*
 * Called before a wait for a whole context, which breaks every capture that is under way when it
 * begins. Returns false if a capture is under way; the caller then must not wait. Otherwise no
 * capture begins until ps_capture_let_in, so that the wait begins first. A capture is held back for
 * at most a tenth of a second. So a thread that captures never waits for the device.
 */
bool ps_capture_keep_out(void);

/* Called after a wait for which ps_capture_keep_out returned true. */
void ps_capture_let_in(void);

/*
 * The number of captures under way, in all threads. While it is not 0, each launch is checked for a
 * capture of its stream.
 */
extern atomic_uint ps_captures;
static inline bool ps_capture_anywhere(void)
{
    return atomic_load_explicit(&ps_captures, memory_order_relaxed) != 0;
}

/*
 * Returns whether the stream is being captured, so that work queued on it goes into a graph. Also
 * returns true for the legacy stream while a blocking stream of its context is captured. Work
 * queued there is then refused, and invalidates that capture.
 */
bool ps_capture_has(CUstream stream, bool per_thread_default);

/*
 * The calling thread is inside Penstock until ps_capture_mode_leave (capture_mode.h). If a capture
 * is under way, the thread is relaxed at once.
 */
void ps_capture_enter(void);

#endif
