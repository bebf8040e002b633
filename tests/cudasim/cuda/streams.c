/*
 * Streams: their life, the handles that name them, queries, waits, and the operations that belong
 * to no memory.
 */
#include <pthread.h>
#include <stdlib.h>

#include "capture.h"
#include "engine.h"
#include "entries.h"
#include "ledger.h"
#include "notify.h"

static uint64_t next_stream_id = 1;

/*
 * Holds the number of each thread that has default streams of its own, one in each context. They
 * are given back when the thread ends.
 */
static pthread_key_t per_thread_key;
static pthread_once_t per_thread_once = PTHREAD_ONCE_INIT;
static uintptr_t last_owner; /* under the device lock */

static void give_back_per_thread(void *owner)
{
    CUstream stream;
    cudasim_lock();
    LIST_FOREACH (stream, &cudasim_streams, link) {
        if (!stream->alive || stream->owner != (uintptr_t)owner)
            continue;
        cudasim_capture_stream_gone(stream);
        cudasim_stream_drop_branches(stream);
        stream->alive = false;
    }
    cudasim_unlock();
}

static void make_per_thread_key(void)
{
    pthread_key_create(&per_thread_key, give_back_per_thread);
}

/* Returns a dead stream with an empty queue, which may live again. Real handles are reused too. */
static CUstream reusable_stream(void)
{
    CUstream stream;
    LIST_FOREACH (stream, &cudasim_streams, link)
        if (!stream->alive && TAILQ_EMPTY(&stream->queue))
            return stream;
    return NULL;
}

CUstream cudasim_stream_new(CUcontext context, unsigned int flags, int priority)
{
    CUstream stream = reusable_stream();
    if (stream) {
        cudasim_stream_drop_branches(stream); /* made after it was destroyed, for work that it still had */
    } else {
        stream = calloc(1, sizeof *stream);
        if (!stream)
            return NULL;
        TAILQ_INIT(&stream->queue);
        pthread_cond_init(&stream->wake, NULL);
        LIST_INSERT_HEAD(&cudasim_streams, stream, link);
    }
    stream->id = next_stream_id++;
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->owner = 0;
    stream->chain = 0;
    stream->alive = true;
    stream->fed_by_device = false;
    cudasim_connection_assign(stream);
    return stream;
}

/* Makes a stream of the driver's own for work of another one. */
static CUstream new_for(CUstream stream)
{
    return cudasim_stream_new(stream->context, CU_STREAM_NON_BLOCKING, stream->priority);
}

/* Such a stream uses none of the hardware queues, which are for what the host queues. */
static CUstream new_fed_by_device(CUstream stream)
{
    CUstream made = new_for(stream);
    if (made) {
        made->fed_by_device = true;
        made->connection = 0;
    }
    return made;
}

CUstream cudasim_stream_branch(CUstream stream, unsigned branch)
{
    if (branch && !stream->branches[branch])
        stream->branches[branch] = stream->fed_by_device ? new_fed_by_device(stream) : new_for(stream);
    return branch ? stream->branches[branch] : stream;
}

CUstream cudasim_stream_bodies(CUstream stream)
{
    if (!stream->bodies)
        stream->bodies = new_fed_by_device(stream);
    return stream->bodies;
}

static void drop(CUstream *stream)
{
    if (*stream) {
        cudasim_stream_drop_branches(*stream);
        (*stream)->alive = false;
    }
    *stream = NULL;
}

void cudasim_stream_drop_branches(CUstream stream)
{
    for (unsigned i = 0; i < CUDASIM_GRAPH_BRANCHES; i++)
        drop(&stream->branches[i]);
    drop(&stream->bodies);
}

static uintptr_t owner_here(void)
{
    pthread_once(&per_thread_once, make_per_thread_key);
    uintptr_t owner = (uintptr_t)pthread_getspecific(per_thread_key);
    if (!owner && !pthread_setspecific(per_thread_key, (void *)(last_owner + 1)))
        owner = ++last_owner;
    return owner;
}

static CUstream per_thread_stream(CUcontext context)
{
    const uintptr_t owner = owner_here();
    CUstream stream;
    if (!owner)
        return NULL;
    LIST_FOREACH (stream, &cudasim_streams, link)
        if (stream->alive && stream->owner == owner && stream->context == context)
            return stream;
    stream = cudasim_stream_new(context, CU_STREAM_DEFAULT, 0);
    if (stream)
        stream->owner = owner;
    return stream;
}

/* Returns whether the stream's green context was destroyed. The call in progress then says so. */
static bool is_of_the_dead(CUstream stream)
{
    if (!stream->context->green || stream->context->green->alive)
        return false;
    cudasim_call_met_dead_context();
    return true;
}

CUstream cudasim_stream_resolve(CUstream handle)
{
    CUcontext context = cudasim_context_current();
    const bool per_thread = handle == CU_STREAM_PER_THREAD || (!handle && cudasim_call_per_thread_default());
    if (per_thread)
        return context && !context->green ? per_thread_stream(context) : NULL; /* as cuda.h says of green contexts */
    if (!handle || handle == CU_STREAM_LEGACY)
        return context ? context->legacy : NULL;
    CUstream stream;
    LIST_FOREACH (stream, &cudasim_streams, link)
        if (stream == handle)
            return stream->alive && !is_of_the_dead(stream) ? stream : NULL;
    return NULL;
}

CUresult cudasim_stream_create(CUstream *made, CUcontext context, unsigned int flags, int priority)
{
    cudasim_lock();
    if (priority < CUDASIM_PRIORITY_GREATEST)
        priority = CUDASIM_PRIORITY_GREATEST;
    if (priority > 0)
        priority = 0;
    CUstream stream = cudasim_stream_new(context, flags, priority);
    if (stream)
        cudasim_ledger_object(CUDASIM_OBJECT_STREAM, 1);
    cudasim_unlock();
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *made = stream;
    cudasim_notify_stream(CUDASIM_NOTIFY_STREAM_CREATED, stream);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    if (!phStream || (flags & ~(unsigned int)CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    return cudasim_stream_create(phStream, cudasim_context_current(), flags, priority);
}

CUresult cudasim_cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    return cudasim_cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult cudasim_cuStreamDestroy_v2(CUstream hStream)
{
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(hStream);
    bool owned = stream && stream == hStream && !stream->owner && stream != stream->context->legacy;
    cudasim_unlock();
    if (!owned)
        return CUDA_ERROR_INVALID_HANDLE;
    cudasim_notify_stream(CUDASIM_NOTIFY_STREAM_DESTROY, stream);
    cudasim_lock();
    bool still_alive = stream->alive;
    if (still_alive) {
        cudasim_ledger_object(CUDASIM_OBJECT_STREAM, -1);
        cudasim_capture_stream_gone(stream);
        cudasim_stream_drop_branches(stream);
    }
    stream->alive = false;
    cudasim_unlock();
    return still_alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cudasim_cuStreamQuery(CUstream hStream)
{
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(hStream);
    CUresult result = stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    struct cudasim_position tail;
    if (stream)
        result = cudasim_capture_answers(stream);
    if (result == CUDA_SUCCESS)
        result = cudasim_stream_tail(stream, &tail);
    if (result == CUDA_SUCCESS) {
        cudasim_scheduler()->poll(!cudasim_reached(tail));
        result = cudasim_reached(tail) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    }
    if (stream && cudasim_context_root(stream->context)->sticky != CUDA_SUCCESS)
        result = cudasim_context_root(stream->context)->sticky;
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuStreamSynchronize(CUstream hStream)
{
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(hStream);
    CUresult result = stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    struct cudasim_position tail;
    if (stream)
        result = cudasim_capture_answers(stream);
    if (result == CUDA_SUCCESS)
        result = cudasim_stream_tail(stream, &tail);
    if (result == CUDA_SUCCESS)
        result = cudasim_wait_position(stream->context, tail);
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuCtxSynchronize(void)
{
    CUcontext context = cudasim_context_current();
    cudasim_lock();
    CUresult result = cudasim_wait_context(context);
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(hStream);
    const CUresult result = stream && flags ? cudasim_capture_answers(stream) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *flags = stream->flags;
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuStreamGetPriority(CUstream hStream, int *priority)
{
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(hStream);
    const CUresult result = stream && priority ? cudasim_capture_uses(stream) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *priority = stream->priority;
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(hStream);
    const CUresult result = stream && pctx ? cudasim_capture_uses(stream) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *pctx = stream->context;
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(hStream);
    const CUresult result = stream && streamId ? cudasim_capture_answers(stream) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *streamId = stream->id;
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(hStream);
    const CUresult result = stream && device ? cudasim_capture_answers(stream) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *device = stream->context->device;
    cudasim_unlock();
    return result;
}

/* Queues an operation made for the call, or returns the error. */
static CUresult submit_to_handle(struct cudasim_operation *operation, CUstream handle)
{
    if (!operation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    cudasim_lock();
    CUstream stream;
    CUresult result = cudasim_stream_with_room(handle, &stream);
    if (result == CUDA_SUCCESS) {
        operation->call = cudasim_call_name();
        result = cudasim_submit(operation, stream);
    } else {
        cudasim_operation_free(operation);
    }
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    if (!fn)
        return CUDA_ERROR_INVALID_VALUE;
    struct cudasim_operation *operation = cudasim_operation_new(CUDASIM_OPERATION_HOST_FUNCTION);
    if (operation) {
        operation->host.function = fn;
        operation->host.data = userData;
    }
    return submit_to_handle(operation, hStream);
}

/* A stream callback gets the stream and its status beside its own data. */
struct stream_callback {
    CUstreamCallback function;
    CUstream stream;
    void *data;
};

static void call_stream_callback(void *argument)
{
    struct stream_callback callback = *(struct stream_callback *)argument;
    free(argument);
    callback.function(callback.stream, CUDA_SUCCESS, callback.data);
}

CUresult cudasim_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
    if (!callback || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_capture_takes_callbacks(hStream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct stream_callback *wrapped = malloc(sizeof *wrapped);
    if (!wrapped)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *wrapped = (struct stream_callback){callback, hStream, userData};
    CUresult result = cudasim_cuLaunchHostFunc(hStream, call_stream_callback, wrapped);
    if (result != CUDA_SUCCESS)
        free(wrapped);
    return result;
}

static CUresult submit_word(enum cudasim_operation_kind kind, CUstream stream, CUdeviceptr address, uint64_t value,
                            unsigned int flags, bool wide)
{
    /*
     * Writes from elsewhere are always visible here, and words are written in the order of the
     * stream. So a flush, or no barrier, makes no difference.
     */
    const unsigned int known = kind == CUDASIM_OPERATION_WAIT_VALUE
                                   ? CU_STREAM_WAIT_VALUE_NOR | CU_STREAM_WAIT_VALUE_FLUSH
                                   : CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
    if (!address || address % (wide ? 8 : 4) || (flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    struct cudasim_operation *operation = cudasim_operation_new(kind);
    if (operation) {
        operation->word.address = (uintptr_t)address;
        operation->word.value = value;
        operation->word.flags = flags;
        operation->word.wide = wide;
    }
    return submit_to_handle(operation, stream);
}

CUresult cudasim_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    return submit_word(CUDASIM_OPERATION_WAIT_VALUE, stream, addr, value, flags, false);
}

CUresult cudasim_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    return submit_word(CUDASIM_OPERATION_WRITE_VALUE, stream, addr, value, flags, false);
}

CUresult cudasim_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    return submit_word(CUDASIM_OPERATION_WAIT_VALUE, stream, addr, value, flags, true);
}

CUresult cudasim_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    return submit_word(CUDASIM_OPERATION_WRITE_VALUE, stream, addr, value, flags, true);
}

CUresult cudasim_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
                                       unsigned int flags)
{
    CUresult result = CUDA_SUCCESS;

    if (!paramArray || !count || count > 256 || flags)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const CUstreamBatchMemOpParams *p = &paramArray[i];
        switch (p->operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64: {
            bool wide = p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
            result = submit_word(CUDASIM_OPERATION_WAIT_VALUE, stream, p->waitValue.address,
                                 wide ? p->waitValue.value64 : p->waitValue.value, p->waitValue.flags, wide);
            break;
        }
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        case CU_STREAM_MEM_OP_WRITE_VALUE_64: {
            bool wide = p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
            result = submit_word(CUDASIM_OPERATION_WRITE_VALUE, stream, p->writeValue.address,
                                 wide ? p->writeValue.value64 : p->writeValue.value, p->writeValue.flags, wide);
            break;
        }
        case CU_STREAM_MEM_OP_BARRIER: /* operations of a stream are in order here */
            break;
        default:
            result = CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    return result;
}
