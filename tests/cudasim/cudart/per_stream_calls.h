/*
 * Streams, events, launches, stream-ordered allocation and capture, written once for both default
 * streams: see default_stream_legacy.c. Not a header of declarations.
 */

/* --- launches --- */

static cudaError_t launch(CUkernel kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes, cudaStream_t stream)
{
    /*
     * The driver takes kernel handles where it takes functions, and the real runtime passes them
     * too.
     */
    return cudasim_runtime_end(cuLaunchKernel((CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                              (unsigned)shared_bytes, stream, args, NULL));
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                               cudaStream_t stream)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (result != CUDA_SUCCESS)
        return cudasim_runtime_end(result);
    /* The stub passes the result of __cudaGetKernel, which is NULL if that failed. */
    if (kernel == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidDeviceFunction);
    return launch((CUkernel)kernel, grid, block, args, shared_bytes, stream);
}

cudaError_t cudaLaunchKernel(const void *func, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                             cudaStream_t stream)
{
    CUkernel kernel;
    CUresult result = cudasim_runtime_begin(__func__);
    if (result == CUDA_SUCCESS)
        result = cudasim_kernel_from_symbol(func, &kernel);
    if (result != CUDA_SUCCESS)
        return cudasim_runtime_end(result);
    return launch(kernel, grid, block, args, shared_bytes, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void *func, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                                        cudaStream_t stream)
{
    CUkernel kernel;
    CUresult result = cudasim_runtime_begin(__func__);
    if (result == CUDA_SUCCESS)
        result = cudasim_kernel_from_symbol(func, &kernel);
    if (result != CUDA_SUCCESS)
        return cudasim_runtime_end(result);
    return cudasim_runtime_end(cuLaunchCooperativeKernel((CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y,
                                                         block.z, (unsigned)shared_bytes, stream, args));
}

/*
 * The launch attributes of both interfaces have one layout, so an array of one is an array of the
 * other.
 */
_Static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute), "launch attributes differ in size");
_Static_assert(offsetof(cudaLaunchAttribute, val) == offsetof(CUlaunchAttribute, value),
               "launch attributes differ in layout");

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *func, void **args)
{
    CUkernel kernel;
    CUresult result = cudasim_runtime_begin(__func__);
    if (config == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cudasim_kernel_from_symbol(func, &kernel);
    if (result != CUDA_SUCCESS)
        return cudasim_runtime_end(result);
    CUlaunchConfig driver_config = {
        .gridDimX = config->gridDim.x,
        .gridDimY = config->gridDim.y,
        .gridDimZ = config->gridDim.z,
        .blockDimX = config->blockDim.x,
        .blockDimY = config->blockDim.y,
        .blockDimZ = config->blockDim.z,
        .sharedMemBytes = (unsigned)config->dynamicSmemBytes,
        .hStream = config->stream,
        .attrs = (CUlaunchAttribute *)(void *)config->attrs,
        .numAttrs = config->numAttrs,
    };
    return cudasim_runtime_end(cuLaunchKernelEx(&driver_config, (CUfunction)kernel, args, NULL));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    return RUNTIME_RUN(cuLaunchHostFunc(stream, function, data));
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *data, unsigned int flags)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (callback == NULL || flags != 0)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result != CUDA_SUCCESS)
        return cudasim_runtime_end(result);
    struct cudasim_stream_callback *call = cudasim_stream_callback_new(stream, callback, data);
    if (call == NULL)
        return cudasim_runtime_fail(cudaErrorMemoryAllocation);
    result = cuStreamAddCallback(stream, cudasim_stream_callback_run, call, 0);
    if (result != CUDA_SUCCESS)
        free(call);
    return cudasim_runtime_end(result);
}

/* --- streams and events --- */

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return RUNTIME_RUN(cuStreamQuery(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return RUNTIME_RUN(cuStreamSynchronize(stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    return RUNTIME_RUN(cuStreamWaitEvent(stream, event, flags));
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int *flags)
{
    return RUNTIME_RUN(cuStreamGetFlags(stream, flags));
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    return RUNTIME_RUN(cuStreamGetPriority(stream, priority));
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id)
{
    return RUNTIME_RUN(cuStreamGetId(stream, id));
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device)
{
    return RUNTIME_RUN(cuStreamGetDevice(stream, device));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return RUNTIME_RUN(cuEventRecord(event, stream));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    return RUNTIME_RUN(cuEventRecordWithFlags(event, stream, flags));
}

/* --- stream-ordered allocation --- */

cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream)
{
    CUdeviceptr address = 0;
    CUresult result = cudasim_runtime_begin(__func__);
    if (pointer == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS && bytes != 0)
        result = cuMemAllocAsync(&address, bytes, stream);
    if (result == CUDA_SUCCESS)
        *pointer = cudasim_pointer(address);
    return cudasim_runtime_end(result);
}

cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)
{
    CUdeviceptr address = 0;
    CUresult result = cudasim_runtime_begin(__func__);
    if (pointer == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS && bytes != 0)
        result = cuMemAllocFromPoolAsync(&address, bytes, pool, stream);
    if (result == CUDA_SUCCESS)
        *pointer = cudasim_pointer(address);
    return cudasim_runtime_end(result);
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream)
{
    return RUNTIME_RUN(cuMemFreeAsync(cudasim_device_address(pointer), stream));
}

/* --- capture and graphs --- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    return RUNTIME_RUN(cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                          const cudaGraphEdgeData *edges, size_t count, enum cudaStreamCaptureMode mode)
{
    return RUNTIME_RUN(cuStreamBeginCaptureToGraph(
        stream, graph, dependencies, (const CUgraphEdgeData *)(const void *)edges, count, (CUstreamCaptureMode)mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    return RUNTIME_RUN(cuStreamEndCapture(stream, graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    CUstreamCaptureStatus driver_status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = cudasim_runtime_begin(__func__);
    if (status == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cuStreamIsCapturing(stream, &driver_status);
    if (result == CUDA_SUCCESS)
        *status = (enum cudaStreamCaptureStatus)driver_status;
    return cudasim_runtime_end(result);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **dependencies,
                                     const cudaGraphEdgeData **edges, size_t *dependency_count)
{
    CUstreamCaptureStatus driver_status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t driver_id = 0;
    CUresult result = cudasim_runtime_begin(__func__);
    if (status == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cuStreamGetCaptureInfo(stream, &driver_status, &driver_id, graph, dependencies,
                                        (const CUgraphEdgeData **)(const void *)edges, dependency_count);
    if (result == CUDA_SUCCESS) {
        *status = (enum cudaStreamCaptureStatus)driver_status;
        if (id != NULL)
            *id = driver_id;
    }
    return cudasim_runtime_end(result);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    return RUNTIME_RUN(cuGraphLaunch(graph, stream));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t stream)
{
    return RUNTIME_RUN(cuGraphUpload(graph, stream));
}

_Static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS) &&
                   offsetof(cudaGraphInstantiateParams, result_out) ==
                       offsetof(CUDA_GRAPH_INSTANTIATE_PARAMS, result_out),
               "parameters of instantiations differ");

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *executable, cudaGraph_t graph,
                                           cudaGraphInstantiateParams *parameters)
{
    return RUNTIME_RUN(cuGraphInstantiateWithParams(executable, graph, (void *)parameters));
}

cudaError_t cudaMemPrefetchAsync(const void *pointer, size_t count, struct cudaMemLocation location, unsigned int flags,
                                 cudaStream_t stream)
{
    const CUmemLocation driver = {.type = (CUmemLocationType)location.type, .id = location.id};
    return RUNTIME_RUN(cuMemPrefetchAsync(cudasim_device_address(pointer), count, driver, flags, stream));
}

/* --- driver entry points --- */

/* No flag means: as the caller was compiled, which the name of this function says. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *status)
{
    cuuint64_t driver_flags = flags == cudaEnableDefault ? DEFAULT_STREAM_FLAG : flags;
    return cudasim_driver_entry_point(__func__, symbol, function, version, driver_flags, status);
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status)
{
    cuuint64_t driver_flags = flags == cudaEnableDefault ? DEFAULT_STREAM_FLAG : flags;
    return cudasim_driver_entry_point(__func__, symbol, function, CUDART_VERSION, driver_flags, status);
}
