/*
 * Blocks: allocations that are too large to be moved as a whole. A block is a row of adjacent spans, its *pieces*, each with pages, residency and slot
 * of its own; to the program it is one allocation.
 *
 * A launch names the addresses where tensors begin, and nobody knows where they end. So two things are kept apart:
 *
 * - Which pieces it is believed to touch: those up to the next address that accesses are seen to begin at (tensor_starts.h). They are brought to the
 *   device, and count as used. A belief, for speed.
 * - Which it may touch: any piece of the blocks that it names. A piece's bytes are on the move from the queueing of its D2H until its addresses lead
 *   to its slot, however often the driver refuses that at first, and from when they no longer do until its H2D is queued. A launch that names a block is queued only while none of its pieces is on
 *   the move, and comes after the H2D of each on its own stream; and no piece begins to move but after all launches that named its block. So
 *   whatever a launch touches lies on pages or on the slot, once, and a wrong belief is slow.
 *
 * Copies, fills and NCCL's calls say to the byte what they touch: to them a piece is a span as any other.
 *
 * The program's own reservation of addresses is a block that *grows*, where several of its handles are mapped side by side (program_mappings.h): tensors may lie
 * across them. Its pieces come and go, there may be none between two, and each handle is an allocation by itself.
 *
 * Structures are used again but never given back to libc. All fields are guarded by the registry lock. [locked]: called with it held.
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
#define PS_BLOCK_H2D_STREAMS 2u /* as many as copies.h has */

struct ps_block {
    CUdeviceptr address;
    size_t bytes;       /* of all pieces */
    size_t requested;   /* as the program asked */
    size_t piece_bytes; /* of each, but the last may have less */
    bool grows;         /* pieces come and go, and are allocations by themselves; `requested` and `nth` mean nothing */
    uint64_t nth;       /* blocks or spans of its size that were born before it, as in struct ps_span */
    struct ps_tensor_starts cuts;
    struct ps_uses uses; /* all launches that named it */
    uint32_t launching;  /* launches that name it, wait for nothing any more, and are not queued yet: no piece begins to move */
    uint32_t wanted;     /* launches that wait for its pieces to come to rest: none begins to move that can wait */
    uint32_t moving;     /* pieces on the move */
    atomic_bool stuck;   /* its launches did not come to an end for long: little is waited for them until they do. No lock */
    bool put_off;        /* a copy to the host waits for these launches to be queued */
    uint64_t reloads;    /* H2D copies queued for its pieces */
    struct {
        uint64_t number; /* the one of them that was queued last on that H2D stream, counted as in copies.h; 0: none */
        CUevent end;
    } last_reload[PS_BLOCK_H2D_STREAMS];
    uint64_t reloads_seen[PS_BLOCK_STREAMS]; /* those that each stream (by index) waits for */
    struct ps_block *next_unused;
};

/* The block that a span is a piece of, or NULL. Any thread, no lock: with the lock held it is so, without it was. */
static inline struct ps_block *ps_block_of(const struct ps_span *span)
{
    return atomic_load_explicit(&span->block, memory_order_relaxed);
}

/* The same, where the block is one allocation: what is said and asked of the span is then said and asked of it. */
static inline struct ps_block *ps_block_whole(const struct ps_span *span)
{
    struct ps_block *block = ps_block_of(span);

    return block && !block->grows ? block : NULL;
}

/* Whether there are any. A glance, for those who launch. Any thread, no lock. */
static inline bool ps_blocks_exist(void)
{
    return atomic_load_explicit(&ps_reservation.blocks, memory_order_relaxed) != 0;
}

/* ---- making and ending: for allocation.c ---- */

/*
 * Whether an allocation of so many bytes is to be made as a block; `ordered`: on a stream, as torch's are, of which each is a tensor, unless no budget would
 * ever hold it: the one buffer that XLA takes for all temporaries of a jitted function may be so large. Or unless the program has shown that its large ones
 * are used in parts: see below. Any thread.
 */
bool ps_block_is_for(size_t bytes, bool ordered);

/*
 * A launch names `at`, inside an allocation of `bytes` that is no block, and so many spans in all. Where many launches in a short time do so with more than half
 * of the budget, at ever new places, as cuDNN's recurrent networks do in their reserve space, most of what they name they don't touch: large allocations are made
 * as blocks from then on. [unlocked]
 */
void ps_block_used_inside(CUdeviceptr at, size_t bytes, struct ps_span *const *spans, size_t count);

/* Whether that has shown. Any thread, no lock. */
bool ps_block_parts_are_used(void);

/* Bytes of a piece of a block: a power of two of units, 16 to 64 MiB for half a GiB or more (then no more than 512), else 16 to 32 pieces. Pure. */
size_t ps_block_piece_bytes(size_t bytes, size_t unit);

/*
 * A block without pieces, with addresses for them. NULL: no addresses or no memory. / One that grows, over addresses that somebody has. / The structure
 * goes; it has no pieces any more. [locked]
 */
struct ps_block *ps_block_new(size_t bytes, size_t requested);
struct ps_block *ps_block_new_growing(CUdeviceptr address, size_t bytes);
void ps_block_end(struct ps_block *block);

/* The span becomes a piece of the block, or of none; of the former it is none any more. [locked] */
void ps_block_join(struct ps_span *span, struct ps_block *block);

/* The block's pieces have gone elsewhere with their bytes, and it with them. [locked] */
void ps_block_moved(struct ps_block *block, CUdeviceptr address);

/* The span is a piece no more, and on no move. Nothing for a span that is no piece. [locked] */
void ps_block_piece_ends(struct ps_span *span);

/* The piece that holds an address, or NULL. / The pieces in their order: the first at or after an address, NULL behind the last. [locked] */
struct ps_span *ps_block_piece(const struct ps_block *block, CUdeviceptr address);
struct ps_span *ps_block_piece_from(const struct ps_block *block, CUdeviceptr address);
#define PS_BLOCK_EACH(span, block)                                                                                                         \
    for ((span) = ps_block_piece_from((block), (block)->address); (span);                                                                  \
         (span) = ps_block_piece_from((block), (span)->address + (span)->bytes))

/* ---- what a call names ---- */

/* What one call names in blocks. All zero at first; kept from call to call. */
struct ps_block_names {
    struct ps_block_name {
        CUdeviceptr address;
        size_t bytes;   /* 0: nobody knows */
        bool somewhere; /* in the unit of the reservation that begins at the address, and not just there */
    } * name;
    size_t count, room;
    struct ps_block **block; /* once they are resolved: those of which it may touch any piece, none twice */
    size_t blocks, blocks_room;
};

/* Notes a name. False: no memory. */
bool ps_block_name(struct ps_block_names *names, CUdeviceptr address, size_t bytes, bool somewhere);

/*
 * Finds what is named of the device that the thread is at: `note` is told the pieces that are believed to be touched, some maybe twice, and the blocks come
 * behind those that are there. False: no memory. [unlocked]
 */
bool ps_block_resolve(struct ps_block_names *names, void (*note)(void *ctx, struct ps_span *piece), void *ctx);

void ps_block_names_free(struct ps_block_names *names);

/* Behind the piece that holds the address; 0 if it lies in no block, or in the last piece. For what names a range. [unlocked] */
CUdeviceptr ps_block_next_piece(CUdeviceptr address);

#endif
