#include "residency/block_order.h"

#include <errno.h>

#include "base/clock.h"
#include "base/ordering_rules.h"
#include "base/settings.h"
#include "base/state.h"
#include "base/waits.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "residency/eviction.h"
#include "residency/eviction_queue.h"
#include "residency/guard.h"
#include "residency/stopwatch.h"

_Static_assert(PS_BLOCK_H2D_STREAMS == PS_COPIES_H2D_STREAMS, "a block knows the last reload on each H2D stream");

/*
 * A launch waits at most this long for a D2H, and a reload for launches. Both may wait, on the
 * device, for work that this thread is about to queue. After a wait that timed out, a reload waits
 * only WAITS_WHEN_STUCK_NS, until a wait succeeds.
 */
#define WAITS_NS 250000000u
#define WAITS_WHEN_STUCK_NS 1000000u

static uint64_t patience_ns(const struct ps_block *block)
{
    return atomic_load_explicit(&block->stuck, memory_order_relaxed) ? WAITS_WHEN_STUCK_NS : WAITS_NS;
}

int ps_block_order_wait_for(struct ps_block *block, const struct ps_uses *uses)
{
    int r = ps_uses_host_wait_for_queued(uses, patience_ns(block));

    atomic_store_explicit(&block->stuck, r == -ETIMEDOUT, memory_order_relaxed);
    return r;
}

/* Cancels the block's evictions whose copies are queued: the pages stay. */
static void call_off(struct ps_block *block)
{
    struct ps_span *span;

    PS_BLOCK_EACH (span, block)
        if (span->moving && !span->busy && span->residency == PS_EVICTING)
            ps_eviction_cancel(span);
}

/*
 * Whether the span has left its pages, and its addresses should lead to its slot but don't. The
 * driver has refused that mapping, and a launch that names the block would fault. Under the `unmap`
 * guard they should lead nowhere, unless `penstock verify` runs.
 */
static bool leads_nowhere(const struct ps_span *span)
{
    return span->residency == PS_EVICTED && span->backing == PS_BACKING_NONE &&
           (ps_settings.guard != PS_GUARD_UNMAP || ps_verify_is_on());
}

/*
 * A launch tries this long to map a piece that leads nowhere. Then it is queued and faults, as it
 * would have at once.
 */
#define LOST_NS 5000000000u

/* Tries a mapping again that the driver has refused. [locked; releases the lock meanwhile] */
static void map_lost_piece(struct ps_block *block, uint64_t since)
{
    struct ps_span *span;

    PS_BLOCK_EACH (span, block)
        if (span->moving && !span->busy && leads_nowhere(span))
            break;
    if (!span)
        return;
    ps_guard_map_to_slot(span);
    if (span->moving && !span->busy && ps_block_of(span) == block && leads_nowhere(span) &&
        ps_now_ns() - since > LOST_NS)
        ps_block_piece_ends(span);
}

static struct ps_block *one_on_the_move(struct ps_block *const *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (blocks[i]->moving)
            return blocks[i];
    return NULL;
}

static bool has_unseen_reloads(const struct ps_block *block, const struct ps_stream *stream)
{
    return block->reloads &&
           (stream->index >= PS_BLOCK_STREAMS || block->reloads_seen[stream->index] != block->reloads);
}

static uint64_t all_reloads(struct ps_block *const *blocks, size_t count)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += blocks[i]->reloads;
    return sum;
}

/*
 * Two clocks: the launch waits on its own stream, the host goes on. [locked; releases the lock
 * meanwhile]
 */
static void wait_for_reloads(struct ps_block *block, struct ps_stream *stream)
{
    uint64_t reloads = block->reloads;
    CUevent end[PS_COPIES_H2D_STREAMS];

    for (unsigned i = 0; i < PS_COPIES_H2D_STREAMS; i++)
        end[i] = block->last_reload[i].end;
    ps_registry_unlock();
    ps_stopwatch_wait_begins(stream);
    for (unsigned i = 0; i < PS_COPIES_H2D_STREAMS; i++)
        if (end[i] && ps_ordering_rule(BLOCK_LAUNCH_WAITS_FOR_RELOADS))
            ps_stream_or_host_comes_after(stream, end[i]);
    ps_registry_lock();
    if (stream->index < PS_BLOCK_STREAMS)
        block->reloads_seen[stream->index] = reloads;
}

void ps_block_order_begin_launch(struct ps_block *const *blocks, size_t count, struct ps_stream *stream)
{
    uint64_t since = 0, waited = 0;

    for (size_t i = 0; i < count; i++)
        blocks[i]->wanted++;
    for (;;) {
        struct ps_block *block = ps_ordering_rule(BLOCK_LAUNCH_WAITS_FOR_MOVES) ? one_on_the_move(blocks, count) : NULL;
        if (block && !since) { /* from here on the device may run out of work */
            since = ps_now_ns();
            ps_registry_unlock();
            ps_stopwatch_wait_begins(stream);
            ps_registry_lock();
            continue;
        }
        if (block) {
            if (ps_now_ns() - since > WAITS_NS)
                call_off(block);
            map_lost_piece(block, since);
            if (block->moving)
                ps_registry_wait_changed(1000000u);
            continue;
        }
        /* The waits release the lock, so the loop checks again whether all pieces rest. */
        uint64_t reloads = all_reloads(blocks, count);
        if (reloads == waited)
            break;
        for (size_t i = 0; i < count; i++)
            if (has_unseen_reloads(blocks[i], stream))
                wait_for_reloads(blocks[i], stream);
        waited = reloads;
    }
    if (since)
        ps_waits_kept_since(since);
    for (size_t i = 0; i < count; i++) {
        blocks[i]->wanted--;
        blocks[i]->launching++;
    }
}

void ps_block_order_end_launch(struct ps_block *const *blocks, size_t count, struct ps_stream *stream)
{
    bool put_off = false;

    for (size_t i = 0; i < count; i++) {
        ps_uses_note(&blocks[i]->uses, stream);
        if (--blocks[i]->launching)
            continue;
        put_off |= blocks[i]->put_off;
        blocks[i]->put_off = false;
    }
    if (put_off)
        ps_eviction_look_ahead();
    if (count && ps_budget.waiting)
        ps_registry_changed();
}

bool ps_block_order_is_launching(const struct ps_span *span)
{
    const struct ps_block *block = ps_block_of(span);

    return block && block->launching && ps_ordering_rule(PIECE_STAYS_WHILE_LAUNCHING);
}

bool ps_block_order_holds(const struct ps_span *span)
{
    const struct ps_block *block = ps_block_of(span);

    return block && (block->launching || block->wanted) && ps_ordering_rule(PIECE_STAYS_WHILE_LAUNCHING);
}

void ps_block_order_moves(struct ps_span *span, struct ps_uses *uses)
{
    struct ps_block *block = ps_block_of(span);

    if (!block)
        return;
    if (ps_ordering_rule(PIECE_MOVES_AFTER_LAUNCHES))
        ps_uses_merge(uses, &block->uses);
    if (!span->moving)
        block->moving++;
    span->moving = true;
}

void ps_block_order_rests(struct ps_span *span)
{
    if (!leads_nowhere(span))
        ps_block_piece_ends(span);
}

void ps_block_order_reloads(struct ps_span *span, struct ps_copies_nth nth)
{
    struct ps_block *block = ps_block_of(span);

    if (!block)
        return;
    block->reloads++;
    /* Two threads may have queued one H2D each, and come here in the other order. */
    if (nth.number < block->last_reload[nth.on].number && ps_ordering_rule(BLOCK_WAITS_FOR_LAST_RELOAD))
        return;
    block->last_reload[nth.on].number = nth.number;
    block->last_reload[nth.on].end = span->order.fence;
}
