/*
 * Stream captures, which nothing that Penstock does may break. A call that the driver calls potentially unsafe (making memory, mapping it, asking
 * after an event) makes a capture invalid, whichever thread makes it, unless that thread's capture mode is relaxed; and an event that is recorded on
 * a stream while it is being captured becomes part of the graph.
 *
 * So Penstock's own threads are relaxed for good, the program's are while they are inside Penstock and anybody captures, and a stream does not begin
 * to be captured between our looking and our recording: neither where the program says so, nor by waiting for an event of a capture, which it joins by
 * that.
 *
 * Any thread, inside Penstock, without the registry lock.
 */
#ifndef PS_CAPTURE_H
#define PS_CAPTURE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>

struct ps_stream;

/* The driver is about to begin a capture of the stream: nothing of ours is recorded on it until ps_capture_began. Between them no other call here. */
void ps_capture_begins(CUstream stream, bool per_thread_default);
void ps_capture_began(bool succeeded);

/*
 * While anybody captures: the stream is about to wait for an event, and if that is one of a capture, to be captured too; it waits. Nothing of ours
 * is recorded on it in between.
 */
void ps_capture_may_be_joined(CUstream stream, bool per_thread_default);
void ps_capture_was_joined(void);

/*
 * The program has freed memory on a stream, maybe while it is being captured. / It is about to end a capture on a stream, which comes after such frees.
 * torch's allocator on cudaMallocAsync, which Penstock asks it for, frees what several streams have used on a stream of its own, and has the capture's stream come after
 * that when the capture has ended (CUDAGraph::capture_end of 2.11), which fails by then: work that was not joined.
 */
void ps_capture_freed_on(CUstream stream, bool per_thread_default);
void ps_capture_ends(CUstream stream, bool per_thread_default);

/*
 * The program's call that ends a capture of the stream has come back. / The stream is gone, and a capture that began there with it: it was destroyed, or its
 * thread or context has ended. No driver call in the latter.
 */
void ps_capture_ended(CUstream stream, bool per_thread_default, CUresult result);
void ps_capture_ended_with(struct ps_stream *s);

/*
 * A wait for a whole context breaks every capture that is under way when it begins. False: there is one. Else none begins before the wait has, given a moment (a tenth
 * of a second, so that whoever captures never waits for the device), until the other call.
 */
bool ps_capture_keep_out(void);
void ps_capture_let_in(void);

/* Captures under way, all threads. While there are any, launches are asked whether theirs is. */
extern atomic_uint ps_captures;
static inline bool ps_capture_anywhere(void)
{
    return atomic_load_explicit(&ps_captures, memory_order_relaxed) != 0;
}

/*
 * Whether the stream is being captured: what is queued on it goes into a graph. So says the legacy stream while a blocking stream of its context is captured, too:
 * what is queued there is refused, and makes that capture invalid.
 */
bool ps_capture_has(CUstream stream, bool per_thread_default);

/* The calling thread is relaxed for good. */
void ps_capture_relax_thread(void);

/* While anybody captures: the calling thread is relaxed until the other call, which is given what this one returned. */
struct ps_capture_mode {
    bool changed;
    CUstreamCaptureMode before;
};
struct ps_capture_mode ps_capture_relax(void);
void ps_capture_restore(struct ps_capture_mode mode);

#endif
