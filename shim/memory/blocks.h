/*
 * Blocks: allocations that are too large to move as a whole. A block is a row of adjacent spans,
 * its *pieces*. Each piece has pages, residency and a slot of its own; the program sees one
 * allocation.
 *
 * A launch names the addresses where tensors begin, but not where they end. So two sets of pieces
 * are kept apart:
 *
 * - The pieces that the launch is believed to touch: those up to the next address where accesses
 *   were seen to begin (tensor_starts.h). They are brought to the device, and count as used. This
 *   belief is only for speed.
 * - The pieces that the launch may touch: any piece of the blocks that it names. They must not be
 *   on the move while the launch is queued.
 *
 * A piece's bytes are on the move in two stretches. One lasts from the queueing of its D2H until
 * its addresses lead to its slot; the driver may refuse that mapping several times first. The other
 * lasts from when its addresses no longer lead to the slot until its H2D is queued.
 *
 * A launch that names a block is queued only while no piece of the block is on the move. On its own
 * stream the launch comes after the H2D of each piece. A piece begins to move only after all
 * launches that named its block. So a launch finds each byte in one place, on pages or in the slot.
 * A wrong belief costs only time.
 *
 * Copies, fills and NCCL's calls say to the byte what they touch: they treat a piece as any span.
 *
 * The program's own reservation of addresses is a block that *grows* if several of its handles are
 * neighbours (program_mappings.h). Tensors may lie across them. Its pieces come and go, with holes
 * between them, and each handle is an allocation by itself.
 *
 * Structures are reused but never given back to libc. The registry lock guards all fields.
 * [locked]: the caller holds it.
 */
#ifndef PS_BLOCKS_H
#define PS_BLOCKS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/registry.h"
#include "memory/span.h"
#include "policy/tensor_starts.h"

#define PS_BLOCK_STREAMS 64u
#define PS_BLOCK_H2D_STREAMS 2u /* the number of H2D streams in copies.h */

struct ps_block {
    CUdeviceptr address;
    size_t bytes;       /* of all pieces */
    size_t requested;   /* as the program asked */
    size_t piece_bytes; /* of each piece, but the last may have less; grows: of the largest */
    bool grows;         /* pieces come and go as allocations; `requested` and `nth` mean nothing */
    uint64_t nth;       /* blocks or spans of its size born before it, as in struct ps_span */
    struct ps_tensor_starts starts;
    struct ps_uses uses; /* all launches that named the block */
    /*
     * Launches that name it, have ended their waits and are not queued yet: no piece begins to
     * move.
     */
    uint32_t launching;
    /* Launches that wait for its pieces to come to rest: no piece that can wait begins to move. */
    uint32_t wanted;
    uint32_t moving; /* pieces on the move */
    /* The last wait for its launches timed out: waits are short until one succeeds. No lock. */
    atomic_bool stuck;
    bool put_off;     /* a D2H of a piece waits until launches that name the block are queued */
    uint64_t reloads; /* H2D copies queued for its pieces */
    struct {
        uint64_t number; /* the last of them on that H2D stream, counted as in copies.h; 0: none */
        CUevent end;
    } last_reload[PS_BLOCK_H2D_STREAMS];
    uint64_t reloads_seen[PS_BLOCK_STREAMS]; /* `reloads` when the stream (by index) last waited */
    struct ps_block *next_unused;
    bool has_holes; /* memory of CUDA's own lies between the pieces of a block that grows */
    struct ps_block *next_holed;
};

/*
 * Returns the block that a span is a piece of, or NULL. Any thread, no lock; without the lock the
 * answer may be out of date.
 */
static inline struct ps_block *ps_block_of(const struct ps_span *span)
{
    return atomic_load_explicit(&span->block, memory_order_relaxed);
}

/*
 * Returns the same block if it is one allocation, else NULL. Statements and questions about the
 * span then apply to the block.
 */
static inline struct ps_block *ps_block_whole(const struct ps_span *span)
{
    struct ps_block *block = ps_block_of(span);

    return block && !block->grows ? block : NULL;
}

/* Whether any block exists: a cheap check for launches. Any thread, no lock. */
static inline bool ps_blocks_exist(void)
{
    return atomic_load_explicit(&ps_reservation.blocks, memory_order_relaxed) != 0;
}

/* ---- making and ending: for allocation.c ---- */

/*
 * Whether an allocation of `bytes` should be a block. `ordered`: the request is in stream order.
 * Each such allocation of torch is one tensor, so it becomes a block only in two cases:
 * - It exceeds the budget, as XLA's one buffer for all temporaries of a jitted function may.
 * - It is large, and the program uses its large allocations in parts (see below).
 * A policy may want pieces in any case. Any thread.
 */
bool ps_block_is_for(size_t bytes, bool ordered);

/*
 * A launch names `at`, inside an allocation of `bytes` that is no block, and `count` spans in all.
 * cuDNN's recurrent networks do so at ever new places in their reserve space, and don't touch most
 * of it. After many such launches in a short time, large allocations become blocks. A launch counts
 * if memory is short and it names more than half of the budget, at a new place. [unlocked]
 */
void ps_block_used_inside(CUdeviceptr at, size_t bytes, struct ps_span *const *spans, size_t count);

/* Whether launches have shown a use in parts. Any thread, no lock. */
bool ps_block_parts_are_used(void);

/*
 * Returns the bytes of a piece of a block: a power of two of units. Half a GiB or more has pieces
 * of 16 to 64 MiB; they are larger only to stay within 512 pieces. A smaller block has 16 to 32
 * pieces, or fewer of one unit. Pure.
 */
size_t ps_block_piece_bytes(size_t bytes, size_t unit);

/*
 * Makes a block without pieces, with addresses for them. NULL: no addresses or no memory. [locked]
 */
struct ps_block *ps_block_new(size_t bytes, size_t requested);

/* Makes a block that grows, over addresses that the caller has. NULL: no memory. [locked] */
struct ps_block *ps_block_new_growing(CUdeviceptr address, size_t bytes);

/*
 * Memory of CUDA's own lies in the addresses of a block that grows. A tensor may begin there and
 * reach into pieces. NULL: no block. [unlocked, at the block's device]
 */
void ps_block_has_hole(struct ps_block *block);

/* Whether any block has such holes. Any thread, no lock. */
extern atomic_uint ps_blocks_with_holes;
static inline bool ps_blocks_have_holes(void)
{
    return atomic_load_explicit(&ps_blocks_with_holes, memory_order_relaxed) != 0;
}

/* Gives the structure back for reuse; the block has no pieces any more. [locked] */
void ps_block_end(struct ps_block *block);

/*
 * Makes the span a piece of the block, or of none (NULL), and takes it out of its former block.
 * [locked]
 */
void ps_block_join(struct ps_span *span, struct ps_block *block);

/*
 * The block's pieces have moved to other addresses: sets the block's own, and forgets its starts.
 * [locked]
 */
void ps_block_moved(struct ps_block *block, CUdeviceptr address);

/* The piece's move ends. Does nothing for a span that is not on the move. [locked] */
void ps_block_piece_ends(struct ps_span *span);

/* Returns the piece that holds the address, or NULL. [locked] */
struct ps_span *ps_block_piece(const struct ps_block *block, CUdeviceptr address);

/*
 * Returns the first piece at or after the address, or NULL behind the last piece; PS_BLOCK_EACH
 * walks over all pieces in order. [locked]
 */
struct ps_span *ps_block_piece_from(const struct ps_block *block, CUdeviceptr address);
#define PS_BLOCK_EACH(span, block)                                                                                     \
    for ((span) = ps_block_piece_from((block), (block)->address); (span);                                              \
         (span) = ps_block_piece_from((block), (span)->address + (span)->bytes))

/* ---- what a call names ---- */

/* The names of one call in blocks. All zero at first; kept from call to call. */
struct ps_block_names {
    struct ps_block_name {
        CUdeviceptr address;
        size_t bytes;   /* 0: unknown */
        bool somewhere; /* anywhere in the reservation's unit that begins at the address */
    } * name;
    size_t count, room;
    struct ps_block **block; /* once resolved: blocks whose pieces the call may touch; each once */
    size_t blocks, blocks_room;
};

/* Notes a name. False: no memory. */
bool ps_block_name(struct ps_block_names *names, CUdeviceptr address, size_t bytes, bool somewhere);

/*
 * Resolves the names at the device that the thread is at. It calls `note` for each piece that is
 * believed to be touched, for some maybe twice. It appends the blocks to those already listed.
 * False: no memory. [unlocked]
 */
bool ps_block_resolve(struct ps_block_names *names, void (*note)(void *ctx, struct ps_span *piece), void *ctx);

/* Frees the memory of the names. */
void ps_block_names_free(struct ps_block_names *names);

/*
 * Returns the address behind the piece that holds `address`, or of the next piece if that is a
 * hole; 0 if it lies in no block, or in the last piece. For calls that name a range. [unlocked]
 */
CUdeviceptr ps_block_next_piece(CUdeviceptr address);

#endif
