/*
 * A worker issues the work of a sample trainer. It owns a share of the batch, one or two streams,
 * and its own gradients.
 *
 * Tensors are allocated on the main stream, used there and, with --streams=2, on the side stream
 * too. This file keeps CUDA's rules, and no more than these:
 *
 * - The side stream waits for the main stream before it uses results of the main stream
 * (side_follows_main).
 * - A tensor that only the main stream used is freed there (tensor_free).
 * - A tensor that both streams used is freed on the side stream (tensor_free_shared,
 * free_shared_tensors). Before that, the side stream waits for its last use on the main stream.
 * - With cudaMalloc and cudaFree the order of the host's calls is enough: cudaFree frees the memory
 * only when all issued work is complete.
 *
 * One host thread at a time uses a worker.
 */
#ifndef PENSTOCK_SAMPLES_WORKER_H
#define PENSTOCK_SAMPLES_WORKER_H

#include <stdarg.h>

#include <atomic>

#include <nvtx3/nvToolsExt.h>

#include "check.h"
#include "options.h"

#define MAX_PARAMETERS 2048
#define MAX_SHARED_TENSORS 64

/* A weight with its Adam state. All of these live from the start of the program to its end. */
struct parameter {
    char name[32];
    size_t count;
    float offset; /* initial values are offset + deviation * [-1, 1) */
    float deviation;
    float *value;
    float *moment1;
    float *moment2;
};

struct parameter_list {
    size_t count;
    struct parameter entry[MAX_PARAMETERS];
};

/* Device memory that lives for a part of a step. */
template <typename Element> struct tensor {
    Element *data;
    size_t count;
};

struct shared_tensor {
    void *data;
    size_t bytes;
};

struct activations; /* tensors that a model keeps between forward and backward; each model defines its own */

struct worker {
    const struct options *options;
    const struct parameter_list *parameters;
    cudaStream_t main;
    cudaStream_t side; /* the same as main with --streams=1 */
    cudaEvent_t main_reached;
    cudaEvent_t side_reached;
    float *gradient[MAX_PARAMETERS];

    /* The share of the step's batch: samples [first, first + samples) of `batch`. */
    uint64_t step;
    bool training;
    size_t batch;
    size_t first;
    size_t samples;
    const void *host_input; /* pinned; of the whole batch */
    const void *host_target;
    double *host_loss; /* pinned; the copy of this share's loss goes there */

    struct shared_tensor shared[MAX_SHARED_TENSORS]; /* used by both streams, to be freed at the end of the layer */
    size_t shared_count;
    struct activations *activations;
};

/* Bytes that the program has allocated on the device and not freed, and their peak. */
struct memory_use {
    std::atomic<size_t> current;
    std::atomic<size_t> peak;
};

static struct memory_use memory_use;

static inline void count_memory(size_t bytes)
{
    size_t now = memory_use.current.fetch_add(bytes) + bytes;
    size_t peak = memory_use.peak.load();

    while (now > peak && !memory_use.peak.compare_exchange_weak(peak, now)) {
    }
}

/* Allocates device memory that lives as long as the program. */
static inline float *allocate_forever(size_t count)
{
    void *data = nullptr;

    CHECK(cudaMalloc(&data, count * sizeof(float)));
    count_memory(count * sizeof(float));
    return static_cast<float *>(data);
}

template <typename Element>
static inline struct tensor<Element> tensor_new_on(const struct worker *worker, cudaStream_t stream, size_t count) {
    const size_t bytes = count * sizeof(Element);
    void *data = nullptr;

    if (worker->options->async_alloc)
        CHECK(cudaMallocAsync(&data, bytes, stream));
    else
        CHECK(cudaMalloc(&data, bytes));
    count_memory(bytes);
    return {static_cast<Element *>(data), count};
}

static inline struct tensor<float>
tensor_new(const struct worker *worker, size_t count) {
    return tensor_new_on<float>(worker, worker->main, count);
}

static inline void
free_bytes(const struct worker *worker, cudaStream_t stream, void *data, size_t bytes)
{
    if (worker->options->async_alloc)
        CHECK(cudaFreeAsync(data, stream));
    else
        CHECK(cudaFree(data));
    memory_use.current.fetch_sub(bytes);
}

template <typename Element>
static inline void tensor_free_on(const struct worker *worker, cudaStream_t stream, struct tensor<Element> *tensor)
{
    free_bytes(worker, stream, tensor->data, tensor->count * sizeof(Element));
    tensor->data = nullptr;
}

/* Frees a tensor that only the main stream used. */
template <typename Element> static inline void tensor_free(const struct worker *worker, struct tensor<Element> *tensor)
{
    tensor_free_on(worker, worker->main, tensor);
}

/* Frees a tensor that both streams used, at the next free_shared_tensors. */
template <typename Element> static inline void tensor_free_shared(struct worker *worker, struct tensor<Element> *tensor)
{
    REQUIRE(worker->shared_count < MAX_SHARED_TENSORS, "more than %d tensors to free in a layer", MAX_SHARED_TENSORS);
    worker->shared[worker->shared_count++] = {tensor->data, tensor->count * sizeof(Element)};
    tensor->data = nullptr;
}

/* Later work of the side stream starts after all work issued on the main stream so far. */
static inline void side_follows_main(const struct worker *worker)
{
    if (worker->side == worker->main)
        return;
    CHECK(cudaEventRecord(worker->main_reached, worker->main));
    CHECK(cudaStreamWaitEvent(worker->side, worker->main_reached, 0));
}

static inline void main_follows_side(const struct worker *worker)
{
    if (worker->side == worker->main)
        return;
    CHECK(cudaEventRecord(worker->side_reached, worker->side));
    CHECK(cudaStreamWaitEvent(worker->main, worker->side_reached, 0));
}

static inline void free_shared_tensors(struct worker *worker)
{
    side_follows_main(worker);
    for (size_t i = 0; i < worker->shared_count; i++)
        free_bytes(worker, worker->side, worker->shared[i].data, worker->shared[i].bytes);
    worker->shared_count = 0;
}

/* Begins a marked stretch of the step, e.g. "layer 3 forward". */
__attribute__((format(printf, 2, 3))) static inline void range_begin(const struct worker *worker, const char *format,
                                                                     ...)
{
    char name[64];
    va_list args;

    if (!worker->options->nvtx)
        return;
    va_start(args, format);
    vsnprintf(name, sizeof(name), format, args);
    va_end(args);
    nvtxRangePushA(name);
}

static inline void range_end(const struct worker *worker)
{
    if (worker->options->nvtx)
        nvtxRangePop();
}

#endif
