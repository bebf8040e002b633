/*
 * Functions that the simulated driver (libcuda.so.1) offers the simulated runtime (libcudart.so.13)
 * beside the public driver API. Exported by libcuda.so.1; thread-safe; no call here makes a CUPTI
 * callback by itself.
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
 * Registers a kernel and returns its handle, which lives until the process ends. `name` and `cubin`
 * belong to the caller and must live as long. `cubin` is the ELF image that holds the kernel. With
 * NULL no MODULE_LOADED callback is made for it. One image may hold many kernels. It is announced
 * once, at the first launch of any of them, as the real driver's lazy loading does.
 */
CUkernel cudasim_register_kernel(const char *name, const struct cudasim_kernel *kernel, const void *cubin,
                                 size_t cubin_bytes);

/*
 * Returns the library of an image that the program registered, or NULL without memory. cubin and
 * cubin_bytes are as for its kernels. Its variables are found by cuLibraryGetGlobal. They are freed
 * with their context.
 */
CUlibrary cudasim_register_image(const void *cubin, size_t cubin_bytes);

/*
 * Counts a call of a runtime entry point in the ledger. `supported` is 0 for an entry point that
 * answers cudaErrorNotSupported.
 */
void cudasim_count_runtime_call(const char *name, int supported);

#ifdef __cplusplus
}
#endif
#endif
