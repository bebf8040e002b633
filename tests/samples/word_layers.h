/*
 * Layers of a training on 32-bit words, and a hash of the weights. The results are the same to the
 * last bit on any device.
 */
#ifndef PENSTOCK_SAMPLES_WORD_LAYERS_H
#define PENSTOCK_SAMPLES_WORD_LAYERS_H

#include <vector>

#include "kernel.h"

KERNEL(forward, (uint32_t *__restrict__ out, const uint32_t *in, const uint32_t *weight, size_t in_count, size_t count),
       (out, in, weight, in_count, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = in[i % in_count] * 3 + weight[i];
}

KERNEL(split, (uint32_t *__restrict__ low, uint32_t *__restrict__ high, const uint32_t *in, size_t half),
       (low, high, in, half))
{
    FOR_EACH_ITEM (i, half) {
        low[i] = in[i] + 1;
        high[i] = in[half + i] * 5;
    }
}

KERNEL(backward,
       (uint32_t *__restrict__ gradient, const uint32_t *above, const uint32_t *activation, const uint32_t *whole,
        size_t above_count, size_t count),
       (gradient, above, activation, whole, above_count, count))
{
    FOR_EACH_ITEM (i, count)
        gradient[i] = above[i % above_count] * 5 + (activation[i] ^ whole[count - 1 - i]);
}

KERNEL(update, (uint32_t *__restrict__ weight, const uint32_t *gradient, size_t count), (weight, gradient, count))
{
    FOR_EACH_ITEM (i, count)
        weight[i] += gradient[i] >> 3;
}

static inline void first_waits(cudaStream_t waiter, cudaStream_t first)
{
    cudaEvent_t event;

    if (waiter == first)
        return;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventRecord(event, first));
    CHECK(cudaStreamWaitEvent(waiter, event, 0));
    CHECK(cudaEventDestroy(event));
}

#define HASH_START 14695981039346656037ull

static inline uint64_t hash_words(uint64_t hash, const uint32_t *device, size_t count, cudaStream_t stream)
{
    std::vector<uint32_t> host(count);

    CHECK(cudaMemcpyAsync(host.data(), device, count * sizeof(uint32_t), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (const uint32_t word : host)
        hash = (hash ^ word) * 1099511628211ull;
    return hash;
}

#endif
