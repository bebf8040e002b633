#include "memory/blocks.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/ordering_rules.h"
#include "base/per_device.h"
#include "base/policies.h"
#include "base/settings.h"
#include "base/state.h"
#include "base/waits.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "memory/budget.h"
#include "residency/eviction.h"
#include "residency/guard.h"
#include "residency/stopwatch.h"

#define MIB (1ull << 20)

/* Cuts that are kept of a block: 96 KiB of memory. */
#define CUTS_MAX 2048u

/* ---- which, and how large ---- */

/* Below this a copy and a change of mapping take about a millisecond, and moving as a whole does no harm. */
#define LEAST_BLOCK (64 * MIB)

/* Launches out of the last ones that show a use in parts. */
#define USED_INSIDE 64u
#define USED_INSIDE_AMONG 1024u

/* Guarded by the registry lock, but for `are_many`. */
static PS_PER_DEVICE struct {
    CUdeviceptr last; /* place that was named */
    uint64_t since;   /* the launch from which on they are counted */
    uint32_t count;
    atomic_bool are_many;
} first_used_inside;
#define used_inside PS_HERE(first_used_inside)

/* A large one that would have to move as a whole, for the little of it that each launch uses. */
static bool is_large(size_t bytes)
{
    return bytes > ps_budget.limit / 8 && bytes > 16 * ps_reservation.granularity;
}

bool ps_block_parts_are_used(void)
{
    return atomic_load_explicit(&used_inside.are_many, memory_order_relaxed);
}

bool ps_block_is_for(size_t bytes, bool ordered)
{
    uint64_t limit = ps_budget.limit;

    if (limit == UINT64_MAX || bytes <= ps_reservation.granularity)
        return false;
    if (ps_block_parts_are_used() && is_large(bytes))
        return true;
    return ps_policies_want_pieces(bytes) || (bytes >= LEAST_BLOCK && bytes > (ordered ? limit : limit / 8));
}

void ps_block_used_inside(CUdeviceptr at, size_t bytes, struct ps_span *const *spans, size_t count)
{
    uint64_t named = 0;

    if (!is_large(bytes) || ps_block_parts_are_used())
        return;
    ps_registry_lock();
    for (size_t i = 0; i < count; i++)
        named += spans[i]->bytes;
    const bool is_short = ps_budget.reached || named > ps_budget.limit;
    if (is_short && named > ps_budget.limit / 2 && at != used_inside.last) {
        if (ps_registry.launch_number - used_inside.since > USED_INSIDE_AMONG) {
            used_inside.since = ps_registry.launch_number;
            used_inside.count = 0;
        }
        used_inside.last = at;
        used_inside.count++;
    }
    const bool are_many = used_inside.count >= USED_INSIDE;
    ps_registry_unlock();
    if (are_many && !atomic_exchange(&used_inside.are_many, true))
        ps_log_info(RESIDENCY,
                    "launches use large allocations in parts, and name more of them than half of the budget: such are made in pieces "
                    "from now on");
}

size_t ps_block_piece_bytes(size_t bytes, size_t unit)
{
    size_t piece = unit;

    /* 64 pieces; but less than 16 MiB are slow to copy and to map for their size (FACTS), so then fewer. */
    while (piece < 64 * MIB && (bytes / piece > 64 || (piece < 16 * MIB && bytes / piece > 32)))
        piece *= 2;
    while (bytes / piece > 512)
        piece *= 2;
    return piece;
}

/* ---- making and ending ---- */

/* A structure with nothing in it but cuts that know nothing yet. */
static struct ps_block *new_structure(void)
{
    struct ps_registry_state *r = &ps_registry;
    struct ps_block *block = r->unused_blocks;

    if (block) {
        r->unused_blocks = block->next_unused;
    } else {
        block = calloc(1, sizeof *block);
        struct ps_tensor_start *memory = block ? calloc(CUTS_MAX, sizeof *memory) : NULL;
        if (!memory) {
            free(block);
            return NULL;
        }
        block->cuts.cut = memory;
    }
    /* What outlives a life: the marks of launches that are about to take them back, and the memory. */
    struct ps_tensor_start *memory = block->cuts.cut;
    *block = (struct ps_block){.launching = block->launching, .wanted = block->wanted};
    ps_tensor_starts_init(&block->cuts, memory, CUTS_MAX);
    return block;
}

static void discard(struct ps_block *block)
{
    block->next_unused = ps_registry.unused_blocks;
    ps_registry.unused_blocks = block;
}

struct ps_block *ps_block_new(size_t bytes, size_t requested)
{
    struct ps_block *block = new_structure();

    if (!block)
        return NULL;
    block->bytes = bytes;
    block->requested = requested;
    block->piece_bytes = ps_block_piece_bytes(bytes, ps_reservation.granularity);
    block->address = ps_registry_take_addresses(bytes);
    if (!block->address) {
        discard(block);
        return NULL;
    }
    block->nth = ps_registry_count_birth(bytes);
    atomic_fetch_add_explicit(&ps_reservation.blocks, 1, memory_order_relaxed);
    return block;
}

struct ps_block *ps_block_new_growing(CUdeviceptr address, size_t bytes)
{
    struct ps_block *block = new_structure();

    if (!block)
        return NULL;
    block->address = address;
    block->bytes = bytes;
    block->grows = true;
    atomic_fetch_add_explicit(&ps_reservation.blocks, 1, memory_order_relaxed);
    return block;
}

void ps_block_join(struct ps_span *span, struct ps_block *block)
{
    ps_block_piece_ends(span);
    atomic_store_explicit(&span->block, block, memory_order_relaxed);
    if (block && span->bytes > block->piece_bytes)
        block->piece_bytes = span->bytes; /* of one that grows: those of the largest */
}

void ps_block_moved(struct ps_block *block, CUdeviceptr address)
{
    block->address = address;
    ps_tensor_starts_init(&block->cuts, block->cuts.cut, CUTS_MAX);
}

void ps_block_end(struct ps_block *block)
{
    atomic_fetch_sub_explicit(&ps_reservation.blocks, 1, memory_order_relaxed);
    discard(block);
}

struct ps_span *ps_block_piece(const struct ps_block *block, CUdeviceptr address)
{
    struct ps_span *span = address - block->address < block->bytes ? ps_registry_live_at(address) : NULL;

    return span && ps_block_of(span) == block ? span : NULL;
}

struct ps_span *ps_block_piece_from(const struct ps_block *block, CUdeviceptr address)
{
    CUdeviceptr behind = block->address + block->bytes;

    for (; address < behind && address < ps_registry.highest; address += ps_reservation.granularity) {
        struct ps_span *span = ps_block_piece(block, address);
        if (span || !block->grows)
            return span;
    }
    return NULL;
}

/* ---- what a call names ---- */

bool ps_block_name(struct ps_block_names *names, CUdeviceptr address, size_t bytes, bool somewhere)
{
    struct ps_block_name *last = names->count ? &names->name[names->count - 1] : NULL;

    if (last && last->address == address && last->bytes == bytes && last->somewhere == somewhere)
        return true;
    struct ps_block_name *grown = ps_grown_array(names->name, names->count, &names->room, 16, sizeof *grown);
    if (!grown)
        return false;
    names->name = grown;
    names->name[names->count++] = (struct ps_block_name){address, bytes, somewhere};
    return true;
}

void ps_block_names_free(struct ps_block_names *names)
{
    free(names->name);
    free(names->block);
}

/* In this device's area, or NULL. [locked] */
static struct ps_block *block_at(CUdeviceptr address)
{
    if (ps_devices_several && ps_registry_device_of(address) != ps_registry_device_of(ps_registry.start))
        return NULL;
    const struct ps_span *span = ps_registry_live_at(address);

    return span ? ps_block_of(span) : NULL;
}

static bool add_block(struct ps_block_names *names, struct ps_block *block)
{
    for (size_t i = names->blocks; i-- > 0;)
        if (names->block[i] == block)
            return true;
    struct ps_block **grown = ps_grown_array(names->block, names->blocks, &names->blocks_room, 8, sizeof(struct ps_block *));
    if (!grown)
        return false;
    names->block = grown;
    names->block[names->blocks++] = block;
    ps_tensor_starts_begin(&block->cuts);
    return true;
}

/* Where the cut of a name is. One that is somewhere in a unit is put at its end, where it shortens nothing that ends in the unit. */
static uint64_t cut_of(const struct ps_block_name *name)
{
    return name->somewhere ? name->address + ps_reservation.granularity - 1 : name->address;
}

static void note_cut(struct ps_block *block, const struct ps_block_name *name)
{
    /* Copies of less than a unit are seldom of a whole tensor. */
    if (!name->bytes || name->bytes >= ps_reservation.granularity)
        ps_tensor_starts_note(&block->cuts, cut_of(name), name->bytes ? name->address + name->bytes : 0);
}

/* Behind the last byte that the name is believed to stand for. */
static CUdeviceptr end_of(const struct ps_block *block, const struct ps_block_name *name)
{
    CUdeviceptr behind = block->address + block->bytes;
    /* With nothing known above, no more than can be on the device beside another. */
    uint64_t most = ps_budget.limit / 2 > block->piece_bytes ? ps_budget.limit / 2 : block->piece_bytes;
    CUdeviceptr end =
        name->bytes ? name->address + name->bytes : ps_tensor_starts_end_of(&block->cuts, cut_of(name), ps_reservation.granularity);

    if (!end)
        end = behind - name->address > most ? name->address + most : behind;
    return end < behind ? end : behind;
}

bool ps_block_resolve(struct ps_block_names *names, void (*note)(void *ctx, struct ps_span *piece), void *ctx)
{
    struct ps_block *block;
    bool listed = true;

    ps_registry_lock();
    /* All cuts first: what is named together ends where the other begins. */
    for (size_t i = 0; i < names->count; i++) {
        const struct ps_block_name *name = &names->name[i];
        if (!(block = block_at(name->address)))
            continue;
        if (!name->bytes)
            listed &= add_block(names, block);
        note_cut(block, name);
    }
    for (size_t i = 0; i < names->count; i++) {
        const struct ps_block_name *name = &names->name[i];
        if (!(block = block_at(name->address)))
            continue;
        CUdeviceptr end = end_of(block, name);
        for (struct ps_span *span = ps_block_piece(block, name->address); span && span->address < end;
             span = ps_block_piece(block, span->address + span->bytes))
            note(ctx, span);
    }
    ps_registry_unlock();
    return listed;
}

CUdeviceptr ps_block_next_piece(CUdeviceptr address)
{
    CUdeviceptr next = 0;

    if (!ps_blocks_exist() || !ps_registry_owns(address))
        return 0;
    ps_devices_enter_address(address);
    ps_registry_lock();
    const struct ps_block *block = block_at(address);
    if (block) {
        const struct ps_span *span = ps_block_piece(block, address);
        next = span ? span->address + span->bytes : 0;
        next = next - block->address < block->bytes ? next : 0;
    }
    ps_registry_unlock();
    return next;
}

/* ---- the order of launches and moves ---- */

/*
 * For so long at most a launch waits for a copy to the host, and a reload for launches: they may wait, on the device, for what this thread is about to
 * queue. Where they did, and have not ended since, for so long.
 */
#define WAITS_NS 250000000u
#define WAITS_WHEN_STUCK_NS 1000000u

static uint64_t patience_ns(const struct ps_block *block)
{
    return atomic_load_explicit(&block->stuck, memory_order_relaxed) ? WAITS_WHEN_STUCK_NS : WAITS_NS;
}

int ps_block_wait_for(struct ps_block *block, const struct ps_uses *uses)
{
    int r = ps_uses_host_wait_for_queued(uses, patience_ns(block));

    atomic_store_explicit(&block->stuck, r == -ETIMEDOUT, memory_order_relaxed);
    return r;
}

/* Evictions whose copies are queued come to nothing: the pages stay. */
static void call_off(struct ps_block *block)
{
    struct ps_span *span;

    PS_BLOCK_EACH (span, block)
        if (span->moving && !span->busy && span->residency == PS_EVICTING)
            ps_eviction_cancel(span);
}

/*
 * Whether it left its pages and its addresses were to lead to its slot, and don't: the driver has refused that. A launch that names the block would fault.
 * Under the `unmap` guard they are not to.
 */
static bool leads_nowhere(const struct ps_span *span)
{
    return span->residency == PS_EVICTED && span->backing == PS_BACKING_NONE && (ps_settings.guard != PS_GUARD_UNMAP || ps_verify_is_on());
}

/* For so long a launch tries to have a piece mapped that leads nowhere. Longer, and the launch faults, as it would have at once. */
#define LOST_NS 5000000000u

/* A mapping that the driver has refused is tried again. [locked; releases the lock meanwhile] */
static void map_lost_piece(struct ps_block *block, uint64_t since)
{
    struct ps_span *span;

    PS_BLOCK_EACH (span, block)
        if (span->moving && !span->busy && leads_nowhere(span))
            break;
    if (!span)
        return;
    ps_guard_map_to_slot(span);
    if (span->moving && !span->busy && ps_block_of(span) == block && leads_nowhere(span) && ps_now_ns() - since > LOST_NS)
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
    return block->reloads && (stream->index >= PS_BLOCK_STREAMS || block->reloads_seen[stream->index] != block->reloads);
}

static uint64_t all_reloads(struct ps_block *const *blocks, size_t count)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += blocks[i]->reloads;
    return sum;
}

/* Two clocks: the launch waits on its own stream, the host goes on. [locked; releases the lock meanwhile] */
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

void ps_blocks_begin_launch(struct ps_block *const *blocks, size_t count, struct ps_stream *stream)
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
        /* The lock is released meanwhile: whether all rest is looked at anew. */
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

void ps_blocks_end_launch(struct ps_block *const *blocks, size_t count, struct ps_stream *stream)
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

bool ps_block_is_launching(const struct ps_span *span)
{
    const struct ps_block *block = ps_block_of(span);

    return block && block->launching && ps_ordering_rule(PIECE_STAYS_WHILE_LAUNCHING);
}

bool ps_block_holds(const struct ps_span *span)
{
    const struct ps_block *block = ps_block_of(span);

    return block && (block->launching || block->wanted) && ps_ordering_rule(PIECE_STAYS_WHILE_LAUNCHING);
}

void ps_block_piece_moves(struct ps_span *span, struct ps_uses *uses)
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

void ps_block_piece_rests(struct ps_span *span)
{
    if (!leads_nowhere(span))
        ps_block_piece_ends(span);
}

void ps_block_piece_ends(struct ps_span *span)
{
    struct ps_block *block = ps_block_of(span);

    if (!span->moving)
        return;
    span->moving = false;
    block->moving--;
    if (block->wanted)
        ps_registry_changed();
}

void ps_block_piece_reloads(struct ps_span *span, struct ps_copies_nth nth)
{
    struct ps_block *block = ps_block_of(span);

    if (!block)
        return;
    block->reloads++;
    /* Two threads may have queued one each, and come here the other way round. */
    if (nth.number < block->last_reload[nth.on].number && ps_ordering_rule(BLOCK_WAITS_FOR_LAST_RELOAD))
        return;
    block->last_reload[nth.on].number = nth.number;
    block->last_reload[nth.on].end = span->fence;
}
