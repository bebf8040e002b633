/*
 * A green context, and the driver's functions as the program finds them. Needs a driver that is
 * loaded; the program ends with EXIT_SKIP where it lacks a function.
 */
#ifndef PENSTOCK_SAMPLES_GREEN_H
#define PENSTOCK_SAMPLES_GREEN_H

#include <cuda.h>
#include <dlfcn.h>

#include "hostile.h"

/* A function of the driver, or NULL with a driver that lacks it. */
template <typename Function> static inline Function driver_call(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

    return reinterpret_cast<Function>(driver != nullptr ? dlsym(driver, name) : nullptr);
}

#define DRIVER_CALL(name, ...)                                                                                         \
    do {                                                                                                               \
        const auto call_ = driver_call<__typeof__(&name)>(#name);                                                      \
        const CUresult result_ = call_ != nullptr ? call_(__VA_ARGS__) : CUDA_ERROR_NOT_SUPPORTED;                     \
        if (result_ == CUDA_ERROR_NOT_SUPPORTED) {                                                                     \
            printf("skip: %s is not supported\n", #name);                                                              \
            exit(EXIT_SKIP);                                                                                           \
        }                                                                                                              \
        REQUIRE(result_ == CUDA_SUCCESS, "%s: error %d", #name, static_cast<int>(result_));                            \
    } while (0)

/* Makes a green context of eight multiprocessors. The device's primary context must exist. */
static inline CUgreenCtx new_green_context(CUcontext *context)
{
    CUdevResource all, part;
    CUdevResourceDesc descriptor;
    CUgreenCtx green = nullptr;
    unsigned groups = 1;

    CHECK(cudaFree(nullptr));
    DRIVER_CALL(cuDeviceGetDevResource, 0, &all, CU_DEV_RESOURCE_TYPE_SM);
    DRIVER_CALL(cuDevSmResourceSplitByCount, &part, &groups, &all, nullptr, 0, 8);
    DRIVER_CALL(cuDevResourceGenerateDesc, &descriptor, &part, 1);
    DRIVER_CALL(cuGreenCtxCreate, &green, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM);
    DRIVER_CALL(cuCtxFromGreenCtx, context, green);
    return green;
}

#endif
