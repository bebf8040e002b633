/*
 * Cases of `orders`: work that does not depend on other work must not wait for it. Part of
 * orders.cu.
 */
#ifndef PENSTOCK_SAMPLES_ORDERS_WAITS_H
#define PENSTOCK_SAMPLES_ORDERS_WAITS_H

#define ROUNDS 10
#define MOST_STREAMS 3

/* ---- streams side by side ---- */

/*
 * Each stream in turn allocates a block, uses it and frees it. The host is far ahead. The ledger of
 * a simulated device gives the length of the longest chain.
 */
static void rounds_on(const cudaStream_t *streams, unsigned count)
{
    for (unsigned round = 0; round < ROUNDS; round++)
        for (unsigned i = 0; i < count; i++) {
            uint32_t *block = take(streams[i]);

            fill(streams[i], block, round);
            give(block, streams[i]);
        }
}

static void case_turns(void)
{
    const cudaStream_t streams[2] = {new_stream(), new_stream()};

    rounds_on(streams, 2);
}

static void case_turns_of_three(void)
{
    const cudaStream_t streams[3] = {new_stream(), new_stream(), new_stream()};

    rounds_on(streams, 3);
}

static void case_turns_blocking(void)
{
    const cudaStream_t streams[2] = {new_blocking_stream(), new_blocking_stream()};

    rounds_on(streams, 2);
}

static void case_turns_of_threads(void)
{
    std::thread threads[2];

    for (std::thread &each : threads)
        each = std::thread([] {
            const cudaStream_t own = cudaStreamPerThread;

            rounds_on(&own, 1);
            CHECK(cudaStreamSynchronize(own));
        });
    for (std::thread &each : threads)
        each.join();
}

/*
 * In each round every stream signals that it has arrived. It uses and frees its block only when all
 * the others have arrived too. Only streams that run side by side complete this.
 */
static void meet(const cudaStream_t *streams, unsigned count, size_t bytes_more)
{
    uint32_t *last[MOST_STREAMS] = {};

    for (unsigned round = 1; round <= ROUNDS; round++)
        for (unsigned i = 0; i < count; i++) {
            last[i] = take_bytes(block_bytes + i * bytes_more, streams[i]);
            open_on(streams[i], i, round);
            for (unsigned other = 0; other < count; other++)
                if (other != i)
                    hold(streams[i], other, round);
            fill(streams[i], last[i], 100 * i + round);
            if (round < ROUNDS)
                give(last[i], streams[i]);
        }
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < count; i++)
        expect_block(last[i], 100 * i + ROUNDS, "a stream that meets others");
}

static void case_meeting(void)
{
    const cudaStream_t streams[2] = {new_stream(), new_stream()};

    meet(streams, 2, 0);
}

static void case_meeting_of_three(void)
{
    const cudaStream_t streams[3] = {new_stream(), new_stream(), new_stream()};

    meet(streams, 3, 0);
}

static void case_meeting_blocking(void)
{
    const cudaStream_t streams[2] = {new_blocking_stream(), new_blocking_stream()};

    meet(streams, 2, 0);
}

/* Blocks of similar sizes: one stream's freed block is large enough for another's request. */
static void case_meeting_alike(void)
{
    const cudaStream_t streams[3] = {new_stream(), new_stream(), new_stream()};

    meet(streams, 3, block_bytes / 4);
}

/* ---- memory whose last use is still to come ---- */

/* Frees blocks on the stream behind a gate. The work that uses them has not run. */
static void free_behind_gate(cudaStream_t held, unsigned blocks)
{
    uint32_t *block[MOST_BLOCKS];

    for (unsigned i = 0; i < blocks; i++)
        block[i] = take(held);
    hold(held, GATE);
    for (unsigned i = 0; i < blocks; i++) {
        fill(held, block[i], 1);
        give(block[i], held);
    }
}

/* Fills the opener's own block before the opener opens the gate. */
static void open_after_use(cudaStream_t opener, uint32_t *block, size_t bytes)
{
    const size_t words = bytes / sizeof(uint32_t);

    LAUNCH(opener, words, fill_words, block, 2, 0, words);
    open_on(opener, GATE);
    CHECK(cudaStreamSynchronize(opener));
    expect_words(block, 2, 0, words, opener, "the block of the stream that opens the gate");
    CHECK(cudaDeviceSynchronize());
}

static void async_behind(cudaStream_t held, cudaStream_t opener, unsigned blocks, size_t bytes)
{
    free_behind_gate(held, blocks);
    uint32_t *block = take_bytes(bytes, opener);
    open_after_use(opener, block, bytes);
    give(block, opener);
}

static void malloc_behind(cudaStream_t held, cudaStream_t opener, unsigned blocks, size_t bytes)
{
    free_behind_gate(held, blocks);
    uint32_t *block = take_for_all(bytes);
    open_after_use(opener, block, bytes);
    give_for_all(block);
}

static void case_async_behind_wait(void)
{
    async_behind(new_stream(), new_stream(), 1, block_bytes);
}

static void case_async_behind_wait_blocking(void)
{
    async_behind(new_blocking_stream(), new_blocking_stream(), 1, block_bytes);
}

static void case_async_behind_wait_smaller(void)
{
    async_behind(new_stream(), new_stream(), 3, block_bytes - block_bytes / 4);
}

static void case_async_behind_wait_larger(void)
{
    async_behind(new_stream(), new_stream(), 3, 2 * block_bytes);
}

static void case_async_behind_wait_per_thread(void)
{
    async_behind(new_stream(), cudaStreamPerThread, 1, block_bytes);
}

static void case_async_behind_wait_thread(void)
{
    const cudaStream_t opener = new_stream();
    uint32_t *block = nullptr;

    free_behind_gate(cudaStreamPerThread, 2);
    std::thread([&] {
        block = take(opener);
        open_after_use(opener, block, block_bytes);
    }).join();
    give(block, opener);
}

/* A third stream allocates and frees blocks too, and may finish before the gate is opened. */
static void case_async_behind_wait_third(void)
{
    const cudaStream_t held = new_stream(), third = new_stream(), opener = new_stream();

    free_behind_gate(held, 2);
    rounds_on(&third, 1);
    CHECK(cudaStreamSynchronize(third));
    rounds_on(&opener, 1);
    open_on(opener, GATE);
    CHECK(cudaDeviceSynchronize());
}

static void case_malloc_behind_wait(void)
{
    malloc_behind(new_stream(), new_stream(), 1, block_bytes);
}

static void case_malloc_behind_wait_blocking(void)
{
    malloc_behind(new_blocking_stream(), new_blocking_stream(), 1, block_bytes);
}

static void case_malloc_behind_wait_smaller(void)
{
    malloc_behind(new_stream(), new_stream(), 3, block_bytes - block_bytes / 4);
}

static void case_malloc_behind_wait_larger(void)
{
    malloc_behind(new_stream(), new_stream(), 3, 2 * block_bytes);
}

/* The same after steps of a loop, when Penstock may have preallocated for its requests. */
static void case_malloc_behind_wait_steps(void)
{
    const cudaStream_t held = new_stream(), opener = new_stream();

    for (unsigned step = 0; step < 12; step++) {
        uint32_t *kept[3];

        for (uint32_t *&each : kept) {
            each = take_for_all(block_bytes);
            fill(opener, each, step);
        }
        rounds_on(&opener, 1);
        for (uint32_t *each : kept)
            give_for_all(each);
        CHECK(cudaStreamSynchronize(opener));
    }
    malloc_behind(held, opener, 2, block_bytes);
}

/*
 * cudaFree may wait for the device. So the host opens the gate, and the work of other streams goes
 * on meanwhile.
 */
static void case_free_behind_wait(void)
{
    const cudaStream_t held = new_stream(), other = new_stream();
    uint32_t *block = take_for_all(block_bytes), *read = take_for_all(2 * block_bytes), *next = nullptr;

    fill(held, block, 1);
    CHECK(cudaStreamSynchronize(held));
    hold(held, GATE);
    copy(held, read, block);
    {
        later_opening opening(GATE);

        give_for_all(block);
        next = take(other);
        fill(other, next, 2);
        give_a_chance(other);
        opening.now();
    }
    CHECK(cudaDeviceSynchronize());
    expect_block(read, 1, "what was read behind the gate");
    expect_block(next, 2, "what another stream wrote meanwhile");
}

/* ---- the default stream, between blocking streams ---- */

/*
 * Uses eight blocks: one on the default stream, two on blocking streams, the others on `third`.
 * Returns when all uses are complete.
 */
static void use_everywhere(uint32_t **block, cudaStream_t held, cudaStream_t opener, cudaStream_t third)
{
    for (unsigned i = 0; i < 8; i++)
        block[i] = take(third);
    CHECK(cudaStreamSynchronize(third));
    for (unsigned i = 0; i < 8; i++)
        fill(i == 0 ? nullptr : third, block[i], i);
    touch(held, block[6]);
    touch(opener, block[7]);
    CHECK(cudaDeviceSynchronize());
}

static void use_again(uint32_t *const *block, cudaStream_t third)
{
    for (unsigned i = 2; i < 6; i++)
        touch(third, block[i]);
    CHECK(cudaStreamSynchronize(third));
}

static void expect_all(uint32_t *const *block, unsigned first)
{
    for (unsigned i = first; i < 8; i++)
        expect_block(block[i], i, "a block beside the wait");
}

/* One block more than fits. A block leaves whose last use was on the default stream. */
static void case_legacy_barrier_leaves(void)
{
    const cudaStream_t held = new_blocking_stream(), opener = new_blocking_stream(), third = new_stream();
    uint32_t *block[8];

    use_everywhere(block, held, opener, third);
    use_again(block, third);
    hold(held, GATE);
    uint32_t *more = take(third);
    fill(third, more, 9);
    open_on(opener, GATE);
    CHECK(cudaStreamSynchronize(opener));
    CHECK(cudaDeviceSynchronize());
    expect_all(block, 0);
    expect_block(more, 9, "the block that came last");
}

/*
 * A block that is freed and allocated by cudaMalloc comes after all streams, among them the default
 * stream.
 */
static void case_legacy_barrier_taken(void)
{
    const cudaStream_t held = new_blocking_stream(), opener = new_blocking_stream(), third = new_stream();
    uint32_t *block[8];

    use_everywhere(block, held, opener, third);
    give_for_all(block[1]);
    use_again(block, third);
    hold(held, GATE);
    uint32_t *more = take_for_all(block_bytes);
    open_on(opener, GATE);
    CHECK(cudaStreamSynchronize(opener));
    CHECK(cudaDeviceSynchronize());
    fill(third, more, 9);
    expect_all(block, 2);
    expect_block(more, 9, "the block that came last");
}

/* A third stream makes many launches while one blocking stream waits for the other. */
static void case_legacy_barrier_launches(void)
{
    const cudaStream_t held = new_blocking_stream(), opener = new_blocking_stream(), third = new_stream();
    uint32_t *block[8];

    use_everywhere(block, held, opener, third);
    hold(held, GATE);
    for (unsigned i = 0; i < 200; i++)
        touch(third, block[i % 8]);
    uint32_t *more = take(third);
    for (unsigned i = 0; i < 200; i++)
        touch(third, i % 9 == 8 ? more : block[i % 9]);
    give(more, third);
    CHECK(cudaStreamSynchronize(third));
    open_on(opener, GATE);
    CHECK(cudaStreamSynchronize(opener));
    CHECK(cudaDeviceSynchronize());
    expect_all(block, 0);
}

/*
 * A block is freed on the default stream before the wait. The blocking stream that opens the gate
 * allocates it behind the free.
 */
static void case_legacy_barrier_freed(void)
{
    const cudaStream_t held = new_blocking_stream(), opener = new_blocking_stream();
    uint32_t *block = take(nullptr);

    fill(nullptr, block, 1);
    give(block, nullptr);
    hold(held, GATE);
    block = take(opener);
    open_after_use(opener, block, block_bytes);
    give(block, opener);
}

/* ---- memory is short ---- */

/*
 * Idle blocks fill the budget. The blocks behind the gate push some of them out, and enough idle
 * blocks remain for the next request.
 */
static void scarce(void (*behind)(cudaStream_t, cudaStream_t, unsigned, size_t), unsigned idle_blocks, unsigned blocks)
{
    const cudaStream_t idle = new_stream(), held = new_stream(), opener = new_stream();
    uint32_t *block[8];

    for (unsigned i = 0; i < idle_blocks; i++) {
        block[i] = take(idle);
        fill(idle, block[i], i);
    }
    CHECK(cudaStreamSynchronize(idle));
    behind(held, opener, blocks, block_bytes);
    for (unsigned i = 0; i < idle_blocks; i++)
        expect_block(block[i], i, "an idle block");
}

static void case_scarce_async(void)
{
    scarce(async_behind, 8, 1);
}

static void case_scarce_malloc(void)
{
    scarce(malloc_behind, 8, 1);
}

/* All memory of the budget is freed behind the gate. */
static void case_scarce_async_all(void)
{
    scarce(async_behind, 0, 8);
}

static void case_scarce_malloc_all(void)
{
    scarce(malloc_behind, 0, 8);
}

/*
 * Two blocks are away. A stream for which no other stream waits names the first. Its pages may come
 * from a block whose last use is behind the gate. The stream that opens the gate names the second,
 * for which the pages of an idle block are available.
 */
static void case_reload_behind_wait(void)
{
    const cudaStream_t held = new_stream(), opener = new_stream(), other = new_stream();
    uint32_t *block[8];

    for (unsigned i = 0; i < 8; i++) {
        block[i] = take(opener);
        fill(opener, block[i], i);
    }
    uint32_t *late = take(held), *idle = take(opener); /* the first two leave */
    fill(held, late, 100);
    fill(opener, idle, 101);
    for (unsigned i = 2; i < 8; i++)
        touch(opener, block[i]);
    CHECK(cudaDeviceSynchronize());
    usleep(200000); /* until all evictions are complete */
    hold(held, GATE);
    touch(held, late);
    give(late, held);
    give(idle, opener);
    touch(other, block[0]);
    touch(opener, block[1]);
    open_on(opener, GATE);
    CHECK(cudaStreamSynchronize(opener));
    CHECK(cudaDeviceSynchronize());
    expect_all(block, 0);
}

/*
 * A block is freed while a kernel uses it, and allocated by cudaMalloc before that kernel is
 * complete.
 */
static void case_legacy_barrier_taken_busy(void)
{
    const cudaStream_t held = new_blocking_stream(), opener = new_blocking_stream(), third = new_stream();
    uint32_t *block[8], *more = nullptr;

    use_everywhere(block, held, opener, third);
    use_again(block, third);
    hold(third, GATE + 1);
    fill(third, block[1], 1);
    {
        later_opening opening(GATE + 1);

        give_for_all(block[1]);
        hold(held, GATE);
        more = take_for_all(block_bytes);
        open_on(opener, GATE);
        opening.now();
    }
    CHECK(cudaStreamSynchronize(opener));
    CHECK(cudaDeviceSynchronize());
    fill(third, more, 9);
    expect_all(block, 2);
    expect_block(more, 9, "the block that came last");
}

/* ---- memory of the only stream, before there is a second one ---- */

/*
 * A block that the only stream used is freed and allocated again. The second stream opens the gate.
 * It must wait only for uses of the block before its free.
 */
static void second_stream(bool is_known_first)
{
    const cudaStream_t first = new_stream(), second = new_stream();
    uint32_t *block = take_for_all(block_bytes), *other = take_for_all(block_bytes), *more = nullptr;

    fill(first, block, 1);
    CHECK(cudaStreamSynchronize(first));
    hold(first, GATE + 1);
    fill(first, block, 2);
    {
        later_opening opening(GATE + 1);

        give_for_all(block);
        if (!is_known_first)
            more = take_for_all(block_bytes);
        hold(first, GATE);
        touch(first, other);
        if (is_known_first) {
            fill(second, other, 3);
            more = take_for_all(block_bytes);
        }
        fill(second, more, 4);
        open_on(second, GATE);
        opening.now();
    }
    CHECK(cudaDeviceSynchronize());
    expect_block(more, 4, "the block of the second stream");
}

static void case_second_stream_takes(void)
{
    second_stream(true);
}

static void case_second_stream_comes(void)
{
    second_stream(false);
}

#endif
