/*
 * The real driver library, libcuda.so.1: the entry points that Penstock calls, resolved once.
 *
 * ps_real_cuda_load() fills the table. The hooks call it when the program makes its first CUDA
 * call; nothing here runs before. Each field is the function of cuda.h with the same name, in the
 * version that cuda.h maps the name to. Thread-safe after loading.
 */
#ifndef PS_DRIVER_H
#define PS_DRIVER_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * PS_DRIVER(name): the driver must have the function, or Penstock steps aside.
 * PS_DRIVER_OPTIONAL(name): the field is NULL if the driver is too old.
 */
#define PS_DRIVER_TABLE                                                                                                \
    PS_DRIVER(cuDriverGetVersion)                                                                                      \
    PS_DRIVER(cuDeviceGet)                                                                                             \
    PS_DRIVER(cuDeviceGetCount)                                                                                        \
    PS_DRIVER(cuDeviceGetName)                                                                                         \
    PS_DRIVER(cuDeviceGetAttribute)                                                                                    \
    PS_DRIVER(cuDeviceTotalMem)                                                                                        \
    PS_DRIVER(cuCtxGetCurrent)                                                                                         \
    PS_DRIVER(cuCtxSetCurrent)                                                                                         \
    PS_DRIVER(cuCtxPushCurrent)                                                                                        \
    PS_DRIVER(cuCtxPopCurrent)                                                                                         \
    PS_DRIVER(cuCtxGetDevice)                                                                                          \
    PS_DRIVER(cuCtxSynchronize)                                                                                        \
    PS_DRIVER(cuCtxGetStreamPriorityRange)                                                                             \
    PS_DRIVER(cuMemGetInfo)                                                                                            \
    PS_DRIVER(cuMemAddressReserve)                                                                                     \
    PS_DRIVER(cuMemAddressFree)                                                                                        \
    PS_DRIVER(cuMemGetAllocationGranularity)                                                                           \
    PS_DRIVER(cuMemCreate)                                                                                             \
    PS_DRIVER(cuMemRelease)                                                                                            \
    PS_DRIVER(cuMemMap)                                                                                                \
    PS_DRIVER(cuMemUnmap)                                                                                              \
    PS_DRIVER(cuMemSetAccess)                                                                                          \
    PS_DRIVER(cuMemsetD32Async)                                                                                        \
    PS_DRIVER(cuMemcpyAsync)                                                                                           \
    PS_DRIVER(cuStreamCreateWithPriority)                                                                              \
    PS_DRIVER(cuStreamSynchronize)                                                                                     \
    PS_DRIVER(cuStreamWaitEvent)                                                                                       \
    PS_DRIVER(cuEventCreate)                                                                                           \
    PS_DRIVER(cuEventDestroy)                                                                                          \
    PS_DRIVER(cuEventRecord)                                                                                           \
    PS_DRIVER(cuEventQuery)                                                                                            \
    PS_DRIVER(cuEventSynchronize)                                                                                      \
    PS_DRIVER(cuFuncGetName)                                                                                           \
    PS_DRIVER(cuPointerGetAttribute)                                                                                   \
    PS_DRIVER(cuPointerGetAttributes)                                                                                  \
    PS_DRIVER(cuMemGetAddressRange)                                                                                    \
    PS_DRIVER(cuStreamGetCtx)                                                                                          \
    PS_DRIVER(cuStreamDestroy)                                                                                         \
    PS_DRIVER_OPTIONAL(cuMemHostRegister)                                                                              \
    PS_DRIVER_OPTIONAL(cuMemHostUnregister)                                                                            \
    PS_DRIVER_OPTIONAL(cuMemHostGetDevicePointer)                                                                      \
    PS_DRIVER_OPTIONAL(cuStreamGetFlags)                                                                               \
    PS_DRIVER_OPTIONAL(cuStreamWaitValue32)                                                                            \
    PS_DRIVER_OPTIONAL(cuEventElapsedTime)                                                                             \
    PS_DRIVER_OPTIONAL(cuFuncGetParamInfo)                                                                             \
    PS_DRIVER_OPTIONAL(cuKernelGetParamInfo)                                                                           \
    PS_DRIVER_OPTIONAL(cuKernelGetName)                                                                                \
    PS_DRIVER_OPTIONAL(cuStreamIsCapturing)                                                                            \
    PS_DRIVER_OPTIONAL(cuStreamGetCaptureInfo)                                                                         \
    PS_DRIVER_OPTIONAL(cuGraphGetNodes)                                                                                \
    PS_DRIVER_OPTIONAL(cuGraphGetEdges)                                                                                \
    PS_DRIVER_OPTIONAL(cuGraphNodeGetType)                                                                             \
    PS_DRIVER_OPTIONAL(cuGraphKernelNodeGetParams)                                                                     \
    PS_DRIVER_OPTIONAL(cuGraphKernelNodeGetAttribute)                                                                  \
    PS_DRIVER_OPTIONAL(cuGraphMemcpyNodeGetParams)                                                                     \
    PS_DRIVER_OPTIONAL(cuGraphMemsetNodeGetParams)                                                                     \
    PS_DRIVER_OPTIONAL(cuGraphBatchMemOpNodeGetParams)                                                                 \
    PS_DRIVER_OPTIONAL(cuGraphChildGraphNodeGetGraph)                                                                  \
    PS_DRIVER_OPTIONAL(cuThreadExchangeStreamCaptureMode)                                                              \
    PS_DRIVER_OPTIONAL(cuDevicePrimaryCtxGetState)                                                                     \
    PS_DRIVER_OPTIONAL(cuDevicePrimaryCtxRetain)                                                                       \
    PS_DRIVER_OPTIONAL(cuDevicePrimaryCtxRelease)                                                                      \
    PS_DRIVER_OPTIONAL(cuCtxFromGreenCtx)                                                                              \
    PS_DRIVER_OPTIONAL(cuDeviceGetDefaultMemPool)                                                                      \
    PS_DRIVER_OPTIONAL(cuDeviceGetMemPool)                                                                             \
    PS_DRIVER_OPTIONAL(cuMemFreeAsync)                                                                                 \
    PS_DRIVER_OPTIONAL(cuMemPoolGetAttribute)                                                                          \
    PS_DRIVER_OPTIONAL(cuMemPoolSetAttribute)                                                                          \
    PS_DRIVER_OPTIONAL(cuMemPoolTrimTo)

struct ps_real_cuda {
#define PS_DRIVER(name) __typeof__(&(name)) name;
#define PS_DRIVER_OPTIONAL(name) PS_DRIVER(name)
    PS_DRIVER_TABLE
#undef PS_DRIVER
#undef PS_DRIVER_OPTIONAL
};

/* The table is valid after ps_real_cuda_load() returned 0. */
extern struct ps_real_cuda ps_cu;

/*
 * The driver's functions without capture_mode.h's in front of them, for calls of the program that
 * are passed on: a capture forbids them as it does without Penstock.
 */
extern struct ps_real_cuda ps_cu_as_is;

/*
 * Opens libcuda.so.1 and fills ps_cu. Returns 0, -ENOENT without a driver, or -ENOSYS if it lacks a
 * needed entry point. Thread-safe; the result is cached.
 */
int ps_real_cuda_load(void);

/*
 * Returns the real address of a driver entry point by its exact symbol name, or NULL. Loads the
 * library if needed.
 */
void *ps_real_cuda_symbol(const char *name);

/*
 * Returns the -errno for a CUresult. It is 0, -ENOMEM, -EINVAL, -ENOSYS (not supported), -EAGAIN
 * (not ready), or -EIO for all others.
 */
int ps_cuda_errno(CUresult result);

/* Returns whether a call failed only because the context, or the whole process, has ended. */
bool ps_cuda_has_ended(CUresult result);

/*
 * Returns whether a kernel caused the error by its execution. Every later call returns such an
 * error, and says nothing about itself.
 */
bool ps_cuda_is_fault(CUresult result);

/*
 * Tells in `*ns` how long after `from` the device came to `to`; less than 0 means before. Both are
 * timing events. Returns 0, or -EAGAIN if the device has not come to both yet. Returns -ENOSYS if
 * the driver has no such call, or another -errno. Any thread.
 */
int ps_cuda_elapsed_ns(CUevent from, CUevent to, int64_t *ns);

#endif
