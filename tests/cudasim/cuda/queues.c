/*
 * Hardware queues. A stream has one of its own, or all streams of a device share some, as under
 * CUDA_DEVICE_MAX_CONNECTIONS. Work of another stream may then wait for an operation that no order
 * puts before it. A queue may have room for a number of operations only. A call that queues one
 * more blocks until an operation is over, as a driver's call does.
 */
#include "config.h"
#include "engine.h"

static uint64_t assigned;

void cudasim_connection_assign(CUstream stream)
{
    const uint64_t connections = cudasim_config()->connections;

    stream->connection = connections ? 1 + assigned++ % connections : 0;
}

static bool shares_queue(CUstream one, CUstream other)
{
    return one == other ||
           (one->connection && one->connection == other->connection && one->context->device == other->context->device);
}

static const struct cudasim_operation *first_not_started(CUstream stream)
{
    const struct cudasim_operation *head = TAILQ_FIRST(&stream->queue);

    return head && head->started ? TAILQ_NEXT(head, link) : head;
}

bool cudasim_connection_holds_back(const struct cudasim_operation *operation)
{
    const struct cudasim_operation *first;
    CUstream stream;

    if (!operation->stream->connection || operation->started)
        return false;
    LIST_FOREACH (stream, &cudasim_streams, link) {
        if (stream == operation->stream || !shares_queue(stream, operation->stream))
            continue;
        first = first_not_started(stream);
        if (first && first->issue_index < operation->issue_index)
            return true;
    }
    return false;
}

/* ---- room ---- */

/* Also true when the context has a sticky error, because its operations end without running. */
static bool has_room(void *argument)
{
    CUstream stream, asker = argument;
    uint64_t held = 0;

    LIST_FOREACH (stream, &cudasim_streams, link)
        if (shares_queue(stream, asker))
            held += stream->issued - stream->reached;
    return held < cudasim_config()->queue || cudasim_context_root(asker->context)->sticky != CUDA_SUCCESS;
}

CUresult cudasim_stream_with_room(CUstream handle, CUstream *stream)
{
    CUresult result = CUDA_SUCCESS;

    *stream = cudasim_stream_resolve(handle);
    if (!*stream)
        return cudasim_context_current() ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_CONTEXT;
    if (cudasim_config()->queue && !(*stream)->capture && !has_room(*stream))
        result = cudasim_scheduler()->wait(has_room, *stream);
    /* Another thread may have destroyed the stream meanwhile. */
    if (result == CUDA_SUCCESS && cudasim_stream_resolve(handle) != *stream)
        result = CUDA_ERROR_INVALID_HANDLE;
    return result;
}
