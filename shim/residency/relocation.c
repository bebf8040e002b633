#include "residency/relocation.h"

#include <errno.h>

#include "base/clock.h"
#include "base/ordering_rules.h"
#include "base/settings.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "memory/blocks.h"
#include "memory/registry.h"
#include "memory/slab.h"
#include "residency/eviction.h"
#include "residency/freed_spans.h"
#include "residency/residency.h"

/* The longest wait. The awaited work may itself wait for work that this thread has yet to queue. */
#define PATIENCE_NS 1000000000u

CUdeviceptr ps_relocation_take(size_t bytes, size_t alignment)
{
    size_t more = alignment > ps_reservation.granularity ? alignment - ps_reservation.granularity : 0;

    ps_registry_lock();
    CUdeviceptr address = ps_registry_take_addresses(bytes + more);
    if (address && more) {
        CUdeviceptr aligned = (address + alignment - 1) & ~(CUdeviceptr)(alignment - 1);
        if (aligned > address)
            ps_registry_give_addresses(address, aligned - address);
        if (aligned - address < more)
            ps_registry_give_addresses(aligned + bytes, more - (aligned - address));
        address = aligned;
    }
    ps_registry_unlock();
    return address;
}

static uint64_t left_until(uint64_t until)
{
    uint64_t now = ps_now_ns();

    return until > now ? until - now : 0;
}

/*
 * Waits for the span's earlier uses, and for the H2D that brought it. [locked; releases the lock
 * meanwhile]
 */
static int wait_for_uses(struct ps_span *span, uint64_t until)
{
    const struct ps_uses former = {.use = {span->order.after}, .count = span->order.after.stream != NULL};
    struct ps_uses uses = span->order.uses;
    CUevent fence = span->order.fence_set ? span->order.fence : NULL;

    ps_uses_merge(&uses, &former);
    span->busy = true;
    ps_registry_unlock();
    int r = ps_uses_host_wait_at_most(&uses, left_until(until));
    if (!r && fence && ps_ordering_rule(MOVE_WAITS_FOR_COPIES))
        r = ps_event_host_wait_at_most(fence, left_until(until));
    ps_registry_lock();
    span->busy = false;
    ps_registry_changed();
    if (r)
        return r;
    ps_uses_clear(&span->order.uses);
    span->order.fence_set = false;
    span->order.after.stream = NULL;
    if (span->residency == PS_RELOADING)
        span->residency = PS_RESIDENT;
    return 0;
}

/* Returns whether a D2H of the span, cancelled or not, or an H2D is queued. [locked] */
static bool is_copied(const struct ps_span *span)
{
    return (span->order.readers || span->order.fence_set) && ps_ordering_rule(MOVE_WAITS_FOR_COPIES);
}

/*
 * Waits until the span's copies and other queued work are over, and no thread works on it.
 *
 * Two clocks: no stream could keep an order between new addresses and old ones, so the host waits.
 * The program's own work is over, or the program would not have unmapped the addresses. Returns 0,
 * -ETIMEDOUT, or another -errno. [locked; releases the lock meanwhile]
 */
static int settle(struct ps_span *span, uint64_t until)
{
    int r = 0;

    while (!r) {
        if (!span->busy && span->residency == PS_EVICTING)
            ps_eviction_cancel(span);
        if (span->busy || span->holds.launching || (span->order.readers && is_copied(span))) {
            r = ps_now_ns() < until ? 0 : -ETIMEDOUT;
            ps_registry_wait_changed(1000000u);
        } else if (span->order.uses.count || span->order.uses.everywhere || span->order.after.stream ||
                   is_copied(span)) {
            r = wait_for_uses(span, until);
        } else {
            break;
        }
    }
    return r;
}

/* [locked; releases the lock meanwhile] */
static int move_one(struct ps_span *span, CUdeviceptr to, struct ps_block *into, bool placed)
{
    int r = settle(span, ps_now_ns() + PATIENCE_NS);

    if (r)
        return r;
    const enum ps_backing was = span->backing;
    enum ps_backing is = was;
    /* A piece at rest must be mapped (blocks.h). */
    if (was == PS_BACKING_NONE && into && ps_settings.guard != PS_GUARD_UNMAP)
        is = PS_BACKING_SLOT;
    span->busy = true;
    ps_registry_unlock();
    if (is == PS_BACKING_DEVICE)
        r = ps_pages_map(to, span->pages);
    if (is == PS_BACKING_SLOT)
        r = ps_slab_map_row(to, span->slot);
    if (!r && was != PS_BACKING_NONE) {
        r = ps_pages_unmap(span->address, span->bytes);
        if (r)
            ps_pages_unmap(to, span->bytes);
    }
    ps_registry_lock();
    span->busy = false;
    ps_registry_changed();
    if (r)
        return r;
    span->backing = is;
    ps_registry_move(span, to, placed);
    ps_block_join(span, into);
    return 0;
}

int ps_relocation_move(CUdeviceptr from, size_t bytes, CUdeviceptr to, struct ps_block *into, bool placed)
{
    size_t moved = 0;
    int r = 0;

    ps_registry_lock();
    struct ps_span *span = ps_registry_live_at(from);
    struct ps_block *whole = span ? ps_block_whole(span) : NULL, *was_in = span ? ps_block_of(span) : NULL;
    const bool was_placed = span && span->placed;
    while (!r && moved < bytes) {
        span = ps_registry_live_at(from + moved);
        r = span && span->address == from + moved ? move_one(span, to + moved, into ? into : whole, placed) : -EINVAL;
        if (!r)
            moved += span->bytes;
    }
    if (!r && whole && !into)
        ps_block_moved(whole, to);
    if (!r && whole && into)
        ps_block_end(whole);
    for (size_t back = 0; r && back < moved; back += span->bytes) {
        span = ps_registry_live_at(to + back);
        if (!span || move_one(span, from + back, was_in, was_placed))
            break;
    }
    ps_registry_unlock();
    return r;
}

void ps_relocation_keep(CUdeviceptr address, size_t bytes, bool hidden)
{
    ps_registry_lock();
    for (CUdeviceptr at = address; at < address + bytes;) {
        struct ps_span *span = ps_registry_live_at(at);
        if (span) {
            ps_registry_set_placed(span, true);
            span->hidden = hidden;
        }
        at = span ? span->address + span->bytes : at + ps_reservation.granularity;
    }
    ps_registry_unlock();
}

int ps_relocation_clear(CUdeviceptr address, size_t bytes)
{
    uint64_t until = ps_now_ns() + PATIENCE_NS;
    int r = 0;

    ps_registry_lock();
    for (CUdeviceptr at = address; !r && at < address + bytes;) {
        struct ps_span *span = ps_address_span(at);
        if (!span) {
            at += ps_reservation.granularity;
        } else if (span->life == PS_LIFE_LIVE) {
            r = -EINVAL;
        } else if (ps_now_ns() >= until) {
            r = -ETIMEDOUT;
        } else if (span->life != PS_LIFE_CACHED || !ps_freed_end(span)) {
            ps_eviction_draining_waits();
            ps_registry_wait_changed(1000000u);
        }
    }
    ps_registry_unlock();
    return r;
}

void ps_relocation_give(CUdeviceptr address, size_t bytes)
{
    CUdeviceptr behind = address + bytes, nobodys = address;

    ps_registry_lock();
    for (CUdeviceptr at = address; at < behind;) {
        struct ps_span *span = ps_address_span(at);
        if (!span) {
            at += ps_reservation.granularity;
            continue;
        }
        ps_registry_set_placed(span, false);
        if (span->life == PS_LIFE_LIVE && ps_block_of(span) && ps_block_of(span)->grows)
            ps_block_join(span, NULL);
        if (span->address > nobodys)
            ps_registry_give_addresses(nobodys, span->address - nobodys);
        at = nobodys = span->address + span->bytes;
    }
    if (behind > nobodys)
        ps_registry_give_addresses(nobodys, behind - nobodys);
    ps_registry_unlock();
}
