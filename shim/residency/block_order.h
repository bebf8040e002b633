/*
 * The order of launches and moves in blocks: no piece moves while a launch that may touch it is about to be queued. What a block is stands in memory/blocks.h.
 *
 * Threads: any. The lock is the registry's: [locked], [unlocked].
 */
#ifndef PS_BLOCK_ORDER_H
#define PS_BLOCK_ORDER_H

#include <stdbool.h>
#include <stddef.h>

#include "memory/blocks.h"
#include "residency/copies.h"

/*
 * Around the queueing of a launch on `stream` that names blocks. begin: returns when no piece of any is on the move; none begins to until end. What the
 * launch is believed to touch is held and has been brought before. [locked; begin releases the lock meanwhile]
 */
void ps_block_order_begin_launch(struct ps_block *const *blocks, size_t count, struct ps_stream *stream);
void ps_block_order_end_launch(struct ps_block *const *blocks, size_t count, struct ps_stream *stream);

/* Whether the span is a piece that must not begin to move now: a launch that may touch it is about to be queued, or waits to be. [locked] */
bool ps_block_order_holds(const struct ps_span *span);

/* The same but for who waits: such a launch is about to be queued. [locked] */
bool ps_block_order_is_launching(const struct ps_span *span);

/* A piece begins to move: what that comes after is added to `uses`. Nothing for a span that is no piece. [locked] */
void ps_block_order_moves(struct ps_span *span, struct ps_uses *uses);

/* A piece has come to rest, unless it was to lead to its slot and leads nowhere. Nothing for a span that is no piece. [locked] */
void ps_block_order_rests(struct ps_span *span);

/*
 * Waits on the host until what a piece of the block moves after is over. At most a quarter of a second: a launch may be waiting for what this thread is
 * yet to queue. 0; -ETIMEDOUT; other -errno. [unlocked]
 */
int ps_block_order_wait_for(struct ps_block *block, const struct ps_uses *uses);

/* Its H2D has been queued, and its fence recorded behind it: the nth reload (copies.h). [locked] */
void ps_block_order_reloads(struct ps_span *span, struct ps_copies_nth nth);

#endif
