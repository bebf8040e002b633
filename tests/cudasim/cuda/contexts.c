/*
 * The start of the driver, and contexts. Every device has its primary context; a program's own
 * contexts work the same way.
 */
#include <pthread.h>
#include <stdlib.h>

#include "config.h"
#include "engine.h"
#include "entries.h"
#include "globals.h"
#include "guard.h"
#include "ledger.h"
#include "memory.h"
#include "notify.h"
#include "trace.h"

#define MAX_CONTEXT_DEPTH 32

static bool initialised;                /* under the device lock */
static volatile bool forked_after_init; /* written in a new child, which has one thread */
static struct CUctx_st primaries[CUDASIM_MAX_DEVICES];
static uint32_t next_context_id = 1;

/* The thread's stack of contexts; the top is current. */
static __thread CUcontext context_stack[MAX_CONTEXT_DEPTH];
static __thread int context_depth;

CUcontext cudasim_context_current(void)
{
    return context_depth ? context_stack[context_depth - 1] : NULL;
}

/* As on a device, a child of a process that used the driver can't use it. */
static void in_forked_child(void)
{
    forked_after_init = initialised;
    context_depth = 0;
    cudasim_trace_after_fork(true);
    cudasim_ledger_after_fork(true);
    pthread_mutex_init(&cudasim_device_lock, NULL);
}

/* Takes the locks, so that no thread that the child lacks holds one. */
static void before_fork(void)
{
    cudasim_lock();
    cudasim_ledger_before_fork();
    cudasim_trace_before_fork();
}

static void in_parent_after_fork(void)
{
    cudasim_trace_after_fork(false);
    cudasim_ledger_after_fork(false);
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
    else if (needs == CUDASIM_NEEDS_CONTEXT && current->green && !current->green->alive)
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    else if (needs == CUDASIM_NEEDS_CONTEXT)
        result = cudasim_context_root(current)->sticky;
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
        pthread_atfork(before_fork, in_parent_after_fork, in_forked_child);
    initialised = true;
    cudasim_unlock();
    return CUDA_SUCCESS;
}

/* ---- peers ---- */

static uint32_t reached[CUDASIM_MAX_DEVICES]; /* for each device: the others (bits) whose plain memory it may use */

bool cudasim_device_reaches(int device, int other)
{
    return device == other || (reached[device] >> other & 1);
}

CUresult cudasim_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    CUcontext current = cudasim_context_current();
    if (Flags || !current)
        return CUDA_ERROR_INVALID_VALUE;
    if (!peerContext || peerContext->device == current->device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!cudasim_config()->peers)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    cudasim_lock();
    bool already = cudasim_device_reaches(current->device, peerContext->device);
    reached[current->device] |= 1u << peerContext->device;
    cudasim_unlock();
    return already ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

/* ---- contexts ---- */

CUresult cudasim_context_open(CUcontext context, int device)
{
    context->device = device;
    context->id = next_context_id++;
    context->sticky = CUDA_SUCCESS;
    context->legacy = cudasim_stream_new(context, CU_STREAM_DEFAULT, 0);
    return context->legacy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/*
 * Ends a context. Its streams' and events' handles become invalid, and memory allocated on its
 * device is given back. Threads' own default streams stay, because each thread finds its own.
 */
static void close_context(CUcontext context)
{
    CUstream stream;
    cudasim_wait_context(context);
    if (context->records)
        context->records->alive = false;
    if (context->waits)
        context->waits->alive = false;
    context->records = context->waits = NULL;
    LIST_FOREACH (stream, &cudasim_streams, link)
        if (stream->context == context)
            cudasim_stream_drop_branches(stream);
    LIST_FOREACH (stream, &cudasim_streams, link) {
        if (stream->context != context || !stream->alive || stream->owner)
            continue;
        if (stream != context->legacy)
            cudasim_ledger_object(CUDASIM_OBJECT_STREAM, -1);
        stream->alive = false;
    }
    context->legacy = NULL;
    cudasim_globals_end_context(context);
    cudasim_events_end_context(context);
    if (context->primary)
        cudasim_green_contexts_end(context);
    if (context->primary)
        cudasim_release_allocations(context->device);
}

static bool is_usable(CUcontext context)
{
    return context && !(context->primary && !context->retains) && !(context->green && !context->green->alive);
}

CUresult cudasim_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext context = &primaries[dev];
    CUresult result = CUDA_SUCCESS;
    cudasim_lock();
    context->primary = true;
    bool opened = context->retains == 0;
    if (opened)
        result = cudasim_context_open(context, dev);
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

/* Gives back `retains` uses of the primary context; -1 gives back all. */
static CUresult release_primary(CUdevice device, int retains)
{
    if (!cudasim_valid_device(device))
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

/*
 * How a thread waits, mapped host memory, local memory and core dumps make no difference here.
 * Synchronous calls for all memory would, and do not exist.
 */
static CUresult check_flags(unsigned int flags)
{
    const unsigned int known = CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX |
                               CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE;
    const unsigned int schedule = flags & CU_CTX_SCHED_MASK;

    if ((flags & ~(known | CU_CTX_SYNC_MEMOPS)) || (schedule & (schedule - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    return flags & CU_CTX_SYNC_MEMOPS ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult cudasim_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    CUresult result = check_flags(flags);
    if (!cudasim_valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (result != CUDA_SUCCESS)
        return result;
    cudasim_lock();
    primaries[dev].flags = flags;
    cudasim_unlock();
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_valid_device(dev))
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
    if (!cudasim_valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult result = check_flags(flags);
    if (result != CUDA_SUCCESS)
        return result;
    CUcontext context = calloc(1, sizeof *context);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->flags = flags;
    cudasim_lock();
    result = cudasim_context_open(context, dev);
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

/* Contexts that the program destroyed. Positions in their streams may still be read. */
static CUcontext ended;

CUresult cudasim_cuCtxDestroy_v2(CUcontext ctx)
{
    if (!ctx || ctx->primary || ctx->green)
        return CUDA_ERROR_INVALID_CONTEXT;
    cudasim_notify_context(CUDASIM_NOTIFY_CONTEXT_DESTROY, ctx);
    cudasim_lock();
    close_context(ctx);
    ctx->ended_before = ended;
    ended = ctx;
    cudasim_unlock();
    if (cudasim_context_current() == ctx)
        context_depth--;
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
    CUresult result = context ? check_flags(flags) : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        context->flags = flags;
    return result;
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

/*
 * Limits and cache preferences do not change a program's results. They read as 0 and are accepted.
 */
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
