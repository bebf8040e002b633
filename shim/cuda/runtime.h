/*
 * The real runtime library (libcudart.so.13 or .12): the functions behind Penstock's hooks, and a
 * few others that the hooks call.
 *
 * They are looked up when a hook first needs one. The call of a hook shows that the runtime is
 * loaded. Any thread.
 */
#ifndef PS_RUNTIME_H
#define PS_RUNTIME_H

#include <cuda.h>
#include <cuda_runtime_api.h>

struct ps_real_cudart {
#define PS_HOOK_CUDART(type, name, parameters, arguments) type(*name) parameters;
#define PS_HOOK_CUDA(type, name, parameters, arguments)
#include "cuda/hooks.def"
#undef PS_HOOK_CUDART
#undef PS_HOOK_CUDA
    cudaError_t (*cudaGetDevice)(int *device);
    cudaError_t (*cudaGetLastError)(void);
};

/*
 * Returns the table. Where the loaded runtime lacks a function, the field is a function that
 * returns cudaErrorNotSupported, never NULL.
 */
const struct ps_real_cudart *ps_real_cudart(void);

/*
 * Returns the CUDA release of the loaded shared runtime, 13 or 12, or 0 if none is loaded. Programs
 * may contain a runtime of their own instead, or use the driver.
 */
unsigned ps_real_cudart_release(void);

#endif
