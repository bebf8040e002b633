/*
 * Queries: the program's view of memory and pointers stays true of the memory that it thinks it
 * has.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "cuda/runtime.h"
#include "hooks/hooks.h"
#include "hooks/reclaim.h"
#include "hooks/requests.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/small_cache.h"
#include "memory/spare_pages.h"
#include "process.h"
#include "residency/residency.h"

/*
 * Sets the free and total memory that the program is told. Free memory can be allocated before
 * anything must move: the device's free memory and the freed spans', within the budget. It is
 * rounded down to whole pages; otherwise a program that takes all of it would move something. Total
 * is the device's total, or free memory, the program's spans and other used memory together, if
 * that is more. It can be more because some spans are on the host. So free + used <= total always
 * holds, and torch asserts that.
 */
static void within_budget(size_t *free_bytes, size_t *total)
{
    if (!free_bytes || !total || ps_inside)
        return;
    /*
     * Programs that size themselves by this answer ask for it first. They must get the answer that
     * they would get later.
     */
    if ((!ps_process_is_managing() && !ps_process_has_begun()) || !ps_process_enter_device())
        return;
    ps_registry_lock();
    const uint64_t idle = ps_registry.cached_bytes + ps_spare_bytes(), in_use = ps_budget.held - idle;
    uint64_t can_be_had = *free_bytes + idle;
    uint64_t budget_left = ps_budget.limit > in_use ? ps_budget.limit - in_use : 0;
    uint64_t beside = *total > *free_bytes + ps_budget.held ? *total - *free_bytes - ps_budget.held : 0;
    if (can_be_had > budget_left)
        can_be_had = budget_left;
    can_be_had &= ~(ps_reservation.granularity - 1);
    if (can_be_had + ps_registry.live_bytes + beside > *total)
        *total = can_be_had + ps_registry.live_bytes + beside;
    *free_bytes = can_be_had;
    ps_registry_unlock();
    ps_request_told_free(can_be_had);
}

PS_EXPORT cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    cudaError_t r = ps_real_cudart()->cudaMemGetInfo(free_bytes, total);

    if (r == cudaSuccess)
        within_budget(free_bytes, total);
    return r;
}

PS_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    if (ps_real_cuda_load())
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult r = ps_cu_as_is.cuMemGetInfo(free_bytes, total);

    if (r == CUDA_SUCCESS)
        within_budget(free_bytes, total);
    return r;
}

/*
 * Adds the spans to a figure of the pool. Runtime and driver number the attributes alike
 * (driver_types.h). To the program, spans are allocations from the default pool.
 * torch.cuda.memory_allocated and its kin read these figures. The high water marks of pool and
 * spans are added. They may stem from different moments, so the sum is an upper bound.
 */
static void add_spans(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    uint64_t ours = 0, figure;

    if (!ps_request_enter_pool(pool))
        return;
    const uint64_t kept = ps_small_kept(); /* the program has freed these bytes */
    ps_registry_lock();
    switch (attribute) {
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        ours = ps_registry.live_requested - kept;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        ours = ps_registry.peak_live_requested;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        ours = ps_registry.live_bytes + ps_registry.cached_bytes;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        ours = ps_registry.peak_reserved_bytes;
        break;
    default:
        ps_registry_unlock();
        return;
    }
    ps_registry_unlock();
    memcpy(&figure, value, sizeof figure);
    figure += ours;
    memcpy(value, &figure, sizeof figure);
}

PS_EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    cudaError_t r = ps_real_cudart()->cudaMemPoolGetAttribute(pool, attribute, value);

    if (r == cudaSuccess)
        add_spans(pool, (CUmemPool_attribute)attribute, value);
    return r;
}

PS_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    if (ps_real_cuda_load() || !ps_cu.cuMemPoolGetAttribute)
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult r = ps_cu_as_is.cuMemPoolGetAttribute(pool, attribute, value);

    if (r == CUDA_SUCCESS)
        add_spans(pool, attribute, value);
    return r;
}

/*
 * Acts on a pool attribute that the program has set. A high water mark can only be reset to zero
 * (the runtime's documentation).
 */
static void attribute_set(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        ps_device_pools_changed();
    if (!ps_request_enter_pool(pool))
        return;
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && !ps_device_pool_keeps_all())
        /* Without Penstock the device would get these blocks when the program synchronises. */
        ps_small_give_back();
    ps_registry_lock();
    if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        ps_registry.peak_live_requested = ps_registry.live_requested;
    if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        ps_registry.peak_reserved_bytes = ps_registry.live_bytes + ps_registry.cached_bytes;
    ps_registry_unlock();
}

PS_EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    cudaError_t r = ps_real_cudart()->cudaMemPoolSetAttribute(pool, attribute, value);

    if (r == cudaSuccess)
        attribute_set(pool, (CUmemPool_attribute)attribute);
    return r;
}

PS_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    if (ps_real_cuda_load() || !ps_cu.cuMemPoolSetAttribute)
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult r = ps_cu_as_is.cuMemPoolSetAttribute(pool, attribute, value);

    if (r == CUDA_SUCCESS)
        attribute_set(pool, attribute);
    return r;
}

PS_EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes)
{
    if (ps_request_enter_pool(pool))
        ps_reclaim_cached(bytes);
    return ps_real_cudart()->cudaMemPoolTrimTo(pool, bytes);
}

PS_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes)
{
    if (ps_real_cuda_load() || !ps_cu.cuMemPoolTrimTo)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (ps_request_enter_pool(pool))
        ps_reclaim_cached(bytes);
    return ps_cu_as_is.cuMemPoolTrimTo(pool, bytes);
}

/*
 * Returns whether a span is at the address, and which. If the program has mapped nothing there,
 * sets `*address` to 0. The driver knows as little of address 0 as the program should.
 */
static bool is_span(CUdeviceptr *address, CUdeviceptr *start, size_t *bytes)
{
    int r = ps_residency_look_up(*address, start, bytes);

    if (r == -ENXIO)
        *address = 0;
    return !r;
}

/*
 * To the driver, an evicted span's addresses are host memory or nothing. The program gets the
 * answer for device memory.
 */
PS_EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address)
{
    CUdeviceptr asked = (CUdeviceptr)address, start;
    size_t bytes;

    if (!attributes || !is_span(&asked, &start, &bytes))
        return ps_real_cudart()->cudaPointerGetAttributes(attributes, (const void *)asked);
    memset(attributes, 0, sizeof *attributes);
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = ps_device.ordinal;
    attributes->devicePointer = (void *)address;
    return cudaSuccess;
}

/*
 * Returns the buffer id of the allocation that starts there. Returns 0 if it is gone. No two
 * allocations of a process share an id. Otherwise a cache by id (registrations with network cards)
 * would take the next allocation at an address for this one. The driver counts its own ids from 1,
 * so ours have the top bit set.
 */
static unsigned long long buffer_id(CUdeviceptr start)
{
    ps_registry_lock();
    const struct ps_span *span = ps_registry_live_at(start);
    unsigned long long id = span ? span->buffer_id | 1ull << 63 : 0;
    ps_registry_unlock();
    return id;
}

/*
 * Answers one attribute of a span as for a pointer from cudaMalloc. Returns false if the caller
 * must use the real function's answer.
 */
static bool answer(void *value, CUpointer_attribute attribute, CUdeviceptr address, CUdeviceptr start, size_t bytes)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = ps_device.context;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)value = CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)value = address;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned int *)value = 0;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = ps_device.ordinal;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = start;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned int *)value = 1;
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: {
        unsigned long long id = buffer_id(start);
        if (id)
            *(unsigned long long *)value = id;
        return id != 0;
    }
    default:
        return false;
    }
}

PS_EXPORT CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    CUdeviceptr start;
    size_t bytes;

    if (value && is_span(&address, &start, &bytes) && answer(value, attribute, address, start, bytes))
        return CUDA_SUCCESS;
    if (ps_real_cuda_load())
        return CUDA_ERROR_NOT_INITIALIZED;
    return ps_cu.cuPointerGetAttribute(value, attribute, address);
}

PS_EXPORT CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **values,
                                          CUdeviceptr address)
{
    CUdeviceptr start;
    size_t bytes;

    if (ps_real_cuda_load())
        return CUDA_ERROR_NOT_INITIALIZED;
    bool ours = attributes && values && is_span(&address, &start, &bytes);
    CUresult r = ps_cu.cuPointerGetAttributes(count, attributes, values, address);
    if (!ours)
        return r;
    for (unsigned int i = 0; i < count; i++)
        if (values[i])
            answer(values[i], attributes[i], address, start, bytes);
    return CUDA_SUCCESS;
}

PS_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr address)
{
    CUdeviceptr span_start;
    size_t span_bytes;

    if (is_span(&address, &span_start, &span_bytes)) {
        if (start)
            *start = span_start;
        if (bytes)
            *bytes = span_bytes;
        return CUDA_SUCCESS;
    }
    if (ps_real_cuda_load())
        return CUDA_ERROR_NOT_INITIALIZED;
    return ps_cu.cuMemGetAddressRange(start, bytes, address);
}
