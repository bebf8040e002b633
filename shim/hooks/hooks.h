/*
 * The intercepted functions' prototypes (from hooks.def), and the macros that hook files share. A
 * hook keeps the contract of the function that it stands for: same results, same errors, same
 * threads.
 */
#ifndef PS_HOOKS_H
#define PS_HOOKS_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "cuda/driver_functions.h"
#include "cuda/helper_thread.h"
#include "cuda/newer_cuda.h"

#define PS_EXPORT __attribute__((visibility("default")))

/* The driver's own function, NULL without a driver. For files that include driver.h. */
#define PS_REAL_CUDA(name)                                                                                             \
    (ps_real_cuda_load() ? NULL : (__typeof__(&(name)))ps_driver_function(PS_DRIVER_FUNCTION_##name))

#define PS_HOOK_CUDART(type, name, parameters, arguments) PS_EXPORT type name parameters;
#define PS_HOOK_CUDA(type, name, parameters, arguments) PS_EXPORT type name parameters;
#include "cuda/hooks.def"
#undef PS_HOOK_CUDART
#undef PS_HOOK_CUDA

#endif
