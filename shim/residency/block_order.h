/*
 * The order of launches and moves in blocks. No piece moves while a launch that may touch it is
 * about to be queued. memory/blocks.h describes blocks.
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
 * Called before a launch on `stream` that names the blocks is queued. Returns when no piece of them
 * is moving; no piece begins to move until ps_block_order_end_launch. The caller already holds, and
 * has brought back, the pieces that the launch is believed to touch.
 * [locked; releases the lock meanwhile]
 */
void ps_block_order_begin_launch(struct ps_block *const *blocks, size_t count, struct ps_stream *stream);

/* The launch has been queued: pieces may move again. [locked] */
void ps_block_order_end_launch(struct ps_block *const *blocks, size_t count, struct ps_stream *stream);

/*
 * Whether the span is a piece that must not begin to move now. A launch that may touch it is about
 * to be queued, or waits for its turn. [locked]
 */
bool ps_block_order_holds(const struct ps_span *span);

/*
 * Whether a launch that may touch the piece is about to be queued; waiting ones don't count.
 * [locked]
 */
bool ps_block_order_is_launching(const struct ps_span *span);

/*
 * A piece begins to move. Adds to `uses` the launches that the move must come after. Does nothing
 * for a span that is no piece. [locked]
 */
void ps_block_order_moves(struct ps_span *span, struct ps_uses *uses);

/*
 * A piece has come to rest. A piece that should lead to its slot, but leads nowhere, still counts
 * as moving. Does nothing for a span that is no piece. [locked]
 */
void ps_block_order_rests(struct ps_span *span);

/*
 * Waits on the host until the uses that a move of a piece comes after are over. Waits at most a
 * quarter of a second: a launch may be waiting for work that this thread is yet to queue. Returns
 * 0, -ETIMEDOUT or another -errno. [unlocked]
 */
int ps_block_order_wait_for(struct ps_block *block, const struct ps_uses *uses);

/* The span's nth H2D (copies.h) has been queued, and its fence is recorded behind it. [locked] */
void ps_block_order_reloads(struct ps_span *span, struct ps_copies_nth nth);

#endif
