/*
 * Cases of `hostile`: threads, also beside captures, child processes, and the end of the program.
 * Part of hostile.cu.
 */
#ifndef PENSTOCK_SAMPLES_HOSTILE_PROCESS_H
#define PENSTOCK_SAMPLES_HOSTILE_PROCESS_H

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#define THREADS 64
#define THREAD_TURNS 3

struct thread_job {
    pthread_t thread;
    pthread_barrier_t *start;
    uint32_t number;
    uint32_t *left; /* an allocation that outlives its thread */
};

static void *allocate_in_thread(void *argument)
{
    struct thread_job *job = static_cast<struct thread_job *>(argument);
    cudaStream_t stream = new_stream();

    pthread_barrier_wait(job->start);
    for (uint32_t turn = 0; turn < THREAD_TURNS; turn++) {
        const uint32_t salt = job->number * THREAD_TURNS + turn;
        uint32_t *span = new_span();

        LAUNCH(stream, span_words(), fill_words, span, salt, 0, span_words());
        expect_words(span, salt, 0, span_words(), stream, "a thread's own span");
        if (turn + 1 < THREAD_TURNS)
            CHECK(cudaFree(span));
        else
            job->left = span;
    }
    CHECK(cudaStreamDestroy(stream));
    return nullptr;
}

static void case_threads(void)
{
    static struct thread_job job[THREADS];
    pthread_barrier_t start;
    cudaStream_t stream = new_stream();

    pthread_barrier_init(&start, nullptr, THREADS);
    for (uint32_t i = 0; i < THREADS; i++) {
        job[i].start = &start;
        job[i].number = i;
        REQUIRE(pthread_create(&job[i].thread, nullptr, allocate_in_thread, &job[i]) == 0, "no thread");
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(job[i].thread, nullptr);
    for (uint32_t i = 0; i < THREADS; i++) {
        for (uint32_t j = 0; j < i; j++)
            expect(job[i].left != job[j].left, "two threads got the address %p", static_cast<void *>(job[i].left));
        expect_words(job[i].left, i * THREAD_TURNS + THREAD_TURNS - 1, 0, span_words(), stream,
                     "what a thread left behind");
    }
    for (uint32_t i = 0; i < THREADS; i++)
        CHECK(cudaFree(job[i].left));
    pthread_barrier_destroy(&start);
    CHECK(cudaStreamDestroy(stream));
}

static void expect_child(pid_t child, int wanted, const char *what)
{
    int status = 0;

    if (!expect(child > 0 && waitpid(child, &status, 0) == child, "%s: no child process", what))
        return;
    expect(WIFEXITED(status) && WEXITSTATUS(status) == wanted, "%s: wait status %#x, expected exit status %d", what,
           static_cast<unsigned>(status), wanted);
}

/* Launches until another thread has made its captures. */
struct beside_captures {
    uint32_t *span[4], turns;
    cudaStream_t stream;
    std::atomic<bool> over;
};

static void *work_beside(void *argument)
{
    beside_captures *p = static_cast<beside_captures *>(argument);

    for (; p->turns < 8 || (p->turns < 20000 && !p->over.load()); p->turns++)
        for (uint32_t *span : p->span)
            LAUNCH(p->stream, 1, add_to_words, span, 1, 1);
    return nullptr;
}

/*
 * A thread captures in the global mode. Other threads must then make no call that may be unsafe.
 * One launches, which is allowed. Penstock must find memory for it meanwhile, and no check that it
 * made before a capture began tells that one goes on now.
 */
static void case_graph_beside(void)
{
    struct span_set set = new_span_set();
    pthread_t thread;
    beside_captures other = {};

    other.stream = new_stream();
    for (auto &span : other.span)
        span = new_span();
    for (auto &span : other.span) {
        LAUNCH(other.stream, span_words(), fill_words, span, 7, 0, span_words());
        LAUNCH(other.stream, 1, add_to_words, span, 0, 1); /* so that no kernel is loaded during a capture */
    }
    CHECK(cudaDeviceSynchronize());
    REQUIRE(pthread_create(&thread, nullptr, work_beside, &other) == 0, "no thread");
    for (uint32_t turn = 0; turn < 16; turn++) {
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t executable = nullptr;

        CHECK_OR_SKIP(cudaStreamBeginCapture(set.stream, cudaStreamCaptureModeGlobal));
        for (size_t i = 0; i < span_count; i++) {
            LAUNCH(set.stream, 1, add_to_words, set.span[i], 3, 1);
            usleep(10);
        }
        CHECK(cudaStreamEndCapture(set.stream, &graph));
        CHECK(cudaGraphInstantiate(&executable, graph, 0));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaGraphLaunch(executable, set.stream));
        for (size_t i = 0; i < span_count; i++)
            LAUNCH(set.stream, 1, add_to_words, set.span[i], UINT32_MAX - 2, 1);
        CHECK(cudaGraphExecDestroy(executable));
    }
    other.over.store(true);
    pthread_join(thread, nullptr);
    CHECK(cudaDeviceSynchronize());
    for (auto &span : other.span) {
        LAUNCH(other.stream, 1, add_to_words, span, 0 - other.turns, 1);
        expect_words(span, 7, 0, span_words(), other.stream, "launched beside captures");
        CHECK(cudaFree(span));
    }
    check_and_free_spans(&set, "after captures beside another thread's launches");
}

/*
 * The program begins a capture before it has any memory that Penstock manages. Its first spans come
 * during the capture, others go, and the captured kernels name spans when they may be away.
 */
static void capture_early(cudaStream_t captured)
{
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable;
    uint32_t *managed;

    CHECK(cudaMallocManaged(&managed, 4096));
    LAUNCH(captured, 1, add_to_words, managed, 0, 1); /* so that no kernel is loaded during the capture */
    LAUNCH(captured, 1, fill_words, managed, 1, 0, 1);
    CHECK(cudaStreamSynchronize(captured));
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK_OR_SKIP(cudaStreamBeginCapture(captured, cudaStreamCaptureModeThreadLocal));
    LAUNCH(captured, 1, add_to_words, managed, 0, 1);
    struct span_set set = new_span_set();
    for (size_t i = 0; i < 2 * span_count; i++)
        LAUNCH(set.stream, span_words(), add_to_words, set.span[i % span_count], 0, span_words());
    crowd_out(&set);
    CHECK(cudaStreamSynchronize(set.stream));
    for (size_t i = 0; i < span_count; i++)
        LAUNCH(captured, span_words(), add_to_words, set.span[i], 1, span_words());
    const cudaError_t result = cudaStreamEndCapture(captured, &graph);
    REQUIRE(result == cudaSuccess, "a capture that began before the first span: %s", cudaGetErrorName(result));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, captured));
    CHECK(cudaStreamSynchronize(captured));
    for (size_t i = 0; i < span_count; i++)
        LAUNCH(set.stream, span_words(), add_to_words, set.span[i], UINT32_MAX, span_words());
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK(cudaFree(managed));
    check_and_free_spans(&set, "named in a capture that began before them");
}

static void case_graph_early(void)
{
    capture_early(new_stream());
}

static void case_graph_early_own(void)
{
    capture_early(cudaStreamPerThread);
}

/* A thread that captures its own default stream, and names these spans. */
struct early_thread {
    uint32_t *span[4];
    std::atomic<int> stage;
};

static void wait_for_stage(const early_thread *early, int stage)
{
    while (early->stage.load() < stage)
        usleep(100);
}

static void *capture_own_early(void *argument)
{
    early_thread *early = static_cast<early_thread *>(argument);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable;

    CHECK_OR_SKIP(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeThreadLocal));
    early->stage.store(1);
    wait_for_stage(early, 2);
    for (uint32_t *span : early->span)
        LAUNCH(cudaStreamPerThread, span_words(), add_to_words, span, 1, span_words());
    early->stage.store(3);
    wait_for_stage(early, 4);
    const cudaError_t result = cudaStreamEndCapture(cudaStreamPerThread, &graph);
    REQUIRE(result == cudaSuccess, "a thread's capture before the first span: %s", cudaGetErrorName(result));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, cudaStreamPerThread));
    CHECK(cudaStreamSynchronize(cudaStreamPerThread));
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    return nullptr;
}

/* The same, where another thread captures. Only that thread can ask the driver about its stream. */
static void case_graph_early_thread(void)
{
    early_thread early = {};
    pthread_t thread;

    CHECK(cudaFree(nullptr));
    REQUIRE(pthread_create(&thread, nullptr, capture_own_early, &early) == 0, "no thread");
    wait_for_stage(&early, 1);
    struct span_set set = new_span_set();
    for (size_t i = 0; i < 4; i++)
        early.span[i] = set.span[i];
    crowd_out(&set);
    early.stage.store(2);
    wait_for_stage(&early, 3);
    crowd_out(&set);
    for (size_t i = 4; i < span_count; i++)
        expect_words(set.span[i], static_cast<uint32_t>(i), 0, span_words(), set.stream, "beside an early capture");
    early.stage.store(4);
    pthread_join(thread, nullptr);
    for (size_t i = 0; i < 4; i++)
        LAUNCH(set.stream, span_words(), add_to_words, set.span[i], UINT32_MAX, span_words());
    check_and_free_spans(&set, "named in a thread's capture that began before them");
}

/*
 * A thread has captured its own default stream before the first span. Its capture is over, and it
 * makes no more calls until the program has used more memory than the budget has.
 */
static void *capture_own_and_rest(void *argument)
{
    early_thread *early = static_cast<early_thread *>(argument);
    cudaGraph_t graph = nullptr;

    CHECK_OR_SKIP(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaStreamEndCapture(cudaStreamPerThread, &graph));
    early->stage.store(1);
    wait_for_stage(early, 2);
    CHECK(cudaGraphDestroy(graph));
    return nullptr;
}

static void case_graph_early_over(void)
{
    early_thread early = {};
    pthread_t thread;

    CHECK(cudaFree(nullptr));
    REQUIRE(pthread_create(&thread, nullptr, capture_own_and_rest, &early) == 0, "no thread");
    wait_for_stage(&early, 1);
    struct span_set set = new_span_set();
    crowd_out(&set);
    check_and_free_spans(&set, "used after a thread's capture");
    early.stage.store(2);
    pthread_join(thread, nullptr);
}

static void case_fork(void)
{
    struct span_set set = new_span_set();

    for (int turn = 0; turn < 3; turn++) {
        pid_t child = fork();

        if (child == 0) {
            if (turn == 0)
                execl("/bin/sh", "sh", "-c", "exit 3", static_cast<char *>(nullptr));
            if (turn == 1)
                exit(4); /* with the exit handlers of the trainer and its libraries */
            _exit(turn == 2 ? 5 : 127);
        }
        expect_child(child, 3 + turn, turn == 0 ? "fork and exec" : turn == 1 ? "fork and exit" : "fork and _exit");
        /* the parent works on in between */
        LAUNCH(set.stream, span_words(), add_to_words, set.span[turn], 1, span_words());
        LAUNCH(set.stream, span_words(), add_to_words, set.span[turn], UINT32_MAX, span_words());
    }
    check_and_free_spans(&set, "after forks");
}

static void leave_work_under_way(void)
{
    struct span_set set = new_span_set();

    for (size_t turn = 0; turn < 2 * span_count; turn++)
        LAUNCH(set.stream, span_words(), add_to_words, set.span[turn % span_count], 1, span_words());
}

/*
 * Many programs end like this: the device is reset with all its memory, while libraries still hold
 * handles to it.
 */
static void case_reset(void)
{
    leave_work_under_way();
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaDeviceReset());
}

static void case_exit(void)
{
    leave_work_under_way();
    printf("ok\n");
    exit(0);
}

static void *exit_in_thread(void *)
{
    printf("ok\n");
    exit(0);
}

static void case_exit_in_thread(void)
{
    pthread_t thread;

    leave_work_under_way();
    REQUIRE(pthread_create(&thread, nullptr, exit_in_thread, nullptr) == 0, "no thread");
    pthread_join(thread, nullptr);
    expect(false, "the program lives on after exit()");
}

static void case_signal(void)
{
    leave_work_under_way();
    printf("ok\n");
    fflush(stdout);
    raise(SIGTERM);
    expect(false, "the program lives on after SIGTERM");
}

#endif
