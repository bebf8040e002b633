/*
 * The registry, with a driver that only reserves addresses. The tests check the span of an address,
 * the counters, the choice of freed spans and the order of idleness. They also check that the
 * invariant checker sees broken invariants.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda/driver.h"
#include "expect.h"
#include "memory/registry.h"

#define UNIT 65536u
#define BASE (UINT64_C(1) << 45)

static uint64_t largest_granted = UINT64_C(1) << 32;
static unsigned reservations_asked, reservations_freed;

static CUresult CUDAAPI reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                                unsigned long long flags)
{
    (void)wanted;
    (void)flags;
    reservations_asked++;
    EXPECT_U64(UNIT, alignment);
    if (bytes > largest_granted)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *address = BASE;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI unreserve(CUdeviceptr address, size_t bytes)
{
    (void)bytes;
    EXPECT_U64(BASE, address);
    reservations_freed++;
    return CUDA_SUCCESS;
}

/* Makes a span on pages, as the residency machine leaves a new one. [locked] */
static struct ps_span *live_span(size_t bytes, size_t requested)
{
    struct ps_span *span = ps_registry_new(bytes, requested);

    if (!span)
        return NULL;
    span->has_pages = true;
    span->residency = PS_RESIDENT;
    span->backing = PS_BACKING_DEVICE;
    TAILQ_INSERT_TAIL(&ps_registry.idle_order, span, listed);
    return span;
}

/* The program frees the span; it is kept with its pages. [locked] */
static void free_span(struct ps_span *span)
{
    ps_registry_end_life(span);
    ps_registry_cache(span);
}

/* Deletes a freed span. [locked] */
static void drop(struct ps_span *span)
{
    ps_registry_cached_remove(span);
    span->has_pages = false;
    span->backing = PS_BACKING_NONE;
    ps_registry_delete(span);
}

static void test_open_takes_what_it_gets(void)
{
    EXPECT(!ps_address_is_a_spans(BASE));
    EXPECT_INT(0, ps_registry_open(UNIT, 1, 0));
    EXPECT(reservations_asked > 1); /* smaller and smaller sizes, until one was granted */
    EXPECT_U64(largest_granted, ps_reservation.reserved);
    EXPECT(ps_address_is_a_spans(BASE) && ps_address_is_a_spans(BASE + largest_granted - 1));
    EXPECT(!ps_address_is_a_spans(BASE - 1) && !ps_address_is_a_spans(BASE + largest_granted) &&
           !ps_address_is_a_spans(0));
    EXPECT(!ps_address_span(BASE) && !ps_address_span(0) && !ps_registry_next(BASE));
}

static void test_addresses_lead_to_spans(void)
{
    struct ps_span *span[3];

    for (int i = 0; i < 3; i++)
        span[i] = live_span((size_t)(i + 1) * UNIT, (size_t)(i + 1) * UNIT - 5);
    for (int i = 0; i < 3; i++) {
        EXPECT(span[i]->address % UNIT == 0);
        EXPECT(ps_registry_live_at(span[i]->address) == span[i]);
        EXPECT(ps_registry_live_at(span[i]->address + span[i]->bytes / 2) == span[i]);
        EXPECT(ps_registry_live_at(span[i]->address + span[i]->bytes - 1) == span[i]);
        EXPECT(ps_registry_live_at(span[i]->address + span[i]->bytes) != span[i]);
    }
    EXPECT(ps_registry_next(BASE) == span[0]);
    EXPECT(ps_registry_next(span[0]->address + UNIT) == span[1]);
    free_span(span[1]);
    EXPECT(!ps_registry_live_at(span[1]->address) && ps_address_span(span[1]->address) == span[1]);
    drop(span[1]);
    EXPECT(!ps_address_span(span[1]->address) && ps_registry_next(span[0]->address + UNIT) == span[2]);
    free_span(span[0]);
    free_span(span[2]);
    drop(span[0]);
    drop(span[2]);
    EXPECT(!ps_registry_next(BASE));
}

static void test_counts(void)
{
    uint64_t spans = ps_registry.live_spans;

    ps_registry.peak_live_bytes = ps_registry.peak_live_requested = ps_registry.peak_reserved_bytes = 0;
    struct ps_span *a = live_span(UNIT, 1000), *b = live_span(2 * UNIT, UNIT + 1);
    EXPECT_U64(spans + 2, ps_registry.live_spans);
    EXPECT_U64(3 * UNIT, ps_registry.live_bytes);
    EXPECT_U64(1024 + UNIT + 512, ps_registry.live_requested); /* counted as a pool does, in units of 512 bytes */
    free_span(b);
    EXPECT_U64(UNIT, ps_registry.live_bytes);
    EXPECT_U64(1024, ps_registry.live_requested);
    EXPECT_U64(2 * UNIT, ps_registry.cached_bytes);
    EXPECT_U64(3 * UNIT, ps_registry.peak_live_bytes);
    EXPECT_U64(1536 + UNIT, ps_registry.peak_live_requested);
    EXPECT_U64(3 * UNIT, ps_registry.peak_reserved_bytes);
    EXPECT(ps_registry_cached_take(2 * UNIT, NULL) == b);
    ps_registry_revive(b, 2 * UNIT);
    EXPECT_U64(3 * UNIT, ps_registry.live_bytes);
    EXPECT_U64(1024 + 2 * UNIT, ps_registry.live_requested);
    EXPECT_U64(0, ps_registry.cached_bytes);
    free_span(a);
    free_span(b);
    drop(a);
    drop(b);
    EXPECT_U64(spans, ps_registry.live_spans);
    EXPECT_U64(0, ps_registry.live_bytes + ps_registry.live_requested + ps_registry.cached_bytes);
}

static void test_which_freed_span_is_used_again(void)
{
    struct ps_stream here = {.index = 0}, there = {.index = 1};
    struct ps_span *old = live_span(UNIT, UNIT), *busy = live_span(UNIT, UNIT), *mine = live_span(UNIT, UNIT),
                   *other = live_span(2 * UNIT, 1);

    ps_uses_note(&old->order.uses, &there);
    ps_uses_note(&busy->order.uses, &here);
    ps_uses_note(&mine->order.uses, &here);
    free_span(old);
    free_span(busy);
    free_span(mine);
    free_span(other);
    busy->busy = true;
    EXPECT(!ps_registry_cached_take(4 * UNIT, &here));    /* no such size */
    EXPECT(ps_registry_cached_take(UNIT, &here) == mine); /* used on this stream alone: no wait */
    /* then the oldest; never one on which a thread is at work */
    EXPECT(ps_registry_cached_take(UNIT, &here) == old);
    EXPECT(!ps_registry_cached_take(UNIT, &here));
    busy->busy = false;
    EXPECT(ps_registry_cached_take(UNIT, NULL) == busy);
    EXPECT(ps_registry_cached_take(2 * UNIT, NULL) == other);
    EXPECT_U64(0, ps_registry.cached_bytes);
    struct ps_span *all[] = {old, busy, mine, other};
    for (int i = 0; i < 4; i++) {
        ps_registry_cache(all[i]);
        drop(all[i]);
    }
}

/*
 * A span that cudaFree gave back is taken while it is in use only if a wait for its uses waits for
 * nothing that was queued since: not while the tick of a use, or of a moment, is yet to be
 * recorded.
 */
static void test_which_freed_span_every_stream_may_wait_for(void)
{
    struct ps_stream here = {.index = 0, .next = 3, .recorded = 2};
    struct ps_span *span = live_span(UNIT, UNIT);

    ps_uses_note(&span->order.uses, &here);
    free_span(span);
    EXPECT(!ps_registry_cached_take_at_once(UNIT));
    here.recorded = 3;
    span->freed.in_order = true;
    EXPECT(!ps_registry_cached_take_at_once(UNIT));
    span->freed.in_order = false;
    span->freed.by = ps_thread_number() + 1; /* another thread's cudaFree would have waited */
    EXPECT(!ps_registry_cached_take_at_once(UNIT));
    span->freed.by = ps_thread_number();
    EXPECT(ps_registry_cached_take_at_once(UNIT) == span);
    ps_uses_clear(&span->order.uses);
    ps_uses_note_everything(&span->order.uses);
    ps_registry_cache(span);
    EXPECT(!ps_registry_cached_take_at_once(UNIT));
    here.recorded = 2;
    here.gone = true; /* nothing is queued on it any more */
    ps_uses_clear(&span->order.uses);
    ps_uses_note(&span->order.uses, &here);
    EXPECT(ps_registry_cached_take_at_once(UNIT) == span);
    ps_registry_cache(span);
    drop(span);
}

/* The same where the fence of the freed span stands for all work that was queued anywhere. */
static void test_which_stream_may_wait_for_everything(void)
{
    struct ps_stream here = {.index = 0};
    struct ps_span *span = live_span(UNIT, UNIT);

    free_span(span);
    span->freed.behind_everything = true;
    span->freed.by = ps_thread_number() + 1;
    EXPECT(!ps_registry_cached_take_ordered(UNIT, UNIT, &here, false));
    span->freed.by = ps_thread_number();
    EXPECT(ps_registry_cached_take_ordered(UNIT, UNIT, &here, false) == span);
    ps_registry_cache(span);
    span->freed.by = 0;
    span->freed.in_order = true; /* on the legacy stream, which alone comes after its own fence */
    EXPECT(!ps_registry_cached_take_ordered(UNIT, UNIT, &here, false));
    drop(span);
}

/*
 * The smallest larger one serves, within a bound. The excess is not part of the program's demand.
 */
static void test_a_larger_freed_span_serves(void)
{
    struct ps_stream here = {.index = 0};
    struct ps_span *four = live_span(4 * UNIT, 4 * UNIT), *three = live_span(3 * UNIT, 3 * UNIT),
                   *one = live_span(UNIT, UNIT);

    free_span(four);
    free_span(three);
    free_span(one);
    EXPECT(!ps_registry_cached_take_ordered(5 * UNIT, 8 * UNIT, &here, false));
    EXPECT(!ps_registry_cached_take_ordered(2 * UNIT, 2 * UNIT, &here, false));
    three->busy = true;
    EXPECT(!ps_registry_cached_take_ordered(2 * UNIT, 3 * UNIT, &here, false));
    EXPECT(ps_registry_cached_take_ordered(2 * UNIT, 4 * UNIT, &here, false) == four);
    ps_registry_cache(four);
    three->busy = false;
    EXPECT(ps_registry_cached_take_ordered(2 * UNIT, 4 * UNIT, &here, false) == three);
    EXPECT_U64(5 * UNIT, ps_registry.cached_bytes);
    ps_registry.peak_live_bytes = 0;
    ps_registry_revive(three, UNIT + 1);
    EXPECT_U64(3 * UNIT, ps_registry.live_bytes);
    EXPECT_U64(UNIT, ps_registry.padding_bytes);
    EXPECT_U64(2 * UNIT, ps_registry.peak_live_bytes);
    free_span(three);
    EXPECT_U64(0, ps_registry.padding_bytes);
    EXPECT(ps_registry_cached_take(3 * UNIT, &here) == three); /* it has its own size again */
    ps_registry_cache(three);
    drop(four);
    drop(three);
    drop(one);
}

/*
 * A freed span that is not taken for two periods is unwanted. One that a step takes repeatedly
 * never is.
 */
/*
 * Launches of its stream may still use a freed span. No other request gets it until they have been
 * queued, or until there can be none.
 */
static void test_what_is_used_after_its_free(void)
{
    struct ps_stream here = {.index = 0}, there = {.index = 1};
    struct ps_span *span[PS_AWAITING_MAX + 1];

    for (unsigned i = 0; i <= PS_AWAITING_MAX; i++) {
        span[i] = live_span((i + 1) * UNIT, 1);
        free_span(span[i]);
    }
    for (unsigned i = 0; i < PS_AWAITING_MAX; i++)
        ps_registry_await_launches(span[i], &here);
    EXPECT(!ps_registry_cached_take(UNIT, NULL));
    EXPECT(!ps_registry_cached_take(UNIT, &there));
    EXPECT(ps_registry_cached_take(UNIT, &here) == span[0]);
    EXPECT(!ps_registry_is_awaited(span[0]));
    EXPECT_U64(PS_AWAITING_MAX - 1, ps_registry.awaiting_count);
    ps_registry_cache(span[0]);
    ps_registry_await_launches(span[0], &there);
    ps_registry_await_launches(span[PS_AWAITING_MAX], &there); /* one too many */
    EXPECT(!ps_registry_is_awaited(span[1]) && ps_registry_is_awaited(span[2]));
    for (int i = 0; i < 10 && ps_registry_is_awaited(span[2]); i++) {
        EXPECT(!ps_registry_cached_take(3 * UNIT, NULL));
        ps_registry_launched(&here);
    }
    EXPECT_U64(2, ps_registry.awaiting_count); /* those of the other stream */
    EXPECT(ps_registry_is_awaited(span[0]));
    atomic_store(&there.gone, true);
    EXPECT(!ps_registry_is_awaited(span[0]));
    EXPECT(ps_registry_cached_take(UNIT, NULL) == span[0]);
    ps_registry_cache(span[0]);
    for (unsigned i = 0; i <= PS_AWAITING_MAX; i++)
        drop(span[i]);
    EXPECT_U64(0, ps_registry.awaiting_count);
}

static void test_what_nobody_wants(void)
{
    const uint64_t second = 1000000000;
    uint64_t now = 100 * second;

    struct ps_span *old = live_span(4 * UNIT, 4 * UNIT), *again = live_span(2 * UNIT, 2 * UNIT);
    EXPECT_U64(0, ps_registry_unwanted(now, UINT64_MAX));
    free_span(old);
    for (int step = 0; step < 59; step++, now += second) {
        free_span(again);
        EXPECT_U64(0, ps_registry_unwanted(now, UINT64_MAX));
        again = ps_registry_cached_take(2 * UNIT, NULL);
        ps_registry_revive(again, 2 * UNIT);
    }
    now += 2 * second;
    free_span(again);
    EXPECT_U64(4 * UNIT, ps_registry_unwanted(now, UINT64_MAX));
    EXPECT_U64(0, ps_registry_unwanted(now, 0));
    /* A second counts as a period until there are enough. */
    now += 100 * second;
    EXPECT_U64(6 * UNIT, ps_registry_unwanted(now, UINT64_MAX));
    EXPECT_U64(4 * UNIT, ps_registry_unwanted(now, 4 * UNIT));
    /* A span that was only asked for is the first to go. */
    struct ps_span *asked = live_span(8 * UNIT, 8 * UNIT);
    ps_registry.only_asked_bytes = 8 * UNIT;
    free_span(asked);
    ps_registry.only_asked_bytes = 0;
    EXPECT_U64(8 * UNIT, ps_registry_unwanted(now, UNIT));
    EXPECT(TAILQ_FIRST(&ps_registry.cached) == asked);
    drop(asked);
    drop(old);
    drop(again);
}

static void test_idle_order(void)
{
    struct ps_span *span[4], *first;

    for (int i = 0; i < 4; i++) {
        ps_registry.launch_number++;
        span[i] = live_span(UNIT, UNIT);
    }
    EXPECT(ps_registry_is_valid());
    ps_registry.launch_number++;
    ps_registry_touch(span[0]);
    EXPECT(TAILQ_FIRST(&ps_registry.idle_order) == span[1]);
    EXPECT(TAILQ_LAST(&ps_registry.idle_order, ps_span_list) == span[0]);
    EXPECT_U64(ps_registry.launch_number, span[0]->access.launch);
    /* A span that is leaving is in no order, and an access puts it into none. */
    TAILQ_REMOVE(&ps_registry.idle_order, span[2], listed);
    span[2]->residency = PS_EVICTING;
    ps_registry.launch_number++;
    ps_registry_touch(span[2]);
    EXPECT_U64(ps_registry.launch_number, span[2]->access.launch);
    TAILQ_FOREACH (first, &ps_registry.idle_order, listed)
        EXPECT(first != span[2]);
    span[2]->residency = PS_RESIDENT;
    TAILQ_INSERT_TAIL(&ps_registry.idle_order, span[2], listed);
    EXPECT(ps_registry_is_valid());
    for (int i = 0; i < 4; i++) {
        free_span(span[i]);
        drop(span[i]);
    }
}

/* The checker reports each broken invariant, and reports nothing once it is mended. */
static void test_checker_sees_what_is_broken(void)
{
    struct ps_span *live = live_span(UNIT, UNIT), *freed = live_span(2 * UNIT, UNIT);
    struct ps_slot *no_slot = (struct ps_slot *)(uintptr_t)64;

    free_span(freed);
    EXPECT(ps_registry_is_valid());
    /*
     * Its complaints are expected. They are kept off the screen, where they would look like
     * failures.
     */
    int screen = dup(2), nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 2);
#define BROKEN(breaks, mends)                                                                                          \
    do {                                                                                                               \
        breaks;                                                                                                        \
        bool seen = !ps_registry_is_valid();                                                                           \
        mends;                                                                                                         \
        dup2(screen, 2);                                                                                               \
        expect_that(seen, __FILE__, __LINE__, "seen: " #breaks);                                                       \
        EXPECT(ps_registry_is_valid());                                                                                \
        dup2(nowhere, 2);                                                                                              \
    } while (0)
    BROKEN(live->has_pages = false, live->has_pages = true);
    BROKEN(live->backing = PS_BACKING_SLOT, live->backing = PS_BACKING_DEVICE);
    BROKEN(live->residency = PS_EVICTED, live->residency = PS_RESIDENT);
    BROKEN(live->residency = PS_RELOADING, live->residency = PS_RESIDENT); /* without a fence */
    BROKEN(live->slot = no_slot, live->slot = NULL);
    BROKEN(live->transfer = (struct ps_transfer *)no_slot, live->transfer = NULL);
    BROKEN(freed->slot = no_slot, freed->slot = NULL);
    BROKEN(freed->backing = PS_BACKING_NONE, freed->backing = PS_BACKING_DEVICE);
    BROKEN(ps_registry.cached_bytes += UNIT, ps_registry.cached_bytes -= UNIT);
    BROKEN(live->bytes += UNIT, live->bytes -= UNIT); /* the map ends before it does */
#undef BROKEN
    dup2(screen, 2);
    close(screen);
    close(nowhere);
    /* A span on which a thread is at work is between two states: no complaint. */
    live->busy = true;
    live->backing = PS_BACKING_NONE;
    EXPECT(ps_registry_is_valid());
    live->backing = PS_BACKING_DEVICE;
    live->busy = false;
    free_span(live);
    drop(live);
    drop(freed);
}

/* Thousands of lives at random: addresses never overlap, sums are right, no span is lost. */
static void test_many_lives(unsigned seed)
{
    enum { MOST = 64 };
    struct ps_span *live[MOST] = {0}, *span;
    uint64_t bytes = 0;

    srand(seed);
    for (int turn = 0; turn < 3000; turn++) {
        int i = rand() % MOST;
        ps_registry.launch_number++;
        if (!live[i]) {
            size_t size = (size_t)(1 + rand() % 5) * UNIT;
            span = rand() % 2 ? ps_registry_cached_take(size, NULL) : NULL;
            if (span)
                ps_registry_revive(span, size - 7);
            else
                span = live_span(size, size - 7);
            EXPECT(span && span->bytes == size && span->life == PS_LIFE_LIVE);
            for (int j = 0; j < MOST; j++)
                if (live[j])
                    EXPECT(live[j]->address + live[j]->bytes <= span->address ||
                           span->address + size <= live[j]->address);
            live[i] = span;
            bytes += size;
        } else if (rand() % 3) {
            ps_registry_touch(live[i]);
        } else {
            bytes -= live[i]->bytes;
            free_span(live[i]);
            if (rand() % 2)
                drop(live[i]);
            live[i] = NULL;
        }
        EXPECT_U64(bytes, ps_registry.live_bytes);
        EXPECT(ps_registry_is_valid());
    }
    for (int i = 0; i < MOST; i++)
        if (live[i])
            free_span(live[i]);
    while ((span = TAILQ_FIRST(&ps_registry.cached)))
        drop(span);
    EXPECT_U64(0, ps_registry.live_bytes + ps_registry.cached_bytes + ps_registry.live_spans);
    EXPECT(!ps_registry_next(BASE));
    EXPECT_U64(ps_reservation.reserved, ps_registry.addresses.count == 1 ? ps_registry.addresses.free[0].bytes : 0);
}

int main(void)
{
    ps_cu.cuMemAddressReserve = reserve;
    ps_cu.cuMemAddressFree = unreserve;
    test_open_takes_what_it_gets();
    ps_registry_lock();
    test_addresses_lead_to_spans();
    test_counts();
    test_which_freed_span_is_used_again();
    test_which_freed_span_every_stream_may_wait_for();
    test_which_stream_may_wait_for_everything();
    test_a_larger_freed_span_serves();
    test_what_is_used_after_its_free();
    test_what_nobody_wants();
    test_idle_order();
    test_checker_sees_what_is_broken();
    for (unsigned seed = 1; seed <= 3; seed++)
        test_many_lives(seed);
    /*
     * No span of its size is left. Addresses run out before memory does, and no span is left half
     * made.
     */
    EXPECT(!ps_registry_new(ps_reservation.reserved + UNIT, 1));
    EXPECT_U64(0, ps_registry.live_spans);
    ps_registry_unlock();
    ps_registry_disown();
    EXPECT(!ps_address_is_a_spans(BASE));
    EXPECT_INT(0, (long)reservations_freed);
    return expect_status();
}
