/* cuMemAlloc and pinned host memory. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "config.h"
#include "engine.h"
#include "entries.h"
#include "ledger.h"
#include "managed.h"
#include "memory.h"

/* An allocation of cuMemAlloc counts as a multiple of these bytes. */
#define PLAIN_UNIT ((size_t)512)
#define PITCH_UNIT ((size_t)512)

static size_t plain_bytes(size_t size)
{
    return (size + PLAIN_UNIT - 1) & ~(PLAIN_UNIT - 1);
}

CUresult cudasim_cuMemGetInfo_v2(size_t *free, size_t *total)
{
    CUcontext context = cudasim_context_current();
    cudasim_lock();
    if (free)
        *free = cudasim_device_free(context->device);
    if (total)
        *total = cudasim_config()->limit_bytes;
    cudasim_unlock();
    return CUDA_SUCCESS;
}

static CUresult allocate_plain(int device, size_t size, CUdeviceptr *address)
{
    size_t bytes = plain_bytes(size);
    CUresult result =
        bytes < size ? CUDA_ERROR_OUT_OF_MEMORY : cudasim_device_take(device, CUDASIM_ACCOUNT_PLAIN, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && cudasim_pools_release_idle(device))
        result = cudasim_device_take(device, CUDASIM_ACCOUNT_PLAIN, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    uintptr_t base = cudasim_arena_take(size);
    struct cudasim_range range = {.base = base, .size = size, .kind = CUDASIM_RANGE_PLAIN, .device = device};
    if (base && !cudasim_range_add(range)) {
        cudasim_ledger_object(CUDASIM_OBJECT_PLAIN, 1);
        *address = (CUdeviceptr)base;
        return CUDA_SUCCESS;
    }
    if (base)
        cudasim_arena_give(base, size);
    cudasim_device_give(device, CUDASIM_ACCOUNT_PLAIN, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cudasim_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    if (!dptr || !bytesize)
        return CUDA_ERROR_INVALID_VALUE;
    int device = cudasim_context_current()->device;
    cudasim_lock();
    CUresult result = allocate_plain(device, bytesize, dptr);
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                                    unsigned int ElementSizeBytes)
{
    if (!dptr || !pPitch || !WidthInBytes || !Height)
        return CUDA_ERROR_INVALID_VALUE;
    if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)
        return CUDA_ERROR_INVALID_VALUE;
    size_t pitch = (WidthInBytes + PITCH_UNIT - 1) & ~(PITCH_UNIT - 1);
    size_t bytes;
    if (pitch < WidthInBytes || __builtin_mul_overflow(pitch, Height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cudasim_cuMemAlloc_v2(dptr, bytes);
    if (result == CUDA_SUCCESS)
        *pPitch = pitch;
    return result;
}

/*
 * Only for memory of cuMemAlloc. No process opens the handle: cuIpcOpenMemHandle is not simulated.
 */
CUresult cudasim_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    if (!pHandle)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    const struct cudasim_range *range = cudasim_range_find((uintptr_t)dptr);
    CUresult result = range && range->kind == CUDASIM_RANGE_PLAIN ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        memset(pHandle, 0, sizeof *pHandle);
        memcpy(pHandle, range, sizeof *range < sizeof *pHandle ? sizeof *range : sizeof *pHandle);
    }
    cudasim_unlock();
    return result;
}

/* Returns whether cuMemFree frees memory of this kind. */
static bool is_freed_here(enum cudasim_range_kind kind)
{
    return kind == CUDASIM_RANGE_PLAIN || kind == CUDASIM_RANGE_POOLED || kind == CUDASIM_RANGE_MANAGED;
}

/* Frees such an allocation at once. The device must be idle. */
static void free_range(struct cudasim_range range)
{
    if (range.kind == CUDASIM_RANGE_MANAGED) {
        cudasim_managed_free(range.object);
        return;
    }
    if (range.kind == CUDASIM_RANGE_POOLED) {
        cudasim_pool_free_now(range.base);
        return;
    }
    cudasim_range_remove(range.base);
    cudasim_arena_give(range.base, range.size);
    cudasim_device_give(range.device, CUDASIM_ACCOUNT_PLAIN, plain_bytes(range.size));
    cudasim_ledger_object(CUDASIM_OBJECT_PLAIN, -1);
}

void cudasim_release_allocations(int device)
{
    const struct cudasim_range *range;
    for (uintptr_t at = 0; (range = cudasim_range_above(at));) {
        at = range->base + range->size;
        if (range->device == device && is_freed_here(range->kind))
            free_range(*range);
    }
    cudasim_pools_release_idle(device);
}

/* ---- pinned host memory ---- */

static enum cudasim_object object_of(enum cudasim_range_kind kind)
{
    return kind == CUDASIM_RANGE_REGISTERED ? CUDASIM_OBJECT_REGISTERED : CUDASIM_OBJECT_PINNED;
}

static CUresult add_pinned(uintptr_t base, size_t size, enum cudasim_range_kind kind, unsigned int flags)
{
    struct cudasim_range range = {.base = base, .size = size, .kind = kind, .host = true, .flags = flags};
    const struct cudasim_range *next = cudasim_range_above(base);
    if (next && next->base < base + size)
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (cudasim_range_add(range))
        return CUDA_ERROR_OUT_OF_MEMORY;
    cudasim_ledger_object(object_of(kind), 1);
    cudasim_ledger_account(CUDASIM_ACCOUNT_PINNED, (int64_t)size);
    return CUDA_SUCCESS;
}

/*
 * Ends a pinned range of the kind that starts at the address. Returns its size, or 0 without one.
 */
static size_t drop_pinned(uintptr_t base, enum cudasim_range_kind kind)
{
    const struct cudasim_range *range = cudasim_range_find(base);
    if (!range || range->base != base || range->kind != kind)
        return 0;
    size_t size = range->size;
    cudasim_range_remove(base);
    cudasim_ledger_object(object_of(kind), -1);
    cudasim_ledger_account(CUDASIM_ACCOUNT_PINNED, -(int64_t)size);
    return size;
}

CUresult cudasim_cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    const unsigned int known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (!pp || !bytesize || (Flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    void *memory = mmap(NULL, bytesize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    cudasim_lock();
    CUresult result = add_pinned((uintptr_t)memory, bytesize, CUDASIM_RANGE_PINNED, Flags);
    cudasim_unlock();
    if (result == CUDA_SUCCESS)
        *pp = memory;
    else
        munmap(memory, bytesize);
    return result;
}

CUresult cudasim_cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    return cudasim_cuMemHostAlloc(pp, bytesize, 0);
}

CUresult cudasim_cuMemFreeHost(void *p)
{
    if (!p)
        return CUDA_SUCCESS;
    CUcontext context = cudasim_context_root(cudasim_context_current());
    cudasim_lock();
    CUresult result = cudasim_wait_context(context);
    size_t size = result == CUDA_SUCCESS ? drop_pinned((uintptr_t)p, CUDASIM_RANGE_PINNED) : 0;
    if (result == CUDA_SUCCESS && !size)
        result = CUDA_ERROR_INVALID_VALUE;
    cudasim_unlock();
    if (size)
        munmap(p, size);
    return result;
}

CUresult cudasim_cuMemFree_v2(CUdeviceptr dptr)
{
    if (!dptr)
        return CUDA_SUCCESS;
    CUcontext context = cudasim_context_root(cudasim_context_current());
    uintptr_t base = (uintptr_t)dptr;
    cudasim_lock();
    const struct cudasim_range *range = cudasim_range_find(base);
    bool ours = range && range->base == base && is_freed_here(range->kind);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (ours && range->kind == CUDASIM_RANGE_POOLED) {
        result = CUDA_SUCCESS; /* it waits for nothing (asked on an H200) */
    } else if (ours) {
        /* cuMemFree keeps its promise that everything issued before it is over. */
        result = cudasim_wait_context(context);
        range = cudasim_range_find(base); /* the lock was released meanwhile */
        ours = range && range->base == base;
    }
    if (ours)
        free_range(*range);
    cudasim_unlock();
    return result;
}

/* ---- registered host memory ---- */

CUresult cudasim_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    const unsigned int known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                               CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    if (!p || !bytesize || (Flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    if (Flags & CU_MEMHOSTREGISTER_IOMEMORY)
        return CUDA_ERROR_NOT_SUPPORTED;
    cudasim_lock();
    CUresult result = add_pinned((uintptr_t)p, bytesize, CUDASIM_RANGE_REGISTERED, Flags);
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuMemHostUnregister(void *p)
{
    CUcontext context = cudasim_context_root(cudasim_context_current());
    cudasim_lock();
    CUresult result = cudasim_wait_context(context);
    if (result == CUDA_SUCCESS && !drop_pinned((uintptr_t)p, CUDASIM_RANGE_REGISTERED))
        result = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    cudasim_unlock();
    return result;
}

static const struct cudasim_range *pinned_range(const void *p)
{
    const struct cudasim_range *range = cudasim_range_find((uintptr_t)p);
    return range && (range->kind == CUDASIM_RANGE_PINNED || range->kind == CUDASIM_RANGE_REGISTERED) ? range : NULL;
}

CUresult cudasim_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    if (!pdptr || Flags)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    bool pinned = pinned_range(p) != NULL;
    cudasim_unlock();
    if (!pinned)
        return CUDA_ERROR_INVALID_VALUE;
    *pdptr = (CUdeviceptr)(uintptr_t)p;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    if (!pFlags)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    const struct cudasim_range *range = pinned_range(p);
    if (range)
        *pFlags = range->flags;
    cudasim_unlock();
    return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
