#include "residency/residency.h"

#include <errno.h>

#include "base/clock.h"
#include "base/counters.h"
#include "base/ordering_rules.h"
#include "base/per_device.h"
#include "base/waits.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "memory/blocks.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "residency/block_order.h"
#include "residency/bouncing.h"
#include "residency/events.h"
#include "residency/eviction.h"
#include "residency/eviction_queue.h"
#include "residency/grace.h"
#include "residency/guard.h"
#include "residency/page_supply.h"
#include "residency/plan_table.h"
#include "residency/reloading.h"
#include "residency/sole_stream.h"
#include "residency/stopwatch.h"

static PS_PER_DEVICE enum ps_guard first_guard; /* constant once set up */

void ps_residency_open(enum ps_guard how)
{
    PS_HERE(first_guard) = how;
    ps_reload_open(how);
}

enum ps_guard ps_residency_guard(void)
{
    return PS_HERE(first_guard);
}

/* Waits until no thread makes driver calls on the span. [locked; releases the lock meanwhile] */
static void wait_until_not_busy(const struct ps_span *span)
{
    while (span->busy)
        ps_registry_wait_changed(1000000000u);
}

/* ---- access ---- */

/*
 * No pages are available, so the work runs on the slot. The span's addresses may not be mapped to
 * it yet. [locked; releases it]
 */
static void leave_on_slot(struct ps_span *span)
{
    ps_count(accesses_on_slot);
    span->holds.on_slot = true;
    /* Launches in the grace that begins with this launch run on the slot, too. */
    if (atomic_load_explicit(&span->grace.known, memory_order_relaxed))
        span->grace.left_in = true;
    ps_guard_map_to_slot(span);
}

/*
 * Makes `stream` wait until the span's bytes are valid. [locked; releases the lock meanwhile; held
 * by `launching`, or it may be gone afterwards]
 */
static void wait_for_fence(struct ps_span *span, struct ps_stream *stream)
{
    /* Streams with a higher index are not remembered: they wait each time. */
    uint64_t bit = stream->index < 64 ? 1ull << stream->index : 0;
    const uint64_t number = span->number;
    CUevent fence = span->order.fence;

    if (!span->order.fence_set || span->order.fence_seen & bit ||
        (!ps_ordering_rule(EVERY_STREAM_WAITS) && span->order.fence_seen))
        return;
    ps_registry_unlock();
    ps_stopwatch_wait_begins(stream);
    /*
     * Two clocks: the launch waits on its own stream. The fence can't be recorded again meanwhile,
     * since that takes an eviction first.
     */
    if (ps_ordering_rule(ACCESS_WAITS_FOR_RELOAD))
        ps_stream_or_host_comes_after(stream, fence);
    ps_registry_lock();
    if (span->number != number)
        return;
    span->order.fence_seen |= bit;
    if (span->residency == PS_RELOADING)
        span->residency = PS_RESIDENT;
}

/*
 * Makes a second stream of a one-stream program wait for the former owner's use (`after`). [locked;
 * releases the lock meanwhile; the span is held by `launching`]
 */
static void wait_for_former_owner(struct ps_span *span, struct ps_stream *stream)
{
    uint64_t bit = stream->index < 64 ? 1ull << stream->index : 0;
    struct ps_uses former = {.use = {span->order.after}, .count = 1};

    if (!span->order.after.stream || span->order.after.stream == stream || span->order.after_seen & bit)
        return;
    ps_registry_unlock();
    if (ps_stream_comes_after_uses(stream, &former) && ps_uses_host_wait(&former))
        ps_cu.cuCtxSynchronize(); /* the event wait failed; this wait needs no events */
    ps_registry_lock();
    span->order.after_seen |= bit;
}

/* If the mapping moved now, nothing would order the launch after the H2D. */
bool ps_residency_stays_on_slot(const struct ps_span *span)
{
    return ((span->holds.on_slot || ps_registry.blind_launches) && ps_ordering_rule(RELOAD_WAITS_FOR_LAUNCH)) ||
           span->holds.pinned || ps_block_order_is_launching(span);
}

/* A launch waits at most this long for the eviction of a span that it could keep. */
#define LET_LEAVE_NS 250000000u

/*
 * Another thread has waited long for pages. It would wait for ever if each eviction were cancelled
 * by an access just before its D2H ended. (Two threads; one runs a short loop over spans that are
 * the other's only hope.) So the span leaves, and comes back once the other thread has had its
 * pages.
 *
 * Two clocks: the D2H waits for work that is queued already. That work may wait, on the device, for
 * a launch that this thread is about to queue (a collective). So the wait here has a time limit.
 * [locked; releases the lock meanwhile; the span is held by `launching`]
 */
static void let_it_leave(const struct ps_span *span)
{
    uint64_t began = 0;

    while (ps_budget.starving && span->life == PS_LIFE_LIVE && span->residency == PS_EVICTING) {
        uint64_t now = ps_now_ns();
        if (!began)
            began = now;
        if (now - began > LET_LEAVE_NS)
            return;
        ps_registry_wait_changed(1000000u);
    }
}

/*
 * Waits while a thread that reloads ahead is about to reload the span. [locked; releases the lock
 * meanwhile; the span is held by `launching`]
 */
static void wait_for_turn(const struct ps_span *span)
{
    const uint64_t began = ps_now_ns();

    ps_events_wait_begins(PS_EVENTS_LAUNCH_FOR_TURN, span->bytes);
    do
        ps_registry_wait_changed(1000000u);
    while (!span->busy && span->life == PS_LIFE_LIVE && span->residency == PS_EVICTED &&
           !ps_residency_stays_on_slot(span) && ps_plan.will_bring(span));
    ps_events_waited(PS_EVENTS_LAUNCH_FOR_TURN, span->bytes, began, ps_now_ns());
}

/*
 * Returns whether another thread gave work to a second stream during the search for pages. Then
 * pages that wait for the first stream's uses will not do. [locked]
 */
static bool is_no_more_for(const struct ps_need *need, const struct ps_span *span)
{
    return need->stream && !ps_sole_stream_for(span, need->stream);
}

void ps_residency_make_ready(struct ps_span *span, struct ps_stream *stream)
{
    bool timed = !ps_plan.learns(), gave_way = false;

    for (;;) {
        wait_until_not_busy(span);
        if (span->life != PS_LIFE_LIVE)
            return;
        if (span->residency == PS_EVICTING) {
            if (!ps_ordering_rule(ACCESS_JOINS_EVICTION))
                return;
            let_it_leave(span);
            if (span->busy || span->life != PS_LIFE_LIVE)
                continue;
            if (span->residency == PS_EVICTING)
                ps_eviction_cancel(span);
        }
        if (span->residency != PS_EVICTED)
            break;

        if (ps_residency_stays_on_slot(span) || ps_bouncing_stays(span)) {
            leave_on_slot(span);
            return;
        }
        if (!timed) { /* from here on the device may run out of work */
            timed = true;
            ps_registry_unlock();
            ps_stopwatch_wait_begins(stream);
            ps_registry_lock();
            continue;
        }
        /*
         * Two clocks: the host reaches the launch long before the device does. The thread that
         * reloads ahead may not have reached its reload yet. That reload is queued in its turn.
         * This thread waits on the host for that, not for the H2D. Out of turn, it would delay
         * reloads that are needed sooner.
         */
        if (ps_plan.will_bring(span)) {
            wait_for_turn(span);
            continue;
        }
        if (!gave_way && ps_reload_is_in_grace(span)) {
            gave_way = true;
            ps_grace_gives_way();
            continue;
        }
        const struct ps_need need = {ps_sole_stream_for(span, stream)};
        struct ps_supply supply;
        if (ps_page_supply_obtain(span->bytes, &need, &supply)) {
            wait_until_not_busy(span);
            /*
             * Another thread has brought the span meanwhile, and the stream must wait for its H2D.
             */
            if ((span->life != PS_LIFE_LIVE || span->residency != PS_EVICTED) && ps_ordering_rule(ACCESS_LOOKS_AGAIN))
                continue;
            if (span->residency != PS_EVICTED)
                return;
            leave_on_slot(span);
            return;
        }
        /* The lock was released: another thread may have been here. */
        if (span->busy || span->life != PS_LIFE_LIVE || span->residency != PS_EVICTED ||
            ps_residency_stays_on_slot(span) || is_no_more_for(&need, span)) {
            ps_page_supply_return(&supply);
            continue;
        }
        if (ps_reload(span, &supply, &need, false)) {
            if (span->residency == PS_EVICTED)
                leave_on_slot(span);
            return;
        }
        ps_count(demand_reloads);
    }
    if (!stream)
        return;
    wait_for_former_owner(span, stream);
    wait_for_fence(span, stream);
}

int ps_residency_bring(struct ps_span *span)
{
    /* The next access is assumed to be on the stream of the last one, as is usual. */
    const struct ps_need need = {ps_sole_stream_for(span, span->access.stream)};
    struct ps_supply supply;

    if (span->busy)
        return -EBUSY;
    if (span->life == PS_LIFE_LIVE && span->residency == PS_EVICTING) {
        ps_eviction_cancel(span);
        return -EALREADY;
    }
    if (span->life != PS_LIFE_LIVE || span->residency != PS_EVICTED || ps_residency_stays_on_slot(span) ||
        span->holds.excluded || ps_reload_is_in_grace(span))
        /*
         * A span that rules keep in its place, or that may be used there, comes back only for a
         * launch.
         */
        return -ENOENT;
    if (ps_block_order_holds(span))
        return -EBUSY;
    if (ps_page_supply_obtain_now(span->bytes, &need, &supply))
        return -EAGAIN;
    /* The lock may have been released for the driver: another thread may have been here. */
    if (span->busy || span->life != PS_LIFE_LIVE || span->residency != PS_EVICTED || ps_residency_stays_on_slot(span)) {
        ps_page_supply_return(&supply);
        return span->busy ? -EBUSY : -ENOENT;
    }
    if (is_no_more_for(&need, span)) {
        ps_page_supply_return(&supply);
        return -EAGAIN;
    }
    return ps_reload(span, &supply, &need, true);
}

int ps_residency_reload_ahead(CUdeviceptr address)
{
    int r;

    ps_registry_lock();
    do {
        struct ps_span *span = ps_registry_live_at(address);
        if (span)
            wait_until_not_busy(span); /* its addresses may be on their way to its slot */
        r = span && span->residency == PS_EVICTED ? ps_residency_bring(span) : -ENOENT;
        if (r == -EBUSY && ps_block_order_holds(span))
            ps_registry_wait_changed(1000000u);
    } while (r == -EBUSY); /* driver calls on it began during the search for pages */
    ps_registry_unlock();
    return r;
}

void ps_residency_asked_about(CUdeviceptr address)
{
    if (!ps_address_is_a_spans(address))
        return;
    ps_devices_enter_address(address);
    ps_registry_lock();
    struct ps_span *span = ps_registry_live_at(address);
    if (span)
        wait_until_not_busy(span);
    if (span && span->life == PS_LIFE_LIVE && span->residency == PS_EVICTED)
        ps_guard_map_to_slot(span);
    ps_registry_unlock();
}

void ps_residency_let_peers_in(void)
{
    CUdeviceptr from = ps_registry.start;
    struct ps_span *span;

    ps_registry_lock();
    while ((span = ps_registry_next_settled(&from, false))) {
        if ((span->life != PS_LIFE_LIVE && span->life != PS_LIFE_CACHED) || span->backing == PS_BACKING_NONE)
            continue; /* later mappings give the peers access themselves */
        span->busy = true;
        ps_registry_unlock();
        ps_pages_give_access(span->address, span->bytes);
        ps_registry_lock();
        span->busy = false;
        ps_registry_changed();
    }
    ps_eviction_look_ahead(); /* the queue of evictions has skipped busy spans */
    ps_registry_unlock();
}

void ps_residency_hold(struct ps_span **spans, size_t *count)
{
    size_t n = 0;

    ps_registry_lock();
    for (size_t i = 0; i < *count; i++) {
        if (spans[i]->life != PS_LIFE_LIVE)
            continue;
        ps_residency_hold_one(spans[i]);
        spans[n++] = spans[i];
    }
    *count = n;
    for (size_t i = 0; i < n; i++)
        ps_residency_make_ready(spans[i], NULL);
    ps_registry_unlock();
}

void ps_residency_let_go(struct ps_span *const *spans, size_t count, struct ps_stream *stream)
{
    if (stream)
        ps_stream_settle(stream);
    ps_registry_lock();
    ps_sole_stream_works(stream, true);
    for (size_t i = 0; i < count; i++) {
        if (stream)
            ps_uses_note(&spans[i]->order.uses, stream);
        ps_residency_let_go_one(spans[i]);
    }
    ps_registry_unlock();
}

bool ps_residency_settle(struct ps_span *const *spans, size_t count, bool writes)
{
    bool on_pages = true;

    for (size_t i = 0; i < count; i++) {
        ps_registry_lock();
        on_pages &= spans[i]->has_pages;
        CUevent fence = spans[i]->order.fence_set ? spans[i]->order.fence : NULL;
        struct ps_uses former = {.use = {spans[i]->order.after}, .count = writes && spans[i]->order.after.stream};
        ps_registry_unlock();
        /*
         * Two clocks: the coming access has no stream to wait on. The fence can't be recorded
         * again: that takes an eviction, and the span is held.
         */
        if ((fence && ps_event_host_wait(fence)) || ps_uses_host_wait(&former))
            ps_cu.cuCtxSynchronize(); /* the event wait failed; this wait needs no events */
    }
    return on_pages;
}

void ps_residency_pin(struct ps_span *const *spans, size_t count)
{
    ps_registry_lock();
    for (size_t i = 0; i < count; i++)
        if (spans[i]->life == PS_LIFE_LIVE && spans[i]->holds.user_pins < UINT32_MAX)
            spans[i]->holds.user_pins++;
    ps_registry_unlock();
}

void ps_residency_unpin(CUdeviceptr address)
{
    ps_devices_enter_address(address);
    ps_registry_lock();
    struct ps_span *span = ps_registry_live_at(address);
    if (span && span->holds.user_pins)
        span->holds.user_pins--;
    ps_registry_unlock();
}

void ps_residency_begin_access_to_all(struct ps_stream *stream)
{
    CUdeviceptr from = ps_registry.start;
    struct ps_span *span;

    ps_registry_lock();
    ps_grace_numbers_launch();
    ps_sole_stream_works(stream, true);
    ps_registry.blind_launches++; /* nothing may leave from here on */
    while ((span = ps_registry_next_settled(&from, true))) {
        if (span->life != PS_LIFE_LIVE)
            continue;
        atomic_store_explicit(&span->grace.known, true, memory_order_relaxed);
        if (span->residency == PS_EVICTING)
            ps_eviction_cancel(span);
        if (span->residency == PS_EVICTED)
            leave_on_slot(span);
        else
            wait_for_fence(span, stream);
    }
    ps_registry_unlock();
}

void ps_residency_end_access_to_all(struct ps_stream *stream)
{
    struct ps_span *span;

    ps_stream_settle(stream);
    ps_registry_lock();
    for (CUdeviceptr a = ps_registry.start; (span = ps_registry_next(a)); a = span->address + span->bytes) {
        if (span->life != PS_LIFE_LIVE)
            continue;
        ps_uses_note(&span->order.uses, stream);
        if (span->holds.launching <= span->holds.idle)
            span->holds.on_slot = false; /* the launch held it by `blind_launches` alone */
    }
    ps_registry.blind_launches--;
    ps_registry_unlock();
}

int ps_residency_look_up(CUdeviceptr address, CUdeviceptr *start, size_t *requested)
{
    int r = -ENOENT;

    if (!ps_address_is_a_spans(address))
        return r;
    ps_devices_enter_address(address);
    ps_registry_lock();
    const struct ps_span *span = ps_registry_live_at(address);
    const struct ps_block *block = span ? ps_block_whole(span) : NULL;
    if (span) {
        *start = block ? block->address : span->address;
        *requested = block ? block->requested : span->requested;
        r = span->hidden ? -ENXIO : 0;
    }
    ps_registry_unlock();
    return r;
}
