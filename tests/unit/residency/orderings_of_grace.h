/*
 * Cases of test_orderings. Launches use a span without naming it: by rule, in its grace (grace.h),
 * or after its free. Part of test_orderings.c.
 */
#ifndef PS_TESTS_UNIT_ORDERINGS_OF_GRACE_H
#define PS_TESTS_UNIT_ORDERINGS_OF_GRACE_H

#include "residency/grace.h"

/* ---- unseen uses ---- */

/*
 * Rules keep a span in its place, because kernels use it without naming it. It was born on a slot,
 * and such a kernel is queued when it gets pages.
 */
static void reload_under_unseen_use(void)
{
    CUdeviceptr first = allocate(), second = allocate();
    struct ps_span *held[2] = {begin_use(first), begin_use(second)};
    CUdeviceptr kept = allocate(); /* both others are held, so no pages are free */
    uint32_t words[2] = {0, 0};

    ps_registry_lock();
    struct ps_span *span = ps_registry_live_at(kept);
    EXPECT_INT(PS_EVICTED, span->residency);
    span->holds.excluded = true;
    ps_registry_unlock();
    fill(kept, 3);
    end_use(held[1]);
    end_use(held[0]);
    EXPECT_INT(0, ps_allocation_free(first, NULL));
    EXPECT_INT(0, ps_stream_tick(stream)); /* all known uses end here, and are over */
    EXPECT_INT(0, ps_cu.cuStreamSynchronize(stream->handle));
    /* the kernel that doesn't name the span */
    EXPECT_INT(0, ps_cu.cuMemcpyAsync(busy_bytes, kept, 4, stream->handle));
    fill(kept, 4); /* pages are free now */
    /* another such kernel, behind a launch that names the span */
    EXPECT_INT(0, ps_cu.cuMemcpyAsync(busy_bytes + 4, kept, 4, stream->handle));
    EXPECT_INT(0, driver.download(words, busy_bytes, sizeof words, stream->handle));
    EXPECT_INT(0, ps_cu.cuStreamSynchronize(stream->handle));
    EXPECT_INT(PS_RESIDENT, span->residency);
    EXPECT_U64(3, words[0]);
    EXPECT_U64(4, words[1]);
    expect_device_is_well();
}

/*
 * A span that is away, filled with 3, and a table, filled with 4. The span that took the first
 * one's pages is filled with 5.
 */
struct table_beside {
    CUdeviceptr away, table, other;
};

static struct table_beside fill_table_beside(void)
{
    struct table_beside made;

    make_slots(1);
    made.away = allocate();
    fill(made.away, 3);
    made.table = allocate();
    fill(made.table, 4);
    begin_an_eviction();
    wait_until_evicted(made.away);
    made.other = allocate();
    fill(made.other, 5);
    return made;
}

/*
 * A pointer table is freed in stream order. The launch that is given the table needs the span that
 * it names, and the only pages are the table's.
 */
static void reload_beside_freed_table(void)
{
    const struct table_beside made = fill_table_beside();
    ps_pointer_tables_copied(made.table, &made.away, sizeof made.away);
    EXPECT_INT(0, ps_allocation_free(made.table, stream));
    struct ps_span *spans[] = {ps_address_span(made.away), ps_address_span(made.table)};
    size_t count = 2;
    launch = ps_access_begin(spans, &count, stream, &kernel);
    EXPECT_U64(2, count);
    EXPECT_INT(0, driver.download(words_there, made.table, SPAN_BYTES, stream->handle));
    ps_access_end(spans, count, stream, &kernel, launch);
    expect_there(SPAN_BYTES, 4, stream->handle);
    expect_filled_with(made.away, 3);
    expect_device_is_well();
}

/*
 * The same, but another launch on the stream comes in between and needs the pages. All others are
 * held.
 */
static void reload_before_freed_table(void)
{
    const struct table_beside made = fill_table_beside();
    ps_pointer_tables_copied(made.table, &made.other, sizeof made.other);
    struct ps_span *freed = ps_address_span(made.table);
    EXPECT_INT(0, ps_allocation_free(made.table, stream));
    struct ps_span *spans[] = {ps_address_span(made.away), ps_address_span(made.other)};
    size_t count = 2, one = 1;
    launch = ps_access_begin(spans, &count, stream, &kernel);
    EXPECT_INT(0, driver.fill(made.away, 6, SPAN_BYTES / sizeof(uint32_t), stream->handle));
    ps_access_end(spans, count, stream, &kernel, launch);
    launch = ps_access_begin(&freed, &one, stream, &kernel);
    EXPECT_U64(1, one);
    EXPECT_INT(0, driver.download(words_there, made.table, SPAN_BYTES, stream->handle));
    ps_access_end(&freed, one, stream, &kernel, launch);
    expect_there(SPAN_BYTES, 4, stream->handle);
    expect_filled_with(made.away, 6);
    expect_device_is_well();
}

/* ---- launches of a grace ---- */

#define GRACE 64u

/* Returns a span that a launch named, and that has left in the grace that began then. */
static CUdeviceptr left_in_its_grace(uint32_t value)
{
    ps_grace_open(GRACE);
    ps_demand_eviction_open(GRACE);
    make_slots(1);
    CUdeviceptr span = allocate();
    fill(span, value);
    begin_an_eviction();
    wait_until_evicted(span);
    return span;
}

/*
 * A launch of the grace has written to the span's slot. Then a call that is no launch (one of
 * NCCL's) needs the span.
 */
static void hold_what_left_in_grace(void)
{
    CUdeviceptr address = left_in_its_grace(3);
    struct ps_span *span = ps_address_span(address);
    size_t count = 1;

    keep_the_device_busy();
    uint64_t began = ps_grace_launch_begins(stream);
    EXPECT_INT(0, driver.fill(address, 7, span->bytes / sizeof(uint32_t), stream->handle));
    ps_grace_launch_ends(stream, began);
    ps_residency_hold(&span, &count);
    ps_residency_let_go(&span, count, stream);
    expect_filled_with(address, 7);
    expect_device_is_well();
}

static struct ps_stream *new_stream(void)
{
    CUstream handle = NULL;

    EXPECT_INT(0, driver.stream_create(&handle, CU_STREAM_NON_BLOCKING));
    return ps_stream_find(handle, false);
}

/* Downloads the first words of the span by a launch that does not name it. */
static void read_unseen(CUdeviceptr address, uint64_t began)
{
    EXPECT_INT(0, driver.download(words_there, address, PAGE, stream->handle));
    ps_grace_launch_ends(stream, began);
}

static void expect_read(uint32_t value)
{
    expect_there(PAGE, value, stream->handle);
    expect_device_is_well();
}

/*
 * The span has come back for another stream. Then a launch of the grace reads it on the first
 * stream.
 */
static void reload_in_grace_for_another_stream(void)
{
    CUdeviceptr address = left_in_its_grace(3);
    struct ps_stream *first = stream;

    stream = new_stream();
    keep_the_device_busy();
    end_use(begin_use(address));
    stream = first;
    read_unseen(address, ps_grace_launch_begins(stream));
    expect_read(3);
}

/* A launch of the grace is about to be queued, by another thread, when the span is reloaded. */
static void reload_in_grace_beside_launch(void)
{
    CUdeviceptr address = left_in_its_grace(3);
    struct ps_stream *first = stream;

    uint64_t began = ps_grace_launch_begins(stream);
    struct ps_stream *other = stream = new_stream();
    keep_the_device_busy();
    struct ps_span *span = begin_use(address);
    stream = first;
    read_unseen(address, began);
    stream = other;
    end_use(span);
    stream = first;
    expect_read(3);
}

/*
 * Spans leave in their grace many times. No launch follows that may use spans that it does not
 * name.
 */
static void leave_in_grace_again_and_again(void)
{
    ps_grace_open(GRACE);
    ps_demand_eviction_open(GRACE);
    make_slots(2);
    CUdeviceptr address = allocate();
    for (uint32_t i = 0; i < 2 * GRACE; i++) {
        fill(address, i);
        begin_an_eviction();
        wait_until_evicted(address);
    }
    expect_filled_with(address, 2 * GRACE - 1);
    expect_device_is_well();
}

#define TURNS 2000u

/* Another thread's launches, one in each turn. */
static struct {
    struct ps_stream *stream;
    atomic_uint turn, done;
} beside;

static void *launch_beside(void *unused)
{
    (void)unused;
    for (unsigned turn = 1; turn <= TURNS; turn++) {
        while (atomic_load(&beside.turn) != turn) {
        }
        uint64_t began = ps_grace_launch_begins(beside.stream);
        for (volatile unsigned i = 0; i < turn % 64; i++) {
        }
        ps_grace_launch_ends(beside.stream, began);
        atomic_store(&beside.done, turn);
    }
    return NULL;
}

static bool is_used_on(const struct ps_span *span, const struct ps_stream *on)
{
    struct ps_uses uses = span->order.uses;
    bool is = false;

    ps_grace_add_uses(span, &uses);
    for (unsigned i = 0; i < uses.count; i++)
        is |= uses.use[i].stream == on;
    return is;
}

/*
 * A launch of another thread ends when a new grace begins. The launch is in that grace. It is among
 * the uses by the earlier grace or by the next.
 */
static void launch_beside_new_grace(void)
{
    pthread_t thread;
    unsigned lost = 0;

    ps_grace_open(GRACE);
    CUdeviceptr address = allocate();
    fill(address, 1);
    beside.stream = new_stream();
    EXPECT_INT(0, pthread_create(&thread, NULL, launch_beside, NULL));
    for (unsigned turn = 1; turn <= TURNS; turn++) {
        struct ps_span *span = begin_use(address); /* launches of earlier turns are in no grace any more */
        end_use(span);
        ps_registry_lock();
        ps_uses_clear(&span->order.uses);
        ps_registry_unlock();
        atomic_store(&beside.turn, turn);
        for (volatile unsigned i = 0; i < turn / 64 % 64; i++) {
        }
        end_use(begin_use(address));
        while (atomic_load(&beside.done) != turn) {
        }
        ps_registry_lock();
        lost += !is_used_on(span, beside.stream);
        ps_registry_unlock();
    }
    pthread_join(thread, NULL);
    EXPECT_U64(0, lost);
}

#endif
