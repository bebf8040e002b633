#include "core/allocation.h"

#include <errno.h>

#include "base/bytes_text.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/observers.h"
#include "base/ordering_rules.h"
#include "base/state.h"
#include "base/waits.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "cuda/managed_context.h"
#include "kernels/pointer_tables.h"
#include "memory/blocks.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/slab.h"
#include "plan/following.h"
#include "plan/learning.h"
#include "plan/preallocation.h"
#include "residency/copies.h"
#include "residency/events.h"
#include "residency/eviction.h"
#include "residency/freed_spans.h"
#include "residency/page_retention.h"
#include "residency/page_supply.h"
#include "residency/prefetch.h"
#include "residency/stopwatch.h"

/*
 * With more streams than this a reused cudaMalloc'd span is ordered at each stream's first visible
 * access only.
 */
#define STREAMS_ORDERED_AT_ONCE 8u

/* [locked] */
static void born(struct ps_span *span)
{
    if (!span)
        return;
    ps_learning_allocated(span);
    if (ps_verify_is_on())
        ps_observers.born(span);
}

/* ---- reuse of a freed span ---- */

/*
 * cudaMalloc: any stream may use the memory at once, so one event that stands for everything that
 * used it before is waited for by every stream now known, and by later ones at their first access
 * (the fence).
 *
 * Two clocks: that is what the device was given before the cudaFree, for which the real one has the
 * host wait. No stream waits longer than the host would have without Penstock.
 */
static int order_for_all_streams(struct ps_span *span, const struct ps_uses *uses)
{
    uint64_t seen = 0;
    int r = 0;

    if (!span->order.fence)
        r = ps_cuda_errno(ps_cu.cuEventCreate(&span->order.fence, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    if (!r)
        r = ps_copies_join(uses, span->order.fence_set, span->order.fence);
    uint32_t n = ps_streams_count();
    for (uint32_t i = 0; !r && n <= STREAMS_ORDERED_AT_ONCE && i < n; i++) {
        /*
         * Both wait at their first access. Given a wait now, the legacy stream would be a barrier
         * between blocking streams, which may wait for each other.
         */
        if (ps_stream_is_foreign(ps_streams_at(i)) || ps_stream_orders_others(ps_streams_at(i)))
            continue;
        int one = ps_stream_wait_event(ps_streams_at(i), span->order.fence);
        if (!one)
            seen |= 1ull << i;
        /*
         * Gone, another thread's own, or being captured: it waits at its first access, if it has
         * one.
         */
        if (one && one != -ENOENT && one != -EXDEV && one != -EBUSY)
            r = one;
    }
    ps_registry_lock();
    if (!r) {
        span->order.fence_set = true;
        span->order.fence_seen = seen;
    }
    ps_registry_unlock();
    return r;
}

/*
 * Whether what used the span before is ordered before the new owner's work without anything being
 * done. [locked]
 */
static bool is_ordered_already(const struct ps_span *span, const struct ps_stream *stream)
{
    const struct ps_uses *uses = &span->order.uses;

    if (uses->everywhere)
        return false;
    for (unsigned i = 0; i < uses->count; i++)
        if (uses->use[i].stream != stream)
            return false;
    return true;
}

/* The only stream that the program has used, or NULL when there are several (or none). */
static const struct ps_stream *only_stream(void)
{
    return ps_streams_count() == 1 ? ps_streams_at(0) : NULL;
}

static void free_span(struct ps_span *span, const struct ps_uses *uses);

/*
 * A freed span lives again for an allocation that `orders_itself` comes after by itself; for one on
 * `stream` that does not, the stream waits. The lock is released then. False: that can't be, and it
 * is a freed one again. [locked on entry]
 */
static bool reuse(struct ps_span *span, size_t requested, struct ps_stream *stream,
                  const struct ps_stream *orders_itself)
{
    struct ps_uses uses = span->order.uses;

    ps_registry_revive(span, requested);
    born(span);
    if (is_ordered_already(span, orders_itself) || !ps_ordering_rule(REUSE_WAITS_FOR_FREE)) {
        /*
         * The one stream that the program has comes after its own work by itself. A second one,
         * made later, must come after it too: it waits at its first access, should there ever be
         * one.
         */
        if (!stream && uses.count && ps_ordering_rule(REUSE_WAITS_FOR_FREE)) {
            span->order.after = uses.use[0];
            span->order.after_seen = 0;
        }
        ps_registry_unlock();
        return true;
    }
    span->holds.launching++; /* nobody's victim while its order is made */
    ps_registry_unlock();
    /* Two clocks: streams wait, the host goes on. */
    int r = stream ? ps_stream_comes_after_uses(stream, &uses) : order_for_all_streams(span, &uses);
    /*
     * The host waits where the stream can't; not while a capture has begun since the program asked,
     * by another thread.
     */
    if (r && ps_managed_context_wait()) {
        ps_registry_lock();
        span->holds.launching--;
        ps_learning_freed(span);
        free_span(span, &uses);
        return false;
    }
    if (r && r != -EAGAIN) /* which is: it is not known yet which streams there are */
        ps_log_warn_once(RESIDENCY,
                         "an allocation could not be ordered by events (error %d): Penstock waited for the "
                         "whole device instead, which is correct but slow; see `penstock doctor`",
                         -r);
    if (stream)
        ps_stream_settle(stream);
    ps_registry_lock();
    if (stream) {
        ps_uses_clear(&span->order.uses); /* the stream now comes after them all */
        ps_uses_note(&span->order.uses, stream);
    }
    span->holds.launching--;
    ps_registry_unlock();
    return true;
}

/* ---- a new span ---- */

/* What is to be made. */
struct birth {
    size_t bytes, requested;
    struct ps_block *block; /* it is a piece of, at `address`; NULL: none, and anywhere */
    CUdeviceptr address;
    bool discarded; /* it could not be made, and has given its addresses back */
};

/* [locked] */
static struct ps_span *begin_life(const struct birth *b)
{
    return b->block ? ps_registry_new_piece(b->block, b->address, b->bytes, b->requested)
                    : ps_registry_new(b->bytes, b->requested);
}

/* [locked] */
static void discard(struct birth *b, struct ps_span *span)
{
    ps_registry_end_life(span);
    ps_registry_delete(span);
    b->discarded = true;
}

/*
 * A span on new device pages. 0; -ENOMEM: no pages; -ENOSPC. [locked; releases the lock meanwhile]
 */
static int create_on_pages(struct birth *b, CUdeviceptr *address)
{
    struct ps_supply supply;
    int r = ps_page_supply_obtain(b->bytes, NULL, &supply);

    if (r && r != -ENOMEM)
        ps_log_warn_once(RESIDENCY,
                         "the driver refused to create device pages (error %d): CUDA serves such "
                         "allocations, outside the budget, and they do not move; see `penstock doctor`",
                         -r);
    if (r)
        return r;
    struct ps_span *span = begin_life(b);
    if (!span) {
        ps_page_supply_return(&supply);
        return -ENOSPC;
    }
    span->busy = true;
    ps_registry_unlock();
    r = ps_pages_map(span->address, supply.pages);
    if (!r)
        span->backing = PS_BACKING_DEVICE;
    ps_registry_lock();
    span->busy = false;
    if (r) {
        ps_log_warn_once(RESIDENCY,
                         "the driver refused to map device pages (error %d): CUDA serves such "
                         "allocations, outside the budget, and they do not move; see `penstock doctor`",
                         -r);
        discard(b, span);
        ps_page_supply_return(&supply);
        return r == -ENOMEM ? -EIO : r;
    }
    span->pages = supply.pages;
    span->has_pages = true;
    span->residency = PS_RESIDENT;
    span->access.launch = ps_registry.launch_number;
    TAILQ_INSERT_TAIL(&ps_registry.idle_order, span, listed);
    *address = span->address;
    return 0;
}

/*
 * A span that begins on a slot, when no pages can be had. 0; -ENOMEM; -ENOSPC. [locked; releases
 * the lock meanwhile]
 */
static int create_on_slot(struct birth *b, CUdeviceptr *address)
{
    struct ps_slot *slot = ps_slab_take_row(b->bytes);
    int r = 0;

    if (!slot) {
        ps_registry_unlock();
        r = ps_slab_make(b->bytes, &slot);
        ps_registry_lock();
    }
    if (r)
        return -ENOMEM;
    struct ps_span *span = begin_life(b);
    if (!span) {
        ps_slab_give(slot);
        return -ENOSPC;
    }
    span->busy = true;
    span->residency = PS_EVICTED;
    span->slot = slot;
    ps_registry_unlock();
    /*
     * An H2D may still read the slot for its last owner: the new owner's writes must come after.
     * Rare, and a short copy: wait here.
     */
    r = ps_slab_wait_until_read(slot);
    if (!r)
        r = ps_slab_map_row(span->address, slot);
    if (!r)
        span->backing = PS_BACKING_SLOT;
    ps_registry_lock();
    span->busy = false;
    if (r) {
        span->slot = NULL;
        ps_slab_give(slot);
        discard(b, span);
        return r;
    }
    ps_slab_read_is_over(slot);
    ps_count(spans_born_on_slot);
    *address = span->address;
    return 0;
}

static void say_out_of_memory(size_t bytes)
{
    struct ps_slab_figures slab = ps_slab_figures();

    ps_count(out_of_memory);
    ps_events_out_of_memory(bytes);
    ps_log_warn_once(
        BUDGET,
        "out of memory: %s asked for, %s in use by the program, device budget %s (%s held), slab %s of %s: raise PENSTOCK_BUDGET or "
        "PENSTOCK_HOST_BUDGET",
        ps_bytes_text(bytes).text, ps_bytes_text(ps_registry.live_bytes).text,
        ps_budget.limit == UINT64_MAX ? "unlimited" : ps_bytes_text(ps_budget.limit).text,
        ps_bytes_text(ps_budget.held).text, ps_bytes_text(slab.used_bytes).text, ps_bytes_text(slab.limit_bytes).text);
}

/*
 * Nothing leaves for a piece, of which launches may use none for long: what has no content would
 * leave for what has none either, and both would come back. It begins on a slot, and a launch
 * brings it. [locked; releases the lock meanwhile]
 */
static int create(struct birth *b, CUdeviceptr *address)
{
    const uint64_t began = ps_now_ns();
    int r = b->block && ps_budget_must_evict_for(b->bytes) ? create_on_slot(b, address) : -ENOMEM;

    r = r == -ENOMEM ? create_on_pages(b, address) : r;
    r = r == -ENOMEM ? create_on_slot(b, address) : r;
    if (r == -ENOMEM && ps_eviction_is_impossible())
        r = -EIO; /* nothing will make room any more */
    ps_waits_kept_since(began);
    return r;
}

static void free_pieces(struct ps_block *block, const struct ps_uses *uses, struct ps_stream *reader);

/*
 * A block, all of its pieces or none. What has no pages is born on slots: a piece is no victim
 * until all are there, or each would push out one that was made before it. Nobody knows the address
 * yet. 0; as create_on_pages. [locked; releases the lock meanwhile]
 */
static int create_block(size_t bytes, size_t requested, CUdeviceptr *address)
{
    struct ps_block *block = ps_block_new(bytes, requested);
    struct birth piece = {.block = block};
    struct ps_span *span;
    size_t made = 0;
    int r = block ? 0 : -ENOSPC;

    while (!r && made < bytes) {
        piece.address = block->address + made;
        piece.bytes = bytes - made < block->piece_bytes ? bytes - made : block->piece_bytes;
        piece.requested = requested - made < piece.bytes ? requested - made : piece.bytes;
        r = create(&piece, address);
        if (r)
            break;
        made += piece.bytes;
        ps_registry_live_at(piece.address)->holds.launching++;
    }
    if (!block)
        return r;
    PS_BLOCK_EACH (span, block)
        span->holds.launching--;
    if (r) {
        const struct ps_uses none = {0};
        CUdeviceptr left = block->address + made + (piece.discarded ? piece.bytes : 0);
        if (left != block->address + bytes)
            ps_registry_give_addresses(left, block->address + bytes - left);
        free_pieces(block, &none, NULL);
        return r;
    }
    PS_BLOCK_EACH (span, block)
        born(span);
    ps_count(blocks);
    *address = block->address;
    return 0;
}

/*
 * Whether pages and slots of freed spans are still to come back, when copies and last uses are
 * over. [locked]
 */
static bool is_being_freed(void)
{
    return !TAILQ_EMPTY(&ps_registry.draining) || ps_eviction_copies_under_way() || ps_budget.leaving ||
           ps_budget.ending;
}

#define FREED_WITHIN_NS 1000000000u

/*
 * There is no memory: waits for what is being freed. Two clocks: the real cudaFree has waited for
 * the device, ours has not, so what the program has freed may still be in use. False: there is
 * nothing. [locked; releases the lock meanwhile]
 */
static bool wait_for_freed(void)
{
    uint64_t until = ps_now_ns() + FREED_WITHIN_NS;

    if (!is_being_freed())
        return false;
    ps_eviction_draining_waits();
    while (is_being_freed() && ps_now_ns() < until)
        ps_registry_wait_changed(1000000u);
    return true;
}

/* [locked; releases the lock meanwhile] */
static int create_anew(size_t bytes, size_t requested, bool is_block, CUdeviceptr *address)
{
    return is_block ? create_block(bytes, requested, address)
                    : create(&(struct birth){.bytes = bytes, .requested = requested}, address);
}

int ps_allocation_make(size_t bytes, struct ps_stream *stream, enum ps_allocation what, CUdeviceptr *address)
{
    const bool only_asks = what == PS_ALLOCATION_TO_ASK;

    if (bytes > 1ull << ps_reservation.area_shift) {
        say_out_of_memory(bytes);
        return -ENOMEM;
    }
    size_t rounded = ps_address_rounded(bytes);
    bool is_block = ps_block_is_for(bytes, stream != NULL);
    /*
     * Before it is noted which streams there are, the new owner's are not among those known, nor is
     * its first access seen.
     */
    const struct ps_stream *orders_itself = stream ? stream : ps_tracing_notes() ? only_stream() : NULL;

    ps_registry_lock();
    ps_registry.only_asked_bytes = only_asks ? rounded : 0;
    if (only_asks)
        ps_page_retention_asked();
    const bool may_be_larger = what == PS_ALLOCATION_TO_USE && ps_page_retention_prefers_larger(rounded);
    struct ps_span *span = is_block ? NULL : ps_freed_choose(rounded, stream, orders_itself, may_be_larger);
    if (span && reuse(span, bytes, stream, orders_itself)) {
        *address = span->address; /* which nobody knows of yet: the span is what it is without the lock, too */
        ps_count(allocations);
        ps_count_by(larger_reused, span->bytes > rounded);
        return 0;
    }
    if (ps_learning_is_on()) {
        /*
         * Making pages takes microseconds when nothing else is going on and milliseconds beside the
         * helper threads' driver calls (3 ms seen on an H200): if the device runs out of work
         * meanwhile, that is exposed time.
         */
        ps_registry_unlock();
        ps_stopwatch_wait_begins(NULL);
        ps_registry_lock();
    }
    int r = create_anew(rounded, bytes, is_block, address);
    if (r == -ENOMEM && wait_for_freed())
        r = create_anew(rounded, bytes, is_block, address);
    if (!r) {
        if (!is_block)
            born(ps_registry_live_at(*address));
        ps_count(allocations);
        if (!only_asks) {
            ps_page_retention_made(rounded);
            ps_page_supply_keep_ahead();
        }
    } else if (r == -ENOMEM) {
        say_out_of_memory(bytes);
    }
#ifdef PS_DEBUG
    ps_registry_is_valid();
#endif
    ps_registry_unlock();
    return r;
}

/* ---- free ---- */

/* A piece that somebody works on, or NULL. [locked] */
static struct ps_span *busy_piece(const struct ps_block *block)
{
    struct ps_span *span;

    PS_BLOCK_EACH (span, block)
        if (span->busy)
            break;
    return span;
}

/*
 * The live span or first piece that begins at the address, when nobody works on it or its block; or
 * NULL. [locked; may release the lock meanwhile]
 */
static struct ps_span *settled_at(CUdeviceptr address)
{
    struct ps_span *span;

    while ((span = ps_registry_live_at(address)) &&
           (ps_block_whole(span) ? busy_piece(ps_block_whole(span)) != NULL : span->busy))
        ps_registry_wait_changed(1000000000u);
    if (!span || span->address != address)
        return NULL;
    return !ps_block_whole(span) || ps_block_whole(span)->address == address ? span : NULL;
}

/*
 * A live span that nobody works on becomes a freed one, whose next owner comes after `uses` and its
 * fence. [locked]
 */
static void free_span(struct ps_span *span, const struct ps_uses *uses)
{
    span->freed.in_order = true;
    ps_registry_end_life(span);
    span->holds.pinned = 0;
    span->order.uses = *uses;
    /* The freeing stream need not come after the previous owner's uses (`after`). */
    const struct ps_uses former = {.use = {span->order.after}, .count = span->order.after.stream != NULL};
    ps_uses_merge(&span->order.uses, &former);
    span->order.after.stream = NULL;
    switch (span->residency) {
    case PS_RESIDENT:
    case PS_RELOADING: /* the fence stays: the next owner waits for the H2D */
        ps_registry_cache(span);
        break;
    case PS_EVICTING:
        ps_eviction_freed(span);
        break;
    case PS_EVICTED:
        span->life = PS_LIFE_DRAINING;
        TAILQ_INSERT_TAIL(&ps_registry.draining, span, listed);
        ps_eviction_draining_waits();
        break;
    }
}

/*
 * The same of one that holds a pointer table, which launches to come on `reader` may still be
 * given; NULL: it holds none. [locked]
 */
static void free_read(struct ps_span *span, const struct ps_uses *uses, struct ps_stream *reader)
{
    if (reader && span->residency == PS_EVICTING)
        ps_eviction_cancel(span);
    free_span(span, uses);
    if (reader)
        ps_registry_await_launches(span, reader);
}

/*
 * All pieces, without the lock's being released: each is a freed span by itself from here on, whose
 * pages serve whoever needs some of its size. Kept as a block they would serve only one of the same
 * size, and programs that take a large block take it once. `reader` is as above, of a table where
 * the block begins: as many pieces as can be awaited stay for it. [locked; nobody works on a piece]
 */
static void free_pieces(struct ps_block *block, const struct ps_uses *uses, struct ps_stream *reader)
{
    struct ps_span *span;
    uint32_t pieces = 0;

    for (CUdeviceptr at = block->address; (span = ps_block_piece(block, at));) {
        at = span->address + span->bytes; /* it is none any more when it has been freed */
        free_read(span, uses, pieces++ < PS_AWAITING_MAX ? reader : NULL);
    }
    ps_block_end(block);
}

/*
 * cudaFree: other devices' streams are not among all of this one's, and are known where they have
 * used it. [locked]
 */
static void also_after_other_devices(struct ps_uses *uses, const struct ps_stream *stream, const struct ps_uses *used)
{
    if (!stream && ps_devices_several)
        ps_uses_merge(uses, used);
}

/* What is over when memory is freed. */
enum freed {
    BY_STREAM,   /* cudaFreeAsync */
    AT_ONCE,     /* cudaFree: nothing, and the real one waits */
    BY_UNMAPPING /* cuMemUnmap: everything; the real one does not wait, so the program has seen to it */
};

/*
 * What begins at the address is freed: a span, a block, or a piece of one that grows; its bytes.
 * -EINVAL: none that lives.
 */
static int free_one(CUdeviceptr address, enum freed how, struct ps_stream *stream, size_t *bytes)
{
    /*
     * What the next owner comes after. cudaFreeAsync: the program has ordered every use before this
     * point of the stream. cudaFree: everything that is queued on any stream; the real one would
     * wait for the device here. cuMemUnmap: nothing but our own copies.
     */
    struct ps_uses uses = {0};
    CUevent after_everything = NULL;
    bool unmarked = false; /* some uses have no event and get none */
    const bool has_table = how == BY_STREAM && ps_pointer_tables_near(address, ps_reservation.granularity) &&
                           ps_ordering_rule(FREED_TABLE_STAYS);

    ps_stream_settle(stream);
    if (stream) {
        ps_uses_note(&uses, stream);
        if (ps_stream_free_is_barrier(stream))
            ps_uses_note_all_streams(&uses);
    } else if (how == AT_ONCE && ps_tracing_is_on()) {
        unmarked = !ps_uses_note_all_streams(&uses);
        if (ps_streams_may_be_several())
            ps_uses_mark(&uses); /* what is queued from here on is not waited for */
    } else if (how == AT_ONCE) {
        ps_uses_note_everything(
            &uses); /* the streams that were used are not known yet: it is waited for, as the real one does */
    }
    const struct ps_span *first = ps_address_span(address);
    if (uses.everywhere && !unmarked && ps_tracing_is_on() &&
        !(first && ps_block_whole(first))) /* one event would be wanted for each piece */
        after_everything = ps_copies_after_everything();
    /*
     * While a stream is being captured there is no event for all and no waiting: the next owner, or
     * who unmaps it, comes after everything that was queued.
     */
    if ((uses.everywhere || unmarked) && (after_everything || !ps_managed_context_wait()))
        ps_uses_clear(&uses);

    ps_registry_lock();
    struct ps_span *span = settled_at(address);
    if (!span || (span->placed && how != BY_UNMAPPING)) { /* what the program mapped it unmaps */
        ps_registry_unlock();
        ps_copies_give_event(after_everything);
        return -EINVAL;
    }
    struct ps_block *block = ps_block_whole(span);
    *bytes = block ? block->bytes : span->bytes;
    if (block) {
        PS_BLOCK_EACH (span, block) {
            ps_learning_freed(span);
            also_after_other_devices(&uses, stream, &span->order.uses);
        }
        also_after_other_devices(&uses, stream, &block->uses);
        free_pieces(block, &uses, has_table ? stream : NULL);
    } else {
        ps_learning_freed(span);
        if (after_everything) { /* stands for all of them, and for an H2D that the old fence was the end of */
            ps_copies_give_event(span->order.fence);
            span->order.fence = after_everything;
            span->order.fence_set = true;
            span->order.fence_seen = 0;
        } else {
            also_after_other_devices(&uses, stream, &span->order.uses);
            if (ps_block_of(span))
                also_after_other_devices(&uses, stream, &ps_block_of(span)->uses);
        }
        free_read(span, &uses, has_table ? stream : NULL);
        span->freed.in_order = how == BY_STREAM;
    }
    if (ps_budget.waiting)
        ps_registry_changed();
    ps_prefetch_freed();
#ifdef PS_DEBUG
    ps_registry_is_valid();
#endif
    ps_registry_unlock();
    return 0;
}

int ps_allocation_free(CUdeviceptr address, struct ps_stream *stream)
{
    size_t bytes;
    int r = free_one(address, stream ? BY_STREAM : AT_ONCE, stream, &bytes);

    if (r)
        ps_count(bad_frees);
    else
        ps_count(frees);
    return r;
}

void ps_allocation_free_all(CUdeviceptr address, size_t bytes)
{
    size_t one;

    for (size_t done = 0; done < bytes && !free_one(address + done, BY_UNMAPPING, NULL, &one);)
        done += one;
    ps_count(frees);
}
