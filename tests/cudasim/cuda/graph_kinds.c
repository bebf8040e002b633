/*
 * Graphs by their nodes: kernels, host functions, events, words, memory, and nodes that do nothing.
 * Nodes of any type, too. External semaphores are not simulated.
 */
#include <stdlib.h>

#include "engine.h"
#include "entries.h"
#include "graphs.h"
#include "kernels.h"
#include "memory.h"

/* Adds a node for the operation, which may be NULL: no memory. Takes ownership of it. */
static CUresult add(CUgraph graph, const CUgraphNode *dependencies, size_t count, struct cudasim_operation *operation,
                    CUgraphNode *made)
{
    if (!operation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    operation->call = cudasim_call_name();
    cudasim_lock();
    CUresult result = cudasim_graph_add(graph, dependencies, count, operation, made);
    cudasim_unlock();
    return result;
}

static bool is_of_kind(CUgraphNode node, enum cudasim_operation_kind kind)
{
    return node && !node->child && node->operation->kind == kind;
}

/* Replaces the node's operation if it is of the same kind. Takes ownership of `now`. [locked] */
static CUresult replace(CUgraphNode node, struct cudasim_operation *now)
{
    if (!is_of_kind(node, now->kind)) {
        cudasim_operation_free(now);
        return CUDA_ERROR_INVALID_VALUE;
    }
    cudasim_operation_free(node->operation);
    node->operation = now;
    return CUDA_SUCCESS;
}

/* Replaces the operation of the node, or of its copy in an executable graph. */
static CUresult set(CUgraphExec executable, CUgraphNode node, struct cudasim_operation *now)
{
    if (!now)
        return CUDA_ERROR_OUT_OF_MEMORY;
    cudasim_lock();
    CUresult result = replace(executable ? cudasim_node_of(&executable->nodes, node) : node, now);
    if (executable && result == CUDA_SUCCESS)
        executable->uploaded = false;
    cudasim_unlock();
    return result;
}

/* ---- kernels ---- */

static CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS *params, struct cudasim_operation **made)
{
    const struct cudasim_launch shape = {{params->gridDimX, params->gridDimY, params->gridDimZ},
                                         {params->blockDimX, params->blockDimY, params->blockDimZ},
                                         params->sharedMemBytes,
                                         0,
                                         1};
    CUfunction function = params->func ? params->func : (CUfunction)params->kern;
    CUresult result = cudasim_kernel_operation(made, function, shape, params->kernelParams, params->extra);
    if (result == CUDA_SUCCESS) {
        cudasim_lock();
        result = cudasim_kernel_look(*made, cudasim_context_current());
        if (result != CUDA_SUCCESS)
            cudasim_operation_free(*made);
        cudasim_unlock();
    }
    return result;
}

CUresult cudasim_cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                         size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    struct cudasim_operation *operation;
    if (!phGraphNode || !hGraph || !nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = make_kernel(nodeParams, &operation);
    return result == CUDA_SUCCESS ? add(hGraph, dependencies, numDependencies, operation, phGraphNode) : result;
}

CUresult cudasim_cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    struct cudasim_operation *operation;
    if (!hNode || !nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = make_kernel(nodeParams, &operation);
    return result == CUDA_SUCCESS ? set(NULL, hNode, operation) : result;
}

CUresult cudasim_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                   const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    struct cudasim_operation *operation;
    if (!hGraphExec || !hNode || !nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = make_kernel(nodeParams, &operation);
    return result == CUDA_SUCCESS ? set(hGraphExec, hNode, operation) : result;
}

/* ---- host functions ---- */

static struct cudasim_operation *make_host(const CUDA_HOST_NODE_PARAMS *params)
{
    struct cudasim_operation *operation = cudasim_operation_new(CUDASIM_OPERATION_HOST_FUNCTION);
    if (operation) {
        operation->host.function = params->fn;
        operation->host.data = params->userData;
    }
    return operation;
}

CUresult cudasim_cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                    size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (!phGraphNode || !hGraph || !nodeParams || !nodeParams->fn)
        return CUDA_ERROR_INVALID_VALUE;
    return add(hGraph, dependencies, numDependencies, make_host(nodeParams), phGraphNode);
}

CUresult cudasim_cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (!nodeParams || !is_of_kind(hNode, CUDASIM_OPERATION_HOST_FUNCTION))
        return CUDA_ERROR_INVALID_VALUE;
    *nodeParams = (CUDA_HOST_NODE_PARAMS){hNode->operation->host.function, hNode->operation->host.data};
    return CUDA_SUCCESS;
}

CUresult cudasim_cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (!hNode || !nodeParams || !nodeParams->fn)
        return CUDA_ERROR_INVALID_VALUE;
    return set(NULL, hNode, make_host(nodeParams));
}

CUresult cudasim_cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                              const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (!hGraphExec || !hNode || !nodeParams || !nodeParams->fn)
        return CUDA_ERROR_INVALID_VALUE;
    return set(hGraphExec, hNode, make_host(nodeParams));
}

CUresult cudasim_cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                     size_t numDependencies)
{
    if (!phGraphNode || !hGraph)
        return CUDA_ERROR_INVALID_VALUE;
    return add(hGraph, dependencies, numDependencies, cudasim_operation_new(CUDASIM_OPERATION_MARKER), phGraphNode);
}

/* ---- events ---- */

/* Makes an operation for the event. Stores NULL without memory. */
static CUresult make_event(enum cudasim_operation_kind kind, CUevent handle, struct cudasim_operation **made)
{
    cudasim_lock();
    CUevent event = cudasim_event_of(handle);
    *made = event ? cudasim_event_operation(kind, event) : NULL;
    cudasim_unlock();
    return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult add_event(enum cudasim_operation_kind kind, CUgraphNode *made, CUgraph graph,
                          const CUgraphNode *dependencies, size_t count, CUevent event)
{
    struct cudasim_operation *operation;
    if (!made || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = make_event(kind, event, &operation);
    return result == CUDA_SUCCESS ? add(graph, dependencies, count, operation, made) : result;
}

static CUresult set_event(enum cudasim_operation_kind kind, CUgraphExec executable, CUgraphNode node, CUevent event)
{
    struct cudasim_operation *operation;
    if (!node)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = make_event(kind, event, &operation);
    return result == CUDA_SUCCESS ? set(executable, node, operation) : result;
}

CUresult cudasim_cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                           size_t numDependencies, CUevent event)
{
    return add_event(CUDASIM_OPERATION_EVENT_RECORD, phGraphNode, hGraph, dependencies, numDependencies, event);
}

CUresult cudasim_cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                         size_t numDependencies, CUevent event)
{
    return add_event(CUDASIM_OPERATION_EVENT_WAIT, phGraphNode, hGraph, dependencies, numDependencies, event);
}

CUresult cudasim_cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    if (!event_out || !is_of_kind(hNode, CUDASIM_OPERATION_EVENT_RECORD))
        return CUDA_ERROR_INVALID_VALUE;
    *event_out = hNode->operation->event;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    if (!event_out || !is_of_kind(hNode, CUDASIM_OPERATION_EVENT_WAIT))
        return CUDA_ERROR_INVALID_VALUE;
    *event_out = hNode->operation->event;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    return set_event(CUDASIM_OPERATION_EVENT_RECORD, NULL, hNode, event);
}

CUresult cudasim_cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    return set_event(CUDASIM_OPERATION_EVENT_WAIT, NULL, hNode, event);
}

CUresult cudasim_cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
    return hGraphExec ? set_event(CUDASIM_OPERATION_EVENT_RECORD, hGraphExec, hNode, event) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cudasim_cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
    return hGraphExec ? set_event(CUDASIM_OPERATION_EVENT_WAIT, hGraphExec, hNode, event) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- memory of the graph's own ---- */

CUresult cudasim_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                        size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    if (!phGraphNode || !hGraph || !nodeParams || !nodeParams->bytesize ||
        nodeParams->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    const CUmemLocation place = nodeParams->poolProps.location;
    if (place.type != CU_MEM_LOCATION_TYPE_DEVICE || !cudasim_valid_device(place.id) ||
        nodeParams->poolProps.handleTypes || nodeParams->accessDescCount)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct cudasim_operation *operation = cudasim_operation_new(CUDASIM_OPERATION_GRAPH_ALLOC);
    if (!operation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    cudasim_lock();
    operation->pool_block = cudasim_pool_block_for_graph(cudasim_context_current(), place.id, nodeParams->bytesize);
    cudasim_unlock();
    if (!operation->pool_block) {
        cudasim_operation_free(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    nodeParams->dptr = (CUdeviceptr)cudasim_pool_block_base(operation->pool_block);
    return add(hGraph, dependencies, numDependencies, operation, phGraphNode);
}

CUresult cudasim_cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
    if (!params_out || !is_of_kind(hNode, CUDASIM_OPERATION_GRAPH_ALLOC))
        return CUDA_ERROR_INVALID_VALUE;
    const struct cudasim_pool_block *block = hNode->operation->pool_block;
    *params_out = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = cudasim_pool_block_bytes(block),
        .dptr = (CUdeviceptr)cudasim_pool_block_base(block),
    };
    return CUDA_SUCCESS;
}

CUresult cudasim_cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                       size_t numDependencies, CUdeviceptr dptr)
{
    if (!phGraphNode || !hGraph)
        return CUDA_ERROR_INVALID_VALUE;
    struct cudasim_operation *operation = cudasim_operation_new(CUDASIM_OPERATION_GRAPH_FREE);
    if (!operation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    cudasim_lock();
    operation->pool_block = cudasim_pool_block_freed_by_graph((uintptr_t)dptr);
    cudasim_unlock();
    if (!operation->pool_block) {
        cudasim_operation_free(operation);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return add(hGraph, dependencies, numDependencies, operation, phGraphNode);
}

CUresult cudasim_cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
    if (!dptr_out || !is_of_kind(hNode, CUDASIM_OPERATION_GRAPH_FREE))
        return CUDA_ERROR_INVALID_VALUE;
    *dptr_out = (CUdeviceptr)cudasim_pool_block_base(hNode->operation->pool_block);
    return CUDA_SUCCESS;
}

/* ---- nodes of any type ---- */

static CUDA_MEMSET_NODE_PARAMS fill_of(const CUDA_MEMSET_NODE_PARAMS_v2 *params)
{
    return (CUDA_MEMSET_NODE_PARAMS){params->dst,         params->pitch, params->value,
                                     params->elementSize, params->width, params->height};
}

static CUDA_KERNEL_NODE_PARAMS kernel_of(const CUDA_KERNEL_NODE_PARAMS_v3 *params)
{
    return (CUDA_KERNEL_NODE_PARAMS){
        .func = params->func,
        .gridDimX = params->gridDimX,
        .gridDimY = params->gridDimY,
        .gridDimZ = params->gridDimZ,
        .blockDimX = params->blockDimX,
        .blockDimY = params->blockDimY,
        .blockDimZ = params->blockDimZ,
        .sharedMemBytes = params->sharedMemBytes,
        .kernelParams = params->kernelParams,
        .extra = params->extra,
        .kern = params->kern,
    };
}

/* The parameters as the calls for one kind of node take them. */
struct own_params {
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUDA_HOST_NODE_PARAMS host;
};

/* Reads all members of the union, of which the caller uses the one of the node's type. */
static struct own_params own_params_of(const CUgraphNodeParams *params)
{
    return (struct own_params){
        kernel_of(&params->kernel), fill_of(&params->memset), {params->host.fn, params->host.userData}};
}

static CUresult add_memory(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                           CUDA_MEM_ALLOC_NODE_PARAMS_v2 *params)
{
    CUDA_MEM_ALLOC_NODE_PARAMS now = {.poolProps = params->poolProps,
                                      .accessDescs = params->accessDescs,
                                      .accessDescCount = params->accessDescCount,
                                      .bytesize = params->bytesize};
    CUresult result = cudasim_cuGraphAddMemAllocNode(made, graph, dependencies, count, &now);
    params->dptr = now.dptr;
    return result;
}

bool cudasim_edges_are_plain(const CUgraphEdgeData *edges, size_t count)
{
    for (size_t i = 0; edges && i < count; i++)
        if (edges[i].from_port || edges[i].to_port || edges[i].type)
            return false;
    return true;
}

CUresult cudasim_cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                   const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                   CUgraphNodeParams *nodeParams)
{
    if (!phGraphNode || !hGraph || !nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_edges_are_plain(dependencyData, numDependencies))
        return CUDA_ERROR_NOT_SUPPORTED;
    const CUgraphNode *d = dependencies;
    const size_t n = numDependencies;
    const struct own_params own = own_params_of(nodeParams);
    switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return cudasim_cuGraphAddKernelNode_v2(phGraphNode, hGraph, d, n, &own.kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cudasim_cuGraphAddMemcpyNode(phGraphNode, hGraph, d, n, &nodeParams->memcpy.copyParams, NULL);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return cudasim_cuGraphAddMemsetNode(phGraphNode, hGraph, d, n, &own.fill, NULL);
    case CU_GRAPH_NODE_TYPE_HOST:
        return cudasim_cuGraphAddHostNode(phGraphNode, hGraph, d, n, &own.host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        if (nodeParams->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
            return cudasim_add_moved_child(phGraphNode, hGraph, d, n, nodeParams->graph.graph);
        return cudasim_cuGraphAddChildGraphNode(phGraphNode, hGraph, d, n, nodeParams->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return cudasim_cuGraphAddEmptyNode(phGraphNode, hGraph, d, n);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cudasim_cuGraphAddEventWaitNode(phGraphNode, hGraph, d, n, nodeParams->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cudasim_cuGraphAddEventRecordNode(phGraphNode, hGraph, d, n, nodeParams->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return add_memory(phGraphNode, hGraph, d, n, &nodeParams->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return cudasim_cuGraphAddMemFreeNode(phGraphNode, hGraph, d, n, nodeParams->free.dptr);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return cudasim_add_conditional_node(phGraphNode, hGraph, d, n, &nodeParams->conditional);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cudasim_cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    if (!hNode || !nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    const struct own_params own = own_params_of(nodeParams);
    switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return cudasim_cuGraphKernelNodeSetParams_v2(hNode, &own.kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cudasim_cuGraphMemcpyNodeSetParams(hNode, &nodeParams->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return cudasim_cuGraphMemsetNodeSetParams(hNode, &own.fill);
    case CU_GRAPH_NODE_TYPE_HOST:
        return cudasim_cuGraphHostNodeSetParams(hNode, &own.host);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cudasim_cuGraphEventWaitNodeSetEvent(hNode, nodeParams->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cudasim_cuGraphEventRecordNodeSetEvent(hNode, nodeParams->eventRecord.event);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cudasim_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    if (!hGraphExec || !hNode || !nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    const struct own_params own = own_params_of(nodeParams);
    switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return cudasim_cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &own.kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cudasim_cuGraphExecMemcpyNodeSetParams(hGraphExec, hNode, &nodeParams->memcpy.copyParams, NULL);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return cudasim_cuGraphExecMemsetNodeSetParams(hGraphExec, hNode, &own.fill, NULL);
    case CU_GRAPH_NODE_TYPE_HOST:
        return cudasim_cuGraphExecHostNodeSetParams(hGraphExec, hNode, &own.host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return cudasim_cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, nodeParams->graph.graph);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cudasim_cuGraphExecEventWaitNodeSetEvent(hGraphExec, hNode, nodeParams->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cudasim_cuGraphExecEventRecordNodeSetEvent(hGraphExec, hNode, nodeParams->eventRecord.event);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}
