/*
 * Allocation, pinned memory, pointer queries and copies between devices. Stream-ordered allocation
 * is in per_stream_calls.h.
 */
#include "runtime.h"

/* --- device memory --- */

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    CUdeviceptr address = 0;
    CUresult result = cudasim_runtime_begin(__func__);
    if (pointer == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    /* A request for no bytes succeeds without memory; the driver would refuse it. */
    if (result == CUDA_SUCCESS && bytes != 0)
        result = cuMemAlloc(&address, bytes);
    if (result == CUDA_SUCCESS)
        *pointer = cudasim_pointer(address);
    return cudasim_runtime_end(result);
}

cudaError_t cudaMallocManaged(void **pointer, size_t bytes, unsigned int flags)
{
    CUdeviceptr address = 0;
    CUresult result = cudasim_runtime_begin(__func__);
    if (pointer == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cuMemAllocManaged(&address, bytes, flags);
    if (result == CUDA_SUCCESS)
        *pointer = cudasim_pointer(address);
    return cudasim_runtime_end(result);
}

cudaError_t cudaFree(void *pointer)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (result == CUDA_SUCCESS && pointer != NULL)
        result = cuMemFree(cudasim_device_address(pointer));
    return cudasim_runtime_end(result);
}

/*
 * The element size only tells the driver how to align rows. The runtime knows no element, and can
 * promise 4 bytes.
 */
enum { PITCH_ELEMENT_BYTES = 4 };

cudaError_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height)
{
    CUdeviceptr address = 0;
    CUresult result = cudasim_runtime_begin(__func__);
    if (pointer == NULL || pitch == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS && width != 0 && height != 0)
        result = cuMemAllocPitch(&address, pitch, width, height, PITCH_ELEMENT_BYTES);
    if (result == CUDA_SUCCESS)
        *pointer = cudasim_pointer(address);
    return cudasim_runtime_end(result);
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *pitched, struct cudaExtent extent)
{
    CUdeviceptr address = 0;
    size_t pitch = 0;
    size_t rows;
    CUresult result = cudasim_runtime_begin(__func__);
    if (pitched == NULL || __builtin_mul_overflow(extent.height, extent.depth, &rows))
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS && extent.width != 0 && rows != 0)
        result = cuMemAllocPitch(&address, &pitch, extent.width, rows, PITCH_ELEMENT_BYTES);
    if (result == CUDA_SUCCESS)
        *pitched = (struct cudaPitchedPtr){
            .ptr = cudasim_pointer(address), .pitch = pitch, .xsize = extent.width, .ysize = extent.height};
    return cudasim_runtime_end(result);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    return RUNTIME_RUN(cuMemGetInfo(free_bytes, total_bytes));
}

/* --- pinned host memory --- */

/* The runtime's flags for host memory are the driver's. */
_Static_assert(cudaHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE && cudaHostAllocMapped == CU_MEMHOSTALLOC_DEVICEMAP &&
                   cudaHostAllocWriteCombined == CU_MEMHOSTALLOC_WRITECOMBINED &&
                   cudaHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE &&
                   cudaHostRegisterMapped == CU_MEMHOSTREGISTER_DEVICEMAP &&
                   cudaHostRegisterIoMemory == CU_MEMHOSTREGISTER_IOMEMORY &&
                   cudaHostRegisterReadOnly == CU_MEMHOSTREGISTER_READ_ONLY,
               "flags of host memory differ");

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    return RUNTIME_RUN(cuMemHostAlloc(pointer, bytes, flags));
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes)
{
    return RUNTIME_RUN(cuMemAllocHost(pointer, bytes));
}

cudaError_t cudaFreeHost(void *pointer)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (result == CUDA_SUCCESS && pointer != NULL)
        result = cuMemFreeHost(pointer);
    return cudasim_runtime_end(result);
}

/* For linear memory: the runtime's description has the driver's fields in another order. */
cudaError_t cudaCreateTextureObject(cudaTextureObject_t *object, const struct cudaResourceDesc *resource,
                                    const struct cudaTextureDesc *texture, const struct cudaResourceViewDesc *view)
{
    CUDA_RESOURCE_DESC linear = {.resType = CU_RESOURCE_TYPE_LINEAR};
    const CUDA_TEXTURE_DESC plain = {.flags = CU_TRSF_READ_AS_INTEGER};

    if (!object || !resource || !texture || view)
        return RUNTIME_RUN(CUDA_ERROR_INVALID_VALUE);
    if (resource->resType == cudaResourceTypeLinear) {
        linear.res.linear.devPtr = cudasim_device_address(resource->res.linear.devPtr);
        linear.res.linear.sizeInBytes = resource->res.linear.sizeInBytes;
    } else if (resource->resType == cudaResourceTypePitch2D) {
        linear.resType = CU_RESOURCE_TYPE_PITCH2D;
        linear.res.pitch2D.devPtr = cudasim_device_address(resource->res.pitch2D.devPtr);
        linear.res.pitch2D.width = resource->res.pitch2D.width;
        linear.res.pitch2D.height = resource->res.pitch2D.height;
        linear.res.pitch2D.pitchInBytes = resource->res.pitch2D.pitchInBytes;
    } else {
        return RUNTIME_RUN(CUDA_ERROR_NOT_SUPPORTED);
    }
    return RUNTIME_RUN(cuTexObjectCreate((CUtexObject *)object, &linear, &plain, NULL));
}

cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object)
{
    return RUNTIME_RUN(cuTexObjectDestroy(object));
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
    return RUNTIME_RUN(cuMemHostRegister(pointer, bytes, flags));
}

cudaError_t cudaHostUnregister(void *pointer)
{
    return RUNTIME_RUN(cuMemHostUnregister(pointer));
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *pointer)
{
    return RUNTIME_RUN(cuIpcGetMemHandle((CUipcMemHandle *)(void *)handle, cudasim_device_address(pointer)));
}

cudaError_t cudaHostGetFlags(unsigned int *flags, void *pointer)
{
    return RUNTIME_RUN(cuMemHostGetFlags(flags, pointer));
}

cudaError_t cudaHostGetDevicePointer(void **device_pointer, void *pointer, unsigned int flags)
{
    CUdeviceptr address = 0;
    CUresult result = cudasim_runtime_begin(__func__);
    if (device_pointer == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cuMemHostGetDevicePointer(&address, pointer, flags);
    if (result == CUDA_SUCCESS)
        *device_pointer = cudasim_pointer(address);
    return cudasim_runtime_end(result);
}

/* --- pointer queries --- */

/*
 * Makes one driver query for everything, as the real runtime does. The driver leaves unknown
 * answers at zero. So memory that it does not know comes out as unregistered host memory: no
 * device, and the pointer itself as its host address.
 */
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    CUmemorytype type = 0;
    unsigned managed = 0;
    int ordinal = cudaInvalidDeviceId;
    CUdeviceptr device_pointer = 0;
    void *host_pointer = NULL;
    CUpointer_attribute wanted[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
    };
    void *values[] = {&type, &managed, &ordinal, &device_pointer, &host_pointer};

    CUresult result = cudasim_runtime_begin(__func__);
    if (attributes == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result =
            cuPointerGetAttributes(sizeof wanted / sizeof wanted[0], wanted, values, cudasim_device_address(pointer));
    if (result != CUDA_SUCCESS)
        return cudasim_runtime_end(result);

    *attributes = (struct cudaPointerAttributes){
        .type = cudaMemoryTypeUnregistered, .device = cudaInvalidDeviceId, .hostPointer = (void *)pointer};
    if (type != 0) {
        attributes->type = type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
        if (managed != 0)
            attributes->type = cudaMemoryTypeManaged;
        attributes->device = ordinal;
        attributes->devicePointer = cudasim_pointer(device_pointer);
        attributes->hostPointer = host_pointer;
    }
    return cudaSuccess;
}

/* --- managed memory --- */

/* The runtime's locations, advice and attributes of ranges are the driver's under other names. */
_Static_assert((int)cudaMemLocationTypeHostNumaCurrent == (int)CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT &&
                   (int)cudaMemAdviseUnsetAccessedBy == (int)CU_MEM_ADVISE_UNSET_ACCESSED_BY &&
                   (int)cudaMemRangeAttributeLastPrefetchLocationId ==
                       (int)CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID,
               "names around managed memory differ");

cudaError_t cudaMemAdvise(const void *pointer, size_t count, enum cudaMemoryAdvise advice,
                          struct cudaMemLocation location)
{
    return RUNTIME_RUN(cuMemAdvise(cudasim_device_address(pointer), count, (CUmem_advise)advice,
                                   (CUmemLocation){.type = (CUmemLocationType)location.type, .id = location.id}));
}

cudaError_t cudaMemRangeGetAttribute(void *data, size_t bytes, enum cudaMemRangeAttribute attribute,
                                     const void *pointer, size_t count)
{
    return RUNTIME_RUN(
        cuMemRangeGetAttribute(data, bytes, (CUmem_range_attribute)attribute, cudasim_device_address(pointer), count));
}

cudaError_t cudaMemRangeGetAttributes(void **data, size_t *bytes, enum cudaMemRangeAttribute *attributes,
                                      size_t attribute_count, const void *pointer, size_t count)
{
    return RUNTIME_RUN(cuMemRangeGetAttributes(data, bytes, (CUmem_range_attribute *)(void *)attributes,
                                               attribute_count, cudasim_device_address(pointer), count));
}

/* --- pools --- */

/* The runtime's pool structures and attribute numbers are the driver's under other names. */
_Static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps) &&
                   offsetof(struct cudaMemPoolProps, location) == offsetof(CUmemPoolProps, location) &&
                   offsetof(struct cudaMemPoolProps, maxSize) == offsetof(CUmemPoolProps, maxSize),
               "pool properties differ");
_Static_assert(sizeof(struct cudaMemAccessDesc) == sizeof(CUmemAccessDesc) &&
                   offsetof(struct cudaMemAccessDesc, flags) == offsetof(CUmemAccessDesc, flags) &&
                   sizeof(struct cudaMemLocation) == sizeof(CUmemLocation),
               "access descriptions differ");
_Static_assert((int)cudaMemPoolReuseFollowEventDependencies == (int)CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
                   (int)cudaMemPoolAttrReleaseThreshold == (int)CU_MEMPOOL_ATTR_RELEASE_THRESHOLD &&
                   (int)cudaMemPoolAttrUsedMemHigh == (int)CU_MEMPOOL_ATTR_USED_MEM_HIGH,
               "pool attributes differ");

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *properties)
{
    return RUNTIME_RUN(cuMemPoolCreate(pool, (const CUmemPoolProps *)(const void *)properties));
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    return RUNTIME_RUN(cuMemPoolDestroy(pool));
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes_to_keep)
{
    return RUNTIME_RUN(cuMemPoolTrimTo(pool, bytes_to_keep));
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    return RUNTIME_RUN(cuMemPoolSetAttribute(pool, (CUmemPool_attribute)attribute, value));
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    return RUNTIME_RUN(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, value));
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *descriptions, size_t count)
{
    return RUNTIME_RUN(cuMemPoolSetAccess(pool, (const CUmemAccessDesc *)(const void *)descriptions, count));
}

cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t pool, struct cudaMemLocation *location)
{
    CUmemAccess_flags driver_flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CUresult result = cudasim_runtime_begin(__func__);
    if (flags == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cuMemPoolGetAccess(&driver_flags, pool, (CUmemLocation *)(void *)location);
    if (result == CUDA_SUCCESS)
        *flags = (enum cudaMemAccessFlags)driver_flags;
    return cudasim_runtime_end(result);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int ordinal)
{
    CUdevice device;
    CUresult result = cudasim_runtime_begin(__func__);
    if (result == CUDA_SUCCESS)
        result = cudasim_device_from_ordinal(ordinal, &device);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetDefaultMemPool(pool, device);
    return cudasim_runtime_end(result);
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int ordinal)
{
    CUdevice device;
    CUresult result = cudasim_runtime_begin(__func__);
    if (result == CUDA_SUCCESS)
        result = cudasim_device_from_ordinal(ordinal, &device);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetMemPool(pool, device);
    return cudasim_runtime_end(result);
}

cudaError_t cudaDeviceSetMemPool(int ordinal, cudaMemPool_t pool)
{
    CUdevice device;
    CUresult result = cudasim_runtime_begin(__func__);
    if (result == CUDA_SUCCESS)
        result = cudasim_device_from_ordinal(ordinal, &device);
    if (result == CUDA_SUCCESS)
        result = cuDeviceSetMemPool(device, pool);
    return cudasim_runtime_end(result);
}

/* --- copies between devices --- */

cudaError_t cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device, size_t count)
{
    CUcontext dst_context = NULL;
    CUcontext src_context = NULL;
    CUresult result = cudasim_runtime_begin(__func__);
    if (result == CUDA_SUCCESS)
        result = cudasim_primary_context(dst_device, &dst_context);
    if (result == CUDA_SUCCESS)
        result = cudasim_primary_context(src_device, &src_context);
    if (result == CUDA_SUCCESS && count != 0)
        result =
            cuMemcpyPeer(cudasim_device_address(dst), dst_context, cudasim_device_address(src), src_context, count);
    return cudasim_runtime_end(result);
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device, size_t count,
                                cudaStream_t stream)
{
    CUcontext dst_context = NULL;
    CUcontext src_context = NULL;
    CUresult result = cudasim_runtime_begin(__func__);
    if (result == CUDA_SUCCESS)
        result = cudasim_primary_context(dst_device, &dst_context);
    if (result == CUDA_SUCCESS)
        result = cudasim_primary_context(src_device, &src_context);
    if (result == CUDA_SUCCESS && count != 0)
        result = cuMemcpyPeerAsync(cudasim_device_address(dst), dst_context, cudasim_device_address(src), src_context,
                                   count, stream);
    return cudasim_runtime_end(result);
}
