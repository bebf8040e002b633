/*
 * The path of a launch, copy or fill past the spans that it names. The path has two parts, around
 * the driver call that queues the work.
 *
 * ps_access_begin, before the call, holds the spans and tells the learner. It then brings every
 * span to where the work finds it.
 *
 * ps_access_end, after the call, notes the position in the stream, lets the spans go and tells the
 * follower. No span is a victim between the two.
 *
 * Threads: any, inside Penstock. [unlocked]
 */
#ifndef PS_ACCESS_H
#define PS_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/span.h"
#include "policy/recording/recorder.h"

struct ps_access_kind {
    bool is_kernel; /* counts as a kernel launch */
    /* After the call no further kernel can know its spans' addresses (known_kernels.h). */
    bool keeps_no_address;
    /* Some launches like it name spans, and some do not (stale_pointers.h). */
    bool may_be_stale;
    bool capturing;                 /* the call goes into a graph, and runs with it (graphs.h) */
    bool only_looked;               /* capturing, no copy of the program's: the driver only looks */
    bool only_maybe;                /* it may use the spans, and mostly does not: the learner is not told */
    struct ps_block *const *blocks; /* it may touch any piece of these, listed or not (blocks.h) */
    size_t block_count;
    uint64_t fingerprint;           /* of the kernel and its shape, or of the sort of copy */
    struct ps_recorded_layer layer; /* the layer that it lies in */
};

/*
 * Begins an access. `spans[0..*count)` were found at addresses that a call names, in any order;
 * repeats are allowed.
 *
 * Spans that are not live are dropped: the array is packed, and `*count` updated. Freed spans that
 * may still be used (ps_registry_await_launches) are kept, and come last. On return each live span
 * is on device pages, or on its slot if no pages were available. `stream` waits for its H2D.
 *
 * May wait on the host for evictions. Returns the launch's number for learning and following, or
 * PS_LAUNCH_NOT_LEARNT.
 */
uint64_t ps_access_begin(struct ps_span **spans, size_t *count, struct ps_stream *stream,
                         const struct ps_access_kind *kind);

/*
 * The call has been queued, or has failed. Takes the array as ps_access_begin left it, the number
 * that it returned, and the same kind.
 */
void ps_access_end(struct ps_span *const *spans, size_t count, struct ps_stream *stream,
                   const struct ps_access_kind *kind, uint64_t launch);

#endif
