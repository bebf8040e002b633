#include "managed.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>

#include "engine.h"
#include "entries.h"
#include "ledger.h"
#include "memory.h"

/* Where a page is, or should be. */
struct place {
    CUmemLocationType type; /* CU_MEM_LOCATION_TYPE_INVALID: nowhere */
    int id;
};

struct page {
    int at; /* a device's number, or CU_DEVICE_CPU */
    struct place prefetched, preferred;
    bool read_mostly;
    uint32_t accessed_by; /* the devices (bits) that the program named */
    bool accessed_by_host;
};

struct cudasim_managed {
    uintptr_t base;
    size_t size;
    uint64_t used; /* value of `uses` when its pages last came to a device or were used there */
    LIST_ENTRY(cudasim_managed) link;
    size_t count;
    struct page page[];
};

static LIST_HEAD(, cudasim_managed) all = LIST_HEAD_INITIALIZER(all);
static uint64_t uses;

/* ---- pages ---- */

/* A run of an allocation's pages. */
struct pages {
    struct cudasim_managed *managed;
    size_t first, end;
};

static bool find_pages(uintptr_t address, size_t bytes, struct pages *pages)
{
    const struct cudasim_range *range = cudasim_range_find(address);

    if (!bytes || !range || range->kind != CUDASIM_RANGE_MANAGED || bytes > range->size - (address - range->base))
        return false;
    *pages = (struct pages){range->object, (address - range->base) / CUDASIM_PAGE,
                            (address - range->base + bytes - 1) / CUDASIM_PAGE + 1};
    return true;
}

static void to_host(struct page *page)
{
    if (page->at != CU_DEVICE_CPU)
        cudasim_device_give(page->at, CUDASIM_ACCOUNT_MANAGED, CUDASIM_PAGE);
    page->at = CU_DEVICE_CPU;
}

static size_t bytes_on(const struct cudasim_managed *managed, int device)
{
    size_t pages = 0;

    for (size_t i = 0; i < managed->count; i++)
        pages += managed->page[i].at == device;
    return pages * CUDASIM_PAGE;
}

/* Returns the allocation with pages on the device that was used longest ago, but not `except`. */
static struct cudasim_managed *oldest_on(int device, const struct cudasim_managed *except)
{
    struct cudasim_managed *managed, *oldest = NULL;

    LIST_FOREACH (managed, &all, link)
        if (managed != except && (!oldest || managed->used < oldest->used) && bytes_on(managed, device))
            oldest = managed;
    return oldest;
}

/* Moves pages to the host, oldest allocation first, until the bytes are free or none is left. */
static void make_room(int device, size_t bytes, const struct cudasim_managed *except)
{
    struct cudasim_managed *oldest;

    while (cudasim_device_free(device) < bytes && (oldest = oldest_on(device, except)))
        for (size_t i = oldest->count; i-- && cudasim_device_free(device) < bytes;)
            if (oldest->page[i].at == device)
                to_host(&oldest->page[i]);
}

bool cudasim_managed_make_room(int device, size_t bytes)
{
    size_t there = cudasim_device_free(device);
    const struct cudasim_managed *managed;

    LIST_FOREACH (managed, &all, link)
        there += bytes_on(managed, device);
    if (there < bytes)
        return false;
    make_room(device, bytes, NULL);
    return cudasim_device_free(device) >= bytes;
}

/* Moves the pages to the device, as many as there is room for. */
static void to_device(struct pages pages, int device, bool wanted)
{
    struct cudasim_managed *managed = pages.managed;
    size_t missing = 0;

    managed->used = ++uses;
    for (size_t i = pages.first; i < pages.end; i++)
        missing += managed->page[i].at != device;
    make_room(device, missing * CUDASIM_PAGE, managed);
    for (size_t i = pages.first; i < pages.end; i++) {
        struct page *page = &managed->page[i];
        if (page->at == device || (!wanted && page->preferred.type != CU_MEM_LOCATION_TYPE_INVALID &&
                                   page->preferred.type != CU_MEM_LOCATION_TYPE_DEVICE))
            continue;
        if (!cudasim_device_take_pages(device, CUDASIM_PAGE))
            return;
        to_host(page);
        page->at = device;
    }
}

/* ---- work that uses pages ---- */

/* Which of them a kernel uses is unknown: all of an allocation that a parameter names. */
static void used_by_kernel(const struct cudasim_operation *operation)
{
    for (size_t at = 0; at + 8 <= operation->kernel.block_bytes; at += 8) {
        uintptr_t word;
        struct pages pages;
        memcpy(&word, (const unsigned char *)operation->kernel.block + at, sizeof word);
        if (!find_pages(word, 1, &pages))
            continue;
        pages.first = 0;
        pages.end = pages.managed->count;
        to_device(pages, operation->stream->context->device, false);
    }
}

void cudasim_managed_operation_starts(const struct cudasim_operation *operation)
{
    struct pages pages;

    if (LIST_EMPTY(&all))
        return;
    if (operation->kind == CUDASIM_OPERATION_KERNEL) {
        used_by_kernel(operation);
    } else if (operation->kind == CUDASIM_OPERATION_FILL) {
        const struct cudasim_fill *fill = &operation->fill;
        const size_t bytes =
            (fill->box.depth - 1) * fill->to.slice_pitch + (fill->box.height - 1) * fill->to.pitch + fill->box.width;
        if (find_pages(fill->to.address, bytes, &pages))
            to_device(pages, operation->stream->context->device, false);
    } else if (operation->kind == CUDASIM_OPERATION_PREFETCH &&
               find_pages(operation->prefetch.address, operation->prefetch.bytes, &pages)) {
        if (operation->prefetch.place != CU_DEVICE_CPU)
            to_device(pages, operation->prefetch.place, true);
        else
            for (size_t i = pages.first; i < pages.end; i++)
                to_host(&pages.managed->page[i]);
    }
}

/* ---- allocation ---- */

static struct cudasim_managed *new_managed(uintptr_t base, size_t size)
{
    const size_t count = (size + CUDASIM_PAGE - 1) / CUDASIM_PAGE;
    struct cudasim_managed *managed = calloc(1, sizeof *managed + count * sizeof managed->page[0]);

    if (!managed)
        return NULL;
    managed->base = base;
    managed->size = size;
    managed->count = count;
    for (size_t i = 0; i < count; i++)
        managed->page[i].at = CU_DEVICE_CPU;
    return managed;
}

CUresult cudasim_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    if (!dptr || !bytesize || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    void *memory = mmap(NULL, bytesize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct cudasim_managed *managed = new_managed((uintptr_t)memory, bytesize);
    struct cudasim_range range = {.base = (uintptr_t)memory,
                                  .size = bytesize,
                                  .kind = CUDASIM_RANGE_MANAGED,
                                  .device = cudasim_context_current()->device,
                                  .host = true,
                                  .flags = flags,
                                  .object = managed};
    cudasim_lock();
    const bool added = managed && !cudasim_range_add(range);
    if (added) {
        LIST_INSERT_HEAD(&all, managed, link);
        cudasim_ledger_object(CUDASIM_OBJECT_MANAGED, 1);
    }
    cudasim_unlock();
    if (!added) {
        free(managed);
        munmap(memory, bytesize);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    cudasim_poison(memory, bytesize);
    *dptr = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

void cudasim_managed_free(struct cudasim_managed *managed)
{
    for (size_t i = 0; i < managed->count; i++)
        to_host(&managed->page[i]);
    LIST_REMOVE(managed, link);
    cudasim_range_remove(managed->base);
    munmap((void *)managed->base, managed->size);
    cudasim_ledger_object(CUDASIM_OBJECT_MANAGED, -1);
    free(managed);
}

/* ---- prefetches and advice ---- */

/* Reads a location. The host has one memory node, number 0. */
static CUresult read_place(CUmemLocation location, struct place *place)
{
    *place = (struct place){location.type, location.id};
    switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return cudasim_valid_device(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
        place->id = CU_DEVICE_CPU;
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        *place = (struct place){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Queues the prefetch. Its pages have the location at once, and move when it starts. [locked] */
static CUresult prefetch(struct pages pages, struct place place, struct cudasim_operation *operation, CUstream handle)
{
    CUstream stream = cudasim_stream_resolve(handle);
    CUresult result = !stream           ? CUDA_ERROR_INVALID_HANDLE
                      : stream->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                        : CUDA_SUCCESS;

    if (result != CUDA_SUCCESS) {
        cudasim_operation_free(operation);
        return result;
    }
    for (size_t i = pages.first; i < pages.end; i++)
        pages.managed->page[i].prefetched = place;
    return cudasim_submit(operation, stream);
}

CUresult cudasim_cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                                       CUstream hStream)
{
    struct place place;
    struct pages pages;
    CUresult result = read_place(location, &place);
    if (flags || result != CUDA_SUCCESS)
        return flags ? CUDA_ERROR_INVALID_VALUE : result;
    struct cudasim_operation *operation = cudasim_operation_new(CUDASIM_OPERATION_PREFETCH);
    if (!operation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    operation->call = cudasim_call_name();
    operation->prefetch.address = (uintptr_t)devPtr;
    operation->prefetch.bytes = count;
    operation->prefetch.place = place.type == CU_MEM_LOCATION_TYPE_DEVICE ? place.id : CU_DEVICE_CPU;
    cudasim_lock();
    if (find_pages((uintptr_t)devPtr, count, &pages)) {
        result = prefetch(pages, place, operation, hStream);
    } else {
        cudasim_operation_free(operation);
        result = CUDA_ERROR_INVALID_VALUE;
    }
    cudasim_unlock();
    return result;
}

static void set_accessed_by(struct page *page, struct place place, bool is)
{
    const uint32_t bit = place.type == CU_MEM_LOCATION_TYPE_DEVICE ? 1u << place.id : 0;

    page->accessed_by = is ? page->accessed_by | bit : page->accessed_by & ~bit;
    if (!bit)
        page->accessed_by_host = is;
}

static void advise(struct page *page, CUmem_advise advice, struct place place)
{
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        page->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        return;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        page->preferred = place;
        return;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        page->preferred = (struct place){CU_MEM_LOCATION_TYPE_INVALID, 0};
        return;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        set_accessed_by(page, place, advice == CU_MEM_ADVISE_SET_ACCESSED_BY);
        return;
    }
}

CUresult cudasim_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)
{
    const bool ignores = advice == CU_MEM_ADVISE_SET_READ_MOSTLY || advice == CU_MEM_ADVISE_UNSET_READ_MOSTLY ||
                         advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
    struct place place = {CU_MEM_LOCATION_TYPE_INVALID, 0};
    struct pages pages;
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = ignores ? CUDA_SUCCESS : read_place(location, &place);
    if (result != CUDA_SUCCESS)
        return result;
    cudasim_lock();
    const bool found = find_pages((uintptr_t)devPtr, count, &pages);
    for (size_t i = found ? pages.first : 0; found && i < pages.end; i++)
        advise(&pages.managed->page[i], advice, place);
    cudasim_unlock();
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- attributes ---- */

/* Returns the location that all pages share, of a prefetch or preferred; or nowhere. */
static struct place common_place(struct pages pages, bool prefetched)
{
    const struct page *page = pages.managed->page;
    struct place common = {CU_MEM_LOCATION_TYPE_INVALID, 0};

    for (size_t i = pages.first; i < pages.end; i++) {
        const struct place place = prefetched ? page[i].prefetched : page[i].preferred;
        if (i == pages.first)
            common = place;
        if (place.type != common.type || place.id != common.id)
            return (struct place){CU_MEM_LOCATION_TYPE_INVALID, 0};
    }
    return common;
}

/* Returns a location as a number: a device's, CU_DEVICE_CPU, or CU_DEVICE_INVALID. */
static int number_of(struct place place)
{
    if (place.type == CU_MEM_LOCATION_TYPE_DEVICE)
        return place.id;
    return place.type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : CU_DEVICE_CPU;
}

static int all_read_mostly(struct pages pages)
{
    for (size_t i = pages.first; i < pages.end; i++)
        if (!pages.managed->page[i].read_mostly)
            return 0;
    return 1;
}

static void list_accessed_by(struct pages pages, int *numbers, size_t room)
{
    uint32_t devices = UINT32_MAX;
    bool host = true;
    size_t count = 0;

    for (size_t i = pages.first; i < pages.end; i++) {
        devices &= pages.managed->page[i].accessed_by;
        host &= pages.managed->page[i].accessed_by_host;
    }
    for (int device = 0; device < 32 && count < room; device++)
        if (devices >> device & 1)
            numbers[count++] = device;
    if (host && count < room)
        numbers[count++] = CU_DEVICE_CPU;
    while (count < room)
        numbers[count++] = CU_DEVICE_INVALID;
}

static CUresult answer(void *data, size_t bytes, CUmem_range_attribute attribute, struct pages pages)
{
    int *number = data;

    if (!data || (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY ? !bytes || bytes % 4 : bytes != 4))
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *number = all_read_mostly(pages);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *number = number_of(common_place(pages, attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION));
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        list_accessed_by(pages, number, bytes / 4);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *number = (int)common_place(pages, attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE).type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *number = common_place(pages, attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID).id;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cudasim_cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
                                        CUdeviceptr devPtr, size_t count)
{
    struct pages pages;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    cudasim_lock();
    if (find_pages((uintptr_t)devPtr, count, &pages))
        result = answer(data, dataSize, attribute, pages);
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
                                         size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
    CUresult result = data && dataSizes && attributes && numAttributes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    for (size_t i = 0; result == CUDA_SUCCESS && i < numAttributes; i++)
        result = cudasim_cuMemRangeGetAttribute(data[i], dataSizes[i], attributes[i], devPtr, count);
    return result;
}
