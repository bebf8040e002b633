/*
 * Cases of `orders`: a block that several streams read comes back while one of them is held at a
 * gate. Work of another stream opens the gate. Part of orders.cu.
 *
 * Memory is short and two blocks are away. The held stream frees a block that it uses behind the
 * gate. Only work that comes after this stream anyway may have that memory.
 */
#ifndef PENSTOCK_SAMPLES_ORDERS_SHARED_H
#define PENSTOCK_SAMPLES_ORDERS_SHARED_H

#define READ_WORDS 64u

struct shared_blocks {
    cudaStream_t held, opener;
    uint32_t *block[BUDGET_BLOCKS]; /* blocks 0 and 1 are away */
    uint32_t *late;                 /* the held stream uses and frees it behind the gate */
    uint32_t *idle;                 /* its last use is complete; the opener frees it */
    uint32_t *read[2];              /* where each stream copies the words it reads; too small to be evicted */
};

static void read_block(struct shared_blocks *s, cudaStream_t stream, unsigned i)
{
    LAUNCH(stream, READ_WORDS, copy_words, s->read[stream == s->opener], s->block[i], READ_WORDS);
}

/* Returns when the streams of `readers` have read all blocks and blocks 0 and 1 have left. */
static struct shared_blocks share_blocks(cudaStream_t held, cudaStream_t opener,
                                         std::initializer_list<cudaStream_t> readers)
{
    struct shared_blocks s = {held, opener, {}, nullptr, nullptr, {}};

    for (uint32_t *&each : s.read)
        each = take_for_all(READ_WORDS * sizeof(uint32_t));
    for (unsigned i = 0; i < BUDGET_BLOCKS; i++) {
        s.block[i] = take(held);
        fill(held, s.block[i], i);
    }
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < BUDGET_BLOCKS; i++)
        for (const cudaStream_t reader : readers)
            read_block(&s, reader, i);
    CHECK(cudaDeviceSynchronize());
    s.late = take(held);
    fill(held, s.late, 100);
    s.idle = take(opener);
    fill(opener, s.idle, 101);
    for (unsigned i = 2; i < BUDGET_BLOCKS; i++)
        touch(opener, s.block[i]);
    CHECK(cudaDeviceSynchronize());
    usleep(200000); /* until all evictions are complete */
    return s;
}

/*
 * From here on, memory is available to the held stream alone behind the gate, or from the idle
 * block.
 */
static void hold_memory(struct shared_blocks *s)
{
    hold(s->held, GATE);
    touch(s->held, s->late);
    give(s->late, s->held);
    give(s->idle, s->opener);
}

static void expect_shared(struct shared_blocks *s, unsigned read_last)
{
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < BUDGET_BLOCKS; i++)
        expect_block(s->block[i], i, "a block that several streams read");
    for (const uint32_t *each : s->read)
        expect_words(each, read_last, 0, READ_WORDS, s->opener, "what one of them read");
}

/* Both streams read the block, first the held one. The second one then opens the gate. */
static void read_by_both(struct shared_blocks *s, unsigned i)
{
    read_block(s, s->held, i);
    read_block(s, s->opener, i);
    open_on(s->opener, GATE);
    expect_shared(s, i);
}

static void reload_for_another(cudaStream_t held, cudaStream_t opener)
{
    struct shared_blocks s = share_blocks(held, opener, {held, opener});

    hold_memory(&s);
    read_by_both(&s, 0);
}

static void case_reload_for_another(void)
{
    reload_for_another(new_stream(), new_stream());
}

static void case_reload_for_another_legacy(void)
{
    reload_for_another(nullptr, new_stream());
}

static void case_reload_for_another_to_legacy(void)
{
    reload_for_another(new_stream(), nullptr);
}

static void case_reload_for_another_per_thread(void)
{
    reload_for_another(cudaStreamPerThread, new_stream());
}

/* The opener has read the other blocks, but never this one. */
static void case_reload_for_another_first(void)
{
    const cudaStream_t held = new_stream(), opener = new_stream();
    struct shared_blocks s = share_blocks(held, opener, {held});

    hold_memory(&s);
    read_by_both(&s, 0);
}

/* The host opens the gate when the opener has read the block. */
static void case_reload_for_another_host(void)
{
    struct shared_blocks s = share_blocks(new_stream(), new_stream(), {});

    read_block(&s, s.opener, 7);
    hold_memory(&s);
    read_block(&s, s.held, 0);
    read_block(&s, s.opener, 0);
    CHECK(cudaStreamSynchronize(s.opener));
    open_from_host(GATE);
    expect_shared(&s, 0);
}

/*
 * There is memory for the block that both streams read. Only the held stream reads the block before
 * it.
 */
static void case_reload_for_another_behind(void)
{
    struct shared_blocks s = share_blocks(new_stream(), new_stream(), {});

    hold_memory(&s);
    read_block(&s, s.held, 0);
    read_by_both(&s, 1);
}

/*
 * Only one stream has kernels. The host copies a block that the stream reads, as it did before, and
 * then opens the gate.
 */
static void case_reload_for_another_copied(void)
{
    const cudaStream_t held = new_stream();
    struct shared_blocks s = share_blocks(held, held, {held});
    uint32_t copied = 0;

    CHECK(cudaMemcpy(&copied, s.block[0], sizeof(copied), cudaMemcpyDeviceToHost));
    for (unsigned i = 1; i < BUDGET_BLOCKS; i++)
        touch(held, s.block[i]);
    touch(held, s.late);
    CHECK(cudaDeviceSynchronize());
    usleep(200000); /* until the block has left once more */
    hold_memory(&s);
    read_block(&s, held, 0);
    CHECK(cudaMemcpy(&copied, s.block[0], sizeof(copied), cudaMemcpyDeviceToHost));
    open_from_host(GATE);
    expect(copied == word_at(0, 0), "what the host copied is wrong");
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < BUDGET_BLOCKS; i++)
        expect_block(s.block[i], i, "a block that the host copies, too");
}

/* All blocks that fit are in use behind the gate. */
static void case_reload_for_another_all(void)
{
    const cudaStream_t held = new_stream(), opener = new_stream();
    struct shared_blocks s = share_blocks(held, opener, {held, opener});

    hold(held, GATE);
    for (unsigned i = 2; i < BUDGET_BLOCKS; i++)
        touch(held, s.block[i]);
    for (uint32_t *each : {s.late, s.idle}) {
        touch(held, each);
        give(each, held);
    }
    read_by_both(&s, 0);
}

/* A third stream reads the block, and the opener waits for that read by an event. */
static void case_reload_for_another_third(void)
{
    const cudaStream_t held = new_stream(), opener = new_stream(), third = new_stream();
    struct shared_blocks s = share_blocks(held, opener, {held, opener, third});
    cudaEvent_t event = nullptr;

    hold_memory(&s);
    read_block(&s, held, 0);
    read_block(&s, third, 0);
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventRecord(event, third));
    CHECK(cudaStreamWaitEvent(opener, event, 0));
    read_by_both(&s, 0);
    CHECK(cudaEventDestroy(event));
}

/*
 * In each step of a loop both streams read a block that is away. From some step on, a plan brings
 * it back.
 */
static void case_reload_for_another_steps(void)
{
    struct shared_blocks s = share_blocks(new_stream(), new_stream(), {});

    for (unsigned step = 1; step <= 12; step++) {
        for (unsigned i = 0; i < BUDGET_BLOCKS; i++)
            touch(s.held, s.block[i]);
        touch(s.held, s.idle);
        touch(s.held, s.late);
        CHECK(cudaDeviceSynchronize());
        hold(s.held, GATE, step);
        touch(s.held, s.late);
        give(s.late, s.held);
        read_block(&s, s.held, 0);
        read_block(&s, s.opener, 0);
        open_on(s.opener, GATE, step);
        s.late = take(s.held);
    }
    give(s.late, s.held);
    expect_shared(&s, 0);
}

/* Enough blocks are freed that the two may come back before any launch names them. */
static void case_reload_for_another_early(void)
{
    const cudaStream_t held = new_stream(), opener = new_stream();
    struct shared_blocks s = share_blocks(held, opener, {opener, held});

    hold(held, GATE);
    for (unsigned i = 4; i < BUDGET_BLOCKS; i++) {
        touch(held, s.block[i]);
        give(s.block[i], held);
    }
    for (uint32_t *each : {s.late, s.idle}) {
        touch(held, each);
        give(each, held);
    }
    usleep(200000);
    read_block(&s, opener, 0);
    read_block(&s, opener, 1);
    open_on(opener, GATE);
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < 4; i++)
        expect_block(s.block[i], i, "a block that several streams read");
}

#endif
