/*
 * A thread looks at the early capture of its own default stream while it begins another one, which
 * another thread counts: neither waits for the other. Needs the simulated driver (sim_driver.h).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "cuda/capture.h"
#include "sim_driver.h"

static CUresult (*begin_capture)(CUstream, CUstreamCaptureMode);
static CUresult (*end_capture)(CUstream, CUgraph *);
static __typeof__(ps_cu.cuStreamIsCapturing) is_capturing;
static CUcontext context;
static CUstream stream;
static atomic_bool asked; /* the counting thread has asked about the stream */

static CUresult CUDAAPI tell_when_asked(CUstream handle, CUstreamCaptureStatus *status)
{
    const CUresult result = is_capturing(handle, status);

    if (handle == stream)
        atomic_store(&asked, true);
    return result;
}

static void *count(void *unused)
{
    EXPECT(!ps_cu.cuCtxSetCurrent(context));
    ps_capture_count();
    return unused;
}

int main(void)
{
    CUgraph graph;
    pthread_t counting;

    if (!sim_driver_begin(&context)) {
        fprintf(stderr, "the simulated driver is not in the loader's path\n");
        return 77;
    }
    begin_capture = (__typeof__(begin_capture))ps_real_cuda_symbol("cuStreamBeginCapture_v2");
    end_capture = (__typeof__(end_capture))ps_real_cuda_symbol("cuStreamEndCapture");
    is_capturing = ps_cu.cuStreamIsCapturing;
    ps_cu.cuStreamIsCapturing = tell_when_asked;
    EXPECT(!ps_cu.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    ps_capture_begins_uncounted(stream, false); /* an earlier capture, which is over */
    ps_capture_begins_uncounted(CU_STREAM_PER_THREAD, false);
    EXPECT(!begin_capture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    ps_capture_begins(stream, false);
    EXPECT(!begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    atomic_store(&asked, false);
    EXPECT(!pthread_create(&counting, NULL, count, NULL));
    while (!atomic_load(&asked))
        usleep(100);
    usleep(20000); /* it waits for the stream's records by now */
    alarm(20);
    ps_capture_look_at_own();
    ps_capture_began(true);
    pthread_join(counting, NULL);
    EXPECT_INT(2, atomic_load(&ps_captures));
    ps_capture_look_at_own();
    EXPECT(!end_capture(stream, &graph));
    ps_capture_ended(stream, false, CUDA_SUCCESS);
    EXPECT_INT(1, atomic_load(&ps_captures));
    EXPECT(!end_capture(CU_STREAM_PER_THREAD, &graph));
    ps_capture_ended(CU_STREAM_PER_THREAD, false, CUDA_SUCCESS);
    EXPECT_INT(0, atomic_load(&ps_captures));
    return expect_status();
}
