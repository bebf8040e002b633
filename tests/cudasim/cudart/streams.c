/*
 * Streams, events, graphs and launch configuration that do not depend on which default stream the
 * caller means.
 */
#include "per_stream.h"

/* --- the configuration between <<<...>>> and the kernel's stub --- */

/*
 * Arguments of a launch may themselves launch, so configurations form a stack. Its depth is the
 * deepest nesting of <<<...>>> inside one expression. It is small, because a library opened at run
 * time has little thread-local storage.
 */
enum { LAUNCH_NESTING_MAX = 8 };

struct launch_configuration {
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    cudaStream_t stream;
};

static _Thread_local struct launch_configuration configurations[LAUNCH_NESTING_MAX];
static _Thread_local unsigned configuration_count;

/* Returns 0 for success. Only then the caller runs the stub. */
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream)
{
    if (configuration_count == LAUNCH_NESTING_MAX)
        return (unsigned)cudasim_runtime_fail(cudaErrorLaunchOutOfResources);
    configurations[configuration_count++] =
        (struct launch_configuration){.grid = grid, .block = block, .shared_bytes = shared_bytes, .stream = stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream)
{
    if (configuration_count == 0)
        return cudasim_runtime_fail(cudaErrorMissingConfiguration);
    const struct launch_configuration *top = &configurations[--configuration_count];
    *grid = top->grid;
    *block = top->block;
    *shared_bytes = top->shared_bytes;
    *(cudaStream_t *)stream = top->stream;
    return cudaSuccess;
}

/* --- streams --- */

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return RUNTIME_RUN(cuStreamCreate(stream, CU_STREAM_DEFAULT));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    return RUNTIME_RUN(cuStreamCreate(stream, flags));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    return RUNTIME_RUN(cuStreamCreateWithPriority(stream, flags, priority));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return RUNTIME_RUN(cuStreamDestroy(stream));
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    if (mode == NULL) {
        cudasim_count_runtime_call(__func__, 1);
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    }
    CUstreamCaptureMode driver_mode = (CUstreamCaptureMode)*mode;
    CUresult result = cudasim_runtime_begin(__func__);
    if (result == CUDA_SUCCESS)
        result = cuThreadExchangeStreamCaptureMode(&driver_mode);
    if (result == CUDA_SUCCESS)
        *mode = (enum cudaStreamCaptureMode)driver_mode;
    return cudasim_runtime_end(result);
}

struct cudasim_stream_callback {
    cudaStream_t stream; /* as the program named it */
    cudaStreamCallback_t callback;
    void *data;
};

struct cudasim_stream_callback *cudasim_stream_callback_new(cudaStream_t stream, cudaStreamCallback_t callback,
                                                            void *data)
{
    struct cudasim_stream_callback *call = malloc(sizeof *call);
    if (call != NULL)
        *call = (struct cudasim_stream_callback){.stream = stream, .callback = callback, .data = data};
    return call;
}

void CUDA_CB cudasim_stream_callback_run(CUstream stream, CUresult status, void *data)
{
    struct cudasim_stream_callback *call = data;
    (void)stream;
    call->callback(call->stream, cudasim_translate_error(status), call->data);
    free(call);
}

/* --- events --- */

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return RUNTIME_RUN(cuEventCreate(event, CU_EVENT_DEFAULT));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    return RUNTIME_RUN(cuEventCreate(event, flags));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return RUNTIME_RUN(cuEventQuery(event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return RUNTIME_RUN(cuEventSynchronize(event));
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    return RUNTIME_RUN(cuEventElapsedTime(milliseconds, start, end));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return RUNTIME_RUN(cuEventDestroy(event));
}

/* --- graphs --- */

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned int flags)
{
    return RUNTIME_RUN(cuGraphCreate(graph, flags));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return RUNTIME_RUN(cuGraphDestroy(graph));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags)
{
    return RUNTIME_RUN(cuGraphInstantiateWithFlags(executable, graph, flags));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags)
{
    return RUNTIME_RUN(cuGraphInstantiateWithFlags(executable, graph, flags));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
    return RUNTIME_RUN(cuGraphExecDestroy(executable));
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info)
{
    CUgraphExecUpdateResultInfo driver_info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    CUresult result = cudasim_runtime_begin(__func__);
    if (info == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cuGraphExecUpdate(executable, graph, &driver_info);
    info->result = (enum cudaGraphExecUpdateResult)driver_info.result;
    return cudasim_runtime_end(result);
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, struct cudaKernelNodeParams *parameters)
{
    CUDA_KERNEL_NODE_PARAMS driver = {.func = NULL};
    CUresult result = cudasim_runtime_begin(__func__);
    if (parameters == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cuGraphKernelNodeGetParams(node, &driver);
    *parameters = (struct cudaKernelNodeParams){.func = driver.func,
                                                .gridDim = {driver.gridDimX, driver.gridDimY, driver.gridDimZ},
                                                .blockDim = {driver.blockDimX, driver.blockDimY, driver.blockDimZ},
                                                .sharedMemBytes = driver.sharedMemBytes,
                                                .kernelParams = driver.kernelParams,
                                                .extra = driver.extra};
    return cudasim_runtime_end(result);
}

/* `func` is the driver's handle, as cudaGraphKernelNodeGetParams returned it. */
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const struct cudaKernelNodeParams *parameters)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (parameters == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    CUDA_KERNEL_NODE_PARAMS driver = {.func = parameters->func,
                                      .gridDimX = parameters->gridDim.x,
                                      .gridDimY = parameters->gridDim.y,
                                      .gridDimZ = parameters->gridDim.z,
                                      .blockDimX = parameters->blockDim.x,
                                      .blockDimY = parameters->blockDim.y,
                                      .blockDimZ = parameters->blockDim.z,
                                      .sharedMemBytes = parameters->sharedMemBytes,
                                      .kernelParams = parameters->kernelParams,
                                      .extra = parameters->extra};
    if (result == CUDA_SUCCESS)
        result = cuGraphExecKernelNodeSetParams(executable, node, &driver);
    return cudasim_runtime_end(result);
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t executable, cudaGraphNode_t node, void *to,
                                               const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY3D driver = cudasim_one_row(to, from, bytes);
    (void)kind;
    return RUNTIME_RUN(cuGraphExecMemcpyNodeSetParams(executable, node, &driver, NULL));
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                     size_t count, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY3D driver = cudasim_one_row(to, from, bytes);
    (void)kind;
    return RUNTIME_RUN(cuGraphAddMemcpyNode(node, graph, dependencies, count, &driver, NULL));
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                       size_t count, cudaGraph_t child)
{
    return RUNTIME_RUN(cuGraphAddChildGraphNode(node, graph, dependencies, count, child));
}

cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t original)
{
    return RUNTIME_RUN(cuGraphClone(clone, original));
}

cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node, cudaGraph_t child)
{
    return RUNTIME_RUN(cuGraphExecChildGraphNodeSetParams(executable, node, child));
}

static CUDA_MEMSET_NODE_PARAMS driver_fill(const struct cudaMemsetParams *parameters)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = (CUdeviceptr)(uintptr_t)parameters->dst,
                                     .pitch = parameters->pitch,
                                     .value = parameters->value,
                                     .elementSize = parameters->elementSize,
                                     .width = parameters->width,
                                     .height = parameters->height};
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const struct cudaMemsetParams *parameters)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (parameters == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    const CUDA_MEMSET_NODE_PARAMS driver = driver_fill(parameters);
    if (result == CUDA_SUCCESS)
        result = cuGraphExecMemsetNodeSetParams(executable, node, &driver, NULL);
    return cudasim_runtime_end(result);
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                   size_t count, const struct cudaMemsetParams *parameters)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (parameters == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    const CUDA_MEMSET_NODE_PARAMS driver = driver_fill(parameters);
    if (result == CUDA_SUCCESS)
        result = cuGraphAddMemsetNode(node, graph, dependencies, count, &driver, NULL);
    return cudasim_runtime_end(result);
}

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

/* Translates the parameters of a node. Answers CUDA_ERROR_NOT_SUPPORTED for other types. */
static CUresult driver_node(const struct cudaGraphNodeParams *parameters, CUgraphNodeParams *driver)
{
    CUkernel kernel = NULL;
    CUresult result = CUDA_SUCCESS;
    *driver = (CUgraphNodeParams){.type = (CUgraphNodeType)parameters->type};
    switch (parameters->type) {
    case cudaGraphNodeTypeKernel:
        result = cudasim_kernel_from_symbol(parameters->kernel.func, &kernel);
        driver->kernel = (CUDA_KERNEL_NODE_PARAMS_v3){.kern = kernel,
                                                      .gridDimX = parameters->kernel.gridDim.x,
                                                      .gridDimY = parameters->kernel.gridDim.y,
                                                      .gridDimZ = parameters->kernel.gridDim.z,
                                                      .blockDimX = parameters->kernel.blockDim.x,
                                                      .blockDimY = parameters->kernel.blockDim.y,
                                                      .blockDimZ = parameters->kernel.blockDim.z,
                                                      .sharedMemBytes = parameters->kernel.sharedMemBytes,
                                                      .kernelParams = parameters->kernel.kernelParams,
                                                      .extra = parameters->kernel.extra};
        return result;
    case cudaGraphNodeTypeMemset:
        driver->memset = (CUDA_MEMSET_NODE_PARAMS_v2){.dst = (CUdeviceptr)(uintptr_t)parameters->memset.dst,
                                                      .pitch = parameters->memset.pitch,
                                                      .value = parameters->memset.value,
                                                      .elementSize = parameters->memset.elementSize,
                                                      .width = parameters->memset.width,
                                                      .height = parameters->memset.height};
        return CUDA_SUCCESS;
    case cudaGraphNodeTypeGraph:
        driver->graph.graph = parameters->graph.graph;
        return CUDA_SUCCESS;
    case cudaGraphNodeTypeEmpty:
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

cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                             const cudaGraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *parameters)
{
    CUgraphNodeParams driver;
    CUresult result = cudasim_runtime_begin(__func__);
    if (parameters == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = driver_node(parameters, &driver);
    if (result == CUDA_SUCCESS)
        result =
            cuGraphAddNode(node, graph, dependencies, (const CUgraphEdgeData *)(const void *)edges, count, &driver);
    if (result == CUDA_SUCCESS && parameters->type == cudaGraphNodeTypeConditional)
        parameters->conditional.phGraph_out = driver.conditional.phGraph_out;
    return cudasim_runtime_end(result);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    return RUNTIME_RUN(cuGraphGetNodes(graph, nodes, count));
}

/* --- driver entry points --- */

cudaError_t cudasim_driver_entry_point(const char *caller, const char *symbol, void **function, unsigned int version,
                                       cuuint64_t flags, enum cudaDriverEntryPointQueryResult *status)
{
    cudasim_count_runtime_call(caller, 1);
    if (symbol == NULL || function == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    *function = NULL;
    CUresult result = cudasim_driver_init();
    if (result == CUDA_SUCCESS)
        result = cuGetProcAddress(symbol, function, (int)version, flags, &found);
    if (result == CUDA_ERROR_NOT_FOUND)
        result = CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && status != NULL)
        *status = (enum cudaDriverEntryPointQueryResult)found;
    return cudasim_runtime_end(result);
}
