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
