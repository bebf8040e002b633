/*
 * The way of a launch, copy or fill past the spans that it names, in two parts around the driver call that queues it.
 *
 * begin, before the call: the spans are held, the learner is told, every span is brought to where the work finds it. end, after the call: the position in the
 * stream is noted, the spans are let go, the follower is told. Between the two none of them is a victim.
 *
 * Threads: any, inside Penstock. The registry lock must not be held by the caller.
 */
#ifndef PS_ACCESS_H
#define PS_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/span.h"
#include "policy/recording/recorder.h"

struct ps_access_kind {
    bool is_kernel;                 /* counts as a kernel launch */
    bool keeps_no_address;          /* what it names is known after it to those alone who knew it before (known_kernels.h) */
    bool unsteady;                  /* some launches like it name spans, and some do not (stale_pointers.h) */
    bool capturing;                 /* the call goes into a graph, and runs with that (graphs.h) */
    bool only_looked;               /* capturing, and no copy of the program's: the driver looks at what it names */
    struct ps_block *const *blocks; /* those of which it may touch any piece, whichever are listed (blocks.h) */
    size_t block_count;
    uint64_t fingerprint;           /* of the kernel and its shape; of the sort of copy */
    struct ps_recorded_layer layer; /* that it lies in */
};

/*
 * `spans[0..*count)` were found at addresses that a call names, in any order, repeats allowed. Those that are not live are dropped (the array
 * is packed, *count updated), but for freed ones that may still be used (ps_registry_await_launches), which come last. On return each is on device pages, or on its slot where no pages could be had, and `stream` waits for its H2D.
 * May wait on the host for evictions. Returns the launch's number for learning and following (or
 * PS_LAUNCH_NOT_LEARNT).
 */
uint64_t ps_access_begin(struct ps_span **spans, size_t *count, struct ps_stream *stream, const struct ps_access_kind *kind);

/* The call has been queued (or has failed). The same array as begin left it, the number that it returned, and the same kind. */
void ps_access_end(struct ps_span *const *spans, size_t count, struct ps_stream *stream, const struct ps_access_kind *kind,
                   uint64_t launch);

#endif
