/*
 * Cases of `orders`: memory is short. Some of it waits for work that is not complete, while other
 * memory is available at once. Part of orders.cu.
 */
#ifndef PENSTOCK_SAMPLES_ORDERS_STALLS_H
#define PENSTOCK_SAMPLES_ORDERS_STALLS_H

#include "green.h"

#define BUSY_STREAMS 20

/* ---- freed beside a capture ---- */

/* Keeps a capture open on a thread of its own, from the constructor to the destructor. */
class capture_beside
{
  public:
    capture_beside() : thread([this] { run(); })
    {
        while (!begun)
            usleep(100);
    }
    capture_beside(const capture_beside &) = delete;
    capture_beside &operator=(const capture_beside &) = delete;
    ~capture_beside()
    {
        enough = true;
        thread.join();
    }

  private:
    void run(void)
    {
        const cudaStream_t captured = new_stream();
        cudaGraph_t graph = nullptr;

        CHECK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeThreadLocal));
        begun = true;
        while (!enough)
            usleep(100);
        CHECK(cudaStreamEndCapture(captured, &graph));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaStreamDestroy(captured));
    }

    std::atomic<bool> begun{false}, enough{false};
    std::thread thread;
};

/* Allocates as many blocks as fit the budget, each used on several of the many streams. */
static void use_on_many(uint32_t **block, const cudaStream_t *streams)
{
    for (unsigned i = 0; i < BUDGET_BLOCKS; i++)
        block[i] = take_for_all(block_bytes);
    for (unsigned i = 0; i < BUDGET_BLOCKS; i++)
        fill(streams[i], block[i], i);
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < BUSY_STREAMS; i++)
        touch(streams[i], block[i % BUDGET_BLOCKS]);
    CHECK(cudaDeviceSynchronize());
}

/* Waits until the streams have nothing to do, by queries. These are no waits that Penstock sees. */
static void query_until_idle(const cudaStream_t *streams)
{
    for (unsigned i = 0; i < BUSY_STREAMS; i++) {
        cudaError_t answer;

        while ((answer = cudaStreamQuery(streams[i])) == cudaErrorNotReady)
            usleep(100);
        CHECK(answer);
    }
}

/*
 * Blocks are freed while another thread captures, which forbids waiting for the device. Later the
 * device is idle, and the program asks for their memory.
 */
static void free_beside_capture(size_t wanted, bool queries)
{
    cudaStream_t streams[BUSY_STREAMS];
    uint32_t *block[BUDGET_BLOCKS];

    for (cudaStream_t &each : streams)
        each = new_stream();
    use_on_many(block, streams);
    {
        capture_beside capture;

        give_for_all(block[0]);
        give_for_all(block[1]);
    }
    if (queries)
        query_until_idle(streams);
    else
        CHECK(cudaDeviceSynchronize());
    uint32_t *more = take_for_all(wanted);
    LAUNCH(streams[0], wanted / sizeof(uint32_t), fill_words, more, 9, 0, wanted / sizeof(uint32_t));
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 2; i < BUDGET_BLOCKS; i++)
        expect_block(block[i], i, "a block that was not freed");
    expect_words(more, 9, 0, wanted / sizeof(uint32_t), streams[0], "the block that came last");
}

static void case_free_beside_capture(void)
{
    free_beside_capture(block_bytes, false);
}

static void case_free_beside_capture_larger(void)
{
    free_beside_capture(2 * block_bytes, false);
}

static void case_free_beside_capture_queried(void)
{
    free_beside_capture(2 * block_bytes, true);
}

/* ---- a wait for the device ---- */

/*
 * One thread waits for the device, where a stream is held that has used no block. Meanwhile another
 * thread needs more memory than is free, and opens the gate only after that.
 */
static void wait_for_device(cudaError_t (*wait)(cudaStream_t held))
{
    const cudaStream_t held = new_stream(), opener = new_stream();
    uint32_t *block[BUDGET_BLOCKS + 5];

    for (unsigned i = 0; i < BUDGET_BLOCKS + 1; i++) { /* one more than fit */
        block[i] = take(opener);
        fill(opener, block[i], i);
    }
    CHECK(cudaStreamSynchronize(opener));
    hold(held, GATE);
    std::thread waiting([=] { CHECK(wait(held)); });
    usleep(50000); /* the thread waits by now, or soon will */
    for (unsigned i = BUDGET_BLOCKS + 1; i < BUDGET_BLOCKS + 5; i++) {
        block[i] = take(opener);
        fill(opener, block[i], i);
    }
    open_on(opener, GATE);
    waiting.join();
    for (unsigned i = 0; i < BUDGET_BLOCKS + 5; i++)
        expect_block(block[i], i, "a block beside a wait for the device");
}

static void case_device_wait(void)
{
    wait_for_device([](cudaStream_t) { return cudaDeviceSynchronize(); });
}

/* A green context is current in the waiting thread; the runtime's wait is for all streams, too. */
static void case_device_wait_green(void)
{
    static CUcontext current; /* for the thread */
    const CUgreenCtx green = new_green_context(&current);

    wait_for_device([](cudaStream_t) {
        DRIVER_CALL(cuCtxSetCurrent, current);
        return cudaDeviceSynchronize();
    });
    DRIVER_CALL(cuGreenCtxDestroy, green);
}

static void case_stream_wait(void)
{
    wait_for_device([](cudaStream_t held) { return cudaStreamSynchronize(held); });
}

static void case_event_wait(void)
{
    wait_for_device([](cudaStream_t held) {
        cudaEvent_t event = nullptr;

        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        CHECK(cudaEventRecord(event, held));
        return cudaEventSynchronize(event);
    });
}

/* ---- the blocks that have been idle longest ---- */

/* The oldest blocks are in use behind the gate; others could leave at once. */
static void oldest_waits(unsigned waiting)
{
    const cudaStream_t held = new_stream(), opener = new_stream();
    uint32_t *block[BUDGET_BLOCKS + 2];

    for (unsigned i = 0; i < BUDGET_BLOCKS; i++)
        block[i] = take(opener);
    CHECK(cudaStreamSynchronize(opener));
    hold(held, GATE);
    for (unsigned i = 0; i < BUDGET_BLOCKS; i++)
        fill(i < waiting ? held : opener, block[i], i);
    for (unsigned i = BUDGET_BLOCKS; i < BUDGET_BLOCKS + 2; i++) {
        block[i] = take(opener);
        fill(opener, block[i], i);
    }
    open_on(opener, GATE);
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < BUDGET_BLOCKS + 2; i++)
        expect_block(block[i], i, "a block beside one whose stream waits");
}

static void case_oldest_waits(void)
{
    oldest_waits(1);
}

static void case_oldest_wait_many(void)
{
    oldest_waits(5);
}

/*
 * All blocks are in use behind the gate. The request must wait for none of them, because only later
 * work opens the gate.
 */
static void case_all_wait(void)
{
    oldest_waits(BUDGET_BLOCKS);
}

/*
 * The same in each step of a loop. A thread that has learnt in the first steps that only later work
 * opens the gate waits less in the next ones.
 */
static void case_all_wait_steps(void)
{
    const cudaStream_t held = new_stream(), opener = new_stream();
    uint32_t *block[BUDGET_BLOCKS + 2];

    for (uint32_t *&each : block)
        each = take(opener);
    CHECK(cudaStreamSynchronize(opener));
    for (unsigned step = 1; step <= 3; step++) {
        hold(held, GATE, step);
        for (unsigned i = 0; i < BUDGET_BLOCKS + 2; i++)
            fill(i < BUDGET_BLOCKS ? held : opener, block[i], step + i);
        open_on(opener, GATE, step);
        CHECK(cudaDeviceSynchronize());
        for (unsigned i = 0; i < BUDGET_BLOCKS + 2; i++)
            expect_block(block[i], step + i, "a block beside others whose stream waits");
    }
}

/* ---- a launch that blocks in its call ---- */

#define STANDING_ROUNDS 4
#define LAUNCHES_BESIDE 100 /* more launches than a grace has */

/*
 * Queues more work than a stream has room for, on a device that was given a short queue
 * (CUDASIM_QUEUE). There the call blocks.
 */
static void fill_queue(cudaStream_t stream, uint32_t *word)
{
    for (unsigned i = 0; i < 64; i++)
        CHECK(cudaMemsetAsync(word, 0, sizeof(*word), stream));
}

/* Gives another thread time to block in its call, unless it ends. */
static void wait_until_standing(const std::atomic<bool> &is_over)
{
    for (unsigned i = 0; i < 100 && !is_over; i++)
        usleep(1000);
}

/*
 * A thread's launch uses two blocks through a table that a kernel has just made. It blocks in its
 * call because the stream's queue is full. Meanwhile another thread makes many launches, for which
 * there is too little memory.
 */
static void case_launch_stands(void)
{
    const uint64_t mask = 0x5555555555555555ull;
    const cudaStream_t held = new_stream(), beside = new_stream();
    uint32_t *a = take_for_all(block_bytes), *b = take_for_all(block_bytes), *out = nullptr;
    uint64_t *table = nullptr;

    CHECK(cudaMalloc(&table, 2 * sizeof(*table)));
    CHECK(cudaMalloc(&out, 4 * sizeof(*out)));
    for (unsigned round = 1; round <= STANDING_ROUNDS; round++) {
        std::atomic<bool> is_full{false}, is_over{false};
        uint32_t host[2];

        fill(held, a, 2 * round);
        fill(held, b, 2 * round + 1);
        LAUNCH(held, 2, write_disguised_pair, table, a, b, mask, 2);
        CHECK(cudaDeviceSynchronize());
        hold(held, GATE, round);
        std::thread filling([&] {
            fill_queue(held, out + 2);
            is_full = true;
        });
        wait_until_standing(is_full);
        std::thread standing([&] {
            LAUNCH(held, 2, gather_disguised, out, table, mask, 2);
            is_over = true;
        });
        wait_until_standing(is_over);
        for (unsigned i = 0; i < LAUNCHES_BESIDE; i += 10) {
            uint32_t *block[10];

            for (unsigned k = 0; k < 10; k++) {
                block[k] = take(beside);
                fill(beside, block[k], i + k);
            }
            for (uint32_t *each : block)
                give(each, beside);
        }
        open_on(beside, GATE, round);
        filling.join();
        standing.join();
        CHECK(cudaMemcpyAsync(host, out, sizeof(host), cudaMemcpyDeviceToHost, held));
        CHECK(cudaStreamSynchronize(held));
        expect(host[0] == word_at(2 * round, 0) && host[1] == word_at(2 * round + 1, 0),
               "round %u: words found by a table are wrong", round);
    }
    CHECK(cudaFree(table));
    CHECK(cudaFree(out));
}

/* Captures a copy and launches nothing. The driver looks at the addresses of the graph's copy. */
static void capture_copy(cudaStream_t stream, uint32_t *to, const uint32_t *from)
{
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemcpyAsync(to, from, block_bytes, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphExecDestroy(executable));
}

#define GATHERS 40

/*
 * A thread's launches use two blocks through a table, after the blocks have left. Meanwhile another
 * thread captures copies of these blocks.
 */
static void case_look_beside_table(void)
{
    const uint64_t mask = 0x5555555555555555ull;
    const cudaStream_t stream = new_stream(), captured = new_stream();
    uint32_t *block[BUDGET_BLOCKS + 2], *out = nullptr;
    uint64_t *table = nullptr;

    for (uint32_t *&each : block)
        each = take_for_all(block_bytes);
    CHECK(cudaMalloc(&table, 2 * sizeof(*table)));
    CHECK(cudaMalloc(&out, 2 * GATHERS * sizeof(*out)));
    for (unsigned round = 1; round <= STANDING_ROUNDS; round++) {
        std::atomic<bool> enough{false};
        uint32_t host[2 * GATHERS];
        unsigned wrong = 0;

        fill(stream, block[0], 2 * round);
        fill(stream, block[1], 2 * round + 1);
        LAUNCH(stream, 2, write_disguised_pair, table, block[0], block[1], mask, 2);
        for (unsigned i = 2; i < BUDGET_BLOCKS + 2; i++)
            fill(stream, block[i], i);
        CHECK(cudaDeviceSynchronize());
        std::thread looking([&] {
            while (!enough)
                capture_copy(captured, block[0], block[1]);
        });
        for (unsigned i = 0; i < GATHERS; i++) {
            LAUNCH(stream, 2, gather_disguised, out + 2 * i, table, mask, 2);
            usleep(1000);
        }
        enough = true;
        looking.join();
        CHECK(cudaMemcpyAsync(host, out, sizeof(host), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (unsigned i = 0; i < 2 * GATHERS; i++)
            wrong += host[i] != word_at(2 * round + i % 2, 0);
        expect(wrong == 0, "round %u: %u words found by a table are wrong", round, wrong);
    }
    CHECK(cudaFree(table));
    CHECK(cudaFree(out));
}

/*
 * All memory is freed. The blocks that were freed first are in use behind the gate; the last two
 * are idle.
 */
static void case_freed_wait_many(void)
{
    const cudaStream_t held = new_stream(), opener = new_stream();
    uint32_t *block[BUDGET_BLOCKS];

    for (unsigned i = 0; i < BUDGET_BLOCKS; i++) {
        block[i] = take(opener);
        fill(opener, block[i], i);
    }
    CHECK(cudaDeviceSynchronize());
    hold(held, GATE);
    for (unsigned i = 0; i < BUDGET_BLOCKS - 2; i++)
        touch(held, block[i]);
    for (unsigned i = 0; i < BUDGET_BLOCKS; i++)
        give(block[i], i < BUDGET_BLOCKS - 2 ? held : opener);
    uint32_t *more = take_bytes(2 * block_bytes, opener);
    LAUNCH(opener, 2 * block_words(), fill_words, more, 9, 0, 2 * block_words());
    open_on(opener, GATE);
    CHECK(cudaDeviceSynchronize());
    expect_words(more, 9, 0, 2 * block_words(), opener, "the block that came last");
}

#endif
