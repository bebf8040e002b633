#include "tracer/graph_needs.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/ordering_rules.h"
#include "kernels/host_tables.h"
#include "kernels/kernel_words.h"
#include "kernels/layouts.h"
#include "kernels/made_tables.h"
#include "kernels/pointer_tables.h"
#include "memory/blocks.h"
#include "memory/registry.h"
#include "tracer/table_copies.h"

static void add(struct ps_graph_needs *needs, CUdeviceptr unit)
{
    CUdeviceptr *grown = ps_grown_array(needs->address, needs->count, &needs->room, 4, sizeof *grown);

    if (!grown) {
        needs->unknown = true;
        return;
    }
    needs->address = grown;
    needs->address[needs->count++] = unit;
}

static void take_address(void *gathered, CUdeviceptr address)
{
    struct ps_graph_needs *needs = gathered;
    CUdeviceptr unit = address - (address - ps_reservation.base) % ps_reservation.granularity;

    if (ps_address_is_a_spans(address) && (!needs->count || needs->address[needs->count - 1] != unit))
        add(needs, unit);
}

void ps_graph_needs_address(struct ps_graph_needs *needs, CUdeviceptr address)
{
    take_address(needs, address);
}

void ps_graph_needs_bytes(struct ps_graph_needs *needs, CUdeviceptr start, size_t bytes)
{
    if (!bytes || !ps_address_is_a_spans(start))
        return;
    struct ps_graph_range *grown = ps_grown_array(needs->range, needs->ranges, &needs->ranges_room, 2, sizeof *grown);
    if (!grown) {
        needs->unknown = true;
        return;
    }
    needs->range = grown;
    needs->range[needs->ranges++] = (struct ps_graph_range){start, bytes};
}

static int ascending(const void *a, const void *b)
{
    CUdeviceptr one = *(const CUdeviceptr *)a, other = *(const CUdeviceptr *)b;

    return (one > other) - (one < other);
}

/*
 * Keeps one of each address, in the order of the first ones. Returns how many are left. Without
 * memory all are left, which costs only time. A graph that changes before each launch has thousands
 * of words each time; sorting them took ten times as long.
 */
static size_t unique(CUdeviceptr *address, size_t count)
{
    unsigned bits = 4;
    size_t kept = 0;

    while ((size_t)1 << bits < 2 * count)
        bits++;
    CUdeviceptr *seen = calloc((size_t)1 << bits, sizeof *seen); /* 0: a free place; no address is 0 */
    if (!seen)
        return count;
    for (size_t i = 0; i < count; i++) {
        uint64_t at = address[i] * 0x9E3779B97F4A7C15u >> (64 - bits);
        while (seen[at] && seen[at] != address[i])
            at = (at + 1) & (((size_t)1 << bits) - 1);
        if (seen[at])
            continue;
        seen[at] = address[i];
        address[kept++] = address[i];
    }
    free(seen);
    return kept;
}

/* The longest one comes first of those that begin at one address. */
static int by_start(const void *a, const void *b)
{
    const struct ps_graph_range *one = a, *other = b;

    if (one->start != other->start)
        return one->start < other->start ? -1 : 1;
    return (one->bytes < other->bytes) - (one->bytes > other->bytes);
}

static void sort_ranges(struct ps_graph_needs *needs)
{
    size_t kept = 0;

    if (needs->ranges)
        qsort(needs->range, needs->ranges, sizeof *needs->range, by_start);
    for (size_t i = 0; i < needs->ranges; i++)
        if (!kept || needs->range[kept - 1].start != needs->range[i].start)
            needs->range[kept++] = needs->range[i];
    needs->ranges = kept;
}

static int by_order(const void *a, const void *b)
{
    const uint64_t one = ((const struct ps_graph_copy *)a)->order, other = ((const struct ps_graph_copy *)b)->order;

    return (one > other) - (one < other);
}

void ps_graph_needs_sort(struct ps_graph_needs *needs)
{
    needs->count = unique(needs->address, needs->count);
    if (needs->count) /* so that each launch names its spans in the same order */
        qsort(needs->address, needs->count, sizeof *needs->address, ascending);
    needs->words = unique(needs->word, needs->words);
    sort_ranges(needs);
    if (needs->copies)
        qsort(needs->copy, needs->copies, sizeof *needs->copy, by_order);
}

static void add_word(struct ps_graph_needs *needs, CUdeviceptr word)
{
    CUdeviceptr *grown = ps_grown_array(needs->word, needs->words, &needs->words_room, 8, sizeof *grown);

    if (!grown) {
        needs->unknown = true;
        return;
    }
    needs->word = grown;
    needs->word[needs->words++] = word;
}

static void add_copy(struct ps_graph_needs *needs, const struct ps_graph_copy *copy)
{
    struct ps_graph_copy *grown = ps_grown_array(needs->copy, needs->copies, &needs->copies_room, 1, sizeof *grown);

    if (!grown) {
        needs->unknown = true;
        return;
    }
    needs->copy = grown;
    needs->copy[needs->copies++] = *copy;
}

/*
 * A word may be the address of a pointer table, now or at a later launch. A large table lies in a
 * span. Pointers are aligned.
 */
static void take_word(void *gathered, CUdeviceptr word, size_t bytes)
{
    (void)bytes;
    take_address(gathered, word);
    if (word >= PS_WORDS_LOWEST_DEVICE && word % sizeof(void *) == 0 && word >> 57 == 0)
        add_word(gathered, word);
}

static void add_maker(struct ps_graph_needs *needs, const struct ps_made_launch *maker)
{
    struct ps_made_launch *grown = ps_grown_array(needs->maker, needs->makers, &needs->makers_room, 1, sizeof *grown);

    if (!grown) {
        needs->unknown = true;
        return;
    }
    needs->maker = grown;
    needs->maker[needs->makers++] = *maker;
}

/* A kernel that finds no spans in memory writes no addresses there either. */
static void take_maker(struct ps_graph_needs *needs, CUfunction function, const struct ps_layout *layout,
                       const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    struct ps_made_launch maker;

    if (!layout || layout->known == PS_KERNEL_UNKNOWN)
        if (ps_made_tables_in_graph(&maker, function, layout, kernel->kernelParams, kernel->extra))
            add_maker(needs, &maker);
}

void ps_graph_needs_kernel(struct ps_graph_needs *needs, const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    CUfunction function = kernel->func ? kernel->func : (CUfunction)kernel->kern;
    const struct ps_layout *layout = function ? ps_layout_of(function) : NULL;

    /* All words, since tables lie anywhere. */
    if (!function ||
        !ps_kernel_words_between(0, UINT64_MAX, layout, kernel->kernelParams, kernel->extra, take_word, needs)) {
        needs->unknown = true;
        return;
    }
    if (ps_host_tables_name(layout, kernel->kernelParams, kernel->extra, NULL, take_address, needs))
        needs->unknown = true; /* host tables may hold other addresses at each launch */
    take_maker(needs, function, layout, kernel);
}

uint64_t ps_graph_needs_places(uint64_t count)
{
    static atomic_uint_fast64_t next;

    return atomic_fetch_add(&next, count);
}

/* The driver refuses a copy whose rows overlap. */
static void add_side(struct ps_graph_needs *needs, struct ps_copy_side side, struct ps_copy_box box)
{
    ps_graph_needs_bytes(needs, side.start, side.is_wrong ? box.width : ps_copy_extent(side, box));
}

void ps_graph_needs_copy(struct ps_graph_needs *needs, const CUDA_MEMCPY3D *copy, bool is_sometimes)
{
    const struct ps_copy_box box = {copy->WidthInBytes, copy->Height, copy->Depth};
    struct ps_graph_copy its;

    if (!box.width || !box.height || !box.depth)
        return;
    add_side(needs, PS_COPY_SIDE(copy, dst, copy->dstZ, copy->dstHeight, box), box);
    add_side(needs, PS_COPY_SIDE(copy, src, copy->srcZ, copy->srcHeight, box), box);
    if (!ps_graph_copy_of(copy, is_sometimes, &its))
        return;
    its.order = ps_graph_needs_places(1);
    add_copy(needs, &its);
}

void ps_graph_needs_values(struct ps_graph_needs *needs, const CUDA_BATCH_MEM_OP_NODE_PARAMS *values)
{
    /* `address` is at the same place in each variant that has one. */
    for (unsigned i = 0; i < values->count; i++)
        ps_graph_needs_address(needs, values->paramArray[i].waitValue.address);
}

/* Names the spans of the tables that the kernels are given. */
static void name_tables(const struct ps_graph_needs *needs, void (*note)(void *ctx, CUdeviceptr unit), void *ctx)
{
    uint64_t bytes;
    const CUdeviceptr start = ps_pointer_tables_range(&bytes);

    for (size_t i = 0; i < needs->words; i++)
        if (needs->word[i] - start < bytes)
            ps_pointer_tables_name(needs->word[i], note, note, ctx);
}

void ps_graph_needs_name(const struct ps_graph_needs *needs, void (*note_bytes)(CUdeviceptr start, size_t bytes),
                         void (*note)(void *ctx, CUdeviceptr unit), void *ctx)
{
    for (size_t i = 0; i < needs->ranges; i++)
        note_bytes(needs->range[i].start, needs->range[i].bytes);
    for (size_t i = 0; i < needs->count; i++)
        note(ctx, needs->address[i]);
    if (needs->words && ps_pointer_tables_exist() && ps_ordering_rule(TABLE_NAMES_SPANS))
        name_tables(needs, note, ctx);
}

void ps_graph_needs_add_tables(struct ps_graph_needs *needs)
{
    if (needs->words && ps_pointer_tables_exist() && ps_ordering_rule(TABLE_NAMES_SPANS))
        name_tables(needs, take_address, needs);
}

void ps_graph_needs_empty(struct ps_graph_needs *needs)
{
    needs->count = needs->ranges = needs->words = needs->copies = needs->makers = 0;
    needs->unknown = false;
}

void ps_graph_needs_add(struct ps_graph_needs *needs, const struct ps_graph_needs *more)
{
    for (size_t i = 0; i < more->count; i++)
        add(needs, more->address[i]);
    for (size_t i = 0; i < more->ranges; i++)
        ps_graph_needs_bytes(needs, more->range[i].start, more->range[i].bytes);
    for (size_t i = 0; i < more->words; i++)
        add_word(needs, more->word[i]);
    for (size_t i = 0; i < more->copies; i++)
        add_copy(needs, &more->copy[i]);
    needs->unknown |= more->unknown;
}

bool ps_graph_needs_bring(const struct ps_graph_needs *needs)
{
    uint64_t bytes;
    const CUdeviceptr start = ps_pointer_tables_range(&bytes);
    bool brings = false;

    for (size_t i = 0; !brings && i < needs->copies; i++) {
        const struct ps_graph_copy *copy = &needs->copy[i];
        brings = copy->is_upload || (bytes && copy->from.start < start + bytes &&
                                     copy->from.start + ps_copy_extent(copy->from, copy->box) > start);
    }
    return brings;
}

bool ps_graph_needs_touch(const struct ps_graph_needs *needs, CUdeviceptr start, size_t bytes)
{
    bool touch = needs->unknown;

    for (size_t i = 0; i < needs->count && !touch; i++)
        touch = needs->address[i] - start < bytes;
    for (size_t i = 0; i < needs->ranges && !touch; i++)
        touch = needs->range[i].start - start < bytes || start - needs->range[i].start < needs->range[i].bytes;
    return touch;
}

void ps_graph_needs_add_pieces(struct ps_graph_needs *needs)
{
    const ptrdiff_t before = ps_here;

    for (size_t i = 0; i < needs->ranges; i++) {
        const struct ps_graph_range *range = &needs->range[i];
        for (CUdeviceptr at = range->start; at && at - range->start < range->bytes; at = ps_block_next_piece(at))
            take_address(needs, at);
    }
    ps_here = before;
}

void ps_graph_needs_free(struct ps_graph_needs *needs)
{
    free(needs->address);
    free(needs->range);
    free(needs->word);
    free(needs->copy);
    free(needs->maker);
    *needs = (struct ps_graph_needs){.count = 0};
}
