/*
 * What the runtime answers while the process ends: cudaErrorCudartUnloading, to any call and any
 * thread. One thread calls exit while the main thread launches kernels. Runs on the simulated
 * device and on a GPU (asked on an H200, CUDA 13.0, both runtime libraries). Status 0: it was so.
 */
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <unistd.h>

#include "../samples/kernel.h"

KERNEL(write_ones, (int *words, size_t count), (words, count))
{
    FOR_EACH_ITEM(i, count)
    words[i] = 1;
}

static int *words;
static std::atomic<int> seen{-1}; /* the error of the main thread's launches */

static cudaError_t launched()
{
    write_ones<<<1, 32>>>(words, 1);
    return cudaGetLastError();
}

/* It runs after the handlers of the runtime and of the program's kernels: they came later. */
static void last_handler()
{
    for (int ms = 0; seen < 0 && ms < 10000; ms++)
        usleep(1000);
    cudaError_t answers[] = {static_cast<cudaError_t>(seen.load()), launched(), cudaMalloc(&words, 4096),
                             cudaDeviceSynchronize(), cudaFree(words)};
    int wrong = 0;
    for (cudaError_t answer : answers) {
        wrong += answer != cudaErrorCudartUnloading;
        printf("%d ", answer);
    }
    printf("%s\n", wrong == 0 ? "ok" : "not all are cudaErrorCudartUnloading");
    fflush(stdout);
    _exit(wrong != 0);
}

__attribute__((constructor(101))) static void begin()
{
    atexit(last_handler);
}

static void *end(void *)
{
    usleep(50000);
    exit(0);
}

int main()
{
    pthread_t thread;

    if (cudaMalloc(&words, 4096) != cudaSuccess || launched() != cudaSuccess ||
        pthread_create(&thread, nullptr, end, nullptr) != 0)
        return 2;
    cudaError_t answer;
    do
        answer = launched();
    while (answer == cudaSuccess);
    seen = answer;
    for (;;)
        pause();
}
