/*
 * Stream capture. A node depends on the nodes that its stream comes after, by the stream's own
 * order and by waits. All functions: under the device lock, except cudasim_capture_allows.
 */
#ifndef CUDASIM_CAPTURE_H
#define CUDASIM_CAPTURE_H

#include <cuda.h>
#include <stdbool.h>

struct cudasim_node_list;
struct cudasim_operation;

/*
 * Returns the error that captures cause for a call by the calling thread, or CUDA_SUCCESS. A call
 * that is not allowed makes the captures that forbid it invalid. Takes the device lock itself.
 */
CUresult cudasim_capture_allows(unsigned int entry);
/*
 * The same for memory that is allocated or freed in the order of a stream. A captured stream takes
 * it into the graph; elsewhere the call is potentially unsafe (asked on an H200).
 */
CUresult cudasim_capture_allows_in_order(CUstream stream);
/*
 * Records the operation into the stream's capture instead of queueing it. Takes ownership of it,
 * also when it fails.
 */
CUresult cudasim_capture_add(CUstream stream, struct cudasim_operation *operation);
/*
 * Records an event in a capturing stream. A wait for the event brings the waiting stream into the
 * capture.
 */
CUresult cudasim_capture_record(CUstream stream, CUevent event);
/*
 * Returns whether a stream of the context is captured, and makes such captures invalid. A call that
 * concerns the whole context is refused then.
 */
bool cudasim_capture_breaks(CUcontext context);
/*
 * Returns whether the stream may get a callback of cuStreamAddCallback. A capture can't record one
 * and becomes invalid. Takes the device lock itself.
 */
bool cudasim_capture_takes_callbacks(CUstream handle);
/* Adds a wait to a stream where the event or the stream belongs to a capture. */
CUresult cudasim_capture_wait(CUstream stream, CUevent event);
/*
 * Called before the stream gets work. The legacy stream can't be used while a blocking stream of
 * its context is captured. An attempt makes that capture invalid.
 */
CUresult cudasim_capture_uses(CUstream stream);
/*
 * Called before a question about the stream is answered. Some are refused for a captured stream and
 * make its capture invalid, in every mode: its flags, number and device, whether its work is over
 * (asked on an H200). Its context and priority are told. For the legacy stream see
 * cudasim_capture_uses: it holds for all questions. Launches of graphs are refused in the same way.
 */
CUresult cudasim_capture_answers(CUstream stream);
/*
 * The same for the question whether an event has come that was recorded in a capture. Once the
 * capture is over, the event is of no use until it is recorded again.
 */
CUresult cudasim_capture_awaits(CUevent event);
/*
 * Called after the stream was destroyed. A capture that began there ends with it. A capture that it
 * had joined becomes invalid, because its work can't be joined any more.
 */
void cudasim_capture_stream_gone(CUstream stream);

#endif
