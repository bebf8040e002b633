/*
 * Every CUDA call of a sample goes through CHECK. After an error it prints the error with its call,
 * and ends the program with status 1. If another thread has called exit, CHECK waits for the end
 * that this brings, at most a minute.
 */
#ifndef PENSTOCK_SAMPLES_CHECK_H
#define PENSTOCK_SAMPLES_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cuda_runtime.h>

static inline void check_cuda(cudaError_t result, const char *call, const char *file, int line)
{
    if (result == cudaSuccess)
        return;
    if (result == cudaErrorCudartUnloading)
        sleep(60);
    fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, call, cudaGetErrorName(result), cudaGetErrorString(result));
    exit(1);
}

#define CHECK(call) check_cuda((call), #call, __FILE__, __LINE__)

/*
 * Ends the program unless the condition holds. For conditions of the sample itself, which hold on
 * any device.
 */
#define REQUIRE(condition, ...)                                                                                        \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
