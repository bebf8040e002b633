#include "residency/standing_in.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/ordering_rules.h"
#include "base/per_device.h"
#include "base/waits.h"
#include "cuda/device_memory.h"
#include "memory/blocks.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/slab.h"
#include "residency/block_order.h"
#include "residency/eviction.h"
#include "residency/grace.h"
#include "residency/guard.h"
#include "residency/page_supply.h"
#include "residency/residency.h"

/*
 * A stand-in is at most this part of the span, but never smaller than the granularity, nor larger
 * than LARGEST. Mapping costs 16 us a handle (shim/README.md#mapping-memory).
 */
#define PART 16u
#define LARGEST (2ull << 20)
#define SIZES 10u /* sizes are powers of two, from the granularity on */

/*
 * A call waits at most this long for launches about to be queued, and for those that run on slots.
 * Both end; the limits are for errors.
 */
#define LAUNCHING_NS 2000000000u
#define RUNNING_NS 30000000000u
/* A call holds up new launches at most this long at a time. */
#define HELD_NS 250000000u
#define UNMAP_TRIES 3u

/* Device pages that stand in for slots. All fields are guarded by the registry lock. */
static PS_PER_DEVICE struct {
    struct ps_pages *pages[SIZES]; /* by size; NULL: not made yet */
    bool is_beside_budget[SIZES];
    unsigned users; /* calls under way that may have mapped the pages */
} first_dev;
#define dev (&PS_HERE(first_dev))

/* Its address identifies the thread. */
static __thread char self __attribute__((tls_model("initial-exec")));

/* ---- the pages ---- */

/* Returns the index of the stand-in size for a span of `bytes`, and sets `*size` to that size. */
static unsigned size_for(size_t bytes, size_t *size)
{
    unsigned i = 0;

    *size = ps_reservation.granularity;
    while (i + 1 < SIZES && *size < LARGEST && 2 * *size * PART <= bytes && bytes % (2 * *size) == 0) {
        *size *= 2;
        i++;
    }
    return i;
}

/* [unlocked] */
static struct ps_pages *make_beside_budget(size_t bytes)
{
    struct ps_pages *pages = calloc(1, sizeof *pages + sizeof pages->part[0]);

    if (!pages || ps_device_pages_create(bytes, &pages->part[0].handle)) {
        free(pages);
        return NULL;
    }
    pages->bytes = pages->part[0].bytes = bytes;
    pages->parts = 1;
    return pages;
}

/* [locked; releases the lock meanwhile] */
static void give_back(struct ps_pages *pages, bool is_beside_budget)
{
    if (!is_beside_budget) {
        ps_page_supply_return(&(struct ps_supply){.pages = pages});
        return;
    }
    ps_registry_unlock();
    ps_pages_release(pages->part[0].handle);
    free(pages);
    ps_registry_lock();
}

/*
 * Provides stand-in pages for a span of `bytes`. Other spans may have to leave for them. If nothing
 * can leave and `beside_budget` is true, the pages are made beside the budget. Returns whether
 * there are pages. [locked; releases the lock meanwhile]
 */
static bool make_pages(size_t bytes, bool beside_budget)
{
    size_t size;
    const unsigned i = size_for(bytes, &size);
    struct ps_supply had = {.pages = NULL};
    bool is_beside_budget = false;

    if (dev->pages[i])
        return true;
    if (ps_page_supply_obtain_now(size, NULL, &had) && ps_page_supply_obtain(size, NULL, &had)) {
        if (!beside_budget)
            return false;
        ps_registry_unlock();
        had.pages = make_beside_budget(size);
        ps_registry_lock();
        is_beside_budget = true;
        if (!had.pages)
            return false;
    }
    if (dev->pages[i]) {
        give_back(had.pages, is_beside_budget); /* another thread has made some meanwhile */
    } else {
        dev->pages[i] = had.pages;
        dev->is_beside_budget[i] = is_beside_budget;
    }
    return true;
}

/*
 * A call no longer uses the pages. After the last such call they are given back. [locked; releases
 * the lock meanwhile]
 */
static void stop_using(void)
{
    if (--dev->users)
        return;
    for (unsigned i = 0; i < SIZES; i++) {
        struct ps_pages *pages = dev->pages[i];
        dev->pages[i] = NULL;
        if (pages)
            give_back(pages, dev->is_beside_budget[i]);
        if (dev->users)
            return; /* a new call uses the pages that are left */
    }
}

/*
 * Maps the same pages repeatedly, until `bytes` from `address` on are mapped. Returns 0 or -errno;
 * after an error nothing stays mapped. [unlocked]
 */
static int map_again_and_again(CUdeviceptr address, size_t bytes, const struct ps_pages *pages)
{
    const size_t times = bytes / pages->bytes;
    struct ps_pages *all = malloc(sizeof *all + times * pages->parts * sizeof all->part[0]);

    if (!all)
        return -ENOMEM;
    *all = (struct ps_pages){.bytes = bytes};
    for (size_t i = 0; i < times; i++)
        for (uint32_t part = 0; part < pages->parts; part++)
            all->part[all->parts++] = pages->part[part];
    const int r = ps_pages_map(address, all);
    free(all);
    return r;
}

/* ---- the spans ---- */

static bool is_away(const struct ps_span *span)
{
    return span->life == PS_LIFE_LIVE && span->residency == PS_EVICTED;
}

/*
 * Cancels the eviction of a span that is leaving. Reloads an evicted span if pages are there at
 * once. [locked; releases the lock meanwhile]
 */
static void bring(struct ps_span *span)
{
    while (span->busy)
        ps_registry_wait_changed(1000000u);
    if (span->life == PS_LIFE_LIVE && (span->residency == PS_EVICTED || span->residency == PS_EVICTING))
        ps_residency_bring(span);
    while (span->busy)
        ps_registry_wait_changed(1000000u);
}

/* Returns an evicted span whose mapping can't change now, or NULL. [locked] */
static const struct ps_span *one_in_use(struct ps_span *const *spans, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_away(spans[i]) && (spans[i]->busy || ps_residency_stays_on_slot(spans[i])) && !spans[i]->holds.pinned)
            return spans[i];
    return NULL;
}

/* [locked] */
static bool is_one_in_grace(struct ps_span *const *spans, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_away(spans[i]) && !ps_grace_is_over(spans[i]))
            return true;
    return false;
}

/* Returns false if spans are in use for too long. [locked; releases the lock meanwhile] */
static bool wait_until_unused(struct ps_span *const *spans, size_t count)
{
    const uint64_t since = ps_now_ns();

    while (one_in_use(spans, count)) {
        if (ps_now_ns() - since > LAUNCHING_NS)
            return false;
        ps_registry_wait_changed(1000000u);
    }
    return true;
}

/*
 * Marks all evicted spans as busy at once, so that none is busy while the thread waits for another.
 * Adds the work that runs on their slots to `uses`. Returns the number of spans taken. [locked]
 */
static size_t take(struct ps_span *const *spans, size_t count, struct ps_uses *uses)
{
    size_t taken = 0, size;

    for (size_t i = 0; i < count; i++) {
        struct ps_span *span = spans[i];
        if (!is_away(span) || span->busy || ps_residency_stays_on_slot(span) ||
            !dev->pages[size_for(span->bytes, &size)])
            continue;
        span->busy = true;
        span->stand_ins.shown_by = &self;
        ps_uses_merge(uses, &span->order.uses);
        ps_block_order_moves(span, uses);
        if (span->holds.excluded)
            ps_uses_note_all_streams(uses);
        taken++;
    }
    return taken;
}

/* [locked] */
static void let_go(struct ps_span *span)
{
    if (span->grace.holds_launches)
        ps_grace_came_back(span, NULL);
    span->grace.holds_launches = false;
    span->stand_ins.shown_by = NULL;
    span->busy = false;
    ps_block_order_rests(span);
    ps_registry_changed();
}

/*
 * Holds up launches that may use a taken span without naming it: they would find the stand-in's
 * bytes. Launches under way end first; later ones begin when the spans are let go. Returns 0, or
 * -ETIMEDOUT if a launch takes long to be queued or to end. [locked; releases the lock meanwhile]
 */
static int hold_launches(struct ps_span *const *spans, size_t count)
{
    int r = 0;

    for (size_t i = 0; i < count && !r; i++) {
        struct ps_span *span = spans[i];
        if (span->stand_ins.shown_by != &self || span->grace.holds_launches || ps_grace_is_over(span) ||
            !ps_ordering_rule(STAND_IN_HOLDS_LAUNCHES))
            continue;
        ps_registry_unlock();
        r = ps_grace_comes_back(span, HELD_NS);
        ps_registry_lock();
        span->grace.holds_launches = !r;
    }
    return r;
}

/* [locked] */
static void let_go_all(struct ps_span *const *spans, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (spans[i]->stand_ins.shown_by == &self)
            let_go(spans[i]);
}

/*
 * Takes the spans once the work on their slots is over, and holds up launches that may use them
 * unseen. On failure no span is taken.
 *
 * Two clocks: such a launch may wait, on the device, for a launch that is held up here. So all
 * spans are let go from time to time. [locked; releases the lock meanwhile]
 */
static void take_and_hold(struct ps_span *const *spans, size_t count)
{
    const uint64_t since = ps_now_ns();

    for (;;) {
        struct ps_uses uses = {.count = 0};
        int r = 0;
        if (is_one_in_grace(spans, count))
            ps_grace_gives_way();
        if (!wait_until_unused(spans, count))
            return;
        if (!take(spans, count, &uses))
            return;
        if (ps_ordering_rule(STAND_IN_WAITS_FOR_SLOT_USES)) {
            ps_registry_unlock();
            r = ps_uses_host_wait_for_queued(&uses, RUNNING_NS);
            ps_registry_lock();
        }
        const uint64_t began = ps_now_ns();
        if (!r)
            r = hold_launches(spans, count);
        if (!r)
            return;
        let_go_all(spans, count);
        /* True: a launch is still in its call. False: one runs on the device. */
        const bool one_stands = ps_now_ns() - began < HELD_NS;
        if (r != -ETIMEDOUT || ps_now_ns() - since > (one_stands ? LAUNCHING_NS : RUNNING_NS))
            return;
    }
}

/*
 * Moves the mapping from the slot, or from nothing, to the pages. Returns 0 or -errno. [unlocked;
 * the span is busy]
 */
static int show(struct ps_span *span, const struct ps_pages *pages)
{
    int r = span->backing == PS_BACKING_SLOT ? ps_pages_unmap(span->address, span->bytes) : 0;

    if (r)
        return r;
    r = map_again_and_again(span->address, span->bytes, pages);
    if (r && span->backing == PS_BACKING_SLOT && ps_slab_map_row(span->address, span->slot))
        span->backing = PS_BACKING_NONE;
    return r;
}

/*
 * Maps stand-ins for all taken spans. Returns whether at least one was mapped. [locked; releases
 * the lock meanwhile]
 */
static bool show_all(struct ps_span *const *spans, size_t count)
{
    bool some = false;

    for (size_t i = 0; i < count; i++) {
        struct ps_span *span = spans[i];
        size_t size;
        if (span->stand_ins.shown_by != &self || span->stand_ins.mapped)
            continue;
        const struct ps_pages *pages = dev->pages[size_for(span->bytes, &size)];
        ps_registry_unlock();
        const int r = show(span, pages);
        ps_registry_lock();
        span->stand_ins.mapped = !r;
        some |= !r;
        if (r)
            let_go(span);
        else
            ps_count(stand_ins);
    }
    return some;
}

static bool make_pages_for_all(struct ps_span *const *spans, size_t count, bool beside_budget)
{
    bool all = true;

    for (size_t i = 0; i < count; i++)
        if (is_away(spans[i]))
            all &= make_pages(spans[i]->bytes, beside_budget);
    return all;
}

/*
 * No pages are available: the call itself names every span on the device, or there is no budget at
 * all. In the first case one of the named spans may leave and get a stand-in too. In the second the
 * program would end without a few pages beside the budget. No work is queued yet, so the spans need
 * no hold for now. [locked; releases the lock meanwhile]
 */
static bool make_pages_from_their_own(struct ps_span *const *spans, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ps_residency_let_go_idly(spans[i]);
    make_pages_for_all(spans, count, false);
    for (size_t i = 0; i < count; i++)
        ps_residency_hold_idly(spans[i]);
    for (size_t i = 0; i < count; i++) {
        while (spans[i]->busy)
            ps_registry_wait_changed(1000000u);
        if (spans[i]->life == PS_LIFE_LIVE && spans[i]->residency == PS_EVICTING)
            ps_eviction_cancel(spans[i]);
    }
    return make_pages_for_all(spans, count, true);
}

static void say_refusal(void)
{
    ps_log_warn_once(
        RESIDENCY,
        "a copy in a CUDA graph names memory that is on the host, and no device memory can stand in for it now: the "
        "driver may refuse the copy; an `exclude` rule of PENSTOCK_RULES keeps such memory on the device");
}

/* [locked; releases the lock meanwhile] */
static void stand_in(struct ps_span *const *spans, size_t count)
{
    bool ready = true;

    dev->users++;
    if (!make_pages_for_all(spans, count, false))
        ready = make_pages_from_their_own(spans, count);
    if (ready)
        take_and_hold(spans, count);
    if (!show_all(spans, count))
        stop_using();
}

/*
 * Maps the span's addresses to its slot under any guard, for accesses during the call. [locked;
 * releases the lock meanwhile]
 */
static void lead_to_slot(struct ps_span *span)
{
    while (span->busy)
        ps_registry_wait_changed(1000000u);
    if (is_away(span))
        ps_guard_map_to_slot(span);
}

void ps_standing_in_begin(struct ps_span *const *spans, size_t count, bool is_kernel)
{
    const uint64_t began = ps_now_ns();
    bool away = false;

    for (size_t i = 0; i < count && is_kernel; i++)
        lead_to_slot(spans[i]);
    for (size_t i = 0; i < count && !is_kernel; i++) {
        bring(spans[i]);
        away |= is_away(spans[i]);
    }
    if (!away || !ps_ordering_rule(GRAPH_SHOWS_DEVICE_PAGES))
        return;
    stand_in(spans, count);
    for (size_t i = 0; i < count; i++)
        if (is_away(spans[i]) && !spans[i]->stand_ins.mapped) {
            say_refusal();
            ps_guard_map_to_slot(spans[i]);
        }
    ps_waits_kept_since(began);
}

/* Moves the mapping back to the slot, or to nothing. [unlocked; the span is busy] */
static void put_back(struct ps_span *span)
{
    int r = ps_pages_unmap(span->address, span->bytes);

    for (unsigned i = 0; r && i < UNMAP_TRIES; i++)
        r = ps_pages_unmap(span->address, span->bytes);
    if (r)
        ps_log_warn_once(RESIDENCY,
                         "the driver refused to unmap pages that stood in for a span's (error %d): "
                         "kernels that use the span find other bytes; see `penstock doctor`",
                         -r);
    else if (span->backing == PS_BACKING_SLOT && ps_slab_map_row(span->address, span->slot))
        span->backing = PS_BACKING_NONE;
}

void ps_standing_in_end(struct ps_span *const *spans, size_t count, enum ps_guard guard)
{
    bool some = false;

    for (size_t i = 0; i < count; i++) {
        struct ps_span *span = spans[i];
        if (span->stand_ins.shown_by != &self)
            continue;
        some = true;
        ps_registry_unlock();
        put_back(span);
        ps_registry_lock();
        span->stand_ins.mapped = false;
        let_go(span);
        if (span->backing == PS_BACKING_NONE && guard != PS_GUARD_UNMAP)
            ps_guard_soon(span); /* the guard's thread may have skipped the busy span */
    }
    if (some)
        stop_using();
}
