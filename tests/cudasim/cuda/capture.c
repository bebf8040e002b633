#include "capture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "entries.h"
#include "kernels.h"
#include "memory.h"

struct CUgraphNode_st {
    struct cudasim_operation *operation;
    CUgraphNode origin; /* of a node of an executable graph: the one that it was made from */
    TAILQ_ENTRY(CUgraphNode_st) link;
};

TAILQ_HEAD(node_list, CUgraphNode_st);

struct CUgraph_st {
    struct node_list nodes;
    size_t node_count;
};

struct CUgraphExec_st {
    struct node_list nodes;
};

/* What capturing streams share: the graph they add to, and the stream where it began. */
struct cudasim_capture {
    CUgraph graph;
    CUstream origin;
    uint64_t id;
    CUstreamCaptureMode mode;
    pthread_t thread; /* that began it */
    bool invalid, over;
    unsigned streams;
    /* known[i][j]: so many operations of stream j come before what stream i adds next; known[i][i]: as many as it has added. The origin is stream 0. */
    uint64_t known[CUDASIM_CAPTURE_STREAMS][CUDASIM_CAPTURE_STREAMS];
    LIST_ENTRY(cudasim_capture) link; /* those that are not over */
};

static uint64_t next_capture_id = 1;
static LIST_HEAD(, cudasim_capture) captures = LIST_HEAD_INITIALIZER(captures);
static atomic_uint capture_count;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static void free_nodes(struct node_list *nodes)
{
    CUgraphNode node;
    while ((node = TAILQ_FIRST(nodes))) {
        TAILQ_REMOVE(nodes, node, link);
        cudasim_operation_free(node->operation);
        free(node);
    }
}

static CUresult add_node(struct node_list *nodes, struct cudasim_operation *operation)
{
    CUgraphNode node = malloc(sizeof *node);
    if (!node) {
        cudasim_operation_free(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->operation = operation;
    node->origin = NULL;
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

/* A copy of an operation that was never queued. */
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

static CUresult clone_nodes(const struct node_list *from, struct node_list *to)
{
    CUgraphNode node;
    TAILQ_INIT(to);
    TAILQ_FOREACH (node, from, link) {
        struct cudasim_operation *clone = clone_operation(node->operation);
        CUresult result = clone ? add_node(to, clone) : CUDA_ERROR_OUT_OF_MEMORY;
        if (result != CUDA_SUCCESS) {
            free_nodes(to);
            return result;
        }
        TAILQ_LAST(to, node_list)->origin = node;
    }
    return CUDA_SUCCESS;
}

static CUgraph graph_new(void)
{
    CUgraph graph = calloc(1, sizeof *graph);
    if (graph)
        TAILQ_INIT(&graph->nodes);
    return graph;
}

/* ---- capture ---- */

/* Calls that the documentation calls potentially unsafe, as far as it names them or they are known to be refused on a GPU. */
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

/* Whether the capture forbids the calling thread what may be unsafe, by the rules of cuThreadExchangeStreamCaptureMode. */
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
    bool all = entry == CUDASIM_CALL_cuCtxSynchronize; /* it would wait for the streams that are being captured, in every mode */

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
    CUresult result = add_node(&capture->graph->nodes, operation);
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

/* Whether all that was captured comes before the end of the stream where the capture began. */
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
    CUgraph graph = graph_new();
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
        *capture =
            (struct cudasim_capture){.graph = graph, .origin = stream, .id = next_capture_id++, .mode = mode, .thread = pthread_self()};
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
        CUstream other;
        LIST_FOREACH (other, &cudasim_streams, link)
            if (other->capture == capture)
                other->capture = NULL;
        capture->over = true;
        LIST_REMOVE(capture, link);
        atomic_fetch_sub(&capture_count, 1);
        if (capture->invalid || !is_joined(capture)) {
            free_nodes(&capture->graph->nodes);
            free(capture->graph);
            capture->graph = NULL;
            result = capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        }
        *phGraph = capture->graph;
        /* The small structure stays: events recorded into it still point to it, and tell by it that they hold no position. */
    }
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    return cudasim_cuStreamGetCaptureInfo_v3(hStream, captureStatus, NULL, NULL, NULL, NULL, NULL);
}

CUresult cudasim_cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
                                           CUgraph *graph_out, const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out,
                                           size_t *numDependencies_out)
{
    if (!captureStatus_out)
        return CUDA_ERROR_INVALID_VALUE;
    if (dependencies_out || edgeData_out)
        return CUDA_ERROR_NOT_SUPPORTED;
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(hStream);
    if (stream) {
        *captureStatus_out = stream->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
        if (id_out)
            *id_out = stream->capture ? stream->capture->id : 0;
        if (graph_out)
            *graph_out = stream->capture ? stream->capture->graph : NULL;
        if (numDependencies_out)
            *numDependencies_out = 0;
    }
    cudasim_unlock();
    return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
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
    *phGraph = graph_new();
    return *phGraph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cudasim_cuGraphDestroy(CUgraph hGraph)
{
    if (!hGraph)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    free_nodes(&hGraph->nodes);
    cudasim_unlock();
    free(hGraph);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    (void)flags; /* how memory nodes and uploads are treated; there are none here */
    if (!phGraphExec || !hGraph)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphExec made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    cudasim_lock();
    CUresult result = clone_nodes(&hGraph->nodes, &made->nodes);
    cudasim_unlock();
    if (result != CUDA_SUCCESS)
        free(made);
    else
        *phGraphExec = made;
    return result;
}

/* The executable graph takes over the other's nodes, if they are of the same kinds in the same order. */
CUresult cudasim_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
    if (!hGraphExec || !hGraph || !resultInfo)
        return CUDA_ERROR_INVALID_VALUE;
    struct node_list taken;
    TAILQ_INIT(&taken);
    cudasim_lock();
    CUgraphNode mine = TAILQ_FIRST(&hGraphExec->nodes), theirs = TAILQ_FIRST(&hGraph->nodes);
    while (mine && theirs && mine->operation->kind == theirs->operation->kind) {
        mine = TAILQ_NEXT(mine, link);
        theirs = TAILQ_NEXT(theirs, link);
    }
    CUresult result = mine || theirs ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : clone_nodes(&hGraph->nodes, &taken);
    if (result == CUDA_SUCCESS) {
        /* What it is known by to the calls that change one node stays. */
        CUgraphNode before = TAILQ_FIRST(&hGraphExec->nodes), now;
        TAILQ_FOREACH (now, &taken, link) {
            now->origin = before->origin;
            before = TAILQ_NEXT(before, link);
        }
        free_nodes(&hGraphExec->nodes);
        TAILQ_INIT(&hGraphExec->nodes);
        TAILQ_CONCAT(&hGraphExec->nodes, &taken, link);
    }
    cudasim_unlock();
    *resultInfo =
        (CUgraphExecUpdateResultInfo){.result = result == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR};
    return result;
}

/* The operation by which an executable graph does what a node of that kind does in the graph that it was made of, or NULL. [locked] */
static struct cudasim_operation *operation_of(CUgraphExec executable, CUgraphNode origin, enum cudasim_operation_kind kind)
{
    CUgraphNode node;
    TAILQ_FOREACH (node, &executable->nodes, link)
        if (node->origin == origin && node->operation->kind == kind)
            return node->operation;
    return NULL;
}

CUresult cudasim_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    if (!hGraphExec || !hNode || !nodeParams || !nodeParams->kernelParams)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    struct cudasim_operation *operation = operation_of(hGraphExec, hNode, CUDASIM_OPERATION_KERNEL);
    bool same = operation && cudasim_kernel_of_function(nodeParams->func) == operation->kernel.entry;
    const struct cudasim_kernel *code = same ? operation->kernel.entry->code : NULL;
    for (uint32_t i = 0; same && i < code->param_count; i++)
        memcpy(operation->kernel.params[i], nodeParams->kernelParams[i], code->params[i].size);
    cudasim_unlock();
    return same ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Of one row, between addresses. */
CUresult cudasim_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    (void)ctx;
    if (!hGraphExec || !hNode || !copyParams || !copyParams->WidthInBytes || copyParams->Height > 1 || copyParams->Depth > 1)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    struct cudasim_operation *operation = operation_of(hGraphExec, hNode, CUDASIM_OPERATION_COPY);
    if (operation) {
        operation->copy.box = (struct cudasim_box){copyParams->WidthInBytes, 1, 1};
        operation->copy.to.address = copyParams->dstDevice;
        operation->copy.from.address = copyParams->srcDevice;
    }
    cudasim_unlock();
    return operation ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cudasim_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                                                CUcontext ctx)
{
    (void)ctx;
    if (!hGraphExec || !hNode || !memsetParams)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    struct cudasim_operation *operation = operation_of(hGraphExec, hNode, CUDASIM_OPERATION_FILL);
    bool same = operation && memsetParams->elementSize == operation->fill.value_bytes &&
                memsetParams->height == operation->fill.box.height &&
                memsetParams->width * memsetParams->elementSize == operation->fill.box.width;
    if (same) {
        operation->fill.to.address = memsetParams->dst;
        operation->fill.value = memsetParams->value;
    }
    cudasim_unlock();
    return same ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cudasim_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    if (!hGraphExec)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    free_nodes(&hGraphExec->nodes);
    cudasim_unlock();
    free(hGraphExec);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    if (!hGraphExec)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    cudasim_lock();
    cudasim_pools_graph_launched();
    CUstream stream = cudasim_stream_resolve(hStream);
    struct node_list copies;
    TAILQ_INIT(&copies);
    if (!stream)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = clone_nodes(&hGraphExec->nodes, &copies);
    CUgraphNode node;
    while (result == CUDA_SUCCESS && (node = TAILQ_FIRST(&copies))) {
        TAILQ_REMOVE(&copies, node, link);
        result = cudasim_submit(node->operation, stream);
        free(node);
    }
    free_nodes(&copies);
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    if (!hGraph || !numNodes)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    size_t count = 0;
    CUgraphNode node;
    TAILQ_FOREACH (node, &hGraph->nodes, link) {
        if (nodes && count < *numNodes)
            nodes[count] = node;
        count++;
    }
    if (!nodes || count < *numNodes)
        *numNodes = count;
    cudasim_unlock();
    return CUDA_SUCCESS;
}

CUresult cudasim_cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    if (!hNode || !type)
        return CUDA_ERROR_INVALID_VALUE;
    switch (hNode->operation->kind) {
    case CUDASIM_OPERATION_KERNEL:
        *type = CU_GRAPH_NODE_TYPE_KERNEL;
        break;
    case CUDASIM_OPERATION_COPY:
        *type = CU_GRAPH_NODE_TYPE_MEMCPY;
        break;
    case CUDASIM_OPERATION_FILL:
        *type = CU_GRAPH_NODE_TYPE_MEMSET;
        break;
    case CUDASIM_OPERATION_HOST_FUNCTION:
        *type = CU_GRAPH_NODE_TYPE_HOST;
        break;
    case CUDASIM_OPERATION_WRITE_VALUE:
    case CUDASIM_OPERATION_WAIT_VALUE:
        *type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
        break;
    default:
        *type = CU_GRAPH_NODE_TYPE_EMPTY;
        break;
    }
    return CUDA_SUCCESS;
}

CUresult cudasim_cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    if (!hNode || !nodeParams || hNode->operation->kind != CUDASIM_OPERATION_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct cudasim_operation *operation = hNode->operation;
    const struct cudasim_launch *shape = &operation->kernel.launch;
    *nodeParams = (CUDA_KERNEL_NODE_PARAMS){
        .func = &operation->kernel.entry->function,
        .gridDimX = shape->grid[0],
        .gridDimY = shape->grid[1],
        .gridDimZ = shape->grid[2],
        .blockDimX = shape->block[0],
        .blockDimY = shape->block[1],
        .blockDimZ = shape->block[2],
        .sharedMemBytes = shape->shared_bytes,
        .kernelParams = operation->kernel.params,
    };
    return CUDA_SUCCESS;
}

CUresult cudasim_cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
    if (!hNode || !nodeParams || hNode->operation->kind != CUDASIM_OPERATION_COPY)
        return CUDA_ERROR_INVALID_VALUE;
    const struct cudasim_copy *copy = &hNode->operation->copy;
    *nodeParams = (CUDA_MEMCPY3D){
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = copy->from.address,
        .srcPitch = copy->from.pitch,
        .srcHeight = copy->box.height,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = copy->to.address,
        .dstPitch = copy->to.pitch,
        .dstHeight = copy->box.height,
        .WidthInBytes = copy->box.width,
        .Height = copy->box.height,
        .Depth = copy->box.depth,
    };
    return CUDA_SUCCESS;
}

CUresult cudasim_cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    if (!hNode || !nodeParams || hNode->operation->kind != CUDASIM_OPERATION_FILL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct cudasim_fill *fill = &hNode->operation->fill;
    *nodeParams = (CUDA_MEMSET_NODE_PARAMS){
        .dst = fill->to.address,
        .pitch = fill->to.pitch,
        .value = fill->value,
        .elementSize = fill->value_bytes,
        .width = fill->box.width / fill->value_bytes,
        .height = fill->box.height,
    };
    return CUDA_SUCCESS;
}
