/* Queries about a graph's nodes. */
#include <stdlib.h>

#include "engine.h"
#include "entries.h"
#include "graphs.h"
#include "kernels.h"

static int by_making(const void *a, const void *b)
{
    const uint64_t one = (*(const CUgraphNode *)a)->made, other = (*(const CUgraphNode *)b)->made;
    return (one > other) - (one < other);
}

/* CUDA names no order. Where edges were added later, the nodes can't run in this one. */
CUresult cudasim_cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    if (!hGraph || !numNodes)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    size_t count = 0;
    CUgraphNode node, *all = calloc(hGraph->node_count + 1, sizeof(CUgraphNode));
    CUresult result = all ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (all)
        TAILQ_FOREACH (node, &hGraph->nodes, link)
            all[count++] = node;
    if (count)
        qsort(all, count, sizeof *all, by_making);
    for (size_t i = 0; nodes && i < count && i < *numNodes; i++)
        nodes[i] = all[i];
    if (all && (!nodes || count < *numNodes))
        *numNodes = count;
    free(all);
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    if (!hNode || !type)
        return CUDA_ERROR_INVALID_VALUE;
    if (hNode->child) {
        *type = CU_GRAPH_NODE_TYPE_GRAPH;
        return CUDA_SUCCESS;
    }
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
    case CUDASIM_OPERATION_EVENT_RECORD:
        *type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
        break;
    case CUDASIM_OPERATION_EVENT_WAIT:
        *type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
        break;
    case CUDASIM_OPERATION_GRAPH_ALLOC:
        *type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        break;
    case CUDASIM_OPERATION_GRAPH_FREE:
        *type = CU_GRAPH_NODE_TYPE_MEM_FREE;
        break;
    case CUDASIM_OPERATION_CONDITIONAL:
        *type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
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

/* Returns the rows from plane to plane. */
static size_t rows_of(const struct cudasim_side *side, const struct cudasim_box *box)
{
    return box->depth > 1 ? side->slice_pitch / side->pitch : box->height;
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
        .srcHeight = rows_of(&copy->from, &copy->box),
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = copy->to.address,
        .dstPitch = copy->to.pitch,
        .dstHeight = rows_of(&copy->to, &copy->box),
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
