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
 * With more streams than this, a span reused by cudaMalloc is ordered only at each stream's first
 * visible access.
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
 * Orders a reused span for cudaMalloc, after which any stream may use the memory at once. One event
 * (the fence) stands for all earlier uses. Every known stream waits for it now, and later streams
 * at their first access.
 *
 * Two clocks: these uses were queued before the cudaFree. There the real cudaFree makes the host
 * wait for them. So no stream waits longer than the host would without Penstock.
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
         * Both kinds wait at their first access. With a wait now, the legacy stream would become a
         * barrier between blocking streams, which may wait for each other.
         */
        if (ps_stream_is_foreign(ps_streams_at(i)) || ps_stream_orders_others(ps_streams_at(i)))
            continue;
        int one = ps_stream_wait_event(ps_streams_at(i), span->order.fence);
        if (!one)
            seen |= 1ull << i;
        /*
         * The stream is gone, is another thread's own, or is being captured. It waits at its first
         * access, if any.
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
 * Returns whether earlier uses of the span come before the new owner's work without further
 * ordering. [locked]
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

/* Returns the only stream that the program has used, or NULL if there are several or none. */
static const struct ps_stream *only_stream(void)
{
    return ps_streams_count() == 1 ? ps_streams_at(0) : NULL;
}

static void free_span(struct ps_span *span, const struct ps_uses *uses);

/*
 * Revives a freed span for an allocation. `orders_itself`: the stream that comes after earlier uses
 * by itself. Otherwise `stream`, or every stream if it is NULL, is made to wait. Returns true with
 * the lock released. Returns false, with the lock held, if the order can't be made; then the span
 * is a freed span again. [locked on entry]
 */
static bool reuse(struct ps_span *span, size_t requested, struct ps_stream *stream,
                  const struct ps_stream *orders_itself)
{
    struct ps_uses uses = span->order.uses;

    ps_registry_revive(span, requested);
    born(span);
    if (is_ordered_already(span, orders_itself) || !ps_ordering_rule(REUSE_WAITS_FOR_FREE)) {
        /*
         * The program's only stream comes after its own work by itself. A second stream, made
         * later, must come after that work too. It waits at its first access, if it ever has one.
         */
        if (!stream && uses.count && ps_ordering_rule(REUSE_WAITS_FOR_FREE)) {
            span->order.after = uses.use[0];
            span->order.after_seen = 0;
        }
        ps_registry_unlock();
        return true;
    }
    span->holds.launching++; /* the span must not be evicted meanwhile */
    ps_registry_unlock();
    /* Two clocks: streams wait, the host goes on. */
    int r = stream ? ps_stream_comes_after_uses(stream, &uses) : order_for_all_streams(span, &uses);
    /*
     * The host waits if the stream can't. This fails if another thread has begun a capture since
     * the program's call.
     */
    if (r && ps_managed_context_wait()) {
        ps_registry_lock();
        span->holds.launching--;
        ps_learning_freed(span);
        free_span(span, &uses);
        return false;
    }
    if (r && r != -EAGAIN) /* -EAGAIN: the program's streams are not known yet */
        ps_log_warn_once(RESIDENCY,
                         "an allocation could not be ordered by events (error %d): Penstock waited for the "
                         "whole device instead, which is correct but slow; see `penstock doctor`",
                         -r);
    if (stream)
        ps_stream_settle(stream);
    ps_registry_lock();
    if (stream) {
        ps_uses_clear(&span->order.uses); /* the stream now comes after all of them */
        ps_uses_note(&span->order.uses, stream);
    }
    span->holds.launching--;
    ps_registry_unlock();
    return true;
}

/* ---- a new span ---- */

/* The span to make. */
struct birth {
    size_t bytes, requested;
    struct ps_block *block; /* the block that the piece is of, at `address`; NULL: no piece, and any address */
    CUdeviceptr address;
    bool discarded; /* the span could not be made, and its addresses were given back */
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
 * Makes a span on new device pages. Returns 0, -ENOMEM (no pages), -ENOSPC or another -errno.
 * [locked; releases the lock meanwhile]
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
 * Makes a span that begins on a slot, when no pages are available. Returns 0, -ENOMEM, -ENOSPC or
 * another -errno. [locked; releases the lock meanwhile]
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
     * An H2D may still read the slot for its last owner, and the new owner's writes must come
     * after. This is rare and the copy is short, so wait here.
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
 * Makes a span. No span leaves for a piece: the piece begins on a slot, and a launch brings it.
 * Launches may use no piece for a long time. A piece without content would push out another one,
 * and both would come back. [locked; releases the lock meanwhile]
 */
static int create(struct birth *b, CUdeviceptr *address)
{
    const uint64_t began = ps_now_ns();
    int r = b->block && ps_budget_must_evict_for(b->bytes) ? create_on_slot(b, address) : -ENOMEM;

    r = r == -ENOMEM ? create_on_pages(b, address) : r;
    r = r == -ENOMEM ? create_on_slot(b, address) : r;
    if (r == -ENOMEM && ps_eviction_is_impossible())
        r = -EIO; /* no memory will become free any more */
    ps_waits_kept_since(began);
    return r;
}

static void free_pieces(struct ps_block *block, const struct ps_uses *uses, struct ps_stream *reader);

/*
 * Makes a block: all of its pieces, or none. Pieces without pages are born on slots. No piece is
 * evicted until all are made, or each would push out one made before it. No other thread knows the
 * address yet. Returns 0, or an error as create_on_pages does. [locked; releases the lock
 * meanwhile]
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
 * Returns whether pages or slots of freed spans will come back once copies and last uses are over.
 * [locked]
 */
static bool is_being_freed(void)
{
    return !TAILQ_EMPTY(&ps_registry.draining) || ps_eviction_copies_under_way() || ps_budget.leaving ||
           ps_budget.ending;
}

#define FREED_WITHIN_NS 1000000000u

/*
 * Waits for freed memory after an allocation found none. Two clocks: the real cudaFree has waited
 * for the device, ours has not. So memory that the program has freed may still be in use. Returns
 * false if no memory is being freed. [locked; releases the lock meanwhile]
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
     * Until streams are noted, the new owner's stream is not known, and its first access is not
     * seen.
     */
    const struct ps_stream *orders_itself = stream ? stream : ps_tracing_notes() ? only_stream() : NULL;

    ps_registry_lock();
    ps_registry.only_asked_bytes = only_asks ? rounded : 0;
    if (only_asks)
        ps_page_retention_asked();
    const bool may_be_larger = what == PS_ALLOCATION_TO_USE && ps_page_retention_prefers_larger(rounded);
    struct ps_span *span = is_block ? NULL : ps_freed_choose(rounded, stream, orders_itself, may_be_larger);
    if (span && reuse(span, bytes, stream, orders_itself)) {
        *address = span->address; /* no other thread knows it yet: it does not change without the lock */
        ps_count(allocations);
        ps_count_by(larger_reused, span->bytes > rounded);
        return 0;
    }
    if (ps_learning_is_on()) {
        /*
         * Making pages takes microseconds, but milliseconds beside the driver calls of helper
         * threads (3 ms seen on an H200). If the device runs out of work meanwhile, that is exposed
         * time.
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

/* Returns a piece that a thread works on, or NULL. [locked] */
static struct ps_span *busy_piece(const struct ps_block *block)
{
    struct ps_span *span;

    PS_BLOCK_EACH (span, block)
        if (span->busy)
            break;
    return span;
}

/*
 * Returns the live span, or the block's first piece, that begins at the address, or NULL. Waits
 * until no thread works on it or its block. [locked; may release the lock meanwhile]
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
 * Turns a live span, on which no thread works, into a freed one. Its next owner comes after `uses`
 * and its fence. [locked]
 */
static void free_span(struct ps_span *span, const struct ps_uses *uses)
{
    span->freed.in_order = true;
    span->freed.behind_everything = false;
    span->freed.by = 0;
    ps_registry_end_life(span);
    span->holds.pinned = 0;
    ps_uses_copy(&span->order.uses, uses);
    /* The freeing stream need not come after the previous owner's uses (`after`). */
    if (span->order.after.stream)
        ps_uses_merge_one(&span->order.uses, span->order.after);
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
 * Frees a span that may hold a pointer table. Coming launches on `reader` may still be given the
 * table; NULL: the span holds none. [locked]
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
 * Frees all pieces without releasing the lock. Each becomes a freed span by itself, and its pages
 * serve any allocation of a piece's size. A freed block would serve only one of the same size, and
 * programs take a large block once. `reader` is as in free_read, for a table at the start of the
 * block. As many pieces stay for it as can be awaited. [locked; no thread works on a piece]
 */
static void free_pieces(struct ps_block *block, const struct ps_uses *uses, struct ps_stream *reader)
{
    struct ps_span *span;
    uint32_t pieces = 0;

    for (CUdeviceptr at = block->address; (span = ps_block_piece(block, at));) {
        at = span->address + span->bytes; /* once freed, the span is no piece any more */
        free_read(span, uses, pieces++ < PS_AWAITING_MAX ? reader : NULL);
    }
    ps_block_end(block);
}

/* The work that is over when memory is freed. */
enum freed {
    BY_STREAM, /* cudaFreeAsync */
    AT_ONCE,   /* cudaFree: no work is over; the real one waits */
    /* cuMemUnmap: all work is over. The real one does not wait, so the program has waited. */
    BY_UNMAPPING
};

/*
 * Adds `used` to the uses of a cudaFree if several devices are in use. "All streams" means this
 * device's streams only. Other devices' streams are known from their uses of the span. [locked]
 */
static void also_after_other_devices(struct ps_uses *uses, enum freed how, const struct ps_uses *used)
{
    if (how == AT_ONCE && ps_devices_several)
        ps_uses_merge(uses, used);
}

/*
 * Frees the span, block, or piece of a growing block that begins at the address. Sets `*bytes` to
 * its size. Returns 0, or -EINVAL if no live one begins there.
 */
static int free_one(CUdeviceptr address, enum freed how, struct ps_stream *stream, size_t *bytes)
{
    /*
     * The uses that the next owner comes after. cudaFreeAsync: the program has ordered every use
     * before this point of the stream. cudaFree: all work queued on any stream; the real one would
     * wait for the device here. cuMemUnmap: our own copies only.
     */
    struct ps_uses uses;
    CUevent after_everything = NULL;
    bool unmarked = false; /* some uses have no event and get none */
    const uint64_t by = how == AT_ONCE ? ps_thread_number() : 0;
    const bool has_table = how == BY_STREAM && ps_pointer_tables_near(address, ps_reservation.granularity) &&
                           ps_ordering_rule(FREED_TABLE_STAYS);

    ps_uses_clear(&uses);
    ps_stream_settle(stream);
    if (stream) {
        ps_uses_note(&uses, stream);
        if (ps_stream_free_is_barrier(stream))
            ps_uses_note_all_streams(&uses);
    } else if (how == AT_ONCE && ps_tracing_is_on()) {
        unmarked = !ps_uses_note_all_streams(&uses);
        if (ps_streams_may_be_several())
            ps_uses_mark(&uses); /* work that is queued later is not waited for */
    } else if (how == AT_ONCE) {
        /*
         * The program's streams are not known yet, so the host waits for the device, as in the real
         * call.
         */
        ps_uses_note_everything(&uses);
    }
    const struct ps_span *first = ps_address_span(address);
    /* A block would need one event for each piece. */
    if (uses.everywhere && !unmarked && ps_tracing_is_on() && !(first && ps_block_whole(first)))
        after_everything = ps_copies_after_everything();
    /*
     * While a stream is being captured, there is neither an event for all work nor a wait. Then the
     * next owner comes after all work queued by now. So does the thread that unmaps the span.
     */
    if ((uses.everywhere || unmarked) && (after_everything || !ps_managed_context_wait()))
        ps_uses_clear(&uses);

    ps_registry_lock();
    struct ps_span *span = settled_at(address);
    /* Addresses that the program mapped are freed only by unmapping. */
    if (!span || (span->placed && how != BY_UNMAPPING)) {
        ps_registry_unlock();
        ps_copies_give_event(after_everything);
        return -EINVAL;
    }
    struct ps_block *block = ps_block_whole(span);
    *bytes = block ? block->bytes : span->bytes;
    if (block) {
        PS_BLOCK_EACH (span, block) {
            ps_learning_freed(span);
            also_after_other_devices(&uses, how, &span->order.uses);
        }
        also_after_other_devices(&uses, how, &block->uses);
        free_pieces(block, &uses, has_table ? stream : NULL);
    } else {
        ps_learning_freed(span);
        /* This event also stands for an H2D that the old fence ended. */
        if (after_everything) {
            ps_copies_give_event(span->order.fence);
            span->order.fence = after_everything;
            span->order.fence_set = true;
            span->order.fence_seen = 0;
        } else {
            also_after_other_devices(&uses, how, &span->order.uses);
            if (ps_block_of(span))
                also_after_other_devices(&uses, how, &ps_block_of(span)->uses);
        }
        free_read(span, &uses, has_table ? stream : NULL);
        span->freed.in_order = how == BY_STREAM;
        span->freed.behind_everything = after_everything != NULL;
        span->freed.by = by;
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
