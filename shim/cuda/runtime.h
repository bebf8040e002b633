/*
 * The real runtime library (libcudart.so.13, or .12): the functions behind our hooks, and the few others that the hooks call.
 *
 * Looked up when a hook first needs one: that a hook is called means that the runtime is loaded. Any thread.
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

/* The table. A function that the loaded runtime lacks is one that answers cudaErrorNotSupported, never a null pointer. */
const struct ps_real_cudart *ps_real_cudart(void);

/* The release of CUDA that the shared runtime is of, 13 or 12. 0: none is loaded; programs may have one inside them instead, or use the driver. */
unsigned ps_real_cudart_release(void);

#endif
