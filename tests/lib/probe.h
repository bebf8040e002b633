/*
 * The beginning of the C programs inside the bats files (see build_probe): the runtime API, a check
 * that names the call that failed, and spans of the size that the test chose. Each program prints
 * "ok" at its end.
 */
#ifndef PENSTOCK_TESTS_PROBE_H
#define PENSTOCK_TESTS_PROBE_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t result_ = (call);                                                                                  \
        if (result_ != cudaSuccess) {                                                                                  \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(result_));                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Returns the bytes of one span. Reads PROBE_SPAN once, because loops over bytes call this. */
static inline size_t span_size(void)
{
    static size_t size;

    if (!size) {
        const char *text = getenv("PROBE_SPAN");
        size = text ? strtoull(text, NULL, 10) : 65536;
    }
    return size;
}

/* Returns a span that is filled with one byte value. */
static inline void *new_span(int value, cudaStream_t stream)
{
    void *span = NULL;

    CHECK(cudaMalloc(&span, span_size()));
    CHECK(cudaMemsetAsync(span, value, span_size(), stream));
    return span;
}

/* Returns whether every byte of the span is `value`. */
static inline int holds(const void *span, int value, cudaStream_t stream)
{
    unsigned char *host = malloc(span_size());
    size_t wrong = 0;

    CHECK(cudaMemcpyAsync(host, span, span_size(), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < span_size(); i++)
        wrong += host[i] != (unsigned char)value;
    free(host);
    return wrong == 0;
}

#endif
