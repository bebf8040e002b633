/*
 * The functions that the library exports: the runtime API as the toolkit's header declares it, and
 * the entry points that code made by nvcc calls. No C header declares the latter. All get default
 * visibility here, whatever the compiler's flags say.
 */
#ifndef CUDASIM_CUDART_ENTRY_POINTS_H
#define CUDASIM_CUDART_ENTRY_POINTS_H

#pragma GCC visibility push(default)

#include <cuda_runtime_api.h>
#include <stddef.h>

void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *stub, char *device_stub, const char *name, int thread_limit,
                            void *tid, void *bid, void *block, void *grid, int *warp_size);
void __cudaRegisterVar(void **handle, char *host_variable, char *device_address, const char *name, int external,
                       size_t bytes, int constant, int global);
void __cudaRegisterManagedVar(void **handle, void **host_pointer, char *device_address, const char *name, int external,
                              size_t bytes, int constant, int global);
char __cudaInitModule(void **handle);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *stub);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                               cudaStream_t stream);
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                                    cudaStream_t stream);

#pragma GCC visibility pop

#endif
