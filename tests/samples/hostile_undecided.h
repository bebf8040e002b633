/*
 * Cases of `hostile`: tables of kernels about which Penstock has not decided yet whether they write
 * tables, or must decide again. Part of hostile.cu, after hostile_makers.h.
 */
#ifndef PENSTOCK_SAMPLES_HOSTILE_UNDECIDED_H
#define PENSTOCK_SAMPLES_HOSTILE_UNDECIDED_H

#include <thread>
#include <vector>

MAKER(write_after_failures)
MAKER(write_known)
MAKER(write_late)
MAKER(write_first_of_many)
MAKER(write_many)
MAKER(write_after_contexts)

KERNEL(add_maybe, (uint32_t * out, const uint32_t *mask, size_t masked, size_t count), (out, mask, masked, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] += i < masked ? mask[i] : 0;
}

/* The kernel's first launches fail, as their blocks have too many threads. They make no table. */
static void case_made_after_failures(void)
{
    struct made_table made = new_made_table();

    for (size_t i = 0; i < 5; i++) {
        write_after_failures<<<1, 4096, 0, made.set.stream>>>(made.table, made.named[0], made.named[1], 2);
        expect(cudaGetLastError() != cudaSuccess, "a block of 4096 threads is launched");
        CHECK(cudaStreamSynchronize(made.set.stream));
    }
    LAUNCH(made.set.stream, 2, write_after_failures, made.table, made.named[0], made.named[1], 2);
    CHECK(cudaStreamSynchronize(made.set.stream));
    expect_through_table(&made.set, made.out, made.table, made.span, 2, "a table whose kernel failed before");
    check_and_free_made(&made, "after a table whose kernel failed before");
}

static void take_a_while(void *)
{
    usleep(20000);
}

/*
 * Two kernels write the same table. The second is known to do so already. What is then decided
 * about the first is too late.
 */
static void case_made_anew(void)
{
    struct made_table made = new_made_table();
    const uint32_t **other;

    CHECK(cudaMalloc(&other, TABLE_WORDS * sizeof(*other)));
    for (size_t turn = 0; turn < 4; turn++) {
        LAUNCH(made.set.stream, 2, write_known, other, made.named[2], made.named[3], 2);
        CHECK(cudaStreamSynchronize(made.set.stream));
        LAUNCH(made.set.stream, 1, add_to_words, made.set.span[3], 0, 1);
    }
    CHECK(cudaLaunchHostFunc(made.set.stream, take_a_while,
                             nullptr)); /* so that both are launched before the first runs */
    LAUNCH(made.set.stream, 2, write_late, made.table, made.named[2], made.named[3], 2);
    LAUNCH(made.set.stream, 2, write_known, made.table, made.named[0], made.named[1], 2);
    CHECK(cudaStreamSynchronize(made.set.stream));
    expect_through_table(&made.set, made.out, made.table, made.span, 2, "a table that a second kernel wrote anew");
    CHECK(cudaFree(other));
    check_and_free_made(&made, "after a table that a second kernel wrote anew");
}

#define MANY 2400 /* more launches than are remembered */

/* A graph makes one table, and then another one again and again. */
static void case_made_by_many(void)
{
    struct made_table made = new_made_table();
    const uint32_t **other;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;

    CHECK(cudaMalloc(&other, TABLE_WORDS * sizeof(*other)));
    CHECK(cudaStreamSynchronize(made.set.stream));
    CHECK(cudaStreamBeginCapture(made.set.stream, cudaStreamCaptureModeGlobal));
    LAUNCH(made.set.stream, 2, write_first_of_many, made.table, made.named[0], made.named[1], 2);
    for (size_t i = 0; i < MANY; i++)
        LAUNCH(made.set.stream, 2, write_many, other, made.named[2], made.named[3], 2);
    CHECK(cudaStreamEndCapture(made.set.stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphLaunch(executable, made.set.stream));
    expect_through_table(&made.set, made.out, made.table, made.span, 2, "a table of a graph that makes many");
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaFree(other));
    check_and_free_made(&made, "after a graph that makes many tables");
}

/* ---- contexts come and go ---- */

#define EIGHT(each, name)                                                                                              \
    each(name##0) each(name##1) each(name##2) each(name##3) each(name##4) each(name##5) each(name##6) each(name##7)
#define SIXTY_FOUR(each)                                                                                               \
    EIGHT(each, write_a)                                                                                               \
    EIGHT(each, write_b)                                                                                               \
    EIGHT(each, write_c)                                                                                               \
    EIGHT(each, write_d)                                                                                               \
    EIGHT(each, write_e)                                                                                               \
    EIGHT(each, write_f)                                                                                               \
    EIGHT(each, write_g)                                                                                               \
    EIGHT(each, write_h)
SIXTY_FOUR(MAKER)
#define LEARNT 4200 /* more kernels than are remembered */

static void come_and_go(unsigned microseconds)
{
    CUcontext context, popped;

    DRIVER_CALL(cuCtxCreate_v4, &context, nullptr, 0, 0);
    DRIVER_CALL(cuCtxPopCurrent_v2, &popped);
    usleep(microseconds);
    DRIVER_CALL(cuCtxDestroy_v2, context);
}

/* A context's end makes kernels new ones, as their handles may come again. */
static void case_made_after_contexts(void)
{
    struct made_table made = new_made_table();
    const uint32_t **other;

    CHECK(cudaMalloc(&other, TABLE_WORDS * sizeof(*other)));
    for (size_t learnt = 0; learnt < LEARNT; learnt += 64) {
#define WRITE_OTHER(name) LAUNCH(made.set.stream, 2, name, other, made.named[2], made.named[3], 2);
        SIXTY_FOUR(WRITE_OTHER)
        CHECK(cudaStreamSynchronize(made.set.stream));
        come_and_go(0);
    }
    LAUNCH(made.set.stream, 2, write_after_contexts, made.table, made.named[0], made.named[1], 2);
    CHECK(cudaStreamSynchronize(made.set.stream));
    expect_through_table(&made.set, made.out, made.table, made.span, 2, "a table made after contexts went");
    CHECK(cudaFree(other));
    check_and_free_made(&made, "after contexts that came and went");
}

/* Memory and a random number of a thread that makes tables. */
struct making_thread {
    cudaStream_t stream;
    uint64_t random;
    uint32_t *span[6], *out;
    const uint32_t **table[4], **copy;
};

static size_t below(struct making_thread *t, size_t bound)
{
    t->random = mix_bits(t->random + 1);
    return static_cast<size_t>(t->random % bound);
}

static void write_table(struct making_thread *t, size_t kernel, const uint32_t *a, const uint32_t *b)
{
    switch (kernel) {
    case 0:
        LAUNCH(t->stream, 2, write_a0, t->table[0], a, b, 2);
        break;
    case 1:
        LAUNCH(t->stream, 2, write_a1, t->table[1], a, b, 2);
        break;
    case 2:
        LAUNCH(t->stream, 2, write_a2, t->table[2], a, b, 2);
        break;
    default:
        LAUNCH(t->stream, 2, write_a3, t->table[3], a, b, 2);
        break;
    }
}

/* The table may be copied at once, and freed. Other spans are used before it is read. */
static void make_copy_and_read(struct making_thread *t, uint32_t number)
{
    const size_t kernel = below(t, 4), a = below(t, 6), b = (a + 1 + below(t, 5)) % 6;
    const bool is_copied = below(t, 3) == 0;
    uint32_t host[2];

    write_table(t, kernel, t->span[a], t->span[b]);
    const uint32_t **made = t->table[kernel];
    if (is_copied) {
        CHECK(cudaMemcpyAsync(t->copy, made, 2 * sizeof(*made), cudaMemcpyDeviceToDevice, t->stream));
        CHECK(cudaFreeAsync(made, t->stream));
        CHECK(cudaMallocAsync(&t->table[kernel], TABLE_WORDS * sizeof(*made), t->stream));
        made = t->copy;
    }
    for (size_t i = below(t, 6); i > 0; i--)
        LAUNCH(t->stream, 1, add_to_words, t->span[below(t, 6)], 0, 1);
    LAUNCH(t->stream, 2, gather_by_table, t->out, made, 2, 5);
    CHECK(cudaMemcpyAsync(host, t->out, sizeof(host), cudaMemcpyDeviceToHost, t->stream));
    CHECK(cudaStreamSynchronize(t->stream));
    expect(host[0] == word_at(number + static_cast<uint32_t>(a), 5) &&
               host[1] == word_at(number + static_cast<uint32_t>(b), 5),
           "a table of a thread has wrong words");
}

static void make_in_thread(uint32_t number, std::atomic<unsigned> *running)
{
    struct making_thread t = {};

    t.stream = new_stream();
    t.random = number;
    t.out = new_span();
    for (uint32_t i = 0; i < 6; i++) {
        t.span[i] = new_span();
        LAUNCH(t.stream, span_words(), fill_words, t.span[i], number + i, 0, span_words());
    }
    for (auto &each : t.table)
        CHECK(cudaMallocAsync(&each, TABLE_WORDS * sizeof(*each), t.stream));
    CHECK(cudaMallocAsync(&t.copy, TABLE_WORDS * sizeof(*t.copy), t.stream));
    for (size_t turn = 0; turn < 30; turn++)
        make_copy_and_read(&t, number);
    for (auto &each : t.table)
        CHECK(cudaFreeAsync(each, t.stream));
    CHECK(cudaFreeAsync(t.copy, t.stream));
    CHECK(cudaStreamSynchronize(t.stream));
    for (auto &each : t.span)
        CHECK(cudaFree(each));
    CHECK(cudaFree(t.out));
    CHECK(cudaStreamDestroy(t.stream));
    running->fetch_sub(1);
}

static void case_made_by_threads(void)
{
    std::atomic<unsigned> running(3);
    std::vector<std::thread> threads;

    CHECK(cudaFree(nullptr));
    for (uint32_t i = 0; i < 3; i++)
        threads.emplace_back(make_in_thread, 100 * i, &running);
    while (running.load() > 0)
        come_and_go(2000);
    for (auto &each : threads)
        each.join();
}

/* ---- memory that a kernel is given and does not touch ---- */

static std::atomic<bool> may_go_on;

/* Waits for the program, for a second at most. */
static void wait_for_program(void *)
{
    for (int i = 0; i < 1000 && !may_go_on.load(); i++)
        usleep(1000);
}

/* The program frees the memory on another stream while the kernel's stream still waits. */
static void case_freed_untouched(void)
{
    struct span_set set = new_span_set();
    const cudaStream_t other = new_stream();
    cudaMemPool_t pool;
    uint32_t *mask;

    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    for (size_t turn = 0; turn < 4; turn++) {
        CHECK(cudaMallocAsync(&mask, 2048, other));
        CHECK(cudaStreamSynchronize(other));
        LAUNCH(set.stream, 1, add_to_words, set.span[turn], 0, 1); /* so that the span is there */
        CHECK(cudaStreamSynchronize(set.stream));
        may_go_on.store(false);
        CHECK(cudaLaunchHostFunc(set.stream, wait_for_program, nullptr));
        LAUNCH(set.stream, 16, add_maybe, set.span[turn], mask, 0, 16);
        if (turn % 2 == 0)
            CHECK(cudaFreeAsync(mask, other));
        else
            CHECK(cudaFree(mask)); /* of a pool: it waits for nothing */
        CHECK(cudaStreamSynchronize(other));
        for (int i = 0; i < 2; i++) { /* a free that comes with the first one has run before the second */
            CHECK(cudaMemPoolTrimTo(pool, 0));
            CHECK(cudaStreamSynchronize(other));
        }
        may_go_on.store(true);
        CHECK(cudaStreamSynchronize(set.stream));
    }
    CHECK(cudaStreamDestroy(other));
    check_and_free_spans(&set, "after memory that was freed untouched");
}

#endif
