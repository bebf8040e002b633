/*
 * Residency: what an access does to the spans that it names, and the life of a span from allocation to free.
 *
 * An access comes in two parts, around the driver call that queues it: begin (before; every span is brought to where the work may find it
 * and held there) and end (after; the position in the stream is noted). Between the two a span is no victim. The registry lock must not be
 * held by the caller of anything here.
 */
#ifndef PS_RESIDENCY_H
#define PS_RESIDENCY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/settings.h"
#include "memory/span.h"
#include "policy/recording/recorder.h"

void ps_residency_open(enum ps_guard guard);

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
uint64_t ps_residency_begin_access(struct ps_span **spans, size_t *count, struct ps_stream *stream, const struct ps_access_kind *kind);

/* The call has been queued (or has failed). The same array as begin left it, the number that it returned, and the same kind. */
void ps_residency_end_access(struct ps_span *const *spans, size_t count, struct ps_stream *stream, const struct ps_access_kind *kind,
                             uint64_t launch);

/* A launch on `stream` may use any span: holds all of them as begin does, but brings none to the device. End with ps_residency_end_access_to_all. */
void ps_residency_begin_access_to_all(struct ps_stream *stream);
void ps_residency_end_access_to_all(struct ps_stream *stream);

/*
 * Holds spans for a library that keeps their addresses (NCCL): each is on device pages, or on its slot where none could be had, and stays there until
 * it is let go as often. No stream is made to wait, and no use is learnt. As begin, drops those that are not live; may wait on the host for
 * evictions. let_go: of the same array, whatever has become of the spans; what is queued on `stream` by now (NULL: nothing) is a use of theirs.
 */
void ps_residency_hold(struct ps_span **spans, size_t *count);
void ps_residency_let_go(struct ps_span *const *spans, size_t count, struct ps_stream *stream);

/*
 * What comes to spans that are held is ordered by no stream (a network card): waits on the host until the bytes are there, and where it writes, too, until
 * whoever had the addresses before is done. Whether all of them are on device pages.
 */
bool ps_residency_settle(struct ps_span *const *spans, size_t count, bool writes);

/* While they are held so: they stay on their pages until they are freed, or unpinned (of the span at `address`) as often. */
void ps_residency_pin(struct ps_span *const *spans, size_t count);
void ps_residency_unpin(CUdeviceptr address);

/*
 * Begins the reload of the span at `address` ahead of its next access, if it is evicted and pages are there without waiting. Its users wait
 * for the H2D when they come. 0; -EAGAIN: no pages without waiting; -ENOENT: no live span, or nothing to do. For planning, and its tests.
 */
int ps_residency_reload_ahead(CUdeviceptr address);

/* The same for a span that is known; -EBUSY: somebody makes driver calls on it, or is about to queue a launch that may touch it. One that is EVICTING stays: -EALREADY. [locked; releases the lock meanwhile] */
int ps_residency_bring(struct ps_span *span);

/* Whether the span, if it is away, must stay on its slot for now: a launch that runs there is not queued yet, or shows to nobody. [locked] */
bool ps_residency_stays_on_slot(const struct ps_span *span);

/* What an allocation is for. */
enum ps_allocation {
    PS_ALLOCATION_TO_USE,
    PS_ALLOCATION_TO_ASK, /* to see how much there is, as ps_request_told_free says */
    PS_ALLOCATION_TO_MAP  /* where the program wants it: the span is of just its size */
};

/*
 * A new span of at least `bytes`, or a block where that is called for. `stream`: the allocation is ordered on it (cudaMallocAsync); NULL: usable on any stream at once
 * (cudaMalloc). 0; -ENOMEM: out of memory, said once with demand, budget and slab; -ENOSPC: no addresses or no memory for bookkeeping,
 * the caller goes to the real allocator; other -errno.
 */
int ps_residency_allocate(size_t bytes, struct ps_stream *stream, enum ps_allocation what, CUdeviceptr *address);

/* Frees the span or block that begins at `address`. `stream` as above: NULL keeps cudaFree's promise. 0 or -EINVAL: none that lives begins there. */
int ps_residency_free(CUdeviceptr address, struct ps_stream *stream);

/* The same for one allocation that may lie in several pieces of a block that grows: all that lives in the stretch. */
void ps_residency_free_all(CUdeviceptr address, size_t bytes);

/* What is mapped at this device lets in the peers that the device has now (device_memory.h). Waits for who works on a span. [unlocked] */
void ps_residency_let_peers_in(void);

/*
 * The program asks the driver about `address` by a way that our hooks don't see (Triton does before each launch): an evicted span that is mapped to
 * nothing is mapped to its slot, for the driver to know of it.
 */
void ps_residency_asked_about(CUdeviceptr address);

/*
 * The live allocation, a span or a block, that holds `address`, to whose device the thread goes: its start and its size as the program asked. 0; -ENOENT;
 * -ENXIO: the program has it mapped nowhere, or without access.
 */
int ps_residency_look_up(CUdeviceptr address, CUdeviceptr *start, size_t *requested);

#endif
