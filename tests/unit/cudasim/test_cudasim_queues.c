/*
 * Hardware queues of the simulated device: a call blocks while its queue is full, and streams that
 * share a queue wait for each other.
 */
#include <pthread.h>

#include "unit_device.h"

static struct unit_device device;

#define ROOM "8"
#define ROOM_NUMBER 8u
#define WORDS 1024u
#define WAIT_US 30000 /* a call that blocks has not returned after this time */

struct gate {
    volatile uint32_t *word;
    CUdeviceptr on_device;
};

static struct gate new_gate(void)
{
    struct gate gate;
    void *word;
    EXPECT_OK(cuMemHostAlloc(&word, 4, CU_MEMHOSTALLOC_DEVICEMAP));
    EXPECT_OK(cuMemHostGetDevicePointer(&gate.on_device, word, 0));
    gate.word = word;
    *gate.word = 0;
    return gate;
}

static void hold(CUstream stream, const struct gate *gate)
{
    EXPECT_OK(cuStreamWaitValue32(stream, gate->on_device, 1, CU_STREAM_WAIT_VALUE_GEQ));
}

static void open_gate(const struct gate *gate)
{
    __atomic_store_n((uint32_t *)gate->word, 1, __ATOMIC_SEQ_CST);
}

static CUstream new_stream(void)
{
    CUstream stream = NULL;
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/* ---- calls that queue work ---- */

static CUdeviceptr memory, pooled;
static void *pinned;
static CUevent event, recorded;
static CUgraphExec graph;

static void CUDA_CB nothing(void *data)
{
    (void)data;
}

static CUresult call_launch(CUstream stream)
{
    return launch_fill(&device, memory, WORDS, 1, stream);
}

static CUresult call_copy(CUstream stream)
{
    return cuMemcpyDtoHAsync(pinned, memory, WORDS, stream);
}

static CUresult call_fill(CUstream stream)
{
    return cuMemsetD32Async(memory, 1, WORDS, stream);
}

static CUresult call_record(CUstream stream)
{
    return cuEventRecord(event, stream);
}

static CUresult call_wait(CUstream stream)
{
    return cuStreamWaitEvent(stream, recorded, 0);
}

static CUresult call_host_function(CUstream stream)
{
    return cuLaunchHostFunc(stream, nothing, NULL);
}

static CUresult call_write(CUstream stream)
{
    return cuStreamWriteValue32(stream, memory, 1, 0);
}

static CUresult call_free(CUstream stream)
{
    return cuMemFreeAsync(pooled, stream);
}

static CUresult call_graph(CUstream stream)
{
    return cuGraphLaunch(graph, stream);
}

static CUresult (*const calls[])(CUstream stream) = {call_launch, call_copy,  call_fill, call_record,       call_wait,
                                                     call_write,  call_graph, call_free, call_host_function};
#define CALLS (sizeof calls / sizeof *calls)

static void prepare_calls(const struct gate *gate)
{
    CUgraph captured;
    CUstream stream = new_stream();
    EXPECT_OK(cuMemAlloc(&memory, WORDS * 4));
    EXPECT_OK(cuMemHostAlloc(&pinned, WORDS, 0));
    EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuEventCreate(&recorded, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_OK(call_fill(stream));
    EXPECT_OK(cuStreamEndCapture(stream, &captured));
    EXPECT_OK(cuGraphInstantiate(&graph, captured, 0));
    EXPECT_OK(cuMemAllocAsync(&pooled, WORDS, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    hold(stream, gate); /* an event that has not come, on a stream of its own */
    EXPECT_OK(cuEventRecord(recorded, stream));
}

struct caller {
    CUresult (*call)(CUstream stream);
    CUstream stream;
    CUresult result;
    bool returned;
};

static void *make_call(void *argument)
{
    struct caller *caller = argument;
    EXPECT_OK(cuCtxSetCurrent(device.context));
    caller->result = caller->call(caller->stream);
    __atomic_store_n(&caller->returned, true, __ATOMIC_SEQ_CST);
    return NULL;
}

static bool has_returned(const struct caller *caller)
{
    return __atomic_load_n(&caller->returned, __ATOMIC_SEQ_CST);
}

/*
 * Makes the call on a thread of its own, while the stream's queue holds `held` operations behind a
 * gate. Returns whether the call blocks until the gate opens.
 */
static bool blocks(CUresult (*call)(CUstream stream), CUstream stream, const struct gate *gate)
{
    struct caller caller = {.call = call, .stream = stream};
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, make_call, &caller) == 0);
    usleep(WAIT_US);
    bool blocked = !has_returned(&caller);
    if (!blocked) {
        EXPECT(pthread_join(thread, NULL) == 0);
    } else {
        EXPECT_OK(cuCtxGetCurrent(&(CUcontext){NULL})); /* other threads' calls do not block */
        open_gate(gate);
        EXPECT(pthread_join(thread, NULL) == 0);
    }
    EXPECT_OK(caller.result);
    open_gate(gate);
    EXPECT_OK(cuCtxSynchronize());
    return blocked;
}

static void fill_up(CUstream stream, unsigned int operations)
{
    for (unsigned int i = 0; i < operations; i++)
        EXPECT_OK(cuMemsetD32Async(memory, 1, 1, stream));
}

/* Runs with each call: with room for one more operation in the queue, and with a full one. */
static size_t call_index;
static unsigned int operations_before;

static void one_call(void)
{
    struct gate gate;
    if (!open_device(&device))
        return;
    gate = new_gate();
    prepare_calls(&gate);
    CUstream stream = new_stream();
    hold(stream, &gate);
    fill_up(stream, operations_before - 1);
    EXPECT(blocks(calls[call_index], stream, &gate) == (operations_before >= ROOM_NUMBER));
}

static void a_call_blocks_while_its_queue_is_full(void)
{
    for (call_index = 0; call_index < CALLS; call_index++)
        for (operations_before = ROOM_NUMBER - 1; operations_before <= ROOM_NUMBER; operations_before++) {
            const char *const settings[] = {"CUDASIM_QUEUE", ROOM, NULL};
            run_case("one_call", one_call, settings, "threads", 0);
            run_case("one_call", one_call, settings, "seeded", 3 + (unsigned int)call_index);
        }
}

/* A thread that fills its queue with work that can run is never stuck. */
static void a_full_queue_lets_the_device_run(void)
{
    if (!open_device(&device))
        return;
    EXPECT_OK(cuMemAlloc(&memory, WORDS * 4));
    CUstream stream = new_stream();
    fill_up(stream, 40 * ROOM_NUMBER);
    EXPECT_OK(cuCtxSynchronize());
}

/* ---- streams that share queues ---- */

/* Returns whether work of the second stream is over although the first is held. */
static bool passes(CUstream held, CUstream other)
{
    struct gate gate = new_gate();
    hold(held, &gate);
    EXPECT_OK(cuMemsetD32Async(memory, 1, 1, other));
    bool over = false;
    for (unsigned int i = 0; i < 300 && !over; i++) {
        over = cuStreamQuery(other) == CUDA_SUCCESS;
        usleep(100);
    }
    open_gate(&gate);
    EXPECT_OK(cuCtxSynchronize());
    return over;
}

static void streams_of_one_queue_wait_for_each_other(void)
{
    if (!open_device(&device))
        return;
    EXPECT_OK(cuMemAlloc(&memory, WORDS * 4));
    CUstream stream[3] = {new_stream(), new_stream(), new_stream()};
    EXPECT(!passes(stream[0], stream[2])); /* of two queues, they share one */
    EXPECT(passes(stream[0], stream[1]));
}

static void streams_have_queues_of_their_own(void)
{
    if (!open_device(&device))
        return;
    EXPECT_OK(cuMemAlloc(&memory, WORDS * 4));
    CUstream stream[3] = {new_stream(), new_stream(), new_stream()};
    EXPECT(passes(stream[0], stream[2]));
    EXPECT(passes(stream[0], stream[1]));
}

/* What is queued after an operation in a queue waits for its start, not for its end. */
static void an_operation_that_runs_holds_back_nothing(void)
{
    if (!open_device(&device))
        return;
    EXPECT_OK(cuMemAlloc(&memory, WORDS * 4));
    CUstream one = new_stream(), other = new_stream();
    EXPECT_OK(launch_fill(&device, memory, WORDS, 1, one)); /* takes CUDASIM_KERNEL_NS */
    EXPECT_OK(cuMemsetD32Async(memory + 4, 1, 1, other));
    EXPECT_OK(cuStreamSynchronize(other));
    EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(one));
    /* A second kernel on `one` can't start yet, and the next fill stands behind it. */
    EXPECT_OK(launch_fill(&device, memory, WORDS, 1, one));
    EXPECT_OK(cuMemsetD32Async(memory + 4, 1, 1, other));
    EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
    EXPECT_OK(cuCtxSynchronize());
}

/* The queue is full, whichever of its streams filled it. */
static void streams_fill_their_queue_together(void)
{
    struct gate gate;
    if (!open_device(&device))
        return;
    gate = new_gate();
    EXPECT_OK(cuMemAlloc(&memory, WORDS * 4));
    CUstream one = new_stream(), other = new_stream(), third = new_stream();
    hold(one, &gate);
    fill_up(one, ROOM_NUMBER / 2 - 1);
    fill_up(other, ROOM_NUMBER / 2);
    EXPECT(blocks(call_fill, third, &gate));
}

int main(void)
{
    a_call_blocks_while_its_queue_is_full();
    RUN_CASE(a_full_queue_lets_the_device_run, "CUDASIM_QUEUE", ROOM);
    RUN_CASE(a_full_queue_lets_the_device_run, "CUDASIM_QUEUE", ROOM, "CUDASIM_MAX_CONNECTIONS", "1");
    RUN_CASE(streams_of_one_queue_wait_for_each_other, "CUDASIM_MAX_CONNECTIONS", "2");
    RUN_CASE(streams_have_queues_of_their_own);
    run_case("an_operation_that_runs_holds_back_nothing", an_operation_that_runs_holds_back_nothing,
             (const char *const[]){"CUDASIM_MAX_CONNECTIONS", "1", "CUDASIM_KERNEL_NS", "300000000", NULL}, "threads",
             0);
    RUN_CASE(streams_fill_their_queue_together, "CUDASIM_MAX_CONNECTIONS", "1", "CUDASIM_QUEUE", ROOM);
    return expect_status();
}
