#include "capture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "entries.h"
#include "graphs.h"
#include "kernels.h"
#include "memory.h"

/* State that capturing streams share: the graph they add to, the stream where the capture began. */
struct cudasim_capture {
    CUgraph graph;
    CUstream origin;
    uint64_t id;
    CUstreamCaptureMode mode;
    pthread_t thread; /* the thread that began it */
    bool invalid, over;
    unsigned streams;
    /*
     * known[i][j]: number of operations of stream j that come before the next one of stream i.
     * known[i][i] is the number that stream i has added. The origin is stream 0.
     */
    uint64_t known[CUDASIM_CAPTURE_STREAMS][CUDASIM_CAPTURE_STREAMS];
    LIST_ENTRY(cudasim_capture) link; /* in the list of captures that are not over */
};

static uint64_t next_capture_id = 1;
static LIST_HEAD(, cudasim_capture) captures = LIST_HEAD_INITIALIZER(captures);
static atomic_uint capture_count;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void cudasim_nodes_free(struct cudasim_node_list *nodes)
{
    CUgraphNode node;
    while ((node = TAILQ_FIRST(nodes))) {
        TAILQ_REMOVE(nodes, node, link);
        cudasim_operation_free(node->operation);
        if (node->child)
            cudasim_graph_free(node->child);
        free(node);
    }
}

CUresult cudasim_node_add(struct cudasim_node_list *nodes, struct cudasim_operation *operation)
{
    CUgraphNode node = calloc(1, sizeof *node);
    if (!node) {
        cudasim_operation_free(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->operation = operation;
    node->looks = cudasim_looks_of(operation);
    TAILQ_INSERT_TAIL(nodes, node, link);
    return CUDA_SUCCESS;
}

static void *copy_memory(const void *from, size_t bytes)
{
    void *to = malloc(bytes ? bytes : 1);
    return to ? memcpy(to, from, bytes) : NULL;
}

static bool clone_kernel(struct cudasim_operation *clone, const struct cudasim_operation *operation)
{
    uint32_t count = operation->kernel.entry->code->param_count;
    unsigned char *old_block = operation->kernel.block;
    unsigned char *block = copy_memory(old_block, operation->kernel.block_bytes);
    clone->kernel.block = block;
    clone->kernel.params = calloc((size_t)count + 1, sizeof(void *));
    if (!block || !clone->kernel.params)
        return false;
    for (uint32_t i = 0; i < count; i++)
        clone->kernel.params[i] = block + ((unsigned char *)operation->kernel.params[i] - old_block);
    return true;
}

/* Copies an operation that was never queued. */
static struct cudasim_operation *clone_operation(const struct cudasim_operation *operation)
{
    struct cudasim_operation *clone = cudasim_operation_new(operation->kind);
    if (!clone)
        return NULL;
    *clone = *operation;
    bool complete = true;
    if (operation->kind == CUDASIM_OPERATION_KERNEL) {
        complete = clone_kernel(clone, operation);
    } else if (operation->kind == CUDASIM_OPERATION_COPY && operation->copy.staging) {
        const struct cudasim_box *box = &operation->copy.box;
        clone->copy.staging = copy_memory(operation->copy.staging, box->width * box->height * box->depth);
        clone->copy.from.address = (uintptr_t)clone->copy.staging;
        complete = clone->copy.staging != NULL;
    } else if (operation->kind == CUDASIM_OPERATION_EVENT_RECORD) {
        clone->event->references++;
    }
    if (complete)
        return clone;
    cudasim_operation_free(clone);
    return NULL;
}

static CUresult clone_node(CUgraphNode node, struct cudasim_node_list *to)
{
    struct cudasim_operation *clone = clone_operation(node->operation);
    CUgraph child = node->child ? cudasim_graph_new() : NULL;
    CUresult result = clone && (child || !node->child) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && child)
        result = cudasim_nodes_clone(&node->child->nodes, &child->nodes);
    if (result == CUDA_SUCCESS)
        result = cudasim_node_add(to, clone);
    else if (clone)
        cudasim_operation_free(clone);
    if (result != CUDA_SUCCESS) {
        free(child);
        return result;
    }
    CUgraphNode made = TAILQ_LAST(to, cudasim_node_list);
    if (child)
        child->node_count = node->child->node_count;
    made->child = child;
    made->origin = node;
    made->looks = node->looks;
    return CUDA_SUCCESS;
}

CUresult cudasim_nodes_clone(const struct cudasim_node_list *from, struct cudasim_node_list *to)
{
    CUgraphNode node;
    TAILQ_INIT(to);
    TAILQ_FOREACH (node, from, link) {
        CUresult result = clone_node(node, to);
        if (result != CUDA_SUCCESS) {
            cudasim_nodes_free(to);
            return result;
        }
    }
    return CUDA_SUCCESS;
}

CUgraph cudasim_graph_new(void)
{
    CUgraph graph = calloc(1, sizeof *graph);
    if (graph)
        TAILQ_INIT(&graph->nodes);
    return graph;
}

void cudasim_graph_free(CUgraph graph)
{
    cudasim_nodes_free(&graph->nodes);
    free(graph);
}

/* ---- capture ---- */

/*
 * Returns whether the call is potentially unsafe: the documentation names it so, or a GPU is known
 * to refuse it.
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

CUresult cudasim_capture_allows(unsigned int entry)
{
    struct cudasim_capture *capture;
    CUresult result = CUDA_SUCCESS;
    bool all = entry == CUDASIM_CALL_cuCtxSynchronize; /* it would wait for captured streams, in every mode */

    if (!atomic_load(&capture_count) || (!all && !may_be_unsafe(entry)))
        return CUDA_SUCCESS;
    cudasim_lock();
    LIST_FOREACH (capture, &captures, link)
        if (all || forbids(capture)) {
            capture->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    cudasim_unlock();
    return result;
}

bool cudasim_capture_breaks(CUcontext context)
{
    CUstream stream;
    bool found = false;
    LIST_FOREACH (stream, &cudasim_streams, link)
        if (stream->context == context && stream->capture)
            stream->capture->invalid = found = true;
    return found;
}

CUresult cudasim_capture_add(CUstream stream, struct cudasim_operation *operation)
{
    struct cudasim_capture *capture = stream->capture;
    CUresult result = cudasim_node_add(&capture->graph->nodes, operation);
    if (result == CUDA_SUCCESS) {
        capture->graph->node_count++;
        capture->known[stream->capture_place][stream->capture_place]++;
    }
    return result;
}

CUresult cudasim_capture_record(CUstream stream, CUevent event)
{
    event->capture = stream->capture;
    memcpy(event->captured, stream->capture->known[stream->capture_place], sizeof event->captured);
    return CUDA_SUCCESS;
}

CUresult cudasim_capture_wait(CUstream stream, CUevent event)
{
    if (!event->capture)
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    if (event->capture->over)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (stream->capture && stream->capture != event->capture)
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    if (!stream->capture) {
        if (event->capture->streams == CUDASIM_CAPTURE_STREAMS)
            return CUDA_ERROR_NOT_SUPPORTED;
        stream->capture_place = event->capture->streams++;
        stream->capture = event->capture;
    }
    uint64_t *known = stream->capture->known[stream->capture_place];
    for (unsigned i = 0; i < CUDASIM_CAPTURE_STREAMS; i++)
        known[i] = event->captured[i] > known[i] ? event->captured[i] : known[i];
    return CUDA_SUCCESS;
}

/*
 * Returns whether every captured operation comes before the end of the stream where the capture
 * began.
 */
static bool is_joined(const struct cudasim_capture *capture)
{
    for (unsigned i = 0; i < capture->streams; i++)
        if (capture->known[i][i] > capture->known[0][i])
            return false;
    return true;
}

CUresult cudasim_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    struct cudasim_capture *capture = calloc(1, sizeof *capture);
    CUgraph graph = cudasim_graph_new();
    CUresult result = capture && graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(hStream);
    if (!stream)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (stream == stream->context->legacy)
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    else if (stream->capture)
        result = CUDA_ERROR_ILLEGAL_STATE;
    if (result == CUDA_SUCCESS) {
        *capture = (struct cudasim_capture){
            .graph = graph, .origin = stream, .id = next_capture_id++, .mode = mode, .thread = pthread_self()};
        capture->streams = 1;
        stream->capture = capture;
        stream->capture_place = 0;
        LIST_INSERT_HEAD(&captures, capture, link);
        atomic_fetch_add(&capture_count, 1);
    }
    cudasim_unlock();
    if (result != CUDA_SUCCESS) {
        free(capture);
        free(graph);
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
    LIST_REMOVE(capture, link);
    atomic_fetch_sub(&capture_count, 1);
}

/* Frees the graph of a capture that failed. [locked] */
static void drop_graph(struct cudasim_capture *capture)
{
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

/* ---- graphs ---- */

CUresult cudasim_cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    if (!phGraph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = cudasim_graph_new();
    return *phGraph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cudasim_cuGraphDestroy(CUgraph hGraph)
{
    if (!hGraph)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    cudasim_graph_free(hGraph);
    cudasim_unlock();
    return CUDA_SUCCESS;
}

/*
 * Returns whether kernels may launch a graph of these nodes: only kernels, copies and fills
 * (cuda.h, cuGraphInstantiateWithFlags).
 */
static bool may_be_launched_by_kernels(const struct cudasim_node_list *nodes)
{
    CUgraphNode node;
    TAILQ_FOREACH (node, nodes, link) {
        enum cudasim_operation_kind kind = node->operation->kind;
        if (node->child
                ? !may_be_launched_by_kernels(&node->child->nodes)
                : kind != CUDASIM_OPERATION_KERNEL && kind != CUDASIM_OPERATION_COPY && kind != CUDASIM_OPERATION_FILL)
            return false;
    }
    return true;
}

CUresult cudasim_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    const unsigned long long taken = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                     CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY |
                                     CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    const bool by_kernels = flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    /* Nodes have no priorities here. */
    if (!phGraphExec || !hGraph || (flags & ~taken) ||
        (by_kernels && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)))
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphExec made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    cudasim_lock();
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (cudasim_nodes_look_right(&hGraph->nodes) && (!by_kernels || may_be_launched_by_kernels(&hGraph->nodes)))
        result = cudasim_nodes_clone(&hGraph->nodes, &made->nodes);
    cudasim_unlock();
    made->launched_by_kernels = by_kernels;
    made->frees = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    if (result != CUDA_SUCCESS)
        free(made);
    else
        *phGraphExec = made;
    return result;
}

/*
 * Replaces the executable graph's nodes by the other graph's, if these have the same kinds in the
 * same order.
 */
CUresult cudasim_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
    if (!hGraphExec || !hGraph || !resultInfo)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    CUresult result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    if (cudasim_nodes_may_replace(&hGraphExec->nodes, &hGraph->nodes))
        result = cudasim_nodes_replace(&hGraphExec->nodes, &hGraph->nodes);
    if (result == CUDA_SUCCESS)
        hGraphExec->uploaded = false;
    cudasim_unlock();
    *resultInfo = (CUgraphExecUpdateResultInfo){.result = result == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                                                 : CU_GRAPH_EXEC_UPDATE_ERROR};
    return result;
}

/* Returns the node made from `origin` if its operation has that kind, or NULL. [locked] */
static CUgraphNode node_of_kind(CUgraphExec executable, CUgraphNode origin, enum cudasim_operation_kind kind)
{
    CUgraphNode node = cudasim_node_of(&executable->nodes, origin);
    return node && !node->child && node->operation->kind == kind ? node : NULL;
}

CUresult cudasim_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                   const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    if (!hGraphExec || !hNode || !nodeParams || !nodeParams->kernelParams)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    CUgraphNode node = node_of_kind(hGraphExec, hNode, CUDASIM_OPERATION_KERNEL);
    struct cudasim_operation *operation = node ? node->operation : NULL;
    bool same = operation && cudasim_kernel_of_function(nodeParams->func) == operation->kernel.entry;
    const struct cudasim_kernel *code = same ? operation->kernel.entry->code : NULL;
    for (uint32_t i = 0; same && i < code->param_count; i++)
        memcpy(operation->kernel.params[i], nodeParams->kernelParams[i], code->params[i].size);
    if (same)
        hGraphExec->uploaded = false;
    cudasim_unlock();
    return same ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cudasim_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    if (!hGraphExec)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    cudasim_nodes_free(&hGraphExec->nodes);
    cudasim_unlock();
    free(hGraphExec);
    return CUDA_SUCCESS;
}

/*
 * Queues the operations of a graph's copied nodes and of their children, and frees the nodes.
 * [locked]
 */
static CUresult submit_nodes(struct cudasim_node_list *nodes, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    CUgraphNode node;
    while (result == CUDA_SUCCESS && (node = TAILQ_FIRST(nodes))) {
        TAILQ_REMOVE(nodes, node, link);
        if (node->child) {
            result = submit_nodes(&node->child->nodes, stream);
            free(node->child);
        }
        if (result == CUDA_SUCCESS) {
            node->operation->of_graph = true;
            result = cudasim_submit(node->operation, stream);
        } else {
            cudasim_operation_free(node->operation);
        }
        free(node);
    }
    cudasim_nodes_free(nodes);
    return result;
}

static bool is_of_memory(const struct cudasim_operation *operation)
{
    return operation->kind == CUDASIM_OPERATION_GRAPH_ALLOC || operation->kind == CUDASIM_OPERATION_GRAPH_FREE;
}

/* Makes the memory that a launch allocates appear, and the memory that it frees go. */
static CUresult take_memory(CUgraphExec executable)
{
    bool well = true;
    CUgraphNode node;
    TAILQ_FOREACH (node, &executable->nodes, link)
        if (!node->child && is_of_memory(node->operation))
            cudasim_pool_block_remember(node->operation->pool_block);
    TAILQ_FOREACH (node, &executable->nodes, link) {
        if (node->child || !is_of_memory(node->operation))
            continue;
        if (node->operation->kind == CUDASIM_OPERATION_GRAPH_ALLOC)
            well = well && cudasim_pool_block_appears(node->operation->pool_block, executable->frees);
        else
            well = well && cudasim_pool_block_goes(node->operation->pool_block);
    }
    TAILQ_FOREACH (node, &executable->nodes, link)
        if (!well && !node->child && is_of_memory(node->operation))
            cudasim_pool_block_restore(node->operation->pool_block);
    return well ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cudasim_cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    if (!hGraphExec)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(hStream);
    struct cudasim_node_list copies;
    TAILQ_INIT(&copies);
    CUresult result = stream ? take_memory(hGraphExec) : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = cudasim_nodes_clone(&hGraphExec->nodes, &copies);
    if (result == CUDA_SUCCESS)
        result = submit_nodes(&copies, stream);
    if (result == CUDA_SUCCESS)
        hGraphExec->uploaded = true;
    cudasim_unlock();
    return result;
}
