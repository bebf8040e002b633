/*
 * Freed spans. They keep their pages for an allocation of their size, or of a smaller size while
 * memory suffices. They give them up for other allocations.
 *
 * Two clocks: a span is freed in the program's order, and the device may be far behind. Its
 * addresses are unmapped when its last use is over. The host asks the driver for that, or waits.
 *
 * Threads: any; every function is [locked] with the registry lock, and releases it meanwhile.
 */
#ifndef PS_FREED_SPANS_H
#define PS_FREED_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/span.h"

/* The freed spans whose pages may go. */
enum ps_freed {
    PS_FREED_ANY,
    /*
     * If no other is left, also spans that a launch to come may use (ps_registry_await_launches).
     */
    PS_FREED_EVEN_AWAITED,
    PS_FREED_NOT_DUE,  /* spans that no allocation will want soon (preallocation.h) */
    PS_FREED_UNWANTED, /* spans that none has wanted for a while (ps_registry_unwanted) */
};

/*
 * Releases freed spans whose uses are over, until `least` bytes are released and `room` more bytes
 * may be held. Returns the bytes released.
 */
uint64_t ps_freed_release(uint64_t least, size_t room, enum ps_freed whose);

/*
 * Takes out a freed span whose last uses are over, for an allocation on `stream` (NULL: for any
 * stream, or for a reload). The span has that size, or is the least larger one up to `at_most`
 * bytes. Asks about a few spans only, those freed longest ago. The span has no uses then. Returns
 * NULL if the uses of none are over.
 */
struct ps_span *ps_freed_take_over(size_t bytes, size_t at_most, const struct ps_stream *stream);

/*
 * Takes out a freed span for an allocation on `stream` (NULL: cudaMalloc's, for any stream).
 * `orders_itself`: the stream that comes after the span's uses by itself (NULL: no stream does).
 * Returns NULL if no span serves. `may_be_larger`: the span may be up to twice as large, where
 * sizes hardly come again. Waits for a span that is just being made ahead: the driver is busy with
 * it. [releases the lock meanwhile]
 */
struct ps_span *ps_freed_choose(size_t bytes, const struct ps_stream *stream, const struct ps_stream *orders_itself,
                                bool may_be_larger);

/* Releases this span if its uses are over. Returns whether it did. */
bool ps_freed_end(struct ps_span *span);

/*
 * Waits on the host for the uses of the span that was freed first, and releases it. Returns 0;
 * -ENOENT if no span may go; -ETIMEDOUT if its uses are not over, though another's may be; another
 * -errno if the driver refuses.
 */
int ps_freed_wait_for_oldest(enum ps_freed whose);

#endif
