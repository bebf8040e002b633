/*
 * Inside the simulated runtime library (libcudart.so.13).
 *
 * It is a client of the simulated driver through the public driver API and ../registry.h. It makes
 * the driver calls that the real runtime makes. So a CUPTI subscriber on the driver domain sees the
 * same as on a GPU. It holds no device state of its own. It holds only each thread's context, each
 * thread's last error, and the kernels that the program's fatbinaries announced.
 *
 * Every entry point has the same shape. It counts the call and gives the thread a context
 * (cudasim_runtime_begin). Then it makes the driver call, turns its result into a runtime error and
 * remembers it (cudasim_runtime_end). RUNTIME_RUN does this for calls that are one driver call. No
 * function in here calls an exported one, as a preloaded library may stand in front of it.
 *
 * Threads: every function here may be called by any thread. Errors: CUresult inside, cudaError_t at
 * the entry points.
 */
#ifndef CUDASIM_CUDART_RUNTIME_H
#define CUDASIM_CUDART_RUNTIME_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "entry_points.h"
#include "registry.h"

#define CUDASIM_HIDDEN __attribute__((visibility("hidden")))

/*
 * Counts a call of `entry_point` and makes sure that the calling thread has a current context. That
 * is its own context if it set one through the driver. Otherwise it is the primary context of the
 * device from cudaSetDevice (device 0 until then). The first call initialises the driver. Returns
 * the error that kept the thread from having a context, else CUDA_SUCCESS.
 */
CUDASIM_HIDDEN CUresult cudasim_runtime_begin(const char *entry_point);

/*
 * Translates a driver result. Remembers it as the thread's last error unless it is success or "not
 * ready". Returns the translation.
 */
CUDASIM_HIDDEN cudaError_t cudasim_runtime_end(CUresult result);

/*
 * Remembers a runtime error without a driver result behind it, under the same rule, and returns it.
 */
CUDASIM_HIDDEN cudaError_t cudasim_runtime_fail(cudaError_t error);

/*
 * As cudasim_runtime_fail(cudaErrorNotSupported). The ledger counts the call as one that the
 * simulator can't do.
 */
CUDASIM_HIDDEN cudaError_t cudasim_runtime_not_supported(const char *entry_point);

/*
 * Returns the runtime's error for a driver result, and remembers nothing. A result that is not in
 * the table is cudaErrorUnknown.
 */
CUDASIM_HIDDEN cudaError_t cudasim_translate_error(CUresult result);

/*
 * Whether the process is ending, and the runtime with it. Every call fails then, with
 * cudaErrorCudartUnloading. Other threads may still make calls.
 */
CUDASIM_HIDDEN bool cudasim_runtime_unloaded(void);

/* Initialises the driver if it is not. The calling thread gets no context. */
CUDASIM_HIDDEN CUresult cudasim_driver_init(void);

/*
 * Stores the driver's handle of device `ordinal`. Returns CUDA_ERROR_INVALID_DEVICE if the device
 * does not exist. Initialises the driver.
 */
CUDASIM_HIDDEN CUresult cudasim_device_from_ordinal(int ordinal, CUdevice *device);

/*
 * Stores the device that the calling thread's runtime calls go to. Initialises the driver; the
 * thread gets no context.
 */
CUDASIM_HIDDEN CUresult cudasim_current_device(int *ordinal);

/*
 * Stores the primary context of device `ordinal`. This library retains it at most once for the
 * whole process. Initialises the driver.
 */
CUDASIM_HIDDEN CUresult cudasim_primary_context(int ordinal, CUcontext *context);

/*
 * Stores the kernel behind a program's `func`: the address of its host stub, or a handle that this
 * library gave out before. Registers the kernel with the driver at the first call. Returns
 * CUDA_ERROR_INVALID_HANDLE if no such kernel exists. Returns
 * CUDA_ERROR_NO_BINARY_FOR_GPU if the program has no host version of it for the simulator.
 */
CUDASIM_HIDDEN CUresult cudasim_kernel_from_symbol(const void *func, CUkernel *kernel);

/*
 * cudasim_runtime_end for the result of cudasim_kernel_from_symbol, in the runtime's words. Not for
 * launches, which answer in the driver's words (CUDA 13.0).
 */
CUDASIM_HIDDEN cudaError_t cudasim_kernel_lookup_failed(CUresult result);

/*
 * Stores the place, in the current context, of the variable behind a program's `symbol`, its host
 * shadow's address. Returns CUDA_ERROR_NOT_FOUND if no such variable is in the program's image for
 * this device (say cudaErrorInvalidSymbol). The thread must have a context.
 */
CUDASIM_HIDDEN CUresult cudasim_variable_from_symbol(const void *symbol, CUdeviceptr *address, size_t *bytes);

/* cudasim_runtime_end for an error of cudasim_variable_from_symbol, in the runtime's words. */
CUDASIM_HIDDEN cudaError_t cudasim_variable_lookup_failed(CUresult result);

/*
 * Counts the call and gives the thread a context. Stores the address of `count` bytes from `offset`
 * on in the symbol's variable. Returns cudaErrorInvalidValue if the variable ends before them, then
 * cudaErrorInvalidMemcpyDirection unless the copy's direction fits.
 */
CUDASIM_HIDDEN cudaError_t cudasim_symbol_begin(const char *entry_point, const void *symbol, size_t count,
                                                size_t offset, bool direction_fits, void **address);

/* Whether a copy of this direction may lead to a symbol, or from one. */
static inline bool cudasim_leads_to_symbol(enum cudaMemcpyKind kind)
{
    return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault;
}

static inline bool cudasim_leads_from_symbol(enum cudaMemcpyKind kind)
{
    return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault;
}

/*
 * An entry point that is one driver call. `call` is evaluated only if the thread has a context. The
 * value is the cudaError_t.
 */
#define RUNTIME_RUN(call)                                                                                              \
    __extension__({                                                                                                    \
        CUresult run_result_ = cudasim_runtime_begin(__func__);                                                        \
        cudasim_runtime_end(run_result_ == CUDA_SUCCESS ? (call) : run_result_);                                       \
    })

static inline CUdeviceptr cudasim_device_address(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

static inline void *cudasim_pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* Describes a copy of one row, whose direction follows from its addresses. */
static inline CUDA_MEMCPY3D cudasim_one_row(void *to, const void *from, size_t bytes)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = cudasim_device_address(from),
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = cudasim_device_address(to),
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1};
}

#endif
