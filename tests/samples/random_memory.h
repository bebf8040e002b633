/*
 * Device memory of each kind for a random program: allocations of cudaMalloc, of the device's pool
 * and of a pool of the program's own, mappings that the program makes itself, and pinned host
 * memory. Part of random_orders.cu and random_overlap.cu.
 */
#ifndef PENSTOCK_SAMPLES_RANDOM_MEMORY_H
#define PENSTOCK_SAMPLES_RANDOM_MEMORY_H

#include <map>

#include "mappings.h"
#include "random_streams.h"

enum memory_kind { FOR_ALL, STREAM_ORDERED, FROM_POOL, MAPPED, ON_HOST };

static int device_count = 1;                  /* the devices that programs use */
static bool peers_reachable;                  /* kernels may use memory of the other device */
static cudaMemPool_t own_pools[MOST_DEVICES]; /* only with all kinds */
static std::mutex handles_lock;
static std::map<uint32_t *, std::pair<CUmemGenericAllocationHandle, size_t>> handles; /* guarded by handles_lock */

static inline bool is_in_stream_order(enum memory_kind kind)
{
    return kind == STREAM_ORDERED || kind == FROM_POOL;
}

static inline enum memory_kind any_kind(struct random_streams *streams)
{
    if (all_kinds && one_in(streams, 3)) {
        static const enum memory_kind more[] = {FROM_POOL, MAPPED, ON_HOST};

        return more[below(streams, 3)];
    }
    return one_in(streams, 3) ? FOR_ALL : STREAM_ORDERED;
}

/* Makes a range with pages of its own. The handle may be released at once or kept for long. */
static inline void *new_mapping(size_t bytes)
{
    const std::lock_guard<std::mutex> guard(handles_lock);
    CUmemAccessDesc access = {};

    bytes = whole_granules(bytes);
    mappings.properties.location.id = device_here;
    const CUmemGenericAllocationHandle handle = new_handle(bytes);
    const CUdeviceptr range = new_range(bytes);
    MUST(cuMemMap, range, bytes, 0, handle, 0);
    access.location = mappings.properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    MUST(cuMemSetAccess, range, bytes, &access, 1);
    handles[words_at(range)] = {handle, bytes};
    return words_at(range);
}

static inline void free_mapping(uint32_t *words)
{
    const std::lock_guard<std::mutex> guard(handles_lock);
    const auto [handle, bytes] = handles.at(words);

    MUST(cuMemUnmap, reinterpret_cast<CUdeviceptr>(words), bytes);
    MUST(cuMemRelease, handle);
    MUST(cuMemAddressFree, reinterpret_cast<CUdeviceptr>(words), bytes);
    handles.erase(words);
}

/* Allocates on the current device. Stream-ordered memory may be used after the stream's work. */
static inline uint32_t *allocate(enum memory_kind kind, size_t bytes, cudaStream_t stream)
{
    void *memory = nullptr;

    if (kind == STREAM_ORDERED)
        CHECK(cudaMallocAsync(&memory, bytes, stream));
    else if (kind == FROM_POOL)
        CHECK(cudaMallocFromPoolAsync(&memory, bytes, own_pools[device_here], stream));
    else if (kind == MAPPED)
        memory = new_mapping(bytes);
    else if (kind == ON_HOST)
        CHECK(cudaMallocHost(&memory, bytes));
    else
        CHECK(cudaMalloc(&memory, bytes));
    return static_cast<uint32_t *>(memory);
}

/* Frees memory whose uses are complete, or memory of cudaMalloc at any time. */
static inline void release(enum memory_kind kind, uint32_t *memory)
{
    if (kind == MAPPED)
        free_mapping(memory);
    else if (kind == ON_HOST)
        CHECK(cudaFreeHost(memory));
    else
        CHECK(cudaFree(memory));
}

/* ---- pools and devices ---- */
static inline void prepare_own_pool(bool keeps_memory)
{
    struct cudaMemPoolProps properties = {};
    uint64_t all = UINT64_MAX;
    cudaMemPool_t device_pool = nullptr;

    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device_here;
    CHECK(cudaMemPoolCreate(&own_pools[device_here], &properties));
    if (!keeps_memory)
        return;
    CHECK(cudaDeviceGetDefaultMemPool(&device_pool, device_here));
    CHECK(cudaMemPoolSetAttribute(device_pool, cudaMemPoolAttrReleaseThreshold, &all));
    CHECK(cudaMemPoolSetAttribute(own_pools[device_here], cudaMemPoolAttrReleaseThreshold, &all));
}

static inline void prepare_peers(void)
{
    int reaches[2] = {};

    CHECK(cudaDeviceCanAccessPeer(&reaches[0], 0, 1));
    CHECK(cudaDeviceCanAccessPeer(&reaches[1], 1, 0));
    peers_reachable = reaches[0] != 0 && reaches[1] != 0;
    for (int device = 0; peers_reachable && device < 2; device++) {
        const at_device there(device);

        CHECK(cudaDeviceEnablePeerAccess(1 - device, 0));
    }
}

/* Called once, before programs run. */
static inline void prepare_memory(bool pools_keep_memory)
{
    int present = 0;

    CHECK(cudaGetDeviceCount(&present));
    if (present < device_count) {
        printf("skip: %d devices are needed\n", device_count);
        exit(EXIT_SKIP);
    }
    if (device_count > 1)
        prepare_peers();
    if (!all_kinds)
        return;
    find_mapping_functions(false);
    for (int device = 0; device < device_count; device++) {
        const at_device there(device);

        prepare_own_pool(pools_keep_memory);
    }
}

static inline void forget_memory(void)
{
    for (cudaMemPool_t each : own_pools)
        if (each != nullptr)
            CHECK(cudaMemPoolDestroy(each));
}

#endif
