/*
 * Streams: what must be known of them while nothing is traced yet (under the budgets auto and unlimited; see tracing.h).
 *
 * Once launches are traced the tracer sees the same calls at the driver; being told twice does no harm.
 */
#include "hooks.h"
#include "process.h"
#include "real_cuda.h"
#include "real_cudart.h"
#include "streams.h"
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
    return ps_cu.cuStreamBeginCapture(stream, mode);
}
