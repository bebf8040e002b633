/*
 * Freed spans that keep their pages, for an allocation of their size (or a smaller one, while memory suffices), and how they give them up for another one.
 *
 * Two clocks: a span is freed in the program's order, and the device may be far behind. Its addresses are unmapped when its last use is over, which is asked,
 * or waited for on the host.
 *
 * Threads: any; everything is [locked] with the registry lock, and releases it meanwhile.
 */
#ifndef PS_FREED_SPANS_H
#define PS_FREED_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/span.h"

/* Whose pages may go. */
enum ps_freed {
    PS_FREED_ANY,
    PS_FREED_EVEN_AWAITED, /* where there are no others, those that a launch to come may use (ps_registry_await_launches) */
    PS_FREED_NOT_DUE,      /* those that no allocation will want soon (preallocation.h) */
    PS_FREED_UNWANTED,     /* those that none has wanted for a while (ps_registry_unwanted) */
};

/* Releases those whose uses are over, until `least` bytes are released and `room` more may be held. The bytes. */
uint64_t ps_freed_release(uint64_t least, size_t room, enum ps_freed whose);

/*
 * Takes one out for an allocation on `stream` (NULL: for any, or for a reload): of that size, or larger by as little as can be up to `at_most` bytes, whose
 * last uses are over. A few that were freed longest ago are asked. It has no uses then. NULL: none of them is over.
 */
struct ps_span *ps_freed_take_over(size_t bytes, size_t at_most, const struct ps_stream *stream);

/*
 * Takes one out to serve an allocation on `stream` (NULL: cudaMalloc's, for any) that `orders_itself` comes after by itself (NULL: no stream does), or NULL.
 * `may_be_larger`: up to twice as large, where sizes hardly come again. One that is just being made ahead is waited for: the driver is busy with it.
 * [releases the lock meanwhile]
 */
struct ps_span *ps_freed_choose(size_t bytes, const struct ps_stream *stream, const struct ps_stream *orders_itself, bool may_be_larger);

/* Releases this one, if nothing uses it any more. */
bool ps_freed_end(struct ps_span *span);

/*
 * Waits on the host for the uses of the one that was freed first, and releases it. 0; -ENOENT: there is none; -ETIMEDOUT: they are not over, and others may
 * be; other -errno: the driver refuses.
 */
int ps_freed_wait_for_oldest(enum ps_freed whose);

#endif
