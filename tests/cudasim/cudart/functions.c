/*
 * Queries about kernels: attributes, names, parameter layouts, occupancy. Each asks the driver
 * about the kernel behind a stub.
 */
#include <string.h>

#include "runtime.h"

/* Counts the call, gives the thread a context, and finds the kernel and the device of a query. */
static cudaError_t begin_kernel_query(const char *entry_point, const void *func, CUkernel *kernel, CUdevice *device)
{
    CUresult result = cudasim_runtime_begin(entry_point);
    if (result == CUDA_SUCCESS)
        result = cuCtxGetDevice(device);
    if (result == CUDA_SUCCESS)
        result = cudasim_kernel_from_symbol(func, kernel);
    return result == CUDA_SUCCESS ? cudaSuccess : cudasim_kernel_lookup_failed(result);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *func)
{
    CUkernel kernel;
    CUdevice device;
    cudaError_t error = begin_kernel_query(__func__, func, &kernel, &device);
    if (error != cudaSuccess)
        return error;
    if (attributes == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);

    int shared_bytes = 0;
    int constant_bytes = 0;
    int local_bytes = 0;
    memset(attributes, 0, sizeof *attributes);
    const struct {
        CUfunction_attribute attribute;
        int *value;
    } wanted[] = {
        {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &shared_bytes},
        {CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, &constant_bytes},
        {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &local_bytes},
        {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &attributes->maxThreadsPerBlock},
        {CU_FUNC_ATTRIBUTE_NUM_REGS, &attributes->numRegs},
        {CU_FUNC_ATTRIBUTE_PTX_VERSION, &attributes->ptxVersion},
        {CU_FUNC_ATTRIBUTE_BINARY_VERSION, &attributes->binaryVersion},
        {CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, &attributes->cacheModeCA},
        {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &attributes->maxDynamicSharedSizeBytes},
        {CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, &attributes->preferredShmemCarveout},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        CUresult result = cuKernelGetAttribute(wanted[i].value, wanted[i].attribute, kernel, device);
        if (result != CUDA_SUCCESS)
            return cudasim_runtime_end(result);
    }
    attributes->sharedSizeBytes = (size_t)shared_bytes;
    attributes->constSizeBytes = (size_t)constant_bytes;
    attributes->localSizeBytes = (size_t)local_bytes;
    return cudaSuccess;
}

/* Attributes that a program may set have one number in both interfaces. */
_Static_assert((int)cudaFuncAttributeMaxDynamicSharedMemorySize ==
                       (int)CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
                   (int)cudaFuncAttributePreferredSharedMemoryCarveout ==
                       (int)CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
               "function attributes differ");

cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attribute, int value)
{
    CUkernel kernel;
    CUdevice device;
    cudaError_t error = begin_kernel_query(__func__, func, &kernel, &device);
    if (error != cudaSuccess)
        return error;
    return cudasim_runtime_end(cuKernelSetAttribute((CUfunction_attribute)attribute, value, kernel, device));
}

cudaError_t cudaFuncSetCacheConfig(const void *func, enum cudaFuncCache config)
{
    CUkernel kernel;
    CUdevice device;
    cudaError_t error = begin_kernel_query(__func__, func, &kernel, &device);
    if (error != cudaSuccess)
        return error;
    return cudasim_runtime_end(cuKernelSetCacheConfig(kernel, (CUfunc_cache)config, device));
}

cudaError_t cudaFuncGetName(const char **name, const void *func)
{
    CUkernel kernel;
    CUdevice device;
    cudaError_t error = begin_kernel_query(__func__, func, &kernel, &device);
    if (error != cudaSuccess)
        return error;
    return cudasim_runtime_end(cuKernelGetName(name, kernel));
}

cudaError_t cudaFuncGetParamInfo(const void *func, size_t index, size_t *offset, size_t *bytes)
{
    CUkernel kernel;
    CUdevice device;
    cudaError_t error = begin_kernel_query(__func__, func, &kernel, &device);
    if (error != cudaSuccess)
        return error;
    return cudasim_runtime_end(cuKernelGetParamInfo(kernel, index, offset, bytes));
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function, const void *symbol)
{
    CUkernel kernel;
    CUdevice device;
    cudaError_t error = begin_kernel_query(__func__, symbol, &kernel, &device);
    if (error != cudaSuccess)
        return error;
    return cudasim_runtime_end(cuKernelGetFunction(function, kernel));
}

static cudaError_t active_blocks(const char *entry_point, int *blocks, const void *func, int block_size,
                                 size_t shared_bytes, unsigned flags)
{
    CUkernel kernel;
    CUdevice device;
    cudaError_t error = begin_kernel_query(entry_point, func, &kernel, &device);
    if (error != cudaSuccess)
        return error;
    /* As at launches, the driver takes a kernel handle here. */
    return cudasim_runtime_end(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, (CUfunction)kernel,
                                                                                    block_size, shared_bytes, flags));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *func, int block_size,
                                                                   size_t shared_bytes, unsigned int flags)
{
    return active_blocks(__func__, blocks, func, block_size, shared_bytes, flags);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *func, int block_size,
                                                          size_t shared_bytes)
{
    return active_blocks(__func__, blocks, func, block_size, shared_bytes, CU_OCCUPANCY_DEFAULT);
}
