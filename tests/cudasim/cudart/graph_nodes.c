/*
 * Graphs by their nodes: each call becomes the driver's call for the same kind of node. A kernel is
 * named by its host stub, by a handle of cudaGetKernel, or by what a node's parameters returned.
 * Nodes that copy to and from symbols are in symbols.c.
 */
#include <stddef.h>
#include <string.h>

#include "runtime.h"

/* ---- kernels ---- */

/*
 * Stores the driver's kernel behind `func`, as one of two handles. A node's parameters return the
 * driver's function.
 */
static CUresult find_kernel(void *func, CUfunction *function, CUkernel *kernel)
{
    const char *name = NULL;
    CUresult result = cudasim_kernel_from_symbol(func, kernel);
    *function = NULL;
    if (result != CUDA_ERROR_INVALID_HANDLE)
        return result;
    *kernel = NULL;
    *function = func;
    return cuFuncGetName(&name, func);
}

static CUresult driver_kernel(const struct cudaKernelNodeParams *parameters, CUDA_KERNEL_NODE_PARAMS *driver)
{
    *driver = (CUDA_KERNEL_NODE_PARAMS){.gridDimX = parameters->gridDim.x,
                                        .gridDimY = parameters->gridDim.y,
                                        .gridDimZ = parameters->gridDim.z,
                                        .blockDimX = parameters->blockDim.x,
                                        .blockDimY = parameters->blockDim.y,
                                        .blockDimZ = parameters->blockDim.z,
                                        .sharedMemBytes = parameters->sharedMemBytes,
                                        .kernelParams = parameters->kernelParams,
                                        .extra = parameters->extra};
    return find_kernel(parameters->func, &driver->func, &driver->kern);
}

/*
 * The shape of the calls that take a kernel's parameters. `call` is the driver's, with `driver`. A
 * kernel that is not found is an error in the runtime's words.
 */
#define WITH_KERNEL(parameters, call)                                                                                  \
    CUDA_KERNEL_NODE_PARAMS driver;                                                                                    \
    CUresult result = cudasim_runtime_begin(__func__);                                                                 \
    if (parameters == NULL)                                                                                            \
        return cudasim_runtime_fail(cudaErrorInvalidValue);                                                            \
    if (result != CUDA_SUCCESS)                                                                                        \
        return cudasim_runtime_end(result);                                                                            \
    result = driver_kernel(parameters, &driver);                                                                       \
    return result == CUDA_SUCCESS ? cudasim_runtime_end(call) : cudasim_kernel_lookup_failed(result)

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                   size_t count, const struct cudaKernelNodeParams *parameters)
{
    WITH_KERNEL(parameters, cuGraphAddKernelNode(node, graph, dependencies, count, &driver));
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const struct cudaKernelNodeParams *parameters)
{
    WITH_KERNEL(parameters, cuGraphKernelNodeSetParams(node, &driver));
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const struct cudaKernelNodeParams *parameters)
{
    WITH_KERNEL(parameters, cuGraphExecKernelNodeSetParams(executable, node, &driver));
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, struct cudaKernelNodeParams *parameters)
{
    CUDA_KERNEL_NODE_PARAMS driver = {.func = NULL};
    CUresult result = cudasim_runtime_begin(__func__);
    if (parameters == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cuGraphKernelNodeGetParams(node, &driver);
    if (result == CUDA_SUCCESS)
        *parameters = (struct cudaKernelNodeParams){.func = driver.func,
                                                    .gridDim = {driver.gridDimX, driver.gridDimY, driver.gridDimZ},
                                                    .blockDim = {driver.blockDimX, driver.blockDimY, driver.blockDimZ},
                                                    .sharedMemBytes = driver.sharedMemBytes,
                                                    .kernelParams = driver.kernelParams,
                                                    .extra = driver.extra};
    return cudasim_runtime_end(result);
}

_Static_assert(sizeof(cudaKernelNodeAttrValue) == sizeof(CUkernelNodeAttrValue), "attributes of kernel nodes differ");

cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t node, cudaKernelNodeAttrID attribute,
                                            cudaKernelNodeAttrValue *value)
{
    return RUNTIME_RUN(cuGraphKernelNodeGetAttribute(node, (CUkernelNodeAttrID)attribute, (void *)value));
}

cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t node, cudaKernelNodeAttrID attribute,
                                            const cudaKernelNodeAttrValue *value)
{
    return RUNTIME_RUN(cuGraphKernelNodeSetAttribute(node, (CUkernelNodeAttrID)attribute, (const void *)value));
}

/* ---- copies ---- */

/* The direction follows from the addresses. */
static CUresult driver_copy(const struct cudaMemcpy3DParms *copy, CUDA_MEMCPY3D *driver)
{
    if (copy->srcArray != NULL || copy->dstArray != NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    *driver = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                              .srcXInBytes = copy->srcPos.x,
                              .srcY = copy->srcPos.y,
                              .srcZ = copy->srcPos.z,
                              .srcDevice = cudasim_device_address(copy->srcPtr.ptr),
                              .srcPitch = copy->srcPtr.pitch,
                              .srcHeight = copy->srcPtr.ysize,
                              .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                              .dstXInBytes = copy->dstPos.x,
                              .dstY = copy->dstPos.y,
                              .dstZ = copy->dstPos.z,
                              .dstDevice = cudasim_device_address(copy->dstPtr.ptr),
                              .dstPitch = copy->dstPtr.pitch,
                              .dstHeight = copy->dstPtr.ysize,
                              .WidthInBytes = copy->extent.width,
                              .Height = copy->extent.height,
                              .Depth = copy->extent.depth};
    return CUDA_SUCCESS;
}

/* The same shape as WITH_KERNEL, for parameters that `translate` turns into the driver's. */
#define WITH(parameters, type, translate, call)                                                                        \
    type driver;                                                                                                       \
    CUresult result = cudasim_runtime_begin(__func__);                                                                 \
    if (parameters == NULL)                                                                                            \
        return cudasim_runtime_fail(cudaErrorInvalidValue);                                                            \
    if (result == CUDA_SUCCESS)                                                                                        \
        result = translate(parameters, &driver);                                                                       \
    return cudasim_runtime_end(result == CUDA_SUCCESS ? (call) : result)

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                   size_t count, const struct cudaMemcpy3DParms *copy)
{
    WITH(copy, CUDA_MEMCPY3D, driver_copy, cuGraphAddMemcpyNode(node, graph, dependencies, count, &driver, NULL));
}

cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const struct cudaMemcpy3DParms *copy)
{
    WITH(copy, CUDA_MEMCPY3D, driver_copy, cuGraphMemcpyNodeSetParams(node, &driver));
}

cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const struct cudaMemcpy3DParms *copy)
{
    WITH(copy, CUDA_MEMCPY3D, driver_copy, cuGraphExecMemcpyNodeSetParams(executable, node, &driver, NULL));
}

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, struct cudaMemcpy3DParms *copy)
{
    CUDA_MEMCPY3D driver;
    CUresult result = cudasim_runtime_begin(__func__);
    if (copy == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cuGraphMemcpyNodeGetParams(node, &driver);
    if (result == CUDA_SUCCESS)
        *copy = (struct cudaMemcpy3DParms){
            .srcPos = {driver.srcXInBytes, driver.srcY, driver.srcZ},
            .srcPtr = {cudasim_pointer(driver.srcDevice), driver.srcPitch, driver.srcPitch, driver.srcHeight},
            .dstPos = {driver.dstXInBytes, driver.dstY, driver.dstZ},
            .dstPtr = {cudasim_pointer(driver.dstDevice), driver.dstPitch, driver.dstPitch, driver.dstHeight},
            .extent = {driver.WidthInBytes, driver.Height, driver.Depth},
            .kind = cudaMemcpyDefault};
    return cudasim_runtime_end(result);
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                     size_t count, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY3D driver = cudasim_one_row(to, from, bytes);
    (void)kind;
    return RUNTIME_RUN(cuGraphAddMemcpyNode(node, graph, dependencies, count, &driver, NULL));
}

cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void *to, const void *from, size_t bytes,
                                           enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY3D driver = cudasim_one_row(to, from, bytes);
    (void)kind;
    return RUNTIME_RUN(cuGraphMemcpyNodeSetParams(node, &driver));
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t executable, cudaGraphNode_t node, void *to,
                                               const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY3D driver = cudasim_one_row(to, from, bytes);
    (void)kind;
    return RUNTIME_RUN(cuGraphExecMemcpyNodeSetParams(executable, node, &driver, NULL));
}

/* ---- fills ---- */

static CUresult driver_fill(const struct cudaMemsetParams *parameters, CUDA_MEMSET_NODE_PARAMS *driver)
{
    *driver = (CUDA_MEMSET_NODE_PARAMS){.dst = cudasim_device_address(parameters->dst),
                                        .pitch = parameters->pitch,
                                        .value = parameters->value,
                                        .elementSize = parameters->elementSize,
                                        .width = parameters->width,
                                        .height = parameters->height};
    return CUDA_SUCCESS;
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                   size_t count, const struct cudaMemsetParams *parameters)
{
    WITH(parameters, CUDA_MEMSET_NODE_PARAMS, driver_fill,
         cuGraphAddMemsetNode(node, graph, dependencies, count, &driver, NULL));
}

cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const struct cudaMemsetParams *parameters)
{
    WITH(parameters, CUDA_MEMSET_NODE_PARAMS, driver_fill, cuGraphMemsetNodeSetParams(node, &driver));
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const struct cudaMemsetParams *parameters)
{
    WITH(parameters, CUDA_MEMSET_NODE_PARAMS, driver_fill,
         cuGraphExecMemsetNodeSetParams(executable, node, &driver, NULL));
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, struct cudaMemsetParams *parameters)
{
    CUDA_MEMSET_NODE_PARAMS driver;
    CUresult result = cudasim_runtime_begin(__func__);
    if (parameters == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cuGraphMemsetNodeGetParams(node, &driver);
    if (result == CUDA_SUCCESS)
        *parameters = (struct cudaMemsetParams){.dst = cudasim_pointer(driver.dst),
                                                .pitch = driver.pitch,
                                                .value = driver.value,
                                                .elementSize = driver.elementSize,
                                                .width = driver.width,
                                                .height = driver.height};
    return cudasim_runtime_end(result);
}

/* ---- host functions, and nodes that do nothing ---- */

static CUresult driver_host(const struct cudaHostNodeParams *parameters, CUDA_HOST_NODE_PARAMS *driver)
{
    *driver = (CUDA_HOST_NODE_PARAMS){parameters->fn, parameters->userData};
    return CUDA_SUCCESS;
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                 size_t count, const struct cudaHostNodeParams *parameters)
{
    WITH(parameters, CUDA_HOST_NODE_PARAMS, driver_host, cuGraphAddHostNode(node, graph, dependencies, count, &driver));
}

cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const struct cudaHostNodeParams *parameters)
{
    WITH(parameters, CUDA_HOST_NODE_PARAMS, driver_host, cuGraphHostNodeSetParams(node, &driver));
}

cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                           const struct cudaHostNodeParams *parameters)
{
    WITH(parameters, CUDA_HOST_NODE_PARAMS, driver_host, cuGraphExecHostNodeSetParams(executable, node, &driver));
}

cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, struct cudaHostNodeParams *parameters)
{
    CUDA_HOST_NODE_PARAMS driver;
    CUresult result = cudasim_runtime_begin(__func__);
    if (parameters == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cuGraphHostNodeGetParams(node, &driver);
    if (result == CUDA_SUCCESS)
        *parameters = (struct cudaHostNodeParams){driver.fn, driver.userData};
    return cudasim_runtime_end(result);
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                  size_t count)
{
    return RUNTIME_RUN(cuGraphAddEmptyNode(node, graph, dependencies, count));
}

/* ---- children ---- */

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                       size_t count, cudaGraph_t child)
{
    return RUNTIME_RUN(cuGraphAddChildGraphNode(node, graph, dependencies, count, child));
}

cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t *graph)
{
    return RUNTIME_RUN(cuGraphChildGraphNodeGetGraph(node, graph));
}

cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node, cudaGraph_t child)
{
    return RUNTIME_RUN(cuGraphExecChildGraphNodeSetParams(executable, node, child));
}

cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t original)
{
    return RUNTIME_RUN(cuGraphClone(clone, original));
}

cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t *node, cudaGraphNode_t original, cudaGraph_t clone)
{
    return RUNTIME_RUN(cuGraphNodeFindInClone(node, original, clone));
}

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t executable, cudaGraphNode_t node, unsigned int enabled)
{
    return RUNTIME_RUN(cuGraphNodeSetEnabled(executable, node, enabled));
}

cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t executable, cudaGraphNode_t node, unsigned int *enabled)
{
    return RUNTIME_RUN(cuGraphNodeGetEnabled(executable, node, enabled));
}

/* ---- events ---- */

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                        size_t count, cudaEvent_t event)
{
    return RUNTIME_RUN(cuGraphAddEventRecordNode(node, graph, dependencies, count, event));
}

cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *event)
{
    return RUNTIME_RUN(cuGraphEventRecordNodeGetEvent(node, event));
}

cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event)
{
    return RUNTIME_RUN(cuGraphEventRecordNodeSetEvent(node, event));
}

cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t executable, cudaGraphNode_t node, cudaEvent_t event)
{
    return RUNTIME_RUN(cuGraphExecEventRecordNodeSetEvent(executable, node, event));
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                      size_t count, cudaEvent_t event)
{
    return RUNTIME_RUN(cuGraphAddEventWaitNode(node, graph, dependencies, count, event));
}

cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *event)
{
    return RUNTIME_RUN(cuGraphEventWaitNodeGetEvent(node, event));
}

cudaError_t cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event)
{
    return RUNTIME_RUN(cuGraphEventWaitNodeSetEvent(node, event));
}

cudaError_t cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t executable, cudaGraphNode_t node, cudaEvent_t event)
{
    return RUNTIME_RUN(cuGraphExecEventWaitNodeSetEvent(executable, node, event));
}

/* ---- memory of the graph's own ---- */

/* The parameters are the driver's; an address is an integer there, and a pointer here. */
_Static_assert(sizeof(struct cudaMemAllocNodeParams) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS) &&
                   offsetof(struct cudaMemAllocNodeParams, bytesize) ==
                       offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize) &&
                   offsetof(struct cudaMemAllocNodeParams, dptr) == offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, dptr),
               "parameters of allocations differ");

cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                     size_t count, struct cudaMemAllocNodeParams *parameters)
{
    return RUNTIME_RUN(cuGraphAddMemAllocNode(node, graph, dependencies, count, (void *)parameters));
}

cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, struct cudaMemAllocNodeParams *parameters)
{
    return RUNTIME_RUN(cuGraphMemAllocNodeGetParams(node, (void *)parameters));
}

cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                    size_t count, void *address)
{
    return RUNTIME_RUN(cuGraphAddMemFreeNode(node, graph, dependencies, count, cudasim_device_address(address)));
}

cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void *address)
{
    return RUNTIME_RUN(cuGraphMemFreeNodeGetParams(node, address));
}

/* ---- conditions ---- */

/* The handle belongs to the calling thread's context. */
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle *handle, cudaGraph_t graph, unsigned int value,
                                             unsigned int flags)
{
    CUgraphConditionalHandle made = 0;
    CUcontext context = NULL;
    CUresult result = cudasim_runtime_begin(__func__);
    if (handle == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cuCtxGetCurrent(&context);
    if (result == CUDA_SUCCESS)
        result = cuGraphConditionalHandleCreate(&made, graph, context, value, flags);
    if (result == CUDA_SUCCESS)
        *handle = made;
    return cudasim_runtime_end(result);
}

/* ---- nodes of any type ---- */

/*
 * Translates the parameters of a node. Answers CUDA_ERROR_NOT_SUPPORTED for other types. `found` is
 * the result of the look-up of a kernel.
 */
static CUresult driver_node(const struct cudaGraphNodeParams *parameters, CUgraphNodeParams *driver, CUresult *found)
{
    CUfunction function = NULL;
    CUkernel kernel = NULL;
    *found = CUDA_SUCCESS;
    *driver = (CUgraphNodeParams){.type = (CUgraphNodeType)parameters->type};
    switch (parameters->type) {
    case cudaGraphNodeTypeKernel:
        *found = find_kernel(parameters->kernel.func, &function, &kernel);
        driver->kernel = (CUDA_KERNEL_NODE_PARAMS_v3){.func = function,
                                                      .kern = kernel,
                                                      .gridDimX = parameters->kernel.gridDim.x,
                                                      .gridDimY = parameters->kernel.gridDim.y,
                                                      .gridDimZ = parameters->kernel.gridDim.z,
                                                      .blockDimX = parameters->kernel.blockDim.x,
                                                      .blockDimY = parameters->kernel.blockDim.y,
                                                      .blockDimZ = parameters->kernel.blockDim.z,
                                                      .sharedMemBytes = parameters->kernel.sharedMemBytes,
                                                      .kernelParams = parameters->kernel.kernelParams,
                                                      .extra = parameters->kernel.extra};
        return *found;
    case cudaGraphNodeTypeMemcpy:
        return driver_copy(&parameters->memcpy.copyParams, &driver->memcpy.copyParams);
    case cudaGraphNodeTypeMemset:
        driver->memset = (CUDA_MEMSET_NODE_PARAMS_v2){.dst = cudasim_device_address(parameters->memset.dst),
                                                      .pitch = parameters->memset.pitch,
                                                      .value = parameters->memset.value,
                                                      .elementSize = parameters->memset.elementSize,
                                                      .width = parameters->memset.width,
                                                      .height = parameters->memset.height};
        return CUDA_SUCCESS;
    case cudaGraphNodeTypeHost:
        driver->host.fn = parameters->host.fn;
        driver->host.userData = parameters->host.userData;
        return CUDA_SUCCESS;
    case cudaGraphNodeTypeGraph:
        driver->graph.graph = parameters->graph.graph;
        driver->graph.ownership = (CUgraphChildGraphNodeOwnership)parameters->graph.ownership;
        return CUDA_SUCCESS;
    case cudaGraphNodeTypeEmpty:
        return CUDA_SUCCESS;
    case cudaGraphNodeTypeWaitEvent:
        driver->eventWait.event = parameters->eventWait.event;
        return CUDA_SUCCESS;
    case cudaGraphNodeTypeEventRecord:
        driver->eventRecord.event = parameters->eventRecord.event;
        return CUDA_SUCCESS;
    case cudaGraphNodeTypeMemAlloc:
        memcpy(&driver->alloc.poolProps, &parameters->alloc.poolProps, sizeof driver->alloc.poolProps);
        driver->alloc.accessDescs = (const void *)parameters->alloc.accessDescs;
        driver->alloc.accessDescCount = parameters->alloc.accessDescCount;
        driver->alloc.bytesize = parameters->alloc.bytesize;
        return CUDA_SUCCESS;
    case cudaGraphNodeTypeMemFree:
        driver->free.dptr = cudasim_device_address(parameters->free.dptr);
        return CUDA_SUCCESS;
    case cudaGraphNodeTypeConditional:
        driver->conditional.handle = parameters->conditional.handle;
        driver->conditional.type = (CUgraphConditionalNodeType)parameters->conditional.type;
        driver->conditional.size = parameters->conditional.size;
        return cuCtxGetCurrent(&driver->conditional.ctx);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* Ends a call with a node's parameters. An unknown kernel is an error in the runtime's words. */
static cudaError_t end(CUresult found, CUresult result)
{
    return found == CUDA_SUCCESS ? cudasim_runtime_end(result) : cudasim_kernel_lookup_failed(found);
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                             const cudaGraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *parameters)
{
    CUgraphNodeParams driver;
    CUresult found = CUDA_SUCCESS, result = cudasim_runtime_begin(__func__);
    if (parameters == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = driver_node(parameters, &driver, &found);
    if (result == CUDA_SUCCESS)
        result =
            cuGraphAddNode(node, graph, dependencies, (const CUgraphEdgeData *)(const void *)edges, count, &driver);
    if (result == CUDA_SUCCESS && parameters->type == cudaGraphNodeTypeConditional)
        parameters->conditional.phGraph_out = driver.conditional.phGraph_out;
    if (result == CUDA_SUCCESS && parameters->type == cudaGraphNodeTypeMemAlloc)
        parameters->alloc.dptr = cudasim_pointer(driver.alloc.dptr);
    return end(found, result);
}

cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, struct cudaGraphNodeParams *parameters)
{
    CUgraphNodeParams driver;
    CUresult found = CUDA_SUCCESS, result = cudasim_runtime_begin(__func__);
    if (parameters == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = driver_node(parameters, &driver, &found);
    if (result == CUDA_SUCCESS)
        result = cuGraphNodeSetParams(node, &driver);
    return end(found, result);
}

cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                       struct cudaGraphNodeParams *parameters)
{
    CUgraphNodeParams driver;
    CUresult found = CUDA_SUCCESS, result = cudasim_runtime_begin(__func__);
    if (parameters == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = driver_node(parameters, &driver, &found);
    if (result == CUDA_SUCCESS)
        result = cuGraphExecNodeSetParams(executable, node, &driver);
    return end(found, result);
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    CUgraphNodeType driver = CU_GRAPH_NODE_TYPE_EMPTY;
    CUresult result = cudasim_runtime_begin(__func__);
    if (type == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cuGraphNodeGetType(node, &driver);
    if (result == CUDA_SUCCESS)
        *type = (enum cudaGraphNodeType)driver;
    return cudasim_runtime_end(result);
}

/* ---- nodes and edges of a graph ---- */

_Static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData) &&
                   offsetof(cudaGraphEdgeData, type) == offsetof(CUgraphEdgeData, type),
               "data of edges differ");

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    return RUNTIME_RUN(cuGraphGetNodes(graph, nodes, count));
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    return RUNTIME_RUN(cuGraphGetRootNodes(graph, nodes, count));
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *edges,
                              size_t *count)
{
    return RUNTIME_RUN(cuGraphGetEdges(graph, from, to, (void *)edges, count));
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *dependencies, cudaGraphEdgeData *edges,
                                         size_t *count)
{
    return RUNTIME_RUN(cuGraphNodeGetDependencies(node, dependencies, (void *)edges, count));
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *dependents, cudaGraphEdgeData *edges,
                                           size_t *count)
{
    return RUNTIME_RUN(cuGraphNodeGetDependentNodes(node, dependents, (void *)edges, count));
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                     const cudaGraphEdgeData *edges, size_t count)
{
    return RUNTIME_RUN(cuGraphAddDependencies(graph, from, to, (const void *)edges, count));
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                        const cudaGraphEdgeData *edges, size_t count)
{
    return RUNTIME_RUN(cuGraphRemoveDependencies(graph, from, to, (const void *)edges, count));
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t executable, unsigned long long *flags)
{
    cuuint64_t driver = 0;
    CUresult result = cudasim_runtime_begin(__func__);
    if (flags == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cuGraphExecGetFlags(executable, &driver);
    if (result == CUDA_SUCCESS)
        *flags = driver;
    return cudasim_runtime_end(result);
}
