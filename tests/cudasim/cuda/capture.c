#include "capture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "entries.h"
#include "graphs.h"

/* State that capturing streams share: the graph they add to, the stream where the capture began. */
struct cudasim_capture {
    CUgraph graph;
    bool given; /* the graph is the program's (cuStreamBeginCaptureToGraph) */
    /* Nodes of a given graph that come before all nodes of the capture; owned. */
    CUgraphNode *first;
    size_t first_count;
    CUstream origin;
    uint64_t id;
    CUstreamCaptureMode mode;
    pthread_t thread; /* the thread that began it */
    bool invalid, over;
    unsigned streams;
    /*
     * known[i][j]: the operations of stream j that come before the next one of stream i.
     * known[i][i] has those that stream i has added. The origin is stream 0.
     */
    struct cudasim_mark known[CUDASIM_CAPTURE_STREAMS][CUDASIM_CAPTURE_STREAMS];
    LIST_ENTRY(cudasim_capture) link; /* in `captures`, or in `over` */
};

static uint64_t next_capture_id = 1;
static LIST_HEAD(, cudasim_capture) captures = LIST_HEAD_INITIALIZER(captures);
static LIST_HEAD(, cudasim_capture) over = LIST_HEAD_INITIALIZER(over);
static atomic_uint capture_count;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/*
 * Returns whether the call is potentially unsafe: the documentation names it so, or a GPU is known
 * to refuse it. An H200's driver (CUDA 13.0) does not refuse the calls that make and map memory of
 * cuMemCreate. They stay in the list, as no document says so.
 */
static bool may_be_unsafe(unsigned int entry)
{
    switch (entry) {
    case CUDASIM_CALL_cuMemAlloc_v2:
    case CUDASIM_CALL_cuMemAllocPitch_v2:
    case CUDASIM_CALL_cuMemFree_v2:
    case CUDASIM_CALL_cuMemAllocHost_v2:
    case CUDASIM_CALL_cuMemHostAlloc:
    case CUDASIM_CALL_cuMemFreeHost:
    case CUDASIM_CALL_cuMemHostRegister_v2:
    case CUDASIM_CALL_cuMemHostUnregister:
    case CUDASIM_CALL_cuMemAllocManaged:
    case CUDASIM_CALL_cuMemPoolCreate:
    case CUDASIM_CALL_cuMemPoolTrimTo:
    case CUDASIM_CALL_cuMemPoolGetAttribute:
    case CUDASIM_CALL_cuMemPoolSetAttribute:
    case CUDASIM_CALL_cuGraphInstantiateWithFlags:
    case CUDASIM_CALL_cuGraphInstantiateWithParams:
    case CUDASIM_CALL_cuGraphInstantiateWithParams_ptsz:
    case CUDASIM_CALL_cuGraphExecDestroy:
    case CUDASIM_CALL_cuMemCreate:
    case CUDASIM_CALL_cuMemRelease:
    case CUDASIM_CALL_cuMemMap:
    case CUDASIM_CALL_cuMemUnmap:
    case CUDASIM_CALL_cuMemSetAccess:
    case CUDASIM_CALL_cuEventQuery:
    case CUDASIM_CALL_cuEventSynchronize:
    case CUDASIM_CALL_cuStreamSynchronize:
    case CUDASIM_CALL_cuStreamSynchronize_ptsz:
    case CUDASIM_CALL_cuStreamQuery:
    case CUDASIM_CALL_cuStreamQuery_ptsz:
        return true;
    default:
        return false;
    }
}

/*
 * Returns whether the capture forbids potentially unsafe calls to the calling thread, by the rules
 * of cuThreadExchangeStreamCaptureMode.
 */
static bool forbids(const struct cudasim_capture *capture)
{
    if (pthread_equal(capture->thread, pthread_self()))
        return thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

/* The calling thread makes a call that captures forbid: those that do become invalid. */
static CUresult unsafe_call(void)
{
    struct cudasim_capture *capture;
    CUresult result = CUDA_SUCCESS;

    LIST_FOREACH (capture, &captures, link)
        if (forbids(capture)) {
            capture->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return result;
}

/*
 * The calling thread waits for its context. In every mode that breaks the captures of this
 * context's streams, and no others: not those of its green contexts either (asked on an H200).
 */
static CUresult wait_for_context(void)
{
    const CUcontext context = cudasim_context_current();
    CUresult result = CUDA_SUCCESS;
    CUstream stream;

    LIST_FOREACH (stream, &cudasim_streams, link)
        if (stream->capture && stream->context == context) {
            stream->capture->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return result;
}

CUresult cudasim_capture_allows(unsigned int entry)
{
    const bool waits = entry == CUDASIM_CALL_cuCtxSynchronize;

    if (!atomic_load(&capture_count) || (!waits && !may_be_unsafe(entry)))
        return CUDA_SUCCESS;
    cudasim_lock();
    CUresult result = waits ? wait_for_context() : unsafe_call();
    cudasim_unlock();
    return result;
}

CUresult cudasim_capture_allows_in_order(CUstream stream)
{
    return stream->capture ? CUDA_SUCCESS : unsafe_call();
}

bool cudasim_capture_breaks(CUcontext context)
{
    CUstream stream;
    bool found = false;
    LIST_FOREACH (stream, &cudasim_streams, link)
        if (cudasim_context_covers(context, stream->context) && stream->capture)
            stream->capture->invalid = found = true;
    return found;
}

bool cudasim_capture_takes_callbacks(CUstream handle)
{
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(handle);
    struct cudasim_capture *capture = stream ? stream->capture : NULL;
    if (capture)
        capture->invalid = true;
    cudasim_unlock();
    return !capture;
}

/*
 * Makes the new node wait for the nodes that its stream has come after, and notes it as the
 * stream's newest. [locked]
 */
static CUresult note_node(CUstream stream, CUgraphNode node)
{
    struct cudasim_mark *known = stream->capture->known[stream->capture_place];
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < CUDASIM_CAPTURE_STREAMS; i++) {
        if (result == CUDA_SUCCESS && known[i].node && !known[i].covered)
            result = cudasim_node_depend(node, known[i].node);
        known[i].covered = true;
    }
    const size_t first_count = node->dependency_count ? 0 : stream->capture->first_count;
    for (size_t i = 0; i < first_count && result == CUDA_SUCCESS; i++)
        result = cudasim_node_depend(node, stream->capture->first[i]);
    known[stream->capture_place] =
        (struct cudasim_mark){.number = known[stream->capture_place].number + 1, .node = node};
    return result;
}

CUresult cudasim_capture_add(CUstream stream, struct cudasim_operation *operation)
{
    CUgraph graph = stream->capture->graph;
    CUresult result = cudasim_node_add(graph, operation);
    stream->capture->invalid |= result == CUDA_ERROR_NOT_SUPPORTED; /* the graph may not have such a node */
    return result == CUDA_SUCCESS ? note_node(stream, TAILQ_LAST(&graph->nodes, cudasim_node_list)) : result;
}

CUresult cudasim_capture_record(CUstream stream, CUevent event)
{
    event->capture = stream->capture;
    memcpy(event->captured, stream->capture->known[stream->capture_place], sizeof event->captured);
    return CUDA_SUCCESS;
}

CUresult cudasim_capture_wait(CUstream stream, CUevent event)
{
    if (!event->capture) {
        stream->capture->invalid = true; /* asked on an H200 */
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (event->capture->over)
        return CUDA_ERROR_INVALID_VALUE; /* asked on an H200 */
    if (stream->capture && stream->capture != event->capture)
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    if (!stream->capture) {
        if (event->capture->streams == CUDASIM_CAPTURE_STREAMS)
            return CUDA_ERROR_NOT_SUPPORTED;
        stream->capture_place = event->capture->streams++;
        stream->capture = event->capture;
    }
    struct cudasim_mark *known = stream->capture->known[stream->capture_place];
    for (unsigned i = 0; i < CUDASIM_CAPTURE_STREAMS; i++) {
        const struct cudasim_mark *theirs = &event->captured[i];
        if (theirs->number > known[i].number)
            known[i] = *theirs;
        else if (theirs->number == known[i].number)
            known[i].covered |= theirs->covered;
    }
    return CUDA_SUCCESS;
}

/*
 * Returns whether every captured operation comes before the end of the stream where the capture
 * began.
 */
static bool is_joined(const struct cudasim_capture *capture)
{
    for (unsigned i = 0; i < capture->streams; i++)
        if (capture->known[i][i].number > capture->known[0][i].number)
            return false;
    return true;
}

/* Begins the capture, which has its graph, and gives it to the stream. [locked] */
static CUresult begin_capture(struct cudasim_capture *capture, CUstream stream, CUstreamCaptureMode mode)
{
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream == stream->context->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    capture->origin = stream;
    capture->id = next_capture_id++;
    capture->mode = mode;
    capture->thread = pthread_self();
    capture->streams = 1;
    stream->capture = capture;
    stream->capture_place = 0;
    LIST_INSERT_HEAD(&captures, capture, link);
    atomic_fetch_add(&capture_count, 1);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    struct cudasim_capture *capture = calloc(1, sizeof *capture);
    CUgraph graph = cudasim_graph_new();
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (capture && graph) {
        capture->graph = graph;
        cudasim_lock();
        result = begin_capture(capture, cudasim_stream_resolve(hStream), mode);
        cudasim_unlock();
    }
    if (result != CUDA_SUCCESS) {
        free(capture);
        free(graph);
    }
    return result;
}

/* Notes the nodes that come before the capture. They must be nodes of its graph. [locked] */
static CUresult take_first(struct cudasim_capture *capture, const CUgraphNode *nodes, size_t count)
{
    CUgraphNode node;
    capture->first = calloc(count + 1, sizeof(CUgraphNode));
    if (!capture->first)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) {
        TAILQ_FOREACH (node, &capture->graph->nodes, link)
            if (node == nodes[i])
                break;
        if (!node)
            return CUDA_ERROR_INVALID_VALUE;
        capture->first[capture->first_count++] = node;
    }
    return CUDA_SUCCESS;
}

CUresult cudasim_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                             const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                             CUstreamCaptureMode mode)
{
    if (!hGraph || mode > CU_STREAM_CAPTURE_MODE_RELAXED || (numDependencies && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_edges_are_plain(dependencyData, numDependencies))
        return CUDA_ERROR_NOT_SUPPORTED;
    struct cudasim_capture *capture = calloc(1, sizeof *capture);
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->graph = hGraph;
    capture->given = true;
    cudasim_lock();
    CUresult result = take_first(capture, dependencies, numDependencies);
    if (result == CUDA_SUCCESS)
        result = begin_capture(capture, cudasim_stream_resolve(hStream), mode);
    cudasim_unlock();
    if (result != CUDA_SUCCESS) {
        free(capture->first);
        free(capture);
    }
    return result;
}

/*
 * Takes the capture from its streams. Its small structure stays, because events recorded into it
 * still point to it. Its `over` flag tells that they hold no position. [locked]
 */
static void end_capture(struct cudasim_capture *capture)
{
    CUstream other;
    LIST_FOREACH (other, &cudasim_streams, link)
        if (other->capture == capture)
            other->capture = NULL;
    capture->over = true;
    free(capture->first);
    capture->first = NULL;
    capture->first_count = 0;
    LIST_REMOVE(capture, link);
    LIST_INSERT_HEAD(&over, capture, link);
    atomic_fetch_sub(&capture_count, 1);
}

/* Frees the graph of a capture that failed. A given graph keeps the nodes that it got. [locked] */
static void drop_graph(struct cudasim_capture *capture)
{
    if (!capture->given)
        cudasim_graph_free(capture->graph);
    capture->graph = NULL;
}

void cudasim_capture_stream_gone(CUstream stream)
{
    struct cudasim_capture *capture = stream->capture;
    stream->capture = NULL;
    if (!capture)
        return;
    if (capture->origin != stream) {
        capture->invalid = true; /* its work can't be joined any more */
        return;
    }
    end_capture(capture);
    drop_graph(capture);
}

CUresult cudasim_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    if (!phGraph)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(hStream);
    struct cudasim_capture *capture = stream ? stream->capture : NULL;
    if (!stream)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (!capture)
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (capture->origin != stream)
        result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (result == CUDA_SUCCESS) {
        end_capture(capture);
        if (capture->invalid || !is_joined(capture)) {
            drop_graph(capture);
            result = capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        }
        *phGraph = capture->graph;
    }
    cudasim_unlock();
    return result;
}

/*
 * Returns a capture of a blocking stream that bars the use of its context's legacy stream, or NULL.
 * [locked]
 */
static struct cudasim_capture *barring(CUstream stream)
{
    CUstream other;
    if (!atomic_load(&capture_count) || stream != stream->context->legacy)
        return NULL;
    LIST_FOREACH (other, &cudasim_streams, link)
        if (other->context == stream->context && other->capture && !(other->flags & CU_STREAM_NON_BLOCKING))
            return other->capture;
    return NULL;
}

CUresult cudasim_capture_uses(CUstream stream)
{
    struct cudasim_capture *capture = barring(stream);
    CUstream other;
    if (!capture)
        return CUDA_SUCCESS;
    LIST_FOREACH (other, &cudasim_streams, link)
        if (other->context == stream->context && other->capture && !(other->flags & CU_STREAM_NON_BLOCKING))
            other->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult cudasim_capture_answers(CUstream stream)
{
    const CUresult result = cudasim_capture_uses(stream);
    if (!stream->capture)
        return result;
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult cudasim_capture_awaits(CUevent event)
{
    if (!event->capture)
        return CUDA_SUCCESS;
    if (event->capture->over)
        return CUDA_ERROR_INVALID_VALUE;
    event->capture->invalid = true;
    return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult cudasim_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    return cudasim_cuStreamGetCaptureInfo_v3(hStream, captureStatus, NULL, NULL, NULL, NULL, NULL);
}

CUresult cudasim_cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                           cuuint64_t *id_out, CUgraph *graph_out, const CUgraphNode **dependencies_out,
                                           const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
    if (!captureStatus_out)
        return CUDA_ERROR_INVALID_VALUE;
    if (dependencies_out || edgeData_out)
        return CUDA_ERROR_NOT_SUPPORTED;
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(hStream);
    CUresult result = !stream           ? CUDA_ERROR_INVALID_HANDLE
                      : barring(stream) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
                                        : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        *captureStatus_out = !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
                             : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                        : CU_STREAM_CAPTURE_STATUS_ACTIVE;
        if (id_out)
            *id_out = stream->capture ? stream->capture->id : 0;
        if (graph_out)
            *graph_out = stream->capture ? stream->capture->graph : NULL;
        if (numDependencies_out)
            *numDependencies_out = 0;
    }
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
