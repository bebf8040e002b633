/* The devices and their attributes. Every value is the driver's. */
#include <string.h>

#include "runtime.h"

cudaError_t cudaGetDeviceCount(int *count)
{
    cudasim_count_runtime_call(__func__, 1);
    if (count == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    *count = 0;
    CUresult result = cudasim_driver_init();
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetCount(count);
    if (result == CUDA_SUCCESS && *count == 0)
        result = CUDA_ERROR_NO_DEVICE;
    return cudasim_runtime_end(result);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int ordinal)
{
    CUdevice device;
    cudasim_count_runtime_call(__func__, 1);
    CUresult result = cudasim_device_from_ordinal(ordinal, &device);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device);
    return cudasim_runtime_end(result);
}

/* Device attributes have the driver's numbers. */
_Static_assert((int)cudaDevAttrComputeCapabilityMajor == (int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR &&
                   (int)cudaDevAttrMemoryPoolsSupported == (int)CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
               "device attributes differ");

/*
 * Fields of cudaDeviceProp that are driver attributes: PROPERTY(field, attribute), with
 * CU_DEVICE_ATTRIBUTE_ left out. Texture and surface limits are 0, because the simulator has
 * neither.
 */
#define DEVICE_PROPERTIES(PROPERTY)                                                                                    \
    PROPERTY(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK)                                                           \
    PROPERTY(regsPerBlock, MAX_REGISTERS_PER_BLOCK)                                                                    \
    PROPERTY(warpSize, WARP_SIZE)                                                                                      \
    PROPERTY(memPitch, MAX_PITCH)                                                                                      \
    PROPERTY(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK)                                                                \
    PROPERTY(maxThreadsDim[0], MAX_BLOCK_DIM_X)                                                                        \
    PROPERTY(maxThreadsDim[1], MAX_BLOCK_DIM_Y)                                                                        \
    PROPERTY(maxThreadsDim[2], MAX_BLOCK_DIM_Z)                                                                        \
    PROPERTY(maxGridSize[0], MAX_GRID_DIM_X)                                                                           \
    PROPERTY(maxGridSize[1], MAX_GRID_DIM_Y)                                                                           \
    PROPERTY(maxGridSize[2], MAX_GRID_DIM_Z)                                                                           \
    PROPERTY(totalConstMem, TOTAL_CONSTANT_MEMORY)                                                                     \
    PROPERTY(major, COMPUTE_CAPABILITY_MAJOR)                                                                          \
    PROPERTY(minor, COMPUTE_CAPABILITY_MINOR)                                                                          \
    PROPERTY(textureAlignment, TEXTURE_ALIGNMENT)                                                                      \
    PROPERTY(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT)                                                           \
    PROPERTY(multiProcessorCount, MULTIPROCESSOR_COUNT)                                                                \
    PROPERTY(integrated, INTEGRATED)                                                                                   \
    PROPERTY(canMapHostMemory, CAN_MAP_HOST_MEMORY)                                                                    \
    PROPERTY(surfaceAlignment, SURFACE_ALIGNMENT)                                                                      \
    PROPERTY(concurrentKernels, CONCURRENT_KERNELS)                                                                    \
    PROPERTY(ECCEnabled, ECC_ENABLED)                                                                                  \
    PROPERTY(pciBusID, PCI_BUS_ID)                                                                                     \
    PROPERTY(pciDeviceID, PCI_DEVICE_ID)                                                                               \
    PROPERTY(pciDomainID, PCI_DOMAIN_ID)                                                                               \
    PROPERTY(tccDriver, TCC_DRIVER)                                                                                    \
    PROPERTY(asyncEngineCount, ASYNC_ENGINE_COUNT)                                                                     \
    PROPERTY(unifiedAddressing, UNIFIED_ADDRESSING)                                                                    \
    PROPERTY(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH)                                                                  \
    PROPERTY(l2CacheSize, L2_CACHE_SIZE)                                                                               \
    PROPERTY(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE)                                                   \
    PROPERTY(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR)                                              \
    PROPERTY(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED)                                                   \
    PROPERTY(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED)                                                        \
    PROPERTY(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED)                                                          \
    PROPERTY(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)                                         \
    PROPERTY(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR)                                                  \
    PROPERTY(managedMemory, MANAGED_MEMORY)                                                                            \
    PROPERTY(isMultiGpuBoard, MULTI_GPU_BOARD)                                                                         \
    PROPERTY(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID)                                                           \
    PROPERTY(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED)                                                  \
    PROPERTY(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS)                                                             \
    PROPERTY(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS)                                                       \
    PROPERTY(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED)                                                 \
    PROPERTY(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)                               \
    PROPERTY(cooperativeLaunch, COOPERATIVE_LAUNCH)                                                                    \
    PROPERTY(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)                                                \
    PROPERTY(pageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES)                     \
    PROPERTY(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST)                                      \
    PROPERTY(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR)                                                \
    PROPERTY(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE)                                                 \
    PROPERTY(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK)                                              \
    PROPERTY(hostRegisterSupported, HOST_REGISTER_SUPPORTED)                                                           \
    PROPERTY(sparseCudaArraySupported, SPARSE_CUDA_ARRAY_SUPPORTED)                                                    \
    PROPERTY(hostRegisterReadOnlySupported, READ_ONLY_HOST_REGISTER_SUPPORTED)                                         \
    PROPERTY(timelineSemaphoreInteropSupported, TIMELINE_SEMAPHORE_INTEROP_SUPPORTED)                                  \
    PROPERTY(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED)                                                             \
    PROPERTY(gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED)                                                        \
    PROPERTY(gpuDirectRDMAFlushWritesOptions, GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS)                                    \
    PROPERTY(gpuDirectRDMAWritesOrdering, GPU_DIRECT_RDMA_WRITES_ORDERING)                                             \
    PROPERTY(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES)                                           \
    PROPERTY(deferredMappingCudaArraySupported, DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED)                                 \
    PROPERTY(ipcEventSupported, IPC_EVENT_SUPPORTED)                                                                   \
    PROPERTY(clusterLaunch, CLUSTER_LAUNCH)                                                                            \
    PROPERTY(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS)                                                       \
    PROPERTY(deviceNumaConfig, NUMA_CONFIG)                                                                            \
    PROPERTY(deviceNumaId, NUMA_ID)                                                                                    \
    PROPERTY(mpsEnabled, MPS_ENABLED)                                                                                  \
    PROPERTY(hostNumaId, HOST_NUMA_ID)                                                                                 \
    PROPERTY(hostNumaMultinodeIpcSupported, HOST_NUMA_MULTINODE_IPC_SUPPORTED)

/* Stores a device attribute, or 0 ("not supported") if the simulated driver has no value for it. */
static CUresult attribute_or_zero(int *value, CUdevice_attribute attribute, CUdevice device)
{
    *value = 0;
    CUresult result = cuDeviceGetAttribute(value, attribute, device);
    return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : result;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int ordinal)
{
    CUdevice device;
    cudasim_count_runtime_call(__func__, 1);
    if (properties == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    memset(properties, 0, sizeof *properties);
    CUresult result = cudasim_device_from_ordinal(ordinal, &device);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetName(properties->name, sizeof properties->name, device);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetUuid(&properties->uuid, device);
    if (result == CUDA_SUCCESS)
        result = cuDeviceTotalMem(&properties->totalGlobalMem, device);

    int value;
#define PROPERTY(field, attribute)                                                                                     \
    if (result == CUDA_SUCCESS) {                                                                                      \
        result = attribute_or_zero(&value, CU_DEVICE_ATTRIBUTE_##attribute, device);                                   \
        properties->field = (__typeof__(properties->field))value;                                                      \
    }
    DEVICE_PROPERTIES(PROPERTY)
#undef PROPERTY
    return cudasim_runtime_end(result);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int ordinal)
{
    CUdevice device;
    cudasim_count_runtime_call(__func__, 1);
    CUresult result = cudasim_device_from_ordinal(ordinal, &device);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetPCIBusId(id, length, device);
    return cudasim_runtime_end(result);
}

cudaError_t cudaDeviceGetByPCIBusId(int *ordinal, const char *id)
{
    cudasim_count_runtime_call(__func__, 1);
    CUresult result = cudasim_driver_init();
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetByPCIBusId(ordinal, id);
    return cudasim_runtime_end(result);
}

cudaError_t cudaDeviceCanAccessPeer(int *can_access, int ordinal, int peer_ordinal)
{
    CUdevice device;
    CUdevice peer;
    cudasim_count_runtime_call(__func__, 1);
    CUresult result = cudasim_device_from_ordinal(ordinal, &device);
    if (result == CUDA_SUCCESS)
        result = cudasim_device_from_ordinal(peer_ordinal, &peer);
    if (result == CUDA_SUCCESS)
        result = cuDeviceCanAccessPeer(can_access, device, peer);
    return cudasim_runtime_end(result);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer_ordinal, unsigned int flags)
{
    CUcontext context = NULL;
    CUresult result = cudasim_runtime_begin(__func__);
    if (result == CUDA_SUCCESS)
        result = cudasim_primary_context(peer_ordinal, &context);
    if (result == CUDA_SUCCESS)
        result = cuCtxEnablePeerAccess(context, flags);
    return cudasim_runtime_end(result);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    return RUNTIME_RUN(cuCtxGetStreamPriorityRange(least, greatest));
}

cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit)
{
    return RUNTIME_RUN(cuCtxGetLimit(value, (CUlimit)limit));
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    return RUNTIME_RUN(cuCtxSetLimit((CUlimit)limit, value));
}

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *config)
{
    CUfunc_cache driver_config = CU_FUNC_CACHE_PREFER_NONE;
    CUresult result = cudasim_runtime_begin(__func__);
    if (config == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cuCtxGetCacheConfig(&driver_config);
    if (result == CUDA_SUCCESS)
        *config = (enum cudaFuncCache)driver_config;
    return cudasim_runtime_end(result);
}

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config)
{
    return RUNTIME_RUN(cuCtxSetCacheConfig((CUfunc_cache)config));
}

cudaError_t cudaGetDeviceFlags(unsigned int *flags)
{
    return RUNTIME_RUN(cuCtxGetFlags(flags));
}

cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
    CUdevice device;
    int ordinal = 0;
    cudasim_count_runtime_call(__func__, 1);
    CUresult result = cudasim_current_device(&ordinal);
    if (result == CUDA_SUCCESS)
        result = cudasim_device_from_ordinal(ordinal, &device);
    if (result == CUDA_SUCCESS)
        result = cuDevicePrimaryCtxSetFlags(device, flags);
    return cudasim_runtime_end(result);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    cudasim_count_runtime_call(__func__, 1);
    return cudasim_runtime_end(cuDriverGetVersion(version));
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    cudasim_count_runtime_call(__func__, 1);
    if (version == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, enum cudaChannelFormatKind kind)
{
    return (struct cudaChannelFormatDesc){.x = x, .y = y, .z = z, .w = w, .f = kind};
}
