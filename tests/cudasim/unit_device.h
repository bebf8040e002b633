/*
 * Shared by the simulator's own tests: a device with a current context, a few kernels, and bodies
 * that run in a child process. Each body has a process of its own because the simulator reads its
 * settings once. A child's failed expectations count in the parent.
 */
#ifndef CUDASIM_UNIT_DEVICE_H
#define CUDASIM_UNIT_DEVICE_H

#include <cuda.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"
#include "registry.h"

#define EXPECT_CUDA(expected, call) expect_cuda((expected), (call), __FILE__, __LINE__, #call)
#define EXPECT_OK(call) EXPECT_CUDA(CUDA_SUCCESS, call)

static inline bool expect_cuda(CUresult expected, CUresult actual, const char *file, int line, const char *what)
{
    const char *wanted = "?", *got = "?";
    if (expected == actual) {
        expect_checked++;
    } else {
        expect_failed++;
        cuGetErrorName(expected, &wanted);
        cuGetErrorName(actual, &got);
        fprintf(stderr, "%s:%d: %s: expected %s, got %s\n", file, line, what, wanted, got);
    }
    return expected == actual;
}

/* ---- kernels ---- */

static inline void run_fill_words(const struct cudasim_launch *launch, void *const *params)
{
    (void)launch;
    uint32_t *to = *(uint32_t *const *)params[0];
    uint32_t count = *(const uint32_t *)params[1], value = *(const uint32_t *)params[2];
    for (uint32_t i = 0; i < count; i++)
        to[i] = value;
}

/* Sets to[0] to the number of words that equal `value`. */
static inline void run_count_words(const struct cudasim_launch *launch, void *const *params)
{
    (void)launch;
    const uint32_t *from = *(const uint32_t *const *)params[0];
    uint32_t count = *(const uint32_t *)params[1], value = *(const uint32_t *)params[2];
    uint32_t *to = *(uint32_t *const *)params[3], found = 0;
    for (uint32_t i = 0; i < count; i++)
        found += from[i] == value;
    *to = found;
}

static const struct cudasim_param fill_words_params[] = {{0, 8}, {8, 4}, {12, 4}};
static const struct cudasim_kernel fill_words_code = {CUDASIM_KERNEL_ABI, 3, fill_words_params, run_fill_words};
static const struct cudasim_param count_words_params[] = {{0, 8}, {8, 4}, {12, 4}, {16, 8}};
static const struct cudasim_kernel count_words_code = {CUDASIM_KERNEL_ABI, 4, count_words_params, run_count_words};

struct unit_device {
    CUcontext context;
    CUkernel fill_words, count_words;
    size_t granularity;
};

/* Opens device 0 in this process and registers the kernels. */
static inline bool open_device(struct unit_device *device)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    if (!EXPECT_OK(cuInit(0)) || !EXPECT_OK(cuDevicePrimaryCtxRetain(&device->context, 0)) ||
        !EXPECT_OK(cuCtxSetCurrent(device->context)))
        return false;
    device->fill_words = cudasim_register_kernel("fill_words", &fill_words_code, NULL, 0);
    device->count_words = cudasim_register_kernel("count_words", &count_words_code, NULL, 0);
    device->granularity = 0;
    cuMemGetAllocationGranularity(&device->granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    return EXPECT(device->fill_words && device->count_words);
}

static inline CUresult launch_fill(const struct unit_device *device, CUdeviceptr to, uint32_t count, uint32_t value,
                                   CUstream stream)
{
    void *params[] = {&to, &count, &value};
    return cuLaunchKernel((CUfunction)device->fill_words, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static inline CUresult launch_count(const struct unit_device *device, CUdeviceptr from, uint32_t count, uint32_t value,
                                    CUdeviceptr to, CUstream stream)
{
    void *params[] = {&from, &count, &value, &to};
    return cuLaunchKernel((CUfunction)device->count_words, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static inline CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec executable = NULL;
    EXPECT_OK(cuGraphInstantiate(&executable, graph, 0));
    return executable;
}

/* ---- children ---- */

/*
 * Runs body(argument) in a child process. Returns the child's exit status, or 256 if it did not
 * exit.
 */
static inline int run_child(int (*body)(void *argument), void *argument)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        exit(body(argument));
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256;
}

struct case_argument {
    void (*body)(void);
    const char *const *settings; /* name, value, name, value, ..., NULL */
};

static inline int run_case_body(void *argument)
{
    const struct case_argument *one = argument;
    expect_checked = expect_failed = 0; /* the child starts without the parent's counts */
    for (const char *const *setting = one->settings; setting && *setting; setting += 2)
        setenv(setting[0], setting[1], 1);
    one->body();
    return expect_status();
}

/*
 * Runs the body in a child with the settings, under one scheduler. Expects that everything in it
 * holds.
 */
static inline void run_case(const char *name, void (*body)(void), const char *const *settings, const char *scheduler,
                            unsigned int seed)
{
    char seed_text[16];
    snprintf(seed_text, sizeof seed_text, "%u", seed);
    setenv("CUDASIM_SCHED", scheduler, 1);
    setenv("CUDASIM_SEED", seed_text, 1);
    struct case_argument argument = {body, settings};
    if (!EXPECT_INT(0, run_child(run_case_body, &argument)))
        fprintf(stderr, "  in %s, CUDASIM_SCHED=%s CUDASIM_SEED=%u\n", name, scheduler, seed);
}

/* Runs the body under both schedulers, with several seeds under the seeded one. */
#define RUN_CASE(body, ...)                                                                                            \
    do {                                                                                                               \
        const char *const case_settings[] = {__VA_ARGS__ __VA_OPT__(, ) NULL};                                         \
        run_case(#body, body, case_settings, "threads", 0);                                                            \
        for (unsigned int case_seed = 0; case_seed < 8; case_seed++)                                                   \
            run_case(#body, body, case_settings, "seeded", case_seed);                                                 \
    } while (0)

#endif
