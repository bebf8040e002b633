#include "capture.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "entries.h"
#include "kernels.h"

struct CUgraphNode_st {
    struct cudasim_operation *operation;
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
};

static uint64_t next_capture_id = 1;

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

CUresult cudasim_capture_add(CUstream stream, struct cudasim_operation *operation)
{
    CUgraph graph = stream->capture->graph;
    CUresult result = add_node(&graph->nodes, operation);
    if (result == CUDA_SUCCESS)
        graph->node_count++;
    return result;
}

CUresult cudasim_capture_record(CUstream stream, CUevent event)
{
    event->capture = stream->capture;
    return CUDA_SUCCESS;
}

CUresult cudasim_capture_wait(CUstream stream, CUevent event)
{
    if (!event->capture)
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    if (stream->capture && stream->capture != event->capture)
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    stream->capture = event->capture;
    return CUDA_SUCCESS;
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
        *capture = (struct cudasim_capture){graph, stream, next_capture_id++};
        stream->capture = capture;
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
    static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
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
