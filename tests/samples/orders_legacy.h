/*
 * Cases of `orders`: the order that the legacy default stream gives, and the order that it must not
 * give. Part of orders.cu.
 */
#ifndef PENSTOCK_SAMPLES_ORDERS_LEGACY_H
#define PENSTOCK_SAMPLES_ORDERS_LEGACY_H

static const cudaStream_t legacy = nullptr;

/* One block, used on `reads`, freed, and allocated again for `writes`. */
struct passing {
    cudaStream_t reads, writes; /* the streams of the former and of the next owner's kernels */
    cudaStream_t freed_on, taken_on;
    unsigned turns;     /* times that the block is freed and allocated, 1 or more */
    bool through_event; /* `writes` is not a blocking stream: it waits for an event behind the allocation */
};

static uint32_t *pass_on(const struct passing *p, uint32_t *block)
{
    for (unsigned turn = 0; turn < p->turns; turn++) {
        give(block, turn == 0 ? p->freed_on : p->taken_on);
        block = take(p->taken_on);
    }
    return block;
}

static void wait_through_event(const struct passing *p)
{
    cudaEvent_t event = nullptr;

    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventRecord(event, p->taken_on));
    CHECK(cudaStreamWaitEvent(p->writes, event, 0));
    CHECK(cudaEventDestroy(event));
}

/* The next owner's kernel must not write while the former owner's kernel still waits to read. */
static void read_then_write(const struct passing *p)
{
    uint32_t *read = take_for_all(2 * block_bytes);

    give(take(legacy), legacy); /* so that a block of this size is ready to be allocated */
    CHECK(cudaDeviceSynchronize());
    uint32_t *block = take(legacy);
    fill(p->reads, block, 1);
    CHECK(cudaStreamSynchronize(p->reads));
    hold(p->reads, GATE);
    copy(p->reads, read, block);
    uint32_t *next = pass_on(p, block);
    if (p->through_event)
        wait_through_event(p);
    fill(p->writes, next, 2);
    give_a_chance(p->writes);
    open_from_host(GATE);
    CHECK(cudaDeviceSynchronize());
    expect_block(read, 1, "what the former owner read");
    expect_block(next, 2, "what the next owner wrote");
}

static void case_legacy_free(void)
{
    const struct passing p = {new_blocking_stream(), new_blocking_stream(), legacy, legacy, 1, false};

    read_then_write(&p);
}

static void case_legacy_free_named(void)
{
    const struct passing p = {
        new_blocking_stream(), new_blocking_stream(), cudaStreamLegacy, cudaStreamLegacy, 1, false};

    read_then_write(&p);
}

static void case_legacy_free_turns(void)
{
    const struct passing p = {new_blocking_stream(), new_blocking_stream(), legacy, legacy, 3, false};

    read_then_write(&p);
}

static void case_legacy_free_event(void)
{
    const struct passing p = {new_blocking_stream(), new_stream(), legacy, legacy, 1, true};

    read_then_write(&p);
}

/*
 * The block is allocated on the stream that uses it. By the rules of the default stream, that is
 * after the free.
 */
static void case_legacy_free_blocking(void)
{
    const cudaStream_t writes = new_blocking_stream();
    const struct passing p = {new_blocking_stream(), writes, legacy, writes, 1, false};

    read_then_write(&p);
}

/* The block is freed on the stream that used it, and allocated on the default stream. */
static void case_legacy_take(void)
{
    const cudaStream_t reads = new_blocking_stream();
    const struct passing p = {reads, new_blocking_stream(), reads, legacy, 1, false};

    read_then_write(&p);
}

/* A thread's own default stream is a blocking stream. */
static void case_legacy_free_per_thread(void)
{
    const struct passing p = {cudaStreamPerThread, new_blocking_stream(), legacy, legacy, 1, false};

    read_then_write(&p);
}

static void case_legacy_free_to_per_thread(void)
{
    const struct passing p = {new_blocking_stream(), cudaStreamPerThread, legacy, legacy, 1, false};

    read_then_write(&p);
}

/* Another thread frees the block and allocates it again. */
static void case_legacy_free_thread(void)
{
    uint32_t *read = take_for_all(2 * block_bytes), *block = take(legacy), *next = nullptr;
    const cudaStream_t reads = new_blocking_stream(), writes = new_blocking_stream();

    fill(reads, block, 1);
    CHECK(cudaStreamSynchronize(reads));
    hold(reads, GATE);
    copy(reads, read, block);
    std::thread([&] {
        give(block, legacy);
        next = take(legacy);
    }).join();
    fill(writes, next, 2);
    give_a_chance(writes);
    open_from_host(GATE);
    CHECK(cudaDeviceSynchronize());
    expect_block(read, 1, "what the former owner read");
    expect_block(next, 2, "what the next owner wrote");
}

#endif
