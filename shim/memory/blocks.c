#include "memory/blocks.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/log.h"
#include "base/ordering_rules.h"
#include "base/per_device.h"
#include "base/policies.h"
#include "base/settings.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "memory/budget.h"

#define MIB (1ull << 20)

/* Cuts kept for each block: 96 KiB of memory. */
#define STARTS_MAX 2048u

/* ---- choice and size ---- */

/*
 * Below this size, a copy and a change of mapping take about a millisecond. Then moving the
 * allocation as a whole does no harm.
 */
#define LEAST_BLOCK (64 * MIB)

/*
 * USED_INSIDE launches among the last USED_INSIDE_AMONG show that a large allocation is used in
 * parts.
 */
#define USED_INSIDE 64u
#define USED_INSIDE_AMONG 1024u

/* Guarded by the registry lock, except `are_many`. */
static PS_PER_DEVICE struct {
    CUdeviceptr last; /* the address that was named last */
    uint64_t since;   /* number of the launch at which counting began */
    uint32_t count;
    atomic_bool are_many;
} first_used_inside;
#define used_inside PS_HERE(first_used_inside)

/*
 * Returns whether an allocation is large: it would move as a whole although each launch uses little
 * of it.
 */
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
        ps_log_info(RESIDENCY, "launches use parts of large allocations, which together exceed half of "
                               "the budget: from now on such allocations are made in pieces");
}

size_t ps_block_piece_bytes(size_t bytes, size_t unit)
{
    size_t piece = unit;

    /*
     * Aims at 64 pieces. Pieces below 16 MiB are slow to copy and to map for their size
     * (shim/README.md#mapping-memory). So small blocks have fewer pieces.
     */
    while (piece < 64 * MIB && (bytes / piece > 64 || (piece < 16 * MIB && bytes / piece > 32)))
        piece *= 2;
    while (bytes / piece > 512)
        piece *= 2;
    return piece;
}

/* ---- making and ending ---- */

/*
 * Returns a structure that is empty except for starts without entries; NULL if memory is missing.
 */
static struct ps_block *new_structure(void)
{
    struct ps_registry_state *r = &ps_registry;
    struct ps_block *block = r->unused_blocks;

    if (block) {
        r->unused_blocks = block->next_unused;
    } else {
        block = calloc(1, sizeof *block);
        struct ps_tensor_start *memory = block ? calloc(STARTS_MAX, sizeof *memory) : NULL;
        if (!memory) {
            free(block);
            return NULL;
        }
        block->starts.start = memory;
    }
    /*
     * Two things outlive a life: the marks of launches that are about to take them back, and the
     * memory.
     */
    struct ps_tensor_start *memory = block->starts.start;
    *block = (struct ps_block){.launching = block->launching, .wanted = block->wanted};
    ps_tensor_starts_init(&block->starts, memory, STARTS_MAX);
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
        block->piece_bytes = span->bytes; /* a growing block has the size of its largest piece here */
}

void ps_block_moved(struct ps_block *block, CUdeviceptr address)
{
    block->address = address;
    ps_tensor_starts_init(&block->starts, block->starts.start, STARTS_MAX);
}

atomic_uint ps_blocks_with_holes;

void ps_block_has_hole(struct ps_block *block)
{
    ps_registry_lock();
    if (block && !block->has_holes) {
        block->has_holes = true;
        block->next_holed = ps_registry.holed_blocks;
        ps_registry.holed_blocks = block;
        atomic_fetch_add_explicit(&ps_blocks_with_holes, 1, memory_order_relaxed);
    }
    ps_registry_unlock();
}

static void forget_holes(const struct ps_block *block)
{
    struct ps_block **at = &ps_registry.holed_blocks;

    while (*at && *at != block)
        at = &(*at)->next_holed;
    if (!*at)
        return;
    *at = block->next_holed;
    atomic_fetch_sub_explicit(&ps_blocks_with_holes, 1, memory_order_relaxed);
}

void ps_block_end(struct ps_block *block)
{
    forget_holes(block);
    atomic_fetch_sub_explicit(&ps_reservation.blocks, 1, memory_order_relaxed);
    discard(block);
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

/* ---- the names of a call ---- */

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

/* Returns the block at this address in this device's area, or NULL. [locked] */
static struct ps_block *block_at(CUdeviceptr address)
{
    if (ps_devices_several && ps_address_device(address) != ps_address_device(ps_registry.start))
        return NULL;
    const struct ps_span *span = ps_registry_live_at(address);
    struct ps_block *holed = span ? NULL : ps_registry.holed_blocks;

    while (holed && address - holed->address >= holed->bytes)
        holed = holed->next_holed;
    return span ? ps_block_of(span) : holed;
}

/* Returns the piece at the address, or the next one behind a hole there, before `end`. [locked] */
static struct ps_span *piece_before(const struct ps_block *block, CUdeviceptr address, CUdeviceptr end)
{
    struct ps_span *span = NULL;

    if (address < end)
        span = ps_block_piece(block, address);
    while (!span && block->has_holes && address < end && address < ps_registry.highest) {
        address += ps_reservation.granularity;
        span = ps_block_piece(block, address);
    }
    return span && span->address < end ? span : NULL;
}

static bool add_block(struct ps_block_names *names, struct ps_block *block)
{
    for (size_t i = names->blocks; i-- > 0;)
        if (names->block[i] == block)
            return true;
    struct ps_block **grown =
        ps_grown_array(names->block, names->blocks, &names->blocks_room, 8, sizeof(struct ps_block *));
    if (!grown)
        return false;
    names->block = grown;
    names->block[names->blocks++] = block;
    ps_tensor_starts_begin(&block->starts);
    return true;
}

/*
 * Returns the address of a name's start. If the name is somewhere in a unit, the start is at the
 * unit's end. There it shortens no tensor that ends in the unit.
 */
static uint64_t start_of(const struct ps_block_name *name)
{
    return name->somewhere ? name->address + ps_reservation.granularity - 1 : name->address;
}

static void note_cut(struct ps_block *block, const struct ps_block_name *name)
{
    /* A copy of less than a unit seldom covers a whole tensor. */
    if (!name->bytes || name->bytes >= ps_reservation.granularity)
        ps_tensor_starts_note(&block->starts, start_of(name), name->bytes ? name->address + name->bytes : 0);
}

/* Returns the address behind the last byte that the name is believed to cover. */
static CUdeviceptr end_of(const struct ps_block *block, const struct ps_block_name *name)
{
    CUdeviceptr behind = block->address + block->bytes;
    /*
     * If no start is known above, a name covers no more than fits the device beside another name.
     */
    uint64_t most = ps_budget.limit / 2 > block->piece_bytes ? ps_budget.limit / 2 : block->piece_bytes;
    CUdeviceptr end = name->bytes ? name->address + name->bytes
                                  : ps_tensor_starts_end_of(&block->starts, start_of(name), ps_reservation.granularity);

    if (!end)
        end = behind - name->address > most ? name->address + most : behind;
    return end < behind ? end : behind;
}

bool ps_block_resolve(struct ps_block_names *names, void (*note)(void *ctx, struct ps_span *piece), void *ctx)
{
    struct ps_block *block;
    bool listed = true;

    ps_registry_lock();
    /* All starts are noted first: a name ends where another name of the call begins. */
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
        /* The first piece behind a hole counts always: a call without pieces waits for no block. */
        struct ps_span *behind = ps_registry_live_at(name->address) ? NULL : ps_block_piece_from(block, name->address);
        if (!name->bytes && behind && behind->address >= end)
            note(ctx, behind);
        for (struct ps_span *span = piece_before(block, name->address, end); span;
             span = piece_before(block, span->address + span->bytes, end))
            note(ctx, span);
    }
    ps_registry_unlock();
    return listed;
}

CUdeviceptr ps_block_next_piece(CUdeviceptr address)
{
    CUdeviceptr next = 0;

    if (!ps_blocks_exist() || !ps_address_is_a_spans(address))
        return 0;
    ps_devices_enter_address(address);
    ps_registry_lock();
    const struct ps_block *block = block_at(address);
    if (block) {
        const struct ps_span *span = ps_block_piece(block, address);
        if (!span && (span = ps_block_piece_from(block, address)))
            next = span->address;
        else
            next = span ? span->address + span->bytes : 0;
        next = next - block->address < block->bytes ? next : 0;
    }
    ps_registry_unlock();
    return next;
}
