#include "kernels.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../registry.h"
#include "config.h"
#include "engine.h"
#include "entries.h"
#include "globals.h"
#include "ledger.h"
#include "memory.h"
#include "notify.h"

#define KERNEL_TAG 0x6b65726eu
#define FUNCTION_TAG 0x66756e63u

/* A cubin. The subscriber learns of it when its first kernel is used. */
struct cudasim_image {
    const void *cubin;
    size_t bytes;
    uint32_t module_id;
    atomic_bool announced;
    struct cudasim_globals *globals; /* its variables, or NULL */
    CUlibrary library;               /* made at the first need */
    struct cudasim_image *next;
};

/* Both lists only grow, under the device lock. */
static struct cudasim_kernel_entry *kernels;
static struct cudasim_image *images;
static uint32_t next_module_id = 1;

static struct cudasim_image *image_of(const void *cubin, size_t bytes)
{
    if (!cubin)
        return NULL;
    for (struct cudasim_image *image = images; image; image = image->next)
        if (image->cubin == cubin)
            return image;
    struct cudasim_image *image = calloc(1, sizeof *image);
    if (!image)
        return NULL;
    image->cubin = cubin;
    image->bytes = bytes;
    image->module_id = next_module_id++;
    if (cudasim_globals_read(cubin, bytes, &image->globals) != CUDA_SUCCESS)
        fprintf(stderr, "cudasim: the variables of a cubin can't be read; they are not found by name\n");
    image->next = images;
    images = image;
    return image;
}

static struct cudasim_kernel_entry *add_kernel(const char *name, const struct cudasim_kernel *code, const void *cubin,
                                               size_t bytes)
{
    struct cudasim_kernel_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    entry->name = name;
    entry->code = code;
    entry->image = image_of(cubin, bytes);
    entry->globals = entry->image ? entry->image->globals : NULL;
    entry->kernel = (struct CUkern_st){KERNEL_TAG, entry};
    entry->function = (struct CUfunc_st){FUNCTION_TAG, entry};
    entry->next = kernels;
    kernels = entry;
    return entry;
}

__attribute__((visibility("default"))) CUkernel cudasim_register_kernel(const char *name,
                                                                        const struct cudasim_kernel *kernel,
                                                                        const void *cubin, size_t cubin_bytes)
{
    if (!name || !kernel || (kernel->abi != CUDASIM_KERNEL_ABI && kernel->abi != CUDASIM_KERNEL_ABI_IN_PARTS) ||
        !kernel->run)
        return NULL;
    cudasim_lock();
    struct cudasim_kernel_entry *entry = add_kernel(name, kernel, cubin, cubin_bytes);
    cudasim_unlock();
    return entry ? &entry->kernel : NULL;
}

__attribute__((visibility("default"))) CUlibrary cudasim_register_image(const void *cubin, size_t cubin_bytes)
{
    cudasim_lock();
    struct cudasim_image *image = image_of(cubin, cubin_bytes);
    if (image && !image->library)
        image->library = cudasim_library_of_image(image->globals);
    CUlibrary library = image ? image->library : NULL;
    cudasim_unlock();
    return library;
}

struct cudasim_kernel_entry *cudasim_kernel_in_module(struct cudasim_kernel_entry *registered,
                                                      struct cudasim_globals *globals)
{
    struct cudasim_kernel_entry *entry = malloc(sizeof *entry);
    if (!entry)
        return NULL;
    *entry = *registered;
    entry->globals = globals;
    entry->kernel = (struct CUkern_st){KERNEL_TAG, entry};
    entry->function = (struct CUfunc_st){FUNCTION_TAG, entry};
    entry->registered = registered;
    entry->next = NULL;
    return entry;
}

struct cudasim_kernel_entry *cudasim_kernels(void)
{
    return kernels;
}

struct cudasim_kernel_entry *cudasim_kernel_of_function(CUfunction function)
{
    if (!function)
        return NULL;
    if (function->tag == FUNCTION_TAG)
        return function->entry;
    const struct CUkern_st *kernel = (const struct CUkern_st *)function;
    return kernel->tag == KERNEL_TAG ? kernel->entry : NULL;
}

/* Returns the kernel of a handle, or NULL if the handle is of the other kind. */
static struct cudasim_kernel_entry *entry_of_kernel(CUkernel kernel)
{
    return kernel && kernel->tag == KERNEL_TAG ? kernel->entry : NULL;
}

static struct cudasim_kernel_entry *entry_of_function(CUfunction function)
{
    return function && function->tag == FUNCTION_TAG ? function->entry : NULL;
}

void cudasim_kernel_first_use(struct cudasim_kernel_entry *entry)
{
    struct cudasim_image *image = entry->image;
    if (image && !atomic_exchange(&image->announced, true))
        cudasim_notify_module_loaded(image->module_id, image->cubin, image->bytes);
}

/* ---- launches ---- */

/*
 * Returns the address of parameter i's bytes: in the caller's array of pointers, or in the packed
 * buffer of `extra`.
 */
static const void *parameter_source(const struct cudasim_param *param, uint32_t index, void **params,
                                    const unsigned char *packed, size_t packed_bytes)
{
    if (params)
        return params[index];
    return packed && param->offset + param->size <= packed_bytes ? packed + param->offset : NULL;
}

static bool packed_parameters(void **extra, const unsigned char **buffer, size_t *bytes)
{
    for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            *buffer = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            *bytes = *(const size_t *)extra[1];
        else
            return false;
    }
    return true;
}

/*
 * Copies the parameters into the operation, because the caller may change its own after the launch
 * returns.
 */
static CUresult copy_parameters(struct cudasim_operation *operation, void **params, void **extra)
{
    const struct cudasim_kernel *code = operation->kernel.entry->code;
    const unsigned char *packed = NULL;
    size_t packed_bytes = 0, block_bytes = 0;
    if (!packed_parameters(extra, &packed, &packed_bytes) || (params && packed))
        return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < code->param_count; i++)
        if (block_bytes < (size_t)code->params[i].offset + code->params[i].size)
            block_bytes = (size_t)code->params[i].offset + code->params[i].size;
    operation->kernel.block = calloc(1, block_bytes + 1);
    operation->kernel.block_bytes = block_bytes;
    operation->kernel.params = calloc((size_t)code->param_count + 1, sizeof(void *));
    if (!operation->kernel.block || !operation->kernel.params)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < code->param_count; i++) {
        const void *source = parameter_source(&code->params[i], i, params, packed, packed_bytes);
        if (!source)
            return CUDA_ERROR_INVALID_VALUE;
        operation->kernel.params[i] = (unsigned char *)operation->kernel.block + code->params[i].offset;
        memcpy(operation->kernel.params[i], source, code->params[i].size);
    }
    return CUDA_SUCCESS;
}

/*
 * Returns an address of another device's memory that the parameters name and this device may not
 * use, or 0. Access rights count as they are at the launch. As everywhere here, the parameters show
 * a device's accesses.
 */
static uintptr_t find_unreachable(const struct cudasim_operation *operation, int device)
{
    for (size_t at = 0; cudasim_config()->devices > 1 && at + 8 <= operation->kernel.block_bytes; at += 8) {
        uintptr_t word;
        memcpy(&word, (const unsigned char *)operation->kernel.block + at, sizeof word);
        const struct cudasim_range *range = cudasim_range_find(word);
        bool reached = !range || range->kind == CUDASIM_RANGE_PINNED || range->kind == CUDASIM_RANGE_REGISTERED ||
                       range->kind == CUDASIM_RANGE_MANAGED;
        if (!reached && range->kind == CUDASIM_RANGE_MAPPED)
            reached = range->reached_by >> device & 1;
        else if (!reached)
            reached = cudasim_device_reaches(device, range->device);
        if (!reached)
            return word;
    }
    return 0;
}

static bool valid_shape(const struct cudasim_launch *launch)
{
    uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
    return launch->grid[0] && launch->grid[1] && launch->grid[2] && threads && threads <= 1024 &&
           launch->grid[1] <= 65535 && launch->grid[2] <= 65535;
}

/*
 * Delays the caller before its launch is queued. Other threads' reactions to the launch before it
 * are then queued in between.
 */
static void hold_up_the_caller(void)
{
    uint64_t ns = cudasim_config()->launch_ns;
    struct timespec left = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};

    while (ns && clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        continue;
}

CUresult cudasim_kernel_operation(struct cudasim_operation **operation, CUfunction function,
                                  struct cudasim_launch shape, void **params, void **extra)
{
    struct cudasim_kernel_entry *entry = cudasim_kernel_of_function(function);
    if (!entry)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!valid_shape(&shape))
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_kernel_first_use(entry);
    struct cudasim_operation *made = cudasim_operation_new(CUDASIM_OPERATION_KERNEL);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->kernel.entry = entry;
    made->kernel.launch = shape;
    made->call = cudasim_call_name();
    CUresult result = copy_parameters(made, params, extra);
    if (result == CUDA_SUCCESS)
        *operation = made;
    else
        cudasim_operation_free(made);
    return result;
}

CUresult cudasim_kernel_look(struct cudasim_operation *operation, CUcontext context)
{
    struct cudasim_globals *globals = operation->kernel.entry->globals;
    operation->kernel.device = context->device;
    if (globals)
        operation->kernel.variables = cudasim_globals_in(globals, cudasim_context_root(context));
    return globals && !operation->kernel.variables ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

void cudasim_kernel_is_launched(struct cudasim_operation *operation)
{
    operation->kernel.unreachable = find_unreachable(operation, operation->kernel.device);
}

static CUresult launch(CUfunction function, struct cudasim_launch shape, CUstream handle, void **params, void **extra)
{
    struct cudasim_operation *operation;
    CUresult result = cudasim_kernel_operation(&operation, function, shape, params, extra);
    if (result != CUDA_SUCCESS)
        return result;
    hold_up_the_caller();
    cudasim_lock();
    CUstream stream;
    result = cudasim_stream_with_room(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = cudasim_kernel_look(operation, stream->context);
    if (result == CUDA_SUCCESS) {
        cudasim_kernel_is_launched(operation);
        result = cudasim_submit(operation, stream);
    } else {
        cudasim_operation_free(operation);
    }
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                                unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                                unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    struct cudasim_launch shape = {
        {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, 0, 1};
    return launch(f, shape, hStream, kernelParams, extra);
}

CUresult cudasim_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    CUresult result = config ? cudasim_launch_attributes(config->attrs, config->numAttrs) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    struct cudasim_launch shape = {
        {config->gridDimX, config->gridDimY, config->gridDimZ},
        {config->blockDimX, config->blockDimY, config->blockDimZ},
        config->sharedMemBytes,
        0,
        1,
    };
    return launch(f, shape, config->hStream, kernelParams, extra);
}

CUresult cudasim_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                           unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                           unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                           void **kernelParams)
{
    struct cudasim_launch shape = {
        {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, 0, 1};
    return launch(f, shape, hStream, kernelParams, NULL);
}

/* ---- queries ---- */

static CUresult param_info(const struct cudasim_kernel_entry *entry, size_t index, size_t *offset, size_t *size)
{
    if (!entry)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!offset || index >= entry->code->param_count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = entry->code->params[index].offset;
    if (size)
        *size = entry->code->params[index].size;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
    return param_info(entry_of_kernel(kernel), paramIndex, paramOffset, paramSize);
}

CUresult cudasim_cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
    return param_info(entry_of_function(func), paramIndex, paramOffset, paramSize);
}

CUresult cudasim_cuKernelGetName(const char **name, CUkernel hfunc)
{
    const struct cudasim_kernel_entry *entry = entry_of_kernel(hfunc);
    if (!entry || !name)
        return entry ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    *name = entry->name;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuFuncGetName(const char **name, CUfunction hfunc)
{
    const struct cudasim_kernel_entry *entry = entry_of_function(hfunc);
    if (!entry || !name)
        return entry ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    *name = entry->name;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    struct cudasim_kernel_entry *entry = entry_of_kernel(kernel);
    if (!entry || !pFunc)
        return entry ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    cudasim_kernel_first_use(entry);
    *pFunc = &entry->function;
    return CUDA_SUCCESS;
}

/*
 * Stores an attribute that does not depend on compiled code. The sizes are those of a small kernel.
 */
static CUresult function_attribute(const struct cudasim_kernel_entry *entry, int *value, CUfunction_attribute attribute)
{
    if (!entry || !value)
        return entry ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = 1024;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = 90;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = 232448;
        return CUDA_SUCCESS;
    default:
        *value = 0;
        return CUDA_SUCCESS;
    }
}

CUresult cudasim_cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
    (void)dev;
    return function_attribute(entry_of_kernel(kernel), pi, attrib);
}

CUresult cudasim_cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    return function_attribute(cudasim_kernel_of_function(hfunc), pi, attrib);
}

CUresult cudasim_cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
    (void)dev;
    return entry_of_kernel(kernel) ? cudasim_settable_attribute(attrib, val) : CUDA_ERROR_INVALID_HANDLE;
}

/* Cache preferences change how a kernel runs on a device, not its results, and have no effect. */
CUresult cudasim_cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
    (void)config;
    (void)dev;
    return entry_of_kernel(kernel) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cudasim_cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    return cudasim_kernel_of_function(hfunc) ? cudasim_settable_attribute(attrib, value) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cudasim_cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
    (void)config;
    return cudasim_kernel_of_function(hfunc) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cudasim_cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    const struct cudasim_kernel_entry *entry = cudasim_kernel_of_function(function);
    if (!entry || !state)
        return entry ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    bool loaded = !entry->image || atomic_load(&entry->image->announced);
    *state = loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuFuncLoad(CUfunction function)
{
    struct cudasim_kernel_entry *entry = cudasim_kernel_of_function(function);
    if (!entry)
        return CUDA_ERROR_INVALID_HANDLE;
    cudasim_kernel_first_use(entry);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                             size_t dynamicSMemSize)
{
    (void)dynamicSMemSize;
    if (!numBlocks || blockSize < 1 || blockSize > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_kernel_of_function(func))
        return CUDA_ERROR_INVALID_HANDLE;
    *numBlocks = 2048 / blockSize < 32 ? 2048 / blockSize : 32;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func, int blockSize,
                                                                      size_t dynamicSMemSize, unsigned int flags)
{
    (void)flags;
    return cudasim_cuOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks, func, blockSize, dynamicSMemSize);
}

struct cudasim_kernel_entry *cudasim_kernel_named(const char *name)
{
    for (struct cudasim_kernel_entry *entry = kernels; entry; entry = entry->next)
        if (!strcmp(entry->name, name))
            return entry;
    return NULL;
}
