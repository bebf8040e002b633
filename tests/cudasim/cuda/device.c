/* Devices and contexts. Every device has its primary context; contexts of one's own work the same way. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "engine.h"
#include "entries.h"
#include "guard.h"
#include "ledger.h"
#include "memory.h"
#include "notify.h"

#define DRIVER_VERSION 13000
#define MAX_DEVICES 8
#define MAX_CONTEXT_DEPTH 32

static bool initialised;             /* under the device lock */
static volatile bool forked_after_init; /* written in a new child, which has one thread */
static struct CUctx_st primaries[MAX_DEVICES];
static uint32_t next_context_id = 1;

/* The thread's stack of contexts; the top is current. */
static __thread CUcontext context_stack[MAX_CONTEXT_DEPTH];
static __thread int context_depth;

CUcontext cudasim_context_current(void)
{
    return context_depth ? context_stack[context_depth - 1] : NULL;
}

/* A child of a process that used the driver can't use it, as on a device. */
static void in_forked_child(void)
{
    forked_after_init = initialised;
    pthread_mutex_init(&cudasim_device_lock, NULL);
    context_depth = 0;
    cudasim_ledger_disown();
}

static void lock_before_fork(void)
{
    cudasim_lock();
}

static void unlock_after_fork(void)
{
    cudasim_unlock();
}

CUresult cudasim_check_needs(enum cudasim_needs needs)
{
    if (needs == CUDASIM_NEEDS_PLAIN)
        return CUDA_SUCCESS;
    if (forked_after_init)
        return CUDA_ERROR_NOT_INITIALIZED;
    cudasim_lock();
    CUcontext current = cudasim_context_current();
    CUresult result = CUDA_SUCCESS;
    if (!initialised)
        result = CUDA_ERROR_NOT_INITIALIZED;
    else if (needs == CUDASIM_NEEDS_CONTEXT && (!current || (current->primary && !current->retains)))
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (needs == CUDASIM_NEEDS_CONTEXT)
        result = current->sticky;
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuInit(unsigned int Flags)
{
    if (Flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (forked_after_init)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!cudasim_config()->devices)
        return CUDA_ERROR_NO_DEVICE;
    cudasim_guard_install();
    cudasim_lock();
    if (!initialised)
        pthread_atfork(lock_before_fork, unlock_after_fork, in_forked_child);
    initialised = true;
    cudasim_unlock();
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDriverGetVersion(int *driverVersion)
{
    if (!driverVersion)
        return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

/* ---- devices ---- */

static bool valid_device(CUdevice device)
{
    return device >= 0 && device < cudasim_config()->devices;
}

CUresult cudasim_cuDeviceGetCount(int *count)
{
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = cudasim_config()->devices;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceGet(CUdevice *device, int ordinal)
{
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceGetName(char *name, int len, CUdevice dev)
{
    if (!name || len < 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)len, "Simulated CUDA device");
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid->bytes, "cudasim-device-", 15);
    uuid->bytes[15] = (char)('0' + dev);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = cudasim_config()->device_bytes;
    return CUDA_SUCCESS;
}

/* The figures of an H200 where a program may base decisions on them; 0 for what the simulator does not have. */
static int attribute_value(CUdevice_attribute attribute, CUdevice device)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
        return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
        return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
        return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        return 49152;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return 232448;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        return 233472;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
        return 65536;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
        return 65536;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        return 1980000;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
        return 512;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
        return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return 132;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return 2048;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        return 2;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return device + 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return 0;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        return cudasim_config()->vmm;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        return cudasim_config()->vmm && cudasim_config()->host_vmm;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
        return 1;
    default:
        return 0;
    }
}

CUresult cudasim_cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    if (!pi || attrib < 1 || attrib >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *pi = attribute_value(attrib, dev);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
    if (!prop)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *prop = (CUdevprop){
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {2147483647, 65535, 65535},
        .sharedMemPerBlock = 49152,
        .totalConstantMemory = 65536,
        .SIMDWidth = 32,
        .memPitch = 2147483647,
        .regsPerBlock = 65536,
        .clockRate = 1980000,
        .textureAlign = 512,
    };
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *major = 9;
    *minor = 0;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    if (!pciBusId || len < 13)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", (unsigned int)dev + 1);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    unsigned int domain, bus, slot, function;
    if (!dev || !pciBusId || sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (domain || slot || function || !bus || !valid_device((CUdevice)bus - 1))
        return CUDA_ERROR_INVALID_DEVICE;
    *dev = (CUdevice)bus - 1;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    if (!canAccessPeer)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(dev) || !valid_device(peerDev))
        return CUDA_ERROR_INVALID_DEVICE;
    *canAccessPeer = 0;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice)
{
    (void)attrib;
    return cudasim_cuDeviceCanAccessPeer(value, srcDevice, dstDevice);
}

/* ---- contexts ---- */

/* Makes the context usable. Under the device lock. */
static CUresult open_context(CUcontext context, int device)
{
    context->device = device;
    context->id = next_context_id++;
    context->sticky = CUDA_SUCCESS;
    context->legacy = cudasim_stream_new(context, CU_STREAM_DEFAULT, 0);
    return context->legacy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Ends the context: its streams are handles no more, and what they still hold runs or, after an error, is dropped. */
static void close_context(CUcontext context)
{
    CUstream stream;
    cudasim_wait_context(context);
    LIST_FOREACH (stream, &cudasim_streams, link) {
        if (stream->context != context || !stream->alive)
            continue;
        if (stream != context->legacy && !stream->per_thread)
            cudasim_ledger_object(CUDASIM_OBJECT_STREAM, -1);
        stream->alive = false;
    }
    context->legacy = NULL;
}

static bool is_usable(CUcontext context)
{
    return context && !(context->primary && !context->retains);
}

CUresult cudasim_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext context = &primaries[dev];
    CUresult result = CUDA_SUCCESS;
    cudasim_lock();
    context->primary = true;
    bool opened = context->retains == 0;
    if (opened)
        result = open_context(context, dev);
    if (result == CUDA_SUCCESS)
        context->retains++;
    cudasim_unlock();
    if (result != CUDA_SUCCESS)
        return result;
    *pctx = context;
    if (opened)
        cudasim_notify_context(CUDASIM_NOTIFY_CONTEXT_CREATED, context);
    return CUDA_SUCCESS;
}

/* Gives back `retains` uses of the primary context, all of them for -1. */
static CUresult release_primary(CUdevice device, int retains)
{
    if (!valid_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext context = &primaries[device];
    cudasim_lock();
    int left = retains < 0 ? 0 : context->retains - retains;
    bool was_open = context->retains > 0;
    cudasim_unlock();
    if (!was_open)
        return retains < 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (left <= 0)
        cudasim_notify_context(CUDASIM_NOTIFY_CONTEXT_DESTROY, context);
    cudasim_lock();
    if (left <= 0)
        close_context(context);
    context->retains = left;
    cudasim_unlock();
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    return release_primary(dev, 1);
}

CUresult cudasim_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    return release_primary(dev, -1);
}

CUresult cudasim_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    if (!valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    cudasim_lock();
    primaries[dev].flags = flags;
    cudasim_unlock();
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    cudasim_lock();
    *flags = primaries[dev].flags;
    *active = primaries[dev].retains > 0;
    cudasim_unlock();
    return CUDA_SUCCESS;
}

CUresult cudasim_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
    if (!pctx || ctxCreateParams)
        return ctxCreateParams ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext context = calloc(1, sizeof *context);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->flags = flags;
    cudasim_lock();
    CUresult result = open_context(context, dev);
    cudasim_unlock();
    if (result == CUDA_SUCCESS)
        result = cudasim_cuCtxPushCurrent_v2(context);
    if (result != CUDA_SUCCESS) {
        free(context);
        return result;
    }
    *pctx = context;
    cudasim_notify_context(CUDASIM_NOTIFY_CONTEXT_CREATED, context);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuCtxDestroy_v2(CUcontext ctx)
{
    if (!ctx || ctx->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    cudasim_notify_context(CUDASIM_NOTIFY_CONTEXT_DESTROY, ctx);
    cudasim_lock();
    close_context(ctx);
    cudasim_unlock();
    if (cudasim_context_current() == ctx)
        context_depth--;
    /* The structure stays: positions in its streams may still be asked for. */
    return CUDA_SUCCESS;
}

CUresult cudasim_cuCtxPushCurrent_v2(CUcontext ctx)
{
    if (!ctx || context_depth == MAX_CONTEXT_DEPTH)
        return CUDA_ERROR_INVALID_CONTEXT;
    context_stack[context_depth++] = ctx;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuCtxPopCurrent_v2(CUcontext *pctx)
{
    if (!context_depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUcontext popped = context_stack[--context_depth];
    if (pctx)
        *pctx = popped;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuCtxSetCurrent(CUcontext ctx)
{
    if (context_depth)
        context_depth--;
    return ctx ? cudasim_cuCtxPushCurrent_v2(ctx) : CUDA_SUCCESS;
}

CUresult cudasim_cuCtxGetCurrent(CUcontext *pctx)
{
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = cudasim_context_current();
    return CUDA_SUCCESS;
}

CUresult cudasim_cuCtxGetDevice(CUdevice *device)
{
    CUcontext context = cudasim_context_current();
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_usable(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuCtxGetFlags(unsigned int *flags)
{
    CUcontext context = cudasim_context_current();
    if (!flags || !context)
        return flags ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuCtxSetFlags(unsigned int flags)
{
    CUcontext context = cudasim_context_current();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
    CUcontext context = ctx ? ctx : cudasim_context_current();
    if (!ctxId || !context)
        return ctxId ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    *ctxId = context->id;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    if (!version || !(ctx ? ctx : cudasim_context_current()))
        return version ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
}

/* Limits and cache preferences do not change what a program computes: they read as 0 and are accepted. */
CUresult cudasim_cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    if (!pvalue || limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    *pvalue = 0;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuCtxSetLimit(CUlimit limit, size_t value)
{
    (void)value;
    return limit < CU_LIMIT_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cudasim_cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
    if (!pconfig)
        return CUDA_ERROR_INVALID_VALUE;
    *pconfig = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuCtxSetCacheConfig(CUfunc_cache config)
{
    (void)config;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    if (leastPriority)
        *leastPriority = 0;
    if (greatestPriority)
        *greatestPriority = CUDASIM_PRIORITY_GREATEST;
    return CUDA_SUCCESS;
}
