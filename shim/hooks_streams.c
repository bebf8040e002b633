/*
 * Streams: what must be known of them while nothing is traced yet (under the budgets auto and unlimited; see tracing.h), and waiting for the
 * device.
 *
 * Once launches are traced the tracer sees the same calls at the driver; being told twice does no harm.
 */
#include "capture.h"
#include "devices.h"
#include "eviction.h"
#include "hooks.h"
#include "log.h"
#include "process.h"
#include "real_cuda.h"
#include "real_cudart.h"
#include "streams.h"
#include "tracer.h"
#include "tracing.h"

/* The stream's handle is not to be used after this; what was queued on it is marked by a last event. */
static void retire(CUstream stream)
{
    if (ps_inside || !ps_process_has_begun())
        return;
    ps_inside++;
    ps_stream_retire(stream);
    ps_inside--;
}

/* What goes into a graph may run at any time: the tracer has to see it go in. */
static void see_captures(void)
{
    if (ps_inside || !ps_process_has_begun())
        return;
    ps_inside++;
    ps_tracing_start("the program captures a graph");
    ps_inside--;
}

/*
 * The program waits for the whole device, which to it means its own work; to the driver it means our copies too, and a plan may have hundreds of ms
 * of them under way (an optimizer's state leaves when the update is over, just where many programs wait).
 *
 * Two clocks: first the streams that are known to the program are waited for, by events, while copies go on being queued; then no more are queued,
 * and the real call, which knows every stream, waits for the few that are.
 */
static bool begin_wait_for_device(void)
{
    struct ps_uses all = {.count = 0};

    if (ps_inside || !ps_process_has_begun() || !ps_tracing_is_on() || ps_capture_anywhere() ||
        ps_devices_enter_current() != PS_DEVICES_MANAGED)
        return false;
    ps_inside++;
    bool prolonged = ps_eviction_are_there_copies();
    if (prolonged) {
        ps_stream_settle(NULL);
        ps_uses_note_all_streams(&all);
        if (ps_uses_host_wait(&all))
            ps_log_debug(HOOKS, "streams could not be waited for by events; the real call does");
        ps_eviction_hold();
    }
    ps_inside--;
    return prolonged;
}

PS_EXPORT cudaError_t cudaDeviceSynchronize(void)
{
    bool held = begin_wait_for_device();
    cudaError_t result = ps_real_cudart()->cudaDeviceSynchronize();

    if (held)
        ps_eviction_go_on();
    return result;
}

PS_EXPORT CUresult cuCtxSynchronize(void)
{
    if (ps_real_cuda_load())
        return CUDA_ERROR_NOT_INITIALIZED;
    bool held = begin_wait_for_device();
    CUresult result = ps_cu.cuCtxSynchronize();

    if (held)
        ps_eviction_go_on();
    return result;
}

PS_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    retire(stream);
    return ps_real_cudart()->cudaStreamDestroy(stream);
}

PS_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    see_captures();
    return ps_real_cudart()->cudaStreamBeginCapture(stream, mode);
}

PS_EXPORT cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    see_captures();
    return ps_real_cudart()->cudaStreamBeginCapture_ptsz(stream, mode);
}

PS_EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    if (ps_real_cuda_load())
        return CUDA_ERROR_NOT_INITIALIZED;
    retire(stream);
    return ps_cu.cuStreamDestroy(stream);
}

PS_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    if (ps_real_cuda_load())
        return CUDA_ERROR_NOT_INITIALIZED;
    see_captures();
    bool told_here = !ps_inside && ps_tracer_hooks_are_on(); /* else CUPTI tells */
    if (told_here) {
        ps_capture_begins(stream, false);
        ps_in_front++;
    }
    CUresult result = ps_cu.cuStreamBeginCapture(stream, mode);
    if (told_here) {
        ps_in_front--;
        ps_capture_began(result == CUDA_SUCCESS);
    }
    return result;
}
