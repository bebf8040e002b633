/*
 * The real driver library, libcuda.so.1: the entry points that Penstock calls, resolved once.
 *
 * The table is filled by ps_real_cuda_load(), which the hooks call when the program makes its first CUDA call; nothing here runs before.
 * Every field is the function of cuda.h with the same name, in the version that cuda.h maps the name to. Thread-safe after loading.
 */
#ifndef PS_DRIVER_H
#define PS_DRIVER_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * PS_DRIVER(name): must be there, or Penstock steps aside. PS_DRIVER_OPTIONAL(name): a null pointer where the driver is too old.
 */
#define PS_DRIVER_TABLE                                                                                                                    \
    PS_DRIVER(cuDriverGetVersion)                                                                                                          \
    PS_DRIVER(cuDeviceGet)                                                                                                                 \
    PS_DRIVER(cuDeviceGetCount)                                                                                                            \
    PS_DRIVER(cuDeviceGetName)                                                                                                             \
    PS_DRIVER(cuDeviceGetAttribute)                                                                                                        \
    PS_DRIVER(cuDeviceTotalMem)                                                                                                            \
    PS_DRIVER(cuCtxGetCurrent)                                                                                                             \
    PS_DRIVER(cuCtxSetCurrent)                                                                                                             \
    PS_DRIVER(cuCtxPushCurrent)                                                                                                            \
    PS_DRIVER(cuCtxPopCurrent)                                                                                                             \
    PS_DRIVER(cuCtxGetDevice)                                                                                                              \
    PS_DRIVER(cuCtxSynchronize)                                                                                                            \
    PS_DRIVER(cuCtxGetStreamPriorityRange)                                                                                                 \
    PS_DRIVER(cuMemGetInfo)                                                                                                                \
    PS_DRIVER(cuMemAddressReserve)                                                                                                         \
    PS_DRIVER(cuMemAddressFree)                                                                                                            \
    PS_DRIVER(cuMemGetAllocationGranularity)                                                                                               \
    PS_DRIVER(cuMemCreate)                                                                                                                 \
    PS_DRIVER(cuMemRelease)                                                                                                                \
    PS_DRIVER(cuMemMap)                                                                                                                    \
    PS_DRIVER(cuMemUnmap)                                                                                                                  \
    PS_DRIVER(cuMemSetAccess)                                                                                                              \
    PS_DRIVER(cuMemsetD32Async)                                                                                                            \
    PS_DRIVER(cuMemcpyAsync)                                                                                                               \
    PS_DRIVER(cuStreamCreateWithPriority)                                                                                                  \
    PS_DRIVER(cuStreamSynchronize)                                                                                                         \
    PS_DRIVER(cuStreamWaitEvent)                                                                                                           \
    PS_DRIVER(cuEventCreate)                                                                                                               \
    PS_DRIVER(cuEventDestroy)                                                                                                              \
    PS_DRIVER(cuEventRecord)                                                                                                               \
    PS_DRIVER(cuEventQuery)                                                                                                                \
    PS_DRIVER(cuEventSynchronize)                                                                                                          \
    PS_DRIVER(cuFuncGetName)                                                                                                               \
    PS_DRIVER(cuPointerGetAttribute)                                                                                                       \
    PS_DRIVER(cuPointerGetAttributes)                                                                                                      \
    PS_DRIVER(cuMemGetAddressRange)                                                                                                        \
    PS_DRIVER(cuStreamGetCtx)                                                                                                              \
    PS_DRIVER(cuStreamDestroy)                                                                                                             \
    PS_DRIVER_OPTIONAL(cuMemHostRegister)                                                                                                  \
    PS_DRIVER_OPTIONAL(cuMemHostUnregister)                                                                                                \
    PS_DRIVER_OPTIONAL(cuMemHostGetDevicePointer)                                                                                          \
    PS_DRIVER_OPTIONAL(cuStreamGetFlags)                                                                                                   \
    PS_DRIVER_OPTIONAL(cuStreamWaitValue32)                                                                                                \
    PS_DRIVER_OPTIONAL(cuEventElapsedTime)                                                                                                 \
    PS_DRIVER_OPTIONAL(cuFuncGetParamInfo)                                                                                                 \
    PS_DRIVER_OPTIONAL(cuKernelGetParamInfo)                                                                                               \
    PS_DRIVER_OPTIONAL(cuKernelGetName)                                                                                                    \
    PS_DRIVER_OPTIONAL(cuStreamIsCapturing)                                                                                                \
    PS_DRIVER_OPTIONAL(cuStreamGetCaptureInfo)                                                                                             \
    PS_DRIVER_OPTIONAL(cuGraphGetNodes)                                                                                                    \
    PS_DRIVER_OPTIONAL(cuGraphNodeGetType)                                                                                                 \
    PS_DRIVER_OPTIONAL(cuGraphKernelNodeGetParams)                                                                                         \
    PS_DRIVER_OPTIONAL(cuGraphKernelNodeGetAttribute)                                                                                      \
    PS_DRIVER_OPTIONAL(cuGraphMemcpyNodeGetParams)                                                                                         \
    PS_DRIVER_OPTIONAL(cuGraphMemsetNodeGetParams)                                                                                         \
    PS_DRIVER_OPTIONAL(cuGraphBatchMemOpNodeGetParams)                                                                                     \
    PS_DRIVER_OPTIONAL(cuGraphChildGraphNodeGetGraph)                                                                                      \
    PS_DRIVER_OPTIONAL(cuThreadExchangeStreamCaptureMode)                                                                                  \
    PS_DRIVER_OPTIONAL(cuDevicePrimaryCtxGetState)                                                                                         \
    PS_DRIVER_OPTIONAL(cuDevicePrimaryCtxRetain)                                                                                           \
    PS_DRIVER_OPTIONAL(cuDevicePrimaryCtxRelease)                                                                                          \
    PS_DRIVER_OPTIONAL(cuDeviceGetDefaultMemPool)                                                                                          \
    PS_DRIVER_OPTIONAL(cuDeviceGetMemPool)                                                                                                 \
    PS_DRIVER_OPTIONAL(cuMemFreeAsync)                                                                                                     \
    PS_DRIVER_OPTIONAL(cuMemPoolGetAttribute)                                                                                              \
    PS_DRIVER_OPTIONAL(cuMemPoolSetAttribute)                                                                                              \
    PS_DRIVER_OPTIONAL(cuMemPoolTrimTo)

struct ps_real_cuda {
#define PS_DRIVER(name) __typeof__(&(name)) name;
#define PS_DRIVER_OPTIONAL(name) PS_DRIVER(name)
    PS_DRIVER_TABLE
#undef PS_DRIVER
#undef PS_DRIVER_OPTIONAL
};

/* Valid after ps_real_cuda_load() returned 0. */
extern struct ps_real_cuda ps_cu;

/* Opens libcuda.so.1 and fills ps_cu. 0, or -ENOENT when there is no driver, -ENOSYS when it lacks a needed entry point. Thread-safe; cached. */
int ps_real_cuda_load(void);

/* The real address of any driver entry point by its exact symbol name; NULL if there is none. Loads the library if need be. */
void *ps_real_cuda_symbol(const char *name);

/* -errno for a CUresult: 0, -ENOMEM, -EINVAL, -ENOSYS (not supported), -EAGAIN (not ready), or -EIO for anything else. */
int ps_cuda_errno(CUresult result);

/*
 * How long after `from` the device came to `to`, two timing events, in ns; less than 0: before. 0; -EAGAIN: it has not come to both yet; -ENOSYS: the
 * driver has no such call; other -errno. Any thread.
 */
int ps_cuda_elapsed_ns(CUevent from, CUevent to, int64_t *ns);

#endif
