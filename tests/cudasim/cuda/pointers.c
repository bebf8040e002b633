/*
 * The driver's answers about an address. As on the H200, an unmapped address fails, and a
 * host-backed one has memory type host.
 */
#include <string.h>

#include "engine.h"
#include "entries.h"
#include "memory.h"

/*
 * Returns the range of an address that a program may use on the device, or NULL. A mapping counts
 * once it has access, a graph's memory from its launch on.
 */
static const struct cudasim_range *known_range(CUdeviceptr address)
{
    const struct cudasim_range *range = cudasim_range_find((uintptr_t)address);
    if (range && range->kind == CUDASIM_RANGE_MAPPED && range->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
        return NULL;
    if (range && range->kind == CUDASIM_RANGE_POOLED && cudasim_pool_block_awaits_graph(range->object))
        return NULL;
    return range;
}

static CUcontext context_of(const struct cudasim_range *range)
{
    if (range->kind == CUDASIM_RANGE_GLOBAL)
        return range->object;
    return range->kind == CUDASIM_RANGE_MAPPED ? NULL : cudasim_context_root(cudasim_context_current());
}

static CUresult answer(void *data, CUpointer_attribute attribute, const struct cudasim_range *range,
                       CUdeviceptr pointer)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = context_of(range);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)data =
            range->host && range->kind != CUDASIM_RANGE_MANAGED ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = pointer;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!range->host || range->kind == CUDASIM_RANGE_MAPPED)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)(uintptr_t)pointer;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = range->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = range->device;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = (CUdeviceptr)range->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = range->size;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned int *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned int *)data = range->kind == CUDASIM_RANGE_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = cudasim_pool_of(range);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(unsigned int *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned long long *)data = range->kind == CUDASIM_RANGE_MAPPED
                                          ? range->flags
                                          : (unsigned long long)CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cudasim_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    if (!data)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    const struct cudasim_range *range = known_range(ptr);
    CUresult result = range ? answer(data, attribute, range, ptr) : CUDA_ERROR_INVALID_VALUE;
    cudasim_unlock();
    return result;
}

/*
 * Clears an answer for an address that the driver does not know. The call succeeds, and every
 * answer is empty.
 */
static void clear_answer(void *data, CUpointer_attribute attribute)
{
    size_t bytes = sizeof(unsigned int);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        bytes = sizeof(void *);
        break;
    default:
        break;
    }
    memset(data, 0, bytes);
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *(int *)data = -2; /* the driver's answer for memory of no device */
}

CUresult cudasim_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                        CUdeviceptr ptr)
{
    if (!numAttributes || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    const struct cudasim_range *range = known_range(ptr);
    for (unsigned int i = 0; i < numAttributes; i++)
        if (!range || answer(data[i], attributes[i], range, ptr) != CUDA_SUCCESS)
            clear_answer(data[i], attributes[i]);
    cudasim_unlock();
    return CUDA_SUCCESS;
}

/* As with driver 535, mapped memory is not supported (UCX's issue 9895). */
CUresult cudasim_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    const struct cudasim_range *range = known_range(ptr);
    CUresult result = !range || range->host                 ? CUDA_ERROR_INVALID_VALUE
                      : range->kind == CUDASIM_RANGE_MAPPED ? CUDA_ERROR_NOT_SUPPORTED
                                                            : CUDA_SUCCESS;
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    cudasim_lock();
    const struct cudasim_range *range = known_range(dptr);
    if (range) {
        if (pbase)
            *pbase = (CUdeviceptr)range->base;
        if (psize)
            *psize = range->size;
    }
    cudasim_unlock();
    return range ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
