#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "communicator.h"

/*
 * Driver functions by look-up, as the real library gets them. So a library in front of the driver's
 * functions sees whose look-up it is.
 */
struct driver {
    __typeof__(&cuMemRetainAllocationHandle) memRetainAllocationHandle;
    __typeof__(&cuMemRelease) memRelease;
    __typeof__(&cuMemAddressReserve) memAddressReserve;
    __typeof__(&cuMemAddressFree) memAddressFree;
    __typeof__(&cuMemMap) memMap;
    __typeof__(&cuMemUnmap) memUnmap;
    __typeof__(&cuMemSetAccess) memSetAccess;
};

static struct driver found;

static void find_all(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    *(void **)&found.memRetainAllocationHandle = dlsym(library, "cuMemRetainAllocationHandle");
    *(void **)&found.memRelease = dlsym(library, "cuMemRelease");
    *(void **)&found.memAddressReserve = dlsym(library, "cuMemAddressReserve");
    *(void **)&found.memAddressFree = dlsym(library, "cuMemAddressFree");
    *(void **)&found.memMap = dlsym(library, "cuMemMap");
    *(void **)&found.memUnmap = dlsym(library, "cuMemUnmap");
    *(void **)&found.memSetAccess = dlsym(library, "cuMemSetAccess");
}

static const struct driver *driver(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find_all);
    return &found;
}

/*
 * Maps the pages behind [base, base + bytes) a second time, handle by handle. Each handle begins at
 * its first page.
 */
static bool map_again(CUdeviceptr base, CUdeviceptr alias, size_t bytes, size_t page)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t end;

    for (size_t at = 0; at < bytes; at = end) {
        CUmemGenericAllocationHandle handle, next = 0;
        if (driver()->memRetainAllocationHandle(&handle, (void *)(base + at)) != CUDA_SUCCESS)
            return false;
        for (end = at + page; end < bytes; end += page) {
            if (driver()->memRetainAllocationHandle(&next, (void *)(base + end)) != CUDA_SUCCESS)
                break;
            driver()->memRelease(next);
            if (next != handle)
                break;
        }
        CUresult mapped = driver()->memMap(alias + at, end - at, 0, handle, 0);
        driver()->memRelease(handle); /* the mapping keeps the pages */
        if (mapped != CUDA_SUCCESS)
            return false;
    }
    return driver()->memSetAccess(alias, bytes, &access, 1) == CUDA_SUCCESS;
}

/*
 * Returns the address of a second mapping; 0 on failure. Memory of cuMemAlloc has no handle and
 * never moves, so its own address is enough.
 */
static CUdeviceptr alias_of(CUdeviceptr base, size_t bytes)
{
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr alias = 0;
    size_t page = 0;

    if (driver()->memRetainAllocationHandle(&handle, (void *)base) != CUDA_SUCCESS)
        return base;
    driver()->memRelease(handle);
    if (cuMemGetAllocationGranularity(&page, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
        driver()->memAddressReserve(&alias, (bytes + page - 1) / page * page, page, 0, 0) != CUDA_SUCCESS)
        return 0;
    return map_again(base, alias, (bytes + page - 1) / page * page, page) ? alias : 0;
}

ncclResult_t cudasim_nccl_register(ncclComm_t comm, void *buffer, size_t bytes, void **handle)
{
    struct registration *r = malloc(sizeof *r);

    if (!r)
        return ncclSystemError;
    *r = (struct registration){.next = comm->registrations, .base = (CUdeviceptr)buffer, .bytes = bytes};
    if (cuMemGetAddressRange(&r->base, &r->bytes, (CUdeviceptr)buffer) != CUDA_SUCCESS ||
        !(r->alias = alias_of(r->base, r->bytes))) {
        free(r);
        return ncclUnhandledCudaError;
    }
    comm->registrations = r;
    *handle = r;
    return ncclSuccess;
}

void cudasim_nccl_deregister(ncclComm_t comm, void *handle)
{
    struct registration **at = &comm->registrations, *r;

    while (*at && *at != handle)
        at = &(*at)->next;
    if (!(r = *at))
        return;
    *at = r->next;
    if (r->alias != r->base) {
        CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
        size_t page = 1;
        cuMemGetAllocationGranularity(&page, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
        driver()->memUnmap(r->alias, (r->bytes + page - 1) / page * page);
        driver()->memAddressFree(r->alias, (r->bytes + page - 1) / page * page);
    }
    free(r);
}

void *cudasim_nccl_view(ncclComm_t comm, const void *address)
{
    for (const struct registration *r = comm->registrations; r; r = r->next)
        if ((CUdeviceptr)address - r->base < r->bytes)
            return (void *)(r->alias + ((CUdeviceptr)address - r->base));
    return (void *)address;
}
