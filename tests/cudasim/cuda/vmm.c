/*
 * Virtual memory management: reservations, handles, mappings, access. As on the H200, a handle is
 * mapped whole, from offset 0; any other mapping answers NOT_SUPPORTED. Nothing here waits for the
 * device. An access that still uses a removed mapping meets a fault.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "closed_pages.h"
#include "config.h"
#include "engine.h"
#include "entries.h"
#include "extents.h"
#include "guard.h"
#include "ledger.h"
#include "memory.h"

struct reservation {
    uintptr_t base;
    size_t size;
    struct reservation *next;
};

/*
 * An allocation of cuMemCreate. It holds its pages until the last reference, the last mapping and
 * the last exported descriptor are gone.
 */
struct handle {
    CUmemAllocationProp properties;
    size_t size;
    off_t offset; /* in the memory file of its kind */
    bool host;
    bool exported;
    unsigned int references; /* cuMemCreate, cuMemRetainAllocationHandle and cuMemImportFromShareableHandle */
    unsigned int mappings;
    size_t slot; /* index in the table below */
    uint32_t generation;
};

/*
 * A handle's value is its slot plus one, with a generation above it. So a released handle is
 * refused.
 */
struct handle_slot {
    struct handle *handle;
    uint32_t generation;
};

static struct reservation *reservations;
static struct handle_slot *slots;
static size_t slot_count, slot_room;
static size_t host_bytes_used;

static bool is_host_location(CUmemLocationType type)
{
    return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

static bool aligned(size_t value)
{
    return value % cudasim_config()->granularity == 0;
}

static CUmemGenericAllocationHandle handle_value(const struct handle *handle)
{
    return ((CUmemGenericAllocationHandle)handle->generation << 32) | (handle->slot + 1);
}

static struct handle *handle_of(CUmemGenericAllocationHandle value)
{
    size_t slot = (size_t)(value & UINT32_MAX);
    if (!slot || slot > slot_count)
        return NULL;
    struct handle_slot *entry = &slots[slot - 1];
    return entry->handle && entry->generation == value >> 32 && entry->handle->references ? entry->handle : NULL;
}

static bool enter_handle(struct handle *handle)
{
    size_t slot = 0;
    while (slot < slot_count && slots[slot].handle)
        slot++;
    if (slot == slot_room) {
        size_t room = slot_room ? 2 * slot_room : 256;
        struct handle_slot *grown = realloc(slots, room * sizeof *grown);
        if (!grown)
            return false;
        for (size_t i = slot_room; i < room; i++)
            grown[i] = (struct handle_slot){NULL, 0};
        slots = grown;
        slot_room = room;
    }
    if (slot == slot_count)
        slot_count++;
    handle->slot = slot;
    handle->generation = ++slots[slot].generation;
    slots[slot].handle = handle;
    return true;
}

/* ---- reservations ---- */

CUresult cudasim_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                     unsigned long long flags)
{
    (void)addr; /* only a hint, which the driver may ignore */
    if (!cudasim_config()->vmm)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!ptr || !size || !aligned(size) || flags || (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment < cudasim_config()->granularity)
        alignment = cudasim_config()->granularity;
    if (size > cudasim_config()->reserve_limit || alignment > cudasim_config()->reserve_limit)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct reservation *reservation = malloc(sizeof *reservation);
    if (!reservation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t padded = size + alignment;
    void *got = mmap(NULL, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) {
        free(reservation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uintptr_t start = (uintptr_t)got;
    uintptr_t base = (start + alignment - 1) & ~(uintptr_t)(alignment - 1);
    if (base > start)
        munmap(got, base - start);
    munmap((void *)(base + size), start + padded - base - size);
    cudasim_lock();
    bool known = cudasim_guard_add_range(base, size);
    if (known) {
        *reservation = (struct reservation){base, size, reservations};
        reservations = reservation;
        cudasim_ledger_object(CUDASIM_OBJECT_RESERVATION, 1);
    }
    cudasim_unlock();
    if (!known) {
        munmap((void *)base, size);
        free(reservation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ptr = (CUdeviceptr)base;
    return CUDA_SUCCESS;
}

static const struct reservation *reservation_holding(uintptr_t base, size_t size)
{
    const struct reservation *reservation = reservations;
    while (reservation &&
           !(base - reservation->base < reservation->size && size <= reservation->size - (base - reservation->base)))
        reservation = reservation->next;
    return reservation;
}

static bool any_range_in(uintptr_t base, size_t size)
{
    const struct cudasim_range *range = cudasim_range_above(base);
    return range && range->base < base + size;
}

CUresult cudasim_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    struct reservation **link = &reservations;
    while (*link && (*link)->base != (uintptr_t)ptr)
        link = &(*link)->next;
    struct reservation *found = *link;
    if (found && found->size == size && !any_range_in(found->base, size)) {
        *link = found->next;
        cudasim_guard_remove_range(found->base);
        munmap((void *)found->base, size);
        free(found);
        cudasim_ledger_object(CUDASIM_OBJECT_RESERVATION, -1);
        result = CUDA_SUCCESS;
    }
    cudasim_unlock();
    return result;
}

/* ---- handles ---- */

static CUresult check_properties(const CUmemAllocationProp *properties)
{
    if (!cudasim_config()->vmm)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if ((properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) || properties->allocFlags.usage)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (is_host_location(properties->location.type))
        return cudasim_config()->host_vmm ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return cudasim_valid_device(properties->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cudasim_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                               CUmemAllocationGranularity_flags option)
{
    CUresult result = check_properties(prop);
    if (result != CUDA_SUCCESS)
        return result;
    if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = cudasim_config()->granularity;
    return CUDA_SUCCESS;
}

static CUresult take_bytes(const struct handle *handle)
{
    if (!handle->host)
        return cudasim_device_take(handle->properties.location.id, CUDASIM_ACCOUNT_VMM, handle->size);
    if (handle->size > cudasim_config()->host_handle_bytes - host_bytes_used)
        return CUDA_ERROR_OUT_OF_MEMORY;
    host_bytes_used += handle->size;
    cudasim_ledger_account(CUDASIM_ACCOUNT_HOST_HANDLE, (int64_t)handle->size);
    return CUDA_SUCCESS;
}

static void give_bytes(const struct handle *handle)
{
    if (!handle->host) {
        cudasim_device_give(handle->properties.location.id, CUDASIM_ACCOUNT_VMM, handle->size);
        return;
    }
    host_bytes_used -= handle->size;
    cudasim_ledger_account(CUDASIM_ACCOUNT_HOST_HANDLE, -(int64_t)handle->size);
}

static void free_handle_if_unused(struct handle *handle)
{
    if (handle->references || handle->mappings)
        return;
    if (handle->exported && cudasim_extent_is_held(handle->host, handle->offset, handle->size))
        return;
    cudasim_extent_give(handle->host, handle->offset, handle->size);
    give_bytes(handle);
    slots[handle->slot].handle = NULL;
    free(handle);
}

/*
 * Frees handles that only a descriptor kept, once that is closed. No notice comes of that, so they
 * are looked for when memory is wanted.
 */
static void free_abandoned_handles(void)
{
    for (size_t i = 0; i < slot_count; i++)
        if (slots[i].handle && slots[i].handle->exported)
            free_handle_if_unused(slots[i].handle);
}

CUresult cudasim_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                             unsigned long long flags)
{
    CUresult result = check_properties(prop);
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || !size || !aligned(size) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    struct handle *made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->properties = *prop;
    made->size = size;
    made->host = is_host_location(prop->location.type);
    made->references = 1;
    cudasim_lock();
    free_abandoned_handles();
    result = take_bytes(made);
    if (result == CUDA_SUCCESS) {
        made->offset = cudasim_extent_take(made->host, size);
        if (made->offset < 0 || !enter_handle(made)) {
            if (made->offset >= 0)
                cudasim_extent_give(made->host, made->offset, size);
            give_bytes(made);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (result == CUDA_SUCCESS) {
        cudasim_ledger_object(CUDASIM_OBJECT_HANDLE, 1);
        *handle = handle_value(made);
    }
    cudasim_unlock();
    if (result != CUDA_SUCCESS)
        free(made);
    return result;
}

CUresult cudasim_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    cudasim_lock();
    struct handle *found = handle_of(handle);
    if (found) {
        if (--found->references == 0)
            cudasim_ledger_object(CUDASIM_OBJECT_HANDLE, -1);
        free_handle_if_unused(found);
    }
    cudasim_unlock();
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cudasim_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    const struct cudasim_range *range = cudasim_range_find((uintptr_t)addr);
    bool mapped = range && range->kind == CUDASIM_RANGE_MAPPED;
    if (mapped) {
        struct handle *found = range->object;
        if (found->references++ == 0)
            cudasim_ledger_object(CUDASIM_OBJECT_HANDLE, 1);
        *handle = handle_value(found);
    }
    cudasim_unlock();
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/*
 * Makes a dma-buf: a descriptor of mapped memory's pages, with their start as its position. A test
 * can then look at the pages as a card would, past the mapping. Plain memory has no pages to show
 * and gets an empty descriptor. Device pages alone.
 */
CUresult cudasim_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                               CUmemRangeHandleType handleType, unsigned long long flags)
{
    if (!handle || !size || dptr % CUDASIM_PAGE || size % CUDASIM_PAGE ||
        handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags)
        return CUDA_ERROR_INVALID_VALUE;
    int descriptor = -1;
    cudasim_lock();
    const struct cudasim_range *range = cudasim_range_find((uintptr_t)dptr);
    CUresult result = CUDA_SUCCESS;
    if (!range || (uintptr_t)dptr + size > range->base + range->size)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (range->host)
        result = CUDA_ERROR_NOT_SUPPORTED;
    else if (range->kind == CUDASIM_RANGE_MAPPED)
        descriptor =
            cudasim_extent_descriptor(false, ((struct handle *)range->object)->offset + (off_t)(dptr - range->base));
    else
        descriptor = memfd_create("cudasim-plain", MFD_CLOEXEC);
    cudasim_unlock();
    if (result == CUDA_SUCCESS && descriptor < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (result == CUDA_SUCCESS)
        *(int *)handle = descriptor;
    return result;
}

CUresult cudasim_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    if (!prop)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    const struct handle *found = handle_of(handle);
    if (found)
        *prop = found->properties;
    cudasim_unlock();
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- handles as descriptors ---- */

CUresult cudasim_cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType handleType, unsigned long long flags)
{
    if (!shareableHandle || flags)
        return CUDA_ERROR_INVALID_VALUE;
    int descriptor = -1;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    struct handle *found = handle_of(handle);
    if (found && handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
        found->properties.requestedHandleTypes & handleType) {
        descriptor = cudasim_extent_descriptor(found->host, found->offset);
        found->exported |= descriptor >= 0 && cudasim_extent_hold(descriptor, found->offset, found->size);
        result = descriptor >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
    }
    cudasim_unlock();
    if (result == CUDA_SUCCESS)
        *(int *)shareableHandle = descriptor;
    return result;
}

static struct handle *handle_behind(int descriptor)
{
    for (size_t i = 0; i < slot_count; i++) {
        struct handle *handle = slots[i].handle;
        if (handle && handle->exported && cudasim_extent_behind(handle->host, descriptor) == handle->offset)
            return handle;
    }
    return NULL;
}

/*
 * Works in the exporting process only; another process's memory is not there. The handle is the
 * exported one, with one more reference.
 */
CUresult cudasim_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                                CUmemAllocationHandleType shHandleType)
{
    if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        fcntl((int)(intptr_t)osHandle, F_GETFD) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    struct handle *found = handle_behind((int)(intptr_t)osHandle);
    if (found) {
        if (found->references++ == 0)
            cudasim_ledger_object(CUDASIM_OBJECT_HANDLE, 1);
        *handle = handle_value(found);
    }
    cudasim_unlock();
    return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- mappings ---- */

static CUresult map_handle(uintptr_t base, size_t size, struct handle *handle)
{
    if (!handle || !reservation_holding(base, size) || any_range_in(base, size))
        return CUDA_ERROR_INVALID_VALUE;
    struct cudasim_range range = {
        .base = base,
        .size = size,
        .kind = CUDASIM_RANGE_MAPPED,
        .device = handle->host ? 0 : handle->properties.location.id,
        .host = handle->host,
        .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE,
        .object = handle,
    };
    if (cudasim_range_add(range))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!cudasim_extent_map(handle->host, handle->offset, base, size)) {
        cudasim_range_remove(base);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    handle->mappings++;
    cudasim_ledger_object(CUDASIM_OBJECT_MAPPING, 1);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags)
{
    if (!cudasim_config()->vmm)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!size || !aligned(size) || !aligned((size_t)ptr) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    struct handle *found = handle_of(handle);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (found && (offset || size != found->size))
        result = offset + size > found->size ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    else
        result = map_handle((uintptr_t)ptr, size, found);
    cudasim_unlock();
    return result;
}

/* Returns whether [base, base + size) consists of whole mappings, without a hole. */
static bool covered_by_whole_mappings(uintptr_t base, size_t size)
{
    uintptr_t at = base, end = base + size;
    while (at < end) {
        const struct cudasim_range *range = cudasim_range_find(at);
        if (!range || range->kind != CUDASIM_RANGE_MAPPED || range->base != at || range->size > end - at)
            return false;
        at += range->size;
    }
    return true;
}

CUresult cudasim_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    uintptr_t base = (uintptr_t)ptr;
    if (!cudasim_config()->vmm)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!size)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    if (covered_by_whole_mappings(base, size)) {
        cudasim_closed_pages_remove(base, size);
        mmap((void *)base, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        for (uintptr_t at = base; at < base + size;) {
            const struct cudasim_range *range = cudasim_range_find(at);
            struct handle *handle = range->object;
            size_t mapped = range->size;
            cudasim_range_remove(at);
            handle->mappings--;
            free_handle_if_unused(handle);
            cudasim_ledger_object(CUDASIM_OBJECT_MAPPING, -1);
            at += mapped;
        }
        result = CUDA_SUCCESS;
    }
    cudasim_unlock();
    return result;
}

/*
 * Gives the mapping the access. The processor may touch host memory only where the program said so,
 * by a location of the host.
 */
static bool protect(const struct cudasim_range *range)
{
    const int protection = range->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                           : range->flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                                              : PROT_NONE;

    if (range->host && !range->open && protection != PROT_NONE)
        return cudasim_closed_pages_add(range->base, range->size, protection);
    cudasim_closed_pages_remove(range->base, range->size);
    return !mprotect((void *)range->base, range->size, protection);
}

CUresult cudasim_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    uintptr_t base = (uintptr_t)ptr;
    if (!cudasim_config()->vmm)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!size || !desc || !count)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned int access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    cudasim_lock();
    bool some_owner = false;
    const struct cudasim_range *first = cudasim_range_find(base);
    for (size_t i = 0; i < count; i++)
        some_owner |= !first || first->host || desc[i].location.id == first->device;
    cudasim_unlock();
    /* Another device may have access only where the two are peers. */
    for (size_t i = 0; i < count; i++)
        if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && !cudasim_valid_device(desc[i].location.id))
            return CUDA_ERROR_INVALID_DEVICE;
    if ((!some_owner || (count > 1 && first && !first->host)) && !cudasim_config()->peers)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < count; i++)
        if (desc[i].flags > access)
            access = desc[i].flags;
    if (access != CU_MEM_ACCESS_FLAGS_PROT_NONE && access != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    if (cudasim_scheduler()->mapping()) { /* which releases the lock meanwhile */
        const struct cudasim_range *mapped = cudasim_range_find(base);
        if (mapped && !mapped->host)
            cudasim_ledger_slice();
    }
    if (covered_by_whole_mappings(base, size)) {
        result = CUDA_SUCCESS;
        for (uintptr_t at = base; result == CUDA_SUCCESS && at < base + size;) {
            struct cudasim_range *range = cudasim_range_find(at);
            bool names_device = false;
            for (size_t i = 0; i < count; i++) {
                if (is_host_location(desc[i].location.type))
                    range->open = desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
                else
                    names_device = true;
            }
            if (names_device)
                range->flags = access;
            if (!protect(range)) {
                result = CUDA_ERROR_OUT_OF_MEMORY;
                break;
            }
            for (size_t i = 0; i < count; i++) {
                const uint32_t bit =
                    desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE ? 1u << (desc[i].location.id & 31) : 0;
                range->reached_by = desc[i].flags ? range->reached_by | bit : range->reached_by & ~bit;
            }
            at += range->size;
        }
    }
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    if (!flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    const struct cudasim_range *range = cudasim_range_find((uintptr_t)ptr);
    bool mapped = range && range->kind == CUDASIM_RANGE_MAPPED;
    if (mapped)
        *flags = range->reached_by >> (location->id & 31) & 1 ? range->flags : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    cudasim_unlock();
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
