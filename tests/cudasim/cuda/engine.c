#include "engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "capture.h"
#include "conditions.h"
#include "config.h"
#include "ledger.h"
#include "memory.h"
#include "trace.h"

pthread_mutex_t cudasim_device_lock = PTHREAD_MUTEX_INITIALIZER;
struct cudasim_stream_list cudasim_streams = LIST_HEAD_INITIALIZER(cudasim_streams);

static uint64_t next_issue_index;

void cudasim_lock(void)
{
    pthread_mutex_lock(&cudasim_device_lock);
}

void cudasim_unlock(void)
{
    pthread_mutex_unlock(&cudasim_device_lock);
}

uint64_t cudasim_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

const struct cudasim_scheduler *cudasim_scheduler(void)
{
    return cudasim_config()->scheduler == CUDASIM_SCHEDULER_SEEDED ? &cudasim_scheduler_seeded
                                                                   : &cudasim_scheduler_threads;
}

struct cudasim_operation *cudasim_operation_new(enum cudasim_operation_kind kind)
{
    struct cudasim_operation *operation = calloc(1, sizeof *operation);
    if (operation)
        operation->kind = kind;
    return operation;
}

void cudasim_operation_free(struct cudasim_operation *operation)
{
    switch (operation->kind) {
    case CUDASIM_OPERATION_KERNEL:
        free(operation->kernel.block);
        free(operation->kernel.params);
        break;
    case CUDASIM_OPERATION_COPY:
        free(operation->copy.staging);
        break;
    case CUDASIM_OPERATION_EVENT_RECORD:
    case CUDASIM_OPERATION_EVENT_WAIT:
        cudasim_event_release(operation->event);
        break;
    case CUDASIM_OPERATION_CONDITIONS_BEGIN:
        free(operation->conditions.array);
        break;
    case CUDASIM_OPERATION_CONDITIONAL:
        cudasim_conditional_free(operation->conditional);
        break;
    default:
        break;
    }
    free(operation->dependencies);
    free(operation);
}

bool cudasim_reached(struct cudasim_position position)
{
    return !position.stream || position.stream->reached >= position.number;
}

struct cudasim_position cudasim_stream_end(CUstream stream)
{
    return (struct cudasim_position){stream, stream->issued, stream->chain};
}

void cudasim_stream_waited(CUstream stream, struct cudasim_position position)
{
    if (position.chain > stream->chain)
        stream->chain = position.chain;
}

int cudasim_operation_after(struct cudasim_operation *operation, struct cudasim_position position)
{
    if (position.chain > operation->chain)
        operation->chain = position.chain;
    if (cudasim_reached(position))
        return 0;
    if (operation->dependency_count == operation->dependency_room) {
        size_t room = operation->dependency_room ? 2 * operation->dependency_room : 4;
        struct cudasim_position *grown = realloc(operation->dependencies, room * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        operation->dependencies = grown;
        operation->dependency_room = room;
    }
    operation->dependencies[operation->dependency_count++] = position;
    return 0;
}

bool cudasim_stream_is_contexts(CUstream stream)
{
    return stream == stream->context->records || stream == stream->context->waits;
}

/*
 * Makes the operation obey the default stream's rule. The legacy default stream and the blocking
 * streams of its context wait for one another, in call order.
 */
static int add_default_stream_order(struct cudasim_operation *operation, CUstream stream)
{
    CUstream legacy = stream->context->legacy;
    if (stream != legacy) {
        if (stream->flags & CU_STREAM_NON_BLOCKING)
            return 0;
        return cudasim_operation_after(operation, cudasim_stream_end(legacy));
    }
    CUstream other;
    LIST_FOREACH (other, &cudasim_streams, link) {
        if (other == legacy || other->context != stream->context || (other->flags & CU_STREAM_NON_BLOCKING))
            continue;
        int error = cudasim_operation_after(operation, cudasim_stream_end(other));
        if (error)
            return error;
    }
    return 0;
}

/*
 * Counts the operation in the stream's chain. When it is queued its dependencies are known, whether
 * they have run or not. What the device queues is not counted: the operations behind it are queued
 * already.
 */
static void lengthen_chain(const struct cudasim_operation *operation, CUstream stream)
{
    if (operation->chain > stream->chain)
        stream->chain = operation->chain;
    if (operation->kind == CUDASIM_OPERATION_KERNEL && !stream->fed_by_device)
        cudasim_ledger_chain(++stream->chain);
}

/*
 * Makes the operation wait for everything that the whole context was told to wait for. A green
 * context obeys its primary context's waits too. A conditional node waited for all of it before its
 * body was queued.
 */
static int add_context_order(struct cudasim_operation *operation, CUstream stream)
{
    const CUcontext obeyed[] = {stream->context, stream->context->green_of};
    int error = 0;
    for (size_t i = 0; i < 2 && !stream->fed_by_device && !cudasim_stream_is_contexts(stream); i++)
        if (!error && obeyed[i] && obeyed[i]->waits)
            error = cudasim_operation_after(operation, cudasim_stream_end(obeyed[i]->waits));
    return error;
}

CUresult cudasim_submit(struct cudasim_operation *operation, CUstream stream)
{
    if (stream->capture)
        return cudasim_capture_add(stream, operation);
    CUresult result = cudasim_capture_uses(stream);
    if (result != CUDA_SUCCESS) {
        cudasim_operation_free(operation);
        return result;
    }
    if (!cudasim_scheduler()->prepare(stream) || add_default_stream_order(operation, stream) ||
        add_context_order(operation, stream)) {
        cudasim_operation_free(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    operation->stream = stream;
    operation->number = ++stream->issued;
    lengthen_chain(operation, stream);
    operation->issue_index = ++next_issue_index;
    TAILQ_INSERT_TAIL(&stream->queue, operation, link);
    cudasim_trace_operation("queued", operation);
    cudasim_scheduler()->submitted(stream);
    return CUDA_SUCCESS;
}

CUresult cudasim_stream_tail(CUstream stream, struct cudasim_position *position)
{
    if (stream == stream->context->legacy) {
        struct cudasim_operation *marker = cudasim_operation_new(CUDASIM_OPERATION_MARKER);
        if (!marker)
            return CUDA_ERROR_OUT_OF_MEMORY;
        CUresult result = cudasim_submit(marker, stream);
        if (result != CUDA_SUCCESS)
            return result;
    }
    *position = cudasim_stream_end(stream);
    return CUDA_SUCCESS;
}

bool cudasim_operation_ready(const struct cudasim_operation *operation)
{
    for (size_t i = 0; i < operation->dependency_count; i++)
        if (!cudasim_reached(operation->dependencies[i]))
            return false;
    if (cudasim_connection_holds_back(operation))
        return false;
    if (operation->kind == CUDASIM_OPERATION_WAIT_VALUE)
        return cudasim_wait_value_met(operation);
    return true;
}

void cudasim_operation_over(struct cudasim_operation *operation)
{
    CUstream stream = operation->stream;
    cudasim_trace_operation("end", operation);
    if (operation->faulted && cudasim_context_root(stream->context)->sticky == CUDA_SUCCESS) {
        cudasim_context_root(stream->context)->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
        cudasim_ledger_sticky(CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    if (operation->kind == CUDASIM_OPERATION_EVENT_RECORD && operation->event->position.stream == stream &&
        operation->event->position.number == operation->number)
        operation->event->time_ns = cudasim_now_ns();
    TAILQ_REMOVE(&stream->queue, operation, link);
    stream->reached = operation->number;
    cudasim_operation_free(operation);
}

bool cudasim_word_wait_pending(void)
{
    CUstream stream;
    LIST_FOREACH (stream, &cudasim_streams, link) {
        const struct cudasim_operation *head = TAILQ_FIRST(&stream->queue);
        if (head && head->kind == CUDASIM_OPERATION_WAIT_VALUE)
            return true;
    }
    return false;
}

CUresult cudasim_report_deadlock(void)
{
    fprintf(stderr, "cudasim: deadlock: a thread waits for work that can never run (seed %llu)\n",
            (unsigned long long)cudasim_config()->seed);
    cudasim_ledger_deadlock();
    return CUDA_ERROR_LAUNCH_TIMEOUT;
}

struct wait_argument {
    CUcontext context;
    struct cudasim_position *positions;
    size_t count;
};

/*
 * A sticky error of the context ends every wait, because none of its operations will run any more.
 */
static bool positions_reached(void *argument)
{
    struct wait_argument *wait = argument;
    if (wait->context && cudasim_context_root(wait->context)->sticky != CUDA_SUCCESS)
        return true;
    while (wait->count && cudasim_reached(wait->positions[wait->count - 1]))
        wait->count--;
    return wait->count == 0;
}

static CUresult wait_positions(CUcontext context, struct cudasim_position *positions, size_t count)
{
    struct wait_argument argument = {context, positions, count};
    CUresult result = CUDA_SUCCESS;
    if (!positions_reached(&argument))
        result = cudasim_scheduler()->wait(positions_reached, &argument);
    if (result == CUDA_SUCCESS) {
        CUstream stream;
        LIST_FOREACH (stream, &cudasim_streams, link)
            stream->told = stream->reached;
    }
    if (context && cudasim_context_root(context)->sticky != CUDA_SUCCESS)
        return cudasim_context_root(context)->sticky;
    cudasim_pools_trim_to_thresholds();
    return result;
}

CUresult cudasim_wait_position(CUcontext context, struct cudasim_position position)
{
    return wait_positions(context, &position, 1);
}

CUresult cudasim_wait_context(CUcontext context)
{
    size_t count = 0;
    CUstream stream;
    LIST_FOREACH (stream, &cudasim_streams, link)
        count++;
    struct cudasim_position *positions = malloc((count ? count : 1) * sizeof *positions);
    if (!positions)
        return CUDA_ERROR_OUT_OF_MEMORY;
    count = 0;
    LIST_FOREACH (stream, &cudasim_streams, link)
        if (cudasim_context_covers(context, stream->context) && stream->issued > stream->reached)
            positions[count++] = cudasim_stream_end(stream);
    CUresult result = wait_positions(context, positions, count);
    free(positions);
    return result;
}
