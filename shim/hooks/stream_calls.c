/*
 * Streams and waits for the device. Penstock must know of streams even while nothing is traced yet
 * (under the budgets auto and unlimited; see start.h).
 *
 * Once launches are traced, the tracer sees the same calls at the driver. A call that is noted
 * twice does no harm.
 */
#include "base/log.h"
#include "base/state.h"
#include "cuda/capture.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "cuda/driver_functions.h"
#include "cuda/green_contexts.h"
#include "cuda/runtime.h"
#include "cuda/streams.h"
#include "hooks/hooks.h"
#include "memory/small_cache.h"
#include "process.h"
#include "residency/eviction.h"
#include "tracer/start.h"
#include "tracer/source_hooks.h"
#include "tracer/tracer.h"

/* Marks the work queued on the stream with a last event. The handle must not be used after this. */
static void retire(CUstream stream)
{
    if (stream)
        ps_capture_uncounted_goes(stream);
    if (ps_inside || !ps_process_has_begun())
        return;
    ps_inside++;
    ps_small_give_back_of(stream);
    ps_stream_retire(stream);
    ps_inside--;
}

/*
 * Work in a graph may run at any time, so the tracer has to see it go in: starts tracing. Before
 * the process has begun there is nothing to trace with, and the capture is remembered.
 */
static void see_capture(CUstream stream, bool per_thread_default)
{
    if (ps_inside)
        return;
    if (!ps_process_has_begun()) {
        ps_capture_begins_uncounted(stream, per_thread_default);
        return;
    }
    ps_inside++;
    ps_tracing_start("the program captures a graph");
    ps_inside--;
}

/*
 * A wait of the program for the whole device. The program means its own work; the driver waits for
 * our copies too. A plan may have hundreds of ms of copies under way. (An optimizer's state leaves
 * when the update is over, just where many programs wait.)
 *
 * Two clocks: first the host waits by events for the program's known streams, while copies go on
 * being queued. Then no more copies are queued. The real call, which knows every stream, waits for
 * the few that are.
 */
struct device_wait {
    bool is_seen; /* the device is managed, and its streams are known */
    bool held;
    struct ps_streams_wait streams;
};

/* `whole`: the call waits for all streams, whichever context is current. */
static void begin_wait_for_device(struct device_wait *wait, bool whole)
{
    struct ps_uses all = {.count = 0};

    wait->is_seen = wait->held = false;
    if (ps_inside || !ps_process_has_begun() || !ps_tracing_is_on() || ps_capture_anywhere() ||
        ps_devices_enter_current() != PS_DEVICES_MANAGED || (!whole && ps_green_contexts_is_current()))
        return;
    ps_inside++;
    wait->is_seen = true;
    wait->held = ps_eviction_are_there_copies();
    if (wait->held) {
        ps_stream_settle(NULL);
        ps_uses_note_all_streams(&all);
        if (ps_uses_host_wait(&all))
            ps_log_debug(HOOKS, "waiting for the streams by events failed; the real call waits for them");
        ps_eviction_hold(true);
    }
    ps_streams_wait_begins(&wait->streams);
    ps_inside--;
}

static void end_wait_for_device(const struct device_wait *wait, bool succeeded)
{
    if (wait->is_seen && succeeded)
        ps_streams_wait_ended(&wait->streams);
    if (wait->held)
        ps_eviction_go_on(true);
}

PS_EXPORT cudaError_t cudaDeviceSynchronize(void)
{
    struct device_wait wait;

    begin_wait_for_device(&wait, true);
    cudaError_t result = ps_real_cudart()->cudaDeviceSynchronize();
    end_wait_for_device(&wait, result == cudaSuccess);
    return result;
}

PS_EXPORT CUresult cuCtxSynchronize(void)
{
    struct device_wait wait;

    if (ps_real_cuda_load())
        return CUDA_ERROR_NOT_INITIALIZED;
    begin_wait_for_device(&wait, false); /* with a green context current, it waits for that one alone */
    CUresult result = ps_cu_as_is.cuCtxSynchronize();
    end_wait_for_device(&wait, result == CUDA_SUCCESS);
    return result;
}

/* The stream is noted before it exists, so that no use of it can come first. */
PS_EXPORT cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    ps_streams_created(cudaStreamDefault);
    return ps_real_cudart()->cudaStreamCreate(stream);
}

PS_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    ps_streams_created(flags);
    return ps_real_cudart()->cudaStreamCreateWithFlags(stream, flags);
}

PS_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    ps_streams_created(flags);
    return ps_real_cudart()->cudaStreamCreateWithPriority(stream, flags, priority);
}

PS_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    if (ps_real_cuda_load())
        return CUDA_ERROR_NOT_INITIALIZED;
    ps_streams_created(flags);
    return ps_cu_as_is.cuStreamCreateWithPriority(stream, flags, 0); /* 0 is the default priority, as in cuda.h */
}

PS_EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    if (ps_real_cuda_load())
        return CUDA_ERROR_NOT_INITIALIZED;
    ps_streams_created(flags);
    return ps_cu_as_is.cuStreamCreateWithPriority(stream, flags, priority);
}

PS_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    retire(stream);
    return ps_real_cudart()->cudaStreamDestroy(stream);
}

PS_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    see_capture(stream, false);
    return ps_real_cudart()->cudaStreamBeginCapture(stream, mode);
}

PS_EXPORT cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    see_capture(stream, true);
    return ps_real_cudart()->cudaStreamBeginCapture_ptsz(stream, mode);
}

PS_EXPORT cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                                    const cudaGraphNode_t *dependencies, const cudaGraphEdgeData *edges,
                                                    size_t count, enum cudaStreamCaptureMode mode)
{
    see_capture(stream, false);
    return ps_real_cudart()->cudaStreamBeginCaptureToGraph(stream, graph, dependencies, edges, count, mode);
}

PS_EXPORT cudaError_t cudaStreamBeginCaptureToGraph_ptsz(cudaStream_t stream, cudaGraph_t graph,
                                                         const cudaGraphNode_t *dependencies,
                                                         const cudaGraphEdgeData *edges, size_t count,
                                                         enum cudaStreamCaptureMode mode)
{
    see_capture(stream, true);
    return ps_real_cudart()->cudaStreamBeginCaptureToGraph_ptsz(stream, graph, dependencies, edges, count, mode);
}

/* A capture that nothing counts may be over. Its thread may make no call that is traced later. */
static cudaError_t capture_ended(cudaError_t result)
{
    if (ps_inside || !ps_capture_own_are_uncounted() || ps_real_cuda_load())
        return result;
    ps_inside++;
    ps_capture_look_at_own();
    ps_inside--;
    return result;
}

PS_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    return capture_ended(ps_real_cudart()->cudaStreamEndCapture(stream, graph));
}

PS_EXPORT cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t *graph)
{
    return capture_ended(ps_real_cudart()->cudaStreamEndCapture_ptsz(stream, graph));
}

PS_EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    if (ps_real_cuda_load())
        return CUDA_ERROR_NOT_INITIALIZED;
    retire(stream);
    return ps_cu_as_is.cuStreamDestroy(stream);
}

/*
 * Returns whether this hook must report the capture that the driver is about to begin. Otherwise
 * CUPTI reports it, or no report is needed.
 */
static bool begin_capture(CUstream stream, bool per_thread_default)
{
    see_capture(stream, per_thread_default);
    if (ps_inside || !ps_source_hooks_are_on())
        return false;
    ps_capture_begins(stream, per_thread_default);
    ps_in_front++;
    return true;
}

static CUresult capture_began(bool told_here, CUresult result)
{
    if (told_here) {
        ps_in_front--;
        ps_capture_began(result == CUDA_SUCCESS);
    }
    return result;
}

/* cuda.h maps the plain name to its newest version; here each name means its own version. */
#undef cuStreamBeginCapture

#define BEGINS_CAPTURE(name, per_thread_default, parameters, arguments)                                                \
    PS_EXPORT CUresult name parameters                                                                                 \
    {                                                                                                                  \
        if (ps_real_cuda_load())                                                                                       \
            return CUDA_ERROR_NOT_INITIALIZED;                                                                         \
        CUresult(*real) parameters = (CUresult(*) parameters)ps_driver_function(PS_DRIVER_FUNCTION_##name);            \
        if (!real)                                                                                                     \
            return CUDA_ERROR_NOT_SUPPORTED;                                                                           \
        bool told_here = begin_capture(stream, per_thread_default);                                                    \
        return capture_began(told_here, real arguments);                                                               \
    }
#define TO_GRAPH                                                                                                       \
    (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count,      \
     CUstreamCaptureMode mode)
#define AGAIN (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback, void *data)

BEGINS_CAPTURE(cuStreamBeginCapture, false, (CUstream stream), (stream))
BEGINS_CAPTURE(cuStreamBeginCapture_ptsz, true, (CUstream stream), (stream))
BEGINS_CAPTURE(cuStreamBeginCapture_v2, false, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGINS_CAPTURE(cuStreamBeginCapture_v2_ptsz, true, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGINS_CAPTURE(cuStreamBeginCaptureToGraph, false, TO_GRAPH, (stream, graph, dependencies, edges, count, mode))
BEGINS_CAPTURE(cuStreamBeginCaptureToGraph_ptsz, true, TO_GRAPH, (stream, graph, dependencies, edges, count, mode))
BEGINS_CAPTURE(cuStreamBeginRecaptureToGraph, false, AGAIN, (stream, mode, graph, callback, data))
BEGINS_CAPTURE(cuStreamBeginRecaptureToGraph_ptsz, true, AGAIN, (stream, mode, graph, callback, data))
