/*
 * What the simulated runtime (libcudart.so.13) asks of the simulated driver (libcuda.so.1) beside
 * the public driver API. Exported by libcuda.so.1; thread-safe; no call here makes a CUPTI callback
 * by itself.
 */
#ifndef CUDASIM_REGISTRY_H
#define CUDASIM_REGISTRY_H

#include <cuda.h>
#include <stddef.h>

#include "kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Makes a kernel known and returns its handle, which lives until the process ends. `name` and
 * `cubin` are the caller's and must live as long. `cubin` is the ELF image that holds the kernel,
 * or NULL (then no MODULE_LOADED callback is made for it); one image may hold many kernels and is
 * announced once, at the first launch of any of them, as the real driver's lazy loading does.
 */
CUkernel cudasim_register_kernel(const char *name, const struct cudasim_kernel *kernel, const void *cubin,
                                 size_t cubin_bytes);

/*
 * Counts a call of a runtime entry point in the ledger; `supported` is 0 for one that answers
 * cudaErrorNotSupported.
 */
void cudasim_count_runtime_call(const char *name, int supported);

#ifdef __cplusplus
}
#endif
#endif
