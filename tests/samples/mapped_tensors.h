/*
 * Each tensor is a mapping of its own, made and freed as by XLA's allocator. The words of `mapped`
 * choose the ways.
 */
#ifndef PENSTOCK_SAMPLES_MAPPED_TENSORS_H
#define PENSTOCK_SAMPLES_MAPPED_TENSORS_H

#include <map>
#include <mutex>

#include "hostile.h"
#include "mappings.h"

struct tensor {
    uint32_t *words;
    size_t count, bytes;
    CUmemGenericAllocationHandle handle;
};

static struct {
    bool reserve_first, release_early, keep_range, streams, entry_point;
} ways;

static cudaStream_t stream;
static size_t unit; /* words: 16 KiB, or the least that the device can map */

static std::mutex kept_lock;
static std::multimap<size_t, CUdeviceptr> kept; /* reserved ranges by size in bytes; guarded by kept_lock */

static CUdeviceptr address_of(const struct tensor *tensor)
{
    return reinterpret_cast<CUdeviceptr>(tensor->words);
}

static CUdeviceptr kept_range(size_t bytes)
{
    const std::lock_guard<std::mutex> lock(kept_lock);
    const auto found = kept.find(bytes);
    CUdeviceptr range = 0;

    if (found != kept.end()) {
        range = found->second;
        kept.erase(found);
    }
    return range;
}

static struct tensor new_tensor(size_t count)
{
    struct tensor tensor = {};
    CUdeviceptr range;

    tensor.count = count;
    tensor.bytes = whole_granules(count * sizeof(uint32_t));
    range = kept_range(tensor.bytes);
    if (range == 0 && ways.reserve_first)
        range = new_range(tensor.bytes);
    tensor.handle = new_handle(tensor.bytes);
    if (range == 0)
        range = new_range(tensor.bytes);
    tensor.words = words_at(range);
    map_handle(range, tensor.bytes, tensor.handle);
    if (ways.release_early)
        MUST(cuMemRelease, tensor.handle);
    return tensor;
}

static void free_tensor(const struct tensor *tensor)
{
    MUST(cuCtxSynchronize);
    MUST(cuMemUnmap, address_of(tensor), tensor->bytes);
    if (!ways.release_early)
        MUST(cuMemRelease, tensor->handle);
    if (ways.keep_range) {
        const std::lock_guard<std::mutex> lock(kept_lock);
        kept.emplace(tensor->bytes, address_of(tensor));
    } else {
        MUST(cuMemAddressFree, address_of(tensor), tensor->bytes);
    }
}

static void free_kept_ranges(void)
{
    for (const auto &[bytes, range] : kept)
        MUST(cuMemAddressFree, range, bytes);
    kept.clear();
}

#endif
