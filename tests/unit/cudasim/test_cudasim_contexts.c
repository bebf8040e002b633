/*
 * The simulated device: events of a whole context, and those that end with one; what waits for a
 * context, or for an event from outside, does to captures.
 */
#include "unit_device.h"
#include "unit_words.h"

struct gate {
    uint32_t *word;
    CUdeviceptr on_device;
};

static struct gate new_gate(void)
{
    struct gate gate = {0};
    EXPECT_OK(cuMemHostAlloc((void **)&gate.word, sizeof *gate.word, 0));
    *gate.word = 0;
    EXPECT_OK(cuMemHostGetDevicePointer(&gate.on_device, gate.word, 0));
    return gate;
}

static void hold(CUstream stream, const struct gate *gate)
{
    EXPECT_OK(cuStreamWaitValue32(stream, gate->on_device, 1, CU_STREAM_WAIT_VALUE_EQ));
}

static void open_gate(const struct gate *gate)
{
    __atomic_store_n(gate->word, 1, __ATOMIC_SEQ_CST);
}

static CUcontext current_context(void)
{
    CUcontext context = NULL;
    EXPECT_OK(cuCtxGetCurrent(&context));
    return context;
}

/*
 * A record of the context is over when all earlier work of its streams is over. It orders none of
 * the streams.
 */
static void a_record_of_the_context_is_of_all_streams(void)
{
    open_device(&device);
    CUcontext context = current_context();
    CUdeviceptr memory = allocate(), other = allocate();
    struct gate gate = new_gate();
    CUstream held = new_stream(CU_STREAM_NON_BLOCKING), first = new_stream(0), second = new_stream(0);
    CUevent event = new_event(), early = new_event();
    EXPECT_OK(cuCtxRecordEvent(context, early));
    EXPECT_OK(cuEventSynchronize(early));
    EXPECT_OK(launch_fill(&device, memory, WORDS, 1, first));
    hold(held, &gate);
    EXPECT_OK(launch_fill(&device, memory, WORDS, 2, held));
    EXPECT_OK(cuCtxRecordEvent(context, event));
    EXPECT_OK(launch_fill(&device, other, WORDS, 3, first));
    EXPECT_OK(launch_fill(&device, other, WORDS, 3, second));
    EXPECT_OK(cuStreamSynchronize(first));
    EXPECT_OK(cuStreamSynchronize(second));
    EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    open_gate(&gate);
    EXPECT_OK(cuEventSynchronize(event));
    EXPECT_U64(WORDS, words_with(memory, 2));
    EXPECT_OK(cuMemFreeHost(gate.word));
}

/* All work queued after the context's wait waits, on streams made later as well. */
static void a_wait_of_the_context_is_of_all_streams(void)
{
    open_device(&device);
    CUcontext context = current_context();
    CUdeviceptr memory = allocate();
    struct gate gate = new_gate();
    CUstream held = new_stream(CU_STREAM_NON_BLOCKING), before = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event();
    EXPECT_OK(launch_fill(&device, memory, WORDS, 1, before));
    hold(held, &gate);
    EXPECT_OK(cuEventRecord(event, held));
    EXPECT_OK(cuCtxWaitEvent(context, event));
    EXPECT_OK(cuStreamSynchronize(before)); /* earlier work waits for nothing */
    CUstream later = new_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(launch_fill(&device, memory, WORDS, 2, later));
    EXPECT_OK(launch_fill(&device, memory, WORDS, 2, before));
    EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(later));
    EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(before));
    open_gate(&gate);
    EXPECT_U64(WORDS, words_with(memory, 2));
    EXPECT_OK(cuMemFreeHost(gate.word));
}

static void a_context_with_a_capture_is_not_recorded(void)
{
    open_device(&device);
    CUcontext context = current_context();
    CUstream captured = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event();
    CUgraph graph = NULL;
    EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuCtxRecordEvent(NULL, event));
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuCtxRecordEvent(context, NULL));
    EXPECT_OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxRecordEvent(context, event));
    EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(captured, &graph));
    EXPECT_OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxWaitEvent(context, event));
    EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(captured, &graph));
    EXPECT_OK(cuCtxRecordEvent(context, event));
    EXPECT_OK(cuEventSynchronize(event));
}

static void a_wait_breaks_the_captures_of_its_own_context(void)
{
    open_device(&device);
    CUcontext second, primary = current_context();
    CUstream captured = new_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph = NULL;
    EXPECT_OK(cuCtxCreate(&second, NULL, 0, 0));
    EXPECT_OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuStreamEndCapture(captured, &graph));
    EXPECT_OK(cuCtxSetCurrent(primary));
    EXPECT_OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
    EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(captured, &graph));
    EXPECT_OK(cuCtxDestroy(second));
}

static void an_event_from_outside_breaks_a_capture(void)
{
    open_device(&device);
    CUstream captured = new_stream(CU_STREAM_NON_BLOCKING), other = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event();
    CUgraph graph = NULL;
    EXPECT_OK(cuEventRecord(event, other));
    EXPECT_OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(captured, event, 0));
    EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(captured, &graph));
}

/* The gate is shut meanwhile, so a wait would never end. */
static void freeing_memory_of_a_pool_waits_for_nothing(void)
{
    open_device(&device);
    CUdeviceptr plain = allocate(), pooled;
    struct gate gate = new_gate();
    CUstream held = new_stream(CU_STREAM_NON_BLOCKING), other = new_stream(CU_STREAM_NON_BLOCKING);
    CUmemoryPool pool, of;
    EXPECT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
    EXPECT_OK(cuMemAllocAsync(&pooled, 4096, other));
    EXPECT_OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pooled));
    EXPECT(of == pool);
    EXPECT_OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, plain));
    EXPECT(!of);
    hold(held, &gate);
    EXPECT_OK(cuMemFree(pooled));
    EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(held));
    open_gate(&gate);
    EXPECT_OK(cuMemFree(plain));
    EXPECT_OK(cuMemFreeHost(gate.word));
}

/* An event is its context's: its handle is refused when that has ended, and another's is not. */
static void events_end_with_their_context(void)
{
    open_device(&device);
    CUcontext second, primary = current_context();
    CUevent mine = new_event(), theirs;
    EXPECT_OK(cuCtxCreate(&second, NULL, 0, 0));
    EXPECT_OK(cuEventCreate(&theirs, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuEventRecord(theirs, NULL));
    EXPECT_OK(cuCtxDestroy(second));
    EXPECT_OK(cuCtxSetCurrent(primary));
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(theirs));
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(theirs));
    EXPECT_OK(cuEventRecord(mine, NULL));
    EXPECT_OK(cuEventSynchronize(mine));
    EXPECT_OK(cuDevicePrimaryCtxReset(0));
    EXPECT_OK(cuDevicePrimaryCtxRetain(&primary, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(mine));
}

int main(void)
{
    RUN_CASE(a_record_of_the_context_is_of_all_streams);
    RUN_CASE(a_wait_of_the_context_is_of_all_streams);
    RUN_CASE(a_context_with_a_capture_is_not_recorded);
    RUN_CASE(events_end_with_their_context);
    RUN_CASE(a_wait_breaks_the_captures_of_its_own_context);
    RUN_CASE(an_event_from_outside_breaks_a_capture);
    RUN_CASE(freeing_memory_of_a_pool_waits_for_nothing);
    return expect_status();
}
