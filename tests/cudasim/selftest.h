/*
 * Shared by selftest.cu and selftest_special.cu: expectations that let the program go on, two
 * kernels, and the end of a run. Each program includes this once. Everything is static but the
 * kernels.
 */
#ifndef CUDASIM_SELFTEST_H
#define CUDASIM_SELFTEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

#include "../samples/kernel.h"

static unsigned checks_made;
static unsigned checks_failed;

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        checks_made++;                                                                                                 \
        if (!(condition)) {                                                                                            \
            checks_failed++;                                                                                           \
            fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__, __func__, #condition);                      \
        }                                                                                                              \
    } while (0)

/* Expects a certain error of a call, and clears it as the last error. */
#define EXPECT_ERROR(call, expected)                                                                                   \
    do {                                                                                                               \
        cudaError_t got_ = (call);                                                                                     \
        checks_made++;                                                                                                 \
        if (got_ != (expected)) {                                                                                      \
            checks_failed++;                                                                                           \
            fprintf(stderr, "%s:%d: %s: %s gave %s, not %s\n", __FILE__, __LINE__, __func__, #call,                    \
                    cudaGetErrorName(got_), cudaGetErrorName(expected));                                               \
        }                                                                                                              \
        cudaGetLastError();                                                                                            \
    } while (0)

static const size_t ITEMS = 100000;
static const size_t BYTES = ITEMS * sizeof(float);

KERNEL(saxpy, (float *y, const float *x, float a, size_t count), (y, x, a, count))
{
    FOR_EACH_ITEM(i, count)
    y[i] += a * x[i];
}

KERNEL(fill, (float *out, float value, size_t count), (out, value, count))
{
    FOR_EACH_ITEM(i, count)
    out[i] = value;
}

/*
 * Returns the number of floats on the device, of `count`, that differ from `value`. Copies them
 * back synchronously.
 */
static size_t count_other_than(const float *device, float value, size_t count)
{
    float *host = static_cast<float *>(malloc(count * sizeof(float)));
    size_t others = 0;

    CHECK(cudaMemcpy(host, device, count * sizeof(float), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++)
        others += host[i] != value;
    free(host);
    return others;
}

static float *new_floats(float value, size_t count)
{
    float *device = NULL;

    CHECK(cudaMalloc(&device, count * sizeof(float)));
    LAUNCH(0, count, fill, device, value, count);
    return device;
}

/* Prints the result of the run, and returns the exit status. */
static int selftest_status(void)
{
    printf("selftest: %u checks, %u failed\n", checks_made, checks_failed);
    fflush(stdout);
    return checks_failed > 125 ? 125 : static_cast<int>(checks_failed);
}

#endif
