/*
 * The simulated device: order in and between streams, events, the default streams, host functions,
 * memory words.
 */
#include "unit_device.h"
#include "unit_words.h"

#include <pthread.h>
#include <time.h>

static void order_within_a_stream(void)
{
    open_device(&device);
    CUdeviceptr memory = allocate(), result = allocate();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (uint32_t round = 0; round < 20; round++) {
        EXPECT_OK(launch_fill(&device, memory, WORDS, round, stream));
        EXPECT_OK(launch_count(&device, memory, WORDS, round, result + round * sizeof(uint32_t), stream));
    }
    EXPECT_OK(cuStreamSynchronize(stream));
    uint32_t counts[20];
    EXPECT_OK(cuMemcpyDtoH(counts, result, sizeof counts));
    for (uint32_t round = 0; round < 20; round++)
        EXPECT_U64(WORDS, counts[round]);
}

static void parameters_are_copied_at_launch(void)
{
    open_device(&device);
    CUdeviceptr memory = allocate();
    uint32_t count = WORDS, value = 1;
    void *params[] = {&memory, &count, &value};
    EXPECT_OK(cuLaunchKernel((CUfunction)device.fill_words, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    value = 2;
    EXPECT_U64(WORDS, words_with(memory, 1));
}

static void packed_parameters(void)
{
    open_device(&device);
    CUdeviceptr memory = allocate();
    struct {
        CUdeviceptr to;
        uint32_t count, value;
    } packed = {memory, WORDS, 9};
    size_t size = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    EXPECT_OK(cuLaunchKernel((CUfunction)device.fill_words, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    EXPECT_U64(WORDS, words_with(memory, 9));
}

static void a_wait_orders_two_streams(void)
{
    open_device(&device);
    CUdeviceptr memory = allocate(), result = allocate();
    CUstream first = new_stream(CU_STREAM_NON_BLOCKING), second = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event();
    EXPECT_OK(launch_fill(&device, memory, WORDS, 7, first));
    EXPECT_OK(cuEventRecord(event, first));
    EXPECT_OK(cuStreamWaitEvent(second, event, 0));
    EXPECT_OK(launch_count(&device, memory, WORDS, 7, result, second));
    uint32_t count = 0;
    EXPECT_OK(cuStreamSynchronize(second));
    EXPECT_OK(cuMemcpyDtoH(&count, result, sizeof count));
    EXPECT_U64(WORDS, count);
}

/* A wait keeps the record that it saw. A later record moves neither the wait nor its target. */
static void a_later_record_leaves_earlier_waits(void)
{
    open_device(&device);
    CUdeviceptr memory = allocate(), result = allocate();
    uint32_t *gate = NULL;
    CUdeviceptr gate_address;
    EXPECT_OK(cuMemHostAlloc((void **)&gate, sizeof *gate, 0));
    *gate = 0;
    EXPECT_OK(cuMemHostGetDevicePointer(&gate_address, gate, 0));
    CUstream first = new_stream(CU_STREAM_NON_BLOCKING), second = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event();
    EXPECT_OK(launch_fill(&device, memory, WORDS, 3, first));
    EXPECT_OK(cuEventRecord(event, first));
    EXPECT_OK(cuStreamWaitEvent(second, event, 0));
    /*
     * Later work on the first stream can't run before the gate opens. The second stream must not
     * wait for it.
     */
    EXPECT_OK(cuStreamWaitValue32(first, gate_address, 1, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_OK(launch_fill(&device, memory, WORDS, 4, first));
    EXPECT_OK(cuEventRecord(event, first));
    EXPECT_OK(launch_count(&device, memory, WORDS, 3, result, second));
    EXPECT_OK(cuStreamSynchronize(second));
    EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    uint32_t count = 0;
    EXPECT_OK(cuMemcpyDtoHAsync(&count, result, sizeof count, second));
    EXPECT_U64(WORDS, count);
    __atomic_store_n(gate, 1, __ATOMIC_SEQ_CST);
    EXPECT_OK(cuEventSynchronize(event));
    EXPECT_U64(WORDS, words_with(memory, 4));
    EXPECT_OK(cuMemFreeHost(gate));
}

static void an_event_never_recorded_is_over(void)
{
    open_device(&device);
    CUevent event = new_event();
    CUstream stream = new_stream(0);
    EXPECT_OK(cuEventQuery(event));
    EXPECT_OK(cuEventSynchronize(event));
    EXPECT_OK(cuStreamWaitEvent(stream, event, 0));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuEventDestroy(event));
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(event));
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, stream));
    EXPECT_OK(cuStreamDestroy(stream));
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(stream));
}

static void a_query_comes_true(void)
{
    open_device(&device);
    CUevent event = new_event();
    CUdeviceptr memory = allocate();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (uint32_t i = 0; i < 30; i++)
        EXPECT_OK(launch_fill(&device, memory, WORDS, i, stream));
    EXPECT_OK(cuEventRecord(event, stream));
    CUresult result;
    do {
        result = cuEventQuery(event);
    } while (result == CUDA_ERROR_NOT_READY);
    EXPECT_OK(result);
    do {
        result = cuStreamQuery(stream);
    } while (result == CUDA_ERROR_NOT_READY);
    EXPECT_OK(result);
    EXPECT_U64(WORDS, words_with(memory, 29));
}

static void the_legacy_stream_orders_blocking_streams(void)
{
    open_device(&device);
    CUdeviceptr memory = allocate(), result = allocate();
    CUstream first = new_stream(CU_STREAM_DEFAULT), second = new_stream(CU_STREAM_DEFAULT);
    EXPECT_OK(launch_fill(&device, memory, WORDS, 1, first));
    EXPECT_OK(launch_count(&device, memory, WORDS, 1, result, NULL));
    EXPECT_OK(launch_fill(&device, memory, WORDS, 2, NULL));
    EXPECT_OK(launch_count(&device, memory, WORDS, 2, result + 4, second));
    uint32_t counts[2] = {0, 0};
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuMemcpyDtoH(counts, result, sizeof counts));
    EXPECT_U64(WORDS, counts[0]);
    EXPECT_U64(WORDS, counts[1]);
}

static CUdeviceptr shared_memory;

static void *fill_on_own_stream(void *argument)
{
    (void)argument;
    EXPECT_OK(cuCtxSetCurrent(device.context));
    EXPECT_OK(launch_fill(&device, shared_memory, WORDS, 5, CU_STREAM_PER_THREAD));
    unsigned long long id = 0;
    EXPECT_OK(cuStreamGetId(CU_STREAM_PER_THREAD, &id));
    return (void *)(uintptr_t)id;
}

static void each_thread_has_its_own_stream(void)
{
    open_device(&device);
    shared_memory = allocate();
    pthread_t thread;
    void *other_id = NULL;
    unsigned long long own_id = 0;
    EXPECT_OK(cuStreamGetId(CU_STREAM_PER_THREAD, &own_id));
    pthread_create(&thread, NULL, fill_on_own_stream, NULL);
    pthread_join(thread, &other_id);
    EXPECT((uintptr_t)other_id != own_id);
    EXPECT_U64(WORDS, words_with(shared_memory, 5));
}

static int function_calls;

static void count_call(void *data)
{
    __atomic_fetch_add((int *)data, 1, __ATOMIC_SEQ_CST);
}

static void host_functions_run_in_order(void)
{
    open_device(&device);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr memory = allocate();
    EXPECT_OK(launch_fill(&device, memory, WORDS, 1, stream));
    EXPECT_OK(cuLaunchHostFunc(stream, count_call, &function_calls));
    EXPECT_OK(cuLaunchHostFunc(stream, count_call, &function_calls));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_INT(2, __atomic_load_n(&function_calls, __ATOMIC_SEQ_CST));
}

/* A pageable source is read before the call returns; a pinned one when the copy runs. */
static void pageable_sources_are_staged(void)
{
    open_device(&device);
    CUdeviceptr memory = allocate();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    static uint32_t source[WORDS];
    for (uint32_t i = 0; i < WORDS; i++)
        source[i] = 6;
    EXPECT_OK(cuMemcpyHtoDAsync(memory, source, sizeof source, stream));
    memset(source, 0, sizeof source);
    EXPECT_U64(WORDS, words_with(memory, 6));
}

static void a_captured_graph_runs_again(void)
{
    open_device(&device);
    CUdeviceptr memory = allocate(), copy = allocate();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING), side = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent fork_event = new_event(), join_event = new_event();
    CUgraph graph;
    CUgraphExec executable;
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_OK(launch_fill(&device, memory, WORDS, 8, stream));
    EXPECT_OK(cuEventRecord(fork_event, stream));
    EXPECT_OK(cuStreamWaitEvent(side, fork_event, 0));
    EXPECT_OK(cuMemcpyDtoDAsync(copy, memory, BYTES, side));
    EXPECT_OK(cuEventRecord(join_event, side));
    EXPECT_OK(cuStreamWaitEvent(stream, join_event, 0));
    EXPECT_OK(cuStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    EXPECT_OK(cuGraphGetNodes(graph, NULL, &nodes));
    EXPECT_U64(2, nodes);
    EXPECT_U64(0, words_with(copy, 8));
    EXPECT_OK(cuGraphInstantiate(&executable, graph, 0));
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_U64(WORDS, words_with(copy, 8));
    EXPECT_OK(cuMemsetD32Async(copy, 0, WORDS, stream));
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_U64(WORDS, words_with(copy, 8));
    EXPECT_OK(cuGraphExecDestroy(executable));
    EXPECT_OK(cuGraphDestroy(graph));
}

/*
 * A second stream's work in a capture must be joined before the first one ends; else the capture
 * fails.
 */
static void a_stream_that_does_not_come_back_ends_a_capture(void)
{
    open_device(&device);
    CUdeviceptr memory = allocate();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING), side = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent fork_event = new_event(), join_event = new_event();

    for (int late = 0; late < 3; late++) { /* 0: all is joined; 1: more work follows the join; 2: no join */
        CUgraph graph = NULL;
        EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        EXPECT_OK(cuEventRecord(fork_event, stream));
        EXPECT_OK(cuStreamWaitEvent(side, fork_event, 0));
        EXPECT_OK(launch_fill(&device, memory, WORDS, 8, side));
        EXPECT_OK(cuEventRecord(join_event, side));
        if (late == 1)
            EXPECT_OK(launch_fill(&device, memory, WORDS, 9, side));
        if (late < 2)
            EXPECT_OK(cuStreamWaitEvent(stream, join_event, 0));
        EXPECT_INT(late ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_SUCCESS, cuStreamEndCapture(stream, &graph));
        if (!late)
            EXPECT_OK(cuGraphDestroy(graph));
        /* The capture is over, for both. */
        EXPECT_OK(cuStreamSynchronize(side));
        EXPECT_INT(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(stream, join_event, 0));
    }
}

/* Queries an event during a capture, with the calling thread in the given mode. */
static void *query_in_mode(void *mode_and_event)
{
    void **given = mode_and_event;
    CUstreamCaptureMode mode = *(CUstreamCaptureMode *)given[0];

    EXPECT_OK(cuCtxSetCurrent(device.context));
    EXPECT_OK(cuThreadExchangeStreamCaptureMode(&mode));
    return (void *)(uintptr_t)cuEventQuery(given[1]);
}

static void what_may_be_unsafe_ends_a_capture(void)
{
    static const struct {
        CUstreamCaptureMode capture, thread;
        bool in_another_thread, allowed;
    } cases[] = {
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL, false, false},
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL, true, false},
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true, true},
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false, false},
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, false, true},
        {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL, true, true},
        {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL, false, false},
        {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL, false, true},
    };
    open_device(&device);
    CUdeviceptr memory = allocate();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CUstreamCaptureMode mode = cases[i].thread, before = CU_STREAM_CAPTURE_MODE_GLOBAL;
        void *given[] = {&mode, event}, *result;
        CUgraph graph;
        EXPECT_OK(cuStreamBeginCapture(stream, cases[i].capture));
        EXPECT_OK(launch_fill(&device, memory, WORDS, 8, stream));
        if (cases[i].in_another_thread) {
            pthread_t other;
            EXPECT_INT(0, pthread_create(&other, NULL, query_in_mode, given));
            EXPECT_INT(0, pthread_join(other, &result));
        } else {
            result = query_in_mode(given);
            EXPECT_OK(cuThreadExchangeStreamCaptureMode(&before));
        }
        EXPECT_CUDA(cases[i].allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                    (CUresult)(uintptr_t)result);
        EXPECT_CUDA(cases[i].allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                    cuStreamEndCapture(stream, &graph));
    }
}

static void a_graph_takes_over_another(void)
{
    open_device(&device);
    CUdeviceptr memory = allocate(), copy = allocate();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph, other;
    CUgraphExec executable;
    CUgraphNode nodes[2];
    CUgraphExecUpdateResultInfo info;
    CUDA_MEMCPY3D copied;
    size_t count = 2;
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_OK(launch_fill(&device, memory, WORDS, 8, stream));
    EXPECT_OK(cuMemcpyDtoDAsync(copy, memory, BYTES, stream));
    EXPECT_OK(cuStreamEndCapture(stream, &graph));
    EXPECT_OK(cuGraphInstantiate(&executable, graph, 0));
    EXPECT_OK(cuGraphGetNodes(graph, nodes, &count));
    EXPECT_OK(cuGraphMemcpyNodeGetParams(nodes[1], &copied));
    EXPECT(copied.dstDevice == copy && copied.srcDevice == memory && copied.WidthInBytes == BYTES);
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_OK(launch_fill(&device, copy, WORDS, 9, stream));
    EXPECT_OK(cuMemcpyDtoDAsync(memory, copy, BYTES, stream));
    EXPECT_OK(cuStreamEndCapture(stream, &other));
    EXPECT_OK(cuGraphExecUpdate(executable, other, &info));
    EXPECT_INT(CU_GRAPH_EXEC_UPDATE_SUCCESS, info.result);
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_U64(WORDS, words_with(memory, 9));
    /* One node gets the first graph's parameters again. */
    CUDA_KERNEL_NODE_PARAMS kernel;
    EXPECT_OK(cuGraphKernelNodeGetParams(nodes[0], &kernel));
    EXPECT_OK(cuGraphExecKernelNodeSetParams(executable, nodes[0], &kernel));
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_U64(WORDS, words_with(copy, 9));
    EXPECT_U64(WORDS, words_with(memory, 9)); /* filled with 8, then copied over */
    EXPECT_OK(cuGraphExecDestroy(executable));
}

static void a_deadlock_is_reported(void)
{
    open_device(&device);
    CUdeviceptr word = allocate();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cuMemsetD32(word, 0, 1));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_CUDA(CUDA_ERROR_LAUNCH_TIMEOUT, cuStreamSynchronize(stream));
}

/* ---- time, which only the threads scheduler has ---- */

#define SLOW_BYTES ((size_t)1 << 20)

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/*
 * Returns the time of two simultaneous copies in ns. Each has its direction and a stream of its
 * own.
 */
static uint64_t time_two_copies(CUdeviceptr memory, char *pinned, bool first_out, bool second_out)
{
    bool out[2] = {first_out, second_out};
    EXPECT_OK(cuCtxSynchronize());
    uint64_t start = now_ns();
    for (int i = 0; i < 2; i++) {
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
        if (out[i])
            EXPECT_OK(cuMemcpyDtoHAsync(pinned + i * SLOW_BYTES, memory + i * SLOW_BYTES, SLOW_BYTES, stream));
        else
            EXPECT_OK(cuMemcpyHtoDAsync(memory + i * SLOW_BYTES, pinned + i * SLOW_BYTES, SLOW_BYTES, stream));
    }
    EXPECT_OK(cuCtxSynchronize());
    return now_ns() - start;
}

/* At this test's rate of 0.02 GB/s one copy takes 52 ms. */
static void two_engines_run_at_once(void)
{
    open_device(&device);
    CUdeviceptr memory;
    void *pinned;
    EXPECT_OK(cuMemAlloc(&memory, 2 * SLOW_BYTES));
    EXPECT_OK(cuMemHostAlloc(&pinned, 2 * SLOW_BYTES, 0));
    uint64_t same = time_two_copies(memory, pinned, true, true);
    uint64_t opposite = UINT64_MAX;
    /*
     * A busy machine may stretch any one of these: the best of several shows whether they can
     * overlap.
     */
    for (int i = 0; i < 5 && opposite >= 95000000u; i++) {
        uint64_t once = time_two_copies(memory, pinned, true, false);
        opposite = once < opposite ? once : opposite;
    }
    EXPECT(same >= 100000000u);
    EXPECT(opposite >= 50000000u);
    if (!EXPECT(opposite < 95000000u))
        fprintf(stderr, "  same direction %lu us, opposite %lu us\n", (unsigned long)same / 1000,
                (unsigned long)opposite / 1000);
}

/* ---- turns on a copy engine ---- */

#define TURNS 6u
#define TURN_BYTES ((size_t)256 << 10) /* 13 ms */

struct turns {
    CUdeviceptr memory;
    char *pinned;
    uint32_t *word; /* never shut */
    CUdeviceptr word_on_device;
    bool out;
};

static void queue_copy(const struct turns *t, unsigned nth, CUstream stream)
{
    const size_t at = nth * TURN_BYTES;
    if (t->out)
        EXPECT_OK(cuMemcpyDtoHAsync(t->pinned + at, t->memory + at, TURN_BYTES, stream));
    else
        EXPECT_OK(cuMemcpyHtoDAsync(t->memory + at, t->pinned + at, TURN_BYTES, stream));
}

/* Returns whether a copy is over before those that another stream had queued by then. */
static bool comes_between(const struct turns *t, bool with_looks)
{
    CUstream many = new_stream(CU_STREAM_NON_BLOCKING), one = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent first = new_event(), last = new_event();
    for (unsigned i = 0; i < TURNS; i++) {
        if (with_looks)
            EXPECT_OK(cuStreamWaitValue32(many, t->word_on_device, 0, CU_STREAM_WAIT_VALUE_EQ));
        queue_copy(t, i, many);
        if (!i)
            EXPECT_OK(cuEventRecord(first, many));
    }
    EXPECT_OK(cuEventRecord(last, many));
    EXPECT_OK(cuEventSynchronize(first));
    queue_copy(t, TURNS, one);
    EXPECT_OK(cuStreamSynchronize(one));
    const CUresult over = cuEventQuery(last);
    EXPECT_OK(cuStreamDestroy(many));
    EXPECT_OK(cuStreamDestroy(one));
    EXPECT_OK(cuCtxSynchronize());
    return over == CUDA_ERROR_NOT_READY;
}

static void an_engine_stays_with_a_stream(void)
{
    struct turns t = {0};
    open_device(&device);
    EXPECT_OK(cuMemAlloc(&t.memory, (TURNS + 1) * TURN_BYTES));
    EXPECT_OK(cuMemHostAlloc((void **)&t.pinned, (TURNS + 1) * TURN_BYTES, 0));
    EXPECT_OK(cuMemHostAlloc((void **)&t.word, sizeof *t.word, 0));
    *t.word = 0;
    EXPECT_OK(cuMemHostGetDevicePointer(&t.word_on_device, t.word, 0));
    for (int out = 0; out < 2; out++) {
        t.out = out;
        EXPECT(!comes_between(&t, false));
        /* A late thread finds all of them over. */
        bool between = false;
        for (int i = 0; i < 5 && !between; i++)
            between = comes_between(&t, true);
        EXPECT(between);
    }
}

/* ---- many host threads ---- */

#define THREADS 6
#define ROUNDS 20u

static void *work_on_own_stream(void *argument)
{
    uint32_t own = (uint32_t)(uintptr_t)argument, words[64];
    uintptr_t wrong = 0; /* the caller checks it: EXPECT counts for one thread */
    EXPECT_OK(cuCtxSetCurrent(device.context));
    CUstream stream;
    CUevent event;
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuEventCreate(&event, 0));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        CUdeviceptr plain, pooled;
        EXPECT_OK(cuMemAlloc(&plain, sizeof words));
        EXPECT_OK(cuMemAllocAsync(&pooled, sizeof words, stream));
        EXPECT_OK(launch_fill(&device, plain, 64, own + round, stream));
        EXPECT_OK(cuMemcpyDtoDAsync(pooled, plain, sizeof words, stream));
        EXPECT_OK(cuEventRecord(event, stream));
        EXPECT_OK(cuEventSynchronize(event));
        EXPECT_OK(cuMemcpyDtoHAsync(words, pooled, sizeof words, stream));
        wrong += words[0] != own + round || words[63] != own + round;
        EXPECT_OK(cuMemFreeAsync(pooled, stream));
        EXPECT_OK(cuMemFree(plain));
    }
    EXPECT_OK(cuEventDestroy(event));
    EXPECT_OK(cuStreamDestroy(stream));
    return (void *)wrong;
}

static void threads_share_the_device(void)
{
    pthread_t threads[THREADS];
    uintptr_t wrong = 0;
    open_device(&device);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work_on_own_stream, (void *)(i * 1000));
    for (int i = 0; i < THREADS; i++) {
        void *thread_wrong = NULL;
        pthread_join(threads[i], &thread_wrong);
        wrong += (uintptr_t)thread_wrong;
    }
    EXPECT_U64(0, wrong);
}

int main(void)
{
    RUN_CASE(order_within_a_stream);
    RUN_CASE(parameters_are_copied_at_launch);
    RUN_CASE(packed_parameters);
    RUN_CASE(a_wait_orders_two_streams);
    RUN_CASE(a_later_record_leaves_earlier_waits);
    RUN_CASE(an_event_never_recorded_is_over);
    RUN_CASE(a_query_comes_true);
    RUN_CASE(the_legacy_stream_orders_blocking_streams);
    RUN_CASE(each_thread_has_its_own_stream);
    RUN_CASE(host_functions_run_in_order);
    RUN_CASE(pageable_sources_are_staged);
    RUN_CASE(a_captured_graph_runs_again);
    RUN_CASE(a_stream_that_does_not_come_back_ends_a_capture);
    RUN_CASE(what_may_be_unsafe_ends_a_capture);
    RUN_CASE(a_graph_takes_over_another);
    RUN_CASE(threads_share_the_device);
    const char *const slow_link[] = {"CUDASIM_D2H_GBPS", "0.02", "CUDASIM_H2D_GBPS", "0.02", NULL};
    run_case("two_engines_run_at_once", two_engines_run_at_once, slow_link, "threads", 0);
    run_case("an_engine_stays_with_a_stream", an_engine_stays_with_a_stream, slow_link, "threads", 0);
    const char *const impatient[] = {"CUDASIM_PATIENCE_MS", "100", NULL};
    run_case("a_deadlock_is_reported", a_deadlock_is_reported, impatient, "seeded", 1);
    run_case("a_deadlock_is_reported", a_deadlock_is_reported, impatient, "threads", 0);
    return expect_status();
}
