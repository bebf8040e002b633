/*
 * Stream capture and the graphs that it makes. A graph holds its operations in call order, which is
 * one of the orders that its dependencies allow; launching it queues copies of them, in that order,
 * on the launch's stream. Under the device lock.
 */
#ifndef CUDASIM_CAPTURE_H
#define CUDASIM_CAPTURE_H

#include <cuda.h>
#include <stdbool.h>

struct cudasim_operation;

/*
 * What a call by the calling thread comes to as far as captures go; one that is not allowed makes
 * the captures invalid that forbid it.
 */
CUresult cudasim_capture_allows(unsigned int entry);
/* Records the operation into the stream's capture instead of queueing it; owns it from then on. */
CUresult cudasim_capture_add(CUstream stream, struct cudasim_operation *operation);
/*
 * An event recorded in a capturing stream: a wait for it brings the waiting stream into the
 * capture.
 */
CUresult cudasim_capture_record(CUstream stream, CUevent event);
/*
 * Whether a stream of the context is captured: a call that means the whole context is refused then,
 * and has made such captures invalid.
 */
bool cudasim_capture_breaks(CUcontext context);
/* A wait where the event or the stream belongs to a capture. */
CUresult cudasim_capture_wait(CUstream stream, CUevent event);
/*
 * The stream is about to be given work. While a blocking stream of its context is captured the
 * legacy stream can't be used, and an attempt ends that capture.
 */
CUresult cudasim_capture_uses(CUstream stream);
/*
 * The stream has been destroyed: a capture that began there ends with it, one that it had joined
 * can't be joined any more.
 */
void cudasim_capture_stream_gone(CUstream stream);

#endif
