/*
 * Cases of `orders`: memory that passes from one owner to the next, while no call waits for the
 * device. Part of orders.cu.
 */
#ifndef PENSTOCK_SAMPLES_ORDERS_FREE_H
#define PENSTOCK_SAMPLES_ORDERS_FREE_H

#define MASK 0x5555555555555555ull

/* Reads through an address that no parameter shows. */
KERNEL(copy_disguised, (uint32_t *__restrict__ out, uint64_t disguised, size_t count), (out, disguised, count))
{
    const uint32_t *in = reinterpret_cast<const uint32_t *>(disguised ^ MASK);

    FOR_EACH_ITEM (i, count)
        out[i] = in[i];
}

/*
 * Returns a block that a kernel on the program's only stream still waits to read. The caller frees
 * it by cudaFree. The gate opens when all work is queued, or by itself while cudaFree waits.
 */
static uint32_t *freed_while_read(cudaStream_t reads, uint32_t *read)
{
    uint32_t *block = take_for_all(block_bytes);

    fill(reads, block, 1);
    CHECK(cudaStreamSynchronize(reads));
    hold(reads, GATE);
    copy(reads, read, block);
    return block;
}

/* Passes the memory from the former owner to `next_owner`, which uses a stream of its own. */
static void pass_through(uint32_t *(*next_owner)(cudaStream_t writes))
{
    uint32_t *read = take_for_all(2 * block_bytes);
    const cudaStream_t reads = new_stream();
    uint32_t *block = freed_while_read(reads, read), *next = nullptr;
    {
        later_opening opening(GATE);

        give_for_all(block);
        next = next_owner(reads);
        opening.now();
    }
    CHECK(cudaDeviceSynchronize());
    expect_block(read, 1, "what the former owner read");
    expect_block(next, 2, "what the next owner wrote");
}

static uint32_t *written_on(cudaStream_t writes, uint32_t *block)
{
    fill(writes, block, 2);
    give_a_chance(writes);
    return block;
}

static uint32_t *free_on_another(cudaStream_t)
{
    uint32_t *between = take_for_all(block_bytes);
    const cudaStream_t writes = new_stream();

    give(between, writes);
    return written_on(writes, take(writes));
}

static uint32_t *free_on_two_others(cudaStream_t)
{
    uint32_t *between = take_for_all(block_bytes);
    const cudaStream_t second = new_stream(), writes = new_stream();

    give(between, second);
    between = take(second);
    CHECK(cudaStreamSynchronize(second));
    give(between, writes);
    return written_on(writes, take(writes));
}

static uint32_t *free_twice(cudaStream_t)
{
    give_for_all(take_for_all(block_bytes));
    const cudaStream_t writes = new_stream();

    return written_on(writes, take(writes));
}

static uint32_t *free_then_malloc(cudaStream_t)
{
    uint32_t *between = take_for_all(block_bytes);
    const cudaStream_t second = new_stream(), writes = new_stream();

    give(between, second);
    return written_on(writes, take_for_all(block_bytes));
}

/* Memory is short, and a request of another size gets the pages. */
static uint32_t *free_for_larger(cudaStream_t)
{
    uint32_t *between = take_for_all(block_bytes), *filler[5];
    const cudaStream_t writes = new_stream();

    for (uint32_t *&each : filler)
        each = take_for_all(block_bytes);
    give(between, writes);
    uint32_t *larger = take_bytes(2 * block_bytes, writes);
    LAUNCH(writes, 2 * block_words(), fill_words, larger, 2, 0, 2 * block_words());
    give_a_chance(writes);
    for (uint32_t *each : filler)
        give_for_all(each);
    return larger;
}

static void case_free_on_another(void)
{
    pass_through(free_on_another);
}

static void case_free_on_two_others(void)
{
    pass_through(free_on_two_others);
}

static void case_free_twice(void)
{
    pass_through(free_twice);
}

static void case_free_then_malloc(void)
{
    pass_through(free_then_malloc);
}

static void case_free_for_larger(void)
{
    pass_through(free_for_larger);
}

/*
 * A kernel reads through an address that no parameter shows. Its stream names no other block of the
 * program.
 */
static void case_free_unseen(void)
{
    const size_t words = 1024; /* few enough to stay below the size of a span */
    uint32_t *read = take_for_all(words * sizeof(*read)), *block = take_for_all(block_bytes);
    const cudaStream_t fills = new_stream(), reads = new_stream();

    fill(fills, block, 1);
    CHECK(cudaStreamSynchronize(fills));
    hold(reads, GATE);
    LAUNCH(reads, words, copy_disguised, read, reinterpret_cast<uint64_t>(block) ^ MASK, words);
    uint32_t *next = nullptr;
    {
        later_opening opening(GATE);

        give_for_all(block);
        next = written_on(fills, take_for_all(block_bytes));
        opening.now();
    }
    CHECK(cudaDeviceSynchronize());
    expect_words(read, 1, 0, words, fills, "what was read unseen");
    expect_block(next, 2, "what the next owner wrote");
}

#endif
