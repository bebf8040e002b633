/*
 * Events. A record remembers a position. A wait depends on the position that the event holds at the
 * time of the call.
 */
#include <stdlib.h>

#include "capture.h"
#include "engine.h"
#include "entries.h"
#include "ledger.h"
#include "notify.h"

#define EVENT_TAG 0x65766e74u

/*
 * Event structures are never freed, only reused. So a stale handle is refused and never followed
 * into freed memory.
 */
LIST_HEAD(event_list, CUevent_st);
static struct event_list used_events = LIST_HEAD_INITIALIZER(used_events);
static struct event_list unused_events = LIST_HEAD_INITIALIZER(unused_events);

void cudasim_event_release(CUevent event)
{
    if (--event->references)
        return;
    LIST_REMOVE(event, link);
    LIST_INSERT_HEAD(&unused_events, event, link);
}

CUevent cudasim_event_of(CUevent handle)
{
    return handle && handle->tag == EVENT_TAG && handle->alive ? handle : NULL;
}

static CUevent event_new(void)
{
    CUevent event = LIST_FIRST(&unused_events);
    if (event)
        LIST_REMOVE(event, link);
    else
        event = calloc(1, sizeof *event);
    if (!event)
        return NULL;
    LIST_INSERT_HEAD(&used_events, event, link);
    event->tag = EVENT_TAG;
    return event;
}

CUresult cudasim_cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    const unsigned int known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (!phEvent || (Flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    if (Flags & CU_EVENT_INTERPROCESS)
        return Flags & CU_EVENT_DISABLE_TIMING ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    cudasim_driver_lock();
    cudasim_lock();
    CUevent event = event_new();
    if (event) {
        event->context = cudasim_context_root(cudasim_context_current());
        event->position = (struct cudasim_position){NULL, 0, 0};
        event->time_ns = 0;
        event->flags = Flags;
        event->references = 1;
        event->denials = 0;
        event->capture = NULL;
        event->alive = true;
        cudasim_ledger_object(CUDASIM_OBJECT_EVENT, 1);
        *phEvent = event;
    }
    cudasim_unlock();
    cudasim_driver_unlock();
    return event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cudasim_cuEventDestroy_v2(CUevent hEvent)
{
    cudasim_lock();
    CUevent event = cudasim_event_of(hEvent);
    if (event) {
        event->alive = false;
        cudasim_event_release(event);
        cudasim_ledger_object(CUDASIM_OBJECT_EVENT, -1);
    }
    cudasim_unlock();
    return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void cudasim_events_end_context(CUcontext context)
{
    CUevent event, next;
    for (event = LIST_FIRST(&used_events); event; event = next) {
        next = LIST_NEXT(event, link);
        if (event->context != context || !event->alive)
            continue;
        event->alive = false;
        cudasim_event_release(event);
        cudasim_ledger_object(CUDASIM_OBJECT_EVENT, -1);
    }
}

struct cudasim_operation *cudasim_event_operation(enum cudasim_operation_kind kind, CUevent event)
{
    struct cudasim_operation *operation = cudasim_operation_new(kind);
    if (!operation)
        return NULL;
    operation->event = event;
    operation->call = cudasim_call_name();
    event->references++;
    return operation;
}

/* Queues the operation as its event's newest record. */
static CUresult submit_record(struct cudasim_operation *operation, CUstream stream)
{
    CUevent event = operation->event;
    /*
     * The position is set before the operation is queued. A worker may run it at once and must find
     * the position there.
     */
    struct cudasim_position before = event->position;
    event->position = (struct cudasim_position){stream, stream->issued + 1, stream->chain};
    event->capture = NULL;
    CUresult result = cudasim_submit(operation, stream);
    if (result == CUDA_SUCCESS)
        event->position.chain = stream->chain; /* now includes waits of the record on other streams */
    else
        event->position = before;
    return result;
}

CUresult cudasim_event_submit(struct cudasim_operation *operation, CUstream stream)
{
    if (operation->kind == CUDASIM_OPERATION_EVENT_RECORD)
        return submit_record(operation, stream);
    if (cudasim_operation_after(operation, operation->event->position)) {
        cudasim_operation_free(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return cudasim_submit(operation, stream);
}

/* Records the event. In a capture an external record becomes a node. */
static CUresult record(CUevent event, CUstream stream, bool external)
{
    if (external && !stream->capture)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture && !external)
        return cudasim_capture_record(stream, event);
    struct cudasim_operation *operation = cudasim_event_operation(CUDASIM_OPERATION_EVENT_RECORD, event);
    if (!operation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return external ? cudasim_capture_add(stream, operation) : submit_record(operation, stream);
}

CUresult cudasim_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    if (flags & ~(unsigned int)CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    CUstream stream;
    cudasim_lock();
    CUresult result = cudasim_stream_with_room(hStream, &stream);
    cudasim_unlock();
    if (result != CUDA_SUCCESS)
        return result;
    cudasim_driver_lock();
    cudasim_lock();
    CUevent event = cudasim_event_of(hEvent);
    bool same =
        event && event->context == cudasim_context_root(stream->context); /* otherwise INVALID_HANDLE, as in cuda.h */
    result = same ? record(event, stream, flags) : CUDA_ERROR_INVALID_HANDLE;
    cudasim_unlock();
    cudasim_driver_unlock();
    return result;
}

CUresult cudasim_cuEventRecord(CUevent hEvent, CUstream hStream)
{
    return cudasim_cuEventRecordWithFlags(hEvent, hStream, CU_EVENT_RECORD_DEFAULT);
}

/* Makes all later work of the stream wait for the event's newest record. */
static CUresult wait_in(CUstream stream, CUevent event)
{
    if (cudasim_reached(event->position)) {
        cudasim_stream_waited(stream, event->position);
        return CUDA_SUCCESS;
    }
    struct cudasim_operation *operation = cudasim_operation_new(CUDASIM_OPERATION_MARKER);
    if (!operation || cudasim_operation_after(operation, event->position)) {
        if (operation)
            cudasim_operation_free(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    operation->call = cudasim_call_name();
    return cudasim_submit(operation, stream);
}

/* Adds a node to the capture that makes each launch wait for the event. */
static CUresult await_outside(CUstream stream, CUevent event)
{
    struct cudasim_operation *operation = cudasim_event_operation(CUDASIM_OPERATION_EVENT_WAIT, event);
    return operation ? cudasim_capture_add(stream, operation) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cudasim_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    if (Flags & ~(unsigned int)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    CUstream stream;
    cudasim_lock();
    CUresult result = cudasim_stream_with_room(hStream, &stream);
    CUevent event = cudasim_event_of(hEvent);
    if (result == CUDA_SUCCESS && !event)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result != CUDA_SUCCESS) {
        cudasim_unlock();
        return result;
    }
    if (Flags) {
        result = stream->capture ? await_outside(stream, event) : CUDA_ERROR_INVALID_VALUE;
    } else if (event->capture || stream->capture) {
        result = cudasim_capture_wait(stream, event);
    } else if ((result = cudasim_capture_uses(stream)) == CUDA_SUCCESS) { /* whether or not the event has come */
        result = wait_in(stream, event);
    }
    cudasim_unlock();
    return result;
}

/* ---- a whole context ---- */

/* Returns a new stream that shares no hardware queue. */
static CUstream stream_of_driver(CUcontext context)
{
    CUstream stream = cudasim_stream_new(context, CU_STREAM_NON_BLOCKING, 0);
    if (stream)
        stream->connection = 0;
    return stream;
}

/*
 * Records in this stream run in call order. A later one covers everything that an earlier one
 * covers.
 */
static CUstream stream_of_records(CUcontext context)
{
    if (!context->records)
        context->records = stream_of_driver(context);
    return context->records;
}

static CUstream stream_of_waits(CUcontext context)
{
    if (!context->waits)
        context->waits = stream_of_driver(context);
    return context->waits;
}

static int after_all_streams(struct cudasim_operation *operation, CUcontext context)
{
    CUstream stream;
    int error = 0;
    LIST_FOREACH (stream, &cudasim_streams, link)
        if (!error && cudasim_context_covers(context, stream->context) && stream != context->records)
            error = cudasim_operation_after(operation, cudasim_stream_end(stream));
    return error;
}

static CUresult record_context(CUevent event, CUcontext context)
{
    CUstream stream = stream_of_records(context);
    struct cudasim_operation *operation =
        stream ? cudasim_event_operation(CUDASIM_OPERATION_EVENT_RECORD, event) : NULL;
    if (!operation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (after_all_streams(operation, context)) {
        cudasim_operation_free(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return submit_record(operation, stream);
}

CUresult cudasim_cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
    if (!hCtx || !hCtx->legacy)
        return CUDA_ERROR_INVALID_CONTEXT;
    cudasim_driver_lock();
    cudasim_lock();
    CUevent event = cudasim_event_of(hEvent);
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    if (event && event->context == cudasim_context_root(hCtx))
        result = cudasim_capture_breaks(hCtx) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : record_context(event, hCtx);
    cudasim_unlock();
    cudasim_driver_unlock();
    return result;
}

CUresult cudasim_cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
    if (!hCtx || !hCtx->legacy)
        return CUDA_ERROR_INVALID_CONTEXT;
    cudasim_lock();
    CUevent event = cudasim_event_of(hEvent);
    CUstream stream = stream_of_waits(hCtx);
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    if (event && event->capture) {
        cudasim_capture_breaks(event->context);
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (event && cudasim_capture_breaks(hCtx)) {
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (event) {
        result = stream ? wait_in(stream, event) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuEventQuery(CUevent hEvent)
{
    CUcontext context = cudasim_context_current();
    cudasim_lock();
    CUevent event = cudasim_event_of(hEvent);
    CUresult result = event ? cudasim_capture_awaits(event) : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS) {
        cudasim_scheduler()->poll(!cudasim_reached(event->position));
        bool ready = cudasim_reached(event->position);
        /* A query may lag, but never behind progress that the host already knows of. */
        CUstream stream = event->position.stream;
        if (ready && stream && event->position.number > stream->told &&
            cudasim_scheduler()->deny_query(&event->denials))
            ready = false;
        else if (ready && stream && event->position.number > stream->told)
            stream->told = event->position.number;
        result = ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
        if (cudasim_context_root(context)->sticky != CUDA_SUCCESS)
            result = cudasim_context_root(context)->sticky;
    }
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuEventSynchronize(CUevent hEvent)
{
    CUcontext context = cudasim_context_current();
    cudasim_lock();
    CUevent event = cudasim_event_of(hEvent);
    CUresult result = event ? cudasim_capture_awaits(event) : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = cudasim_wait_position(context, event->position);
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    cudasim_lock();
    CUevent start = cudasim_event_of(hStart), end = cudasim_event_of(hEnd);
    CUresult result = CUDA_SUCCESS;
    if (!pMilliseconds)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!start || !end || !start->position.stream || !end->position.stream)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (!cudasim_reached(start->position) || !cudasim_reached(end->position))
        result = CUDA_ERROR_NOT_READY;
    else
        *pMilliseconds = (float)((double)(int64_t)(end->time_ns - start->time_ns) / 1e6);
    cudasim_unlock();
    return result;
}

/* The same call, from before CUDA 12.8. */
#undef cuEventElapsedTime
CUresult cudasim_cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    return cudasim_cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}
