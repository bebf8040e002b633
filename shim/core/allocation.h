/*
 * The life of a span or block from allocation to free.
 *
 * Threads: any, inside Penstock. The registry lock must not be held by the caller.
 */
#ifndef PS_ALLOCATION_H
#define PS_ALLOCATION_H

#include <cuda.h>
#include <stddef.h>

struct ps_stream;

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
int ps_allocation_make(size_t bytes, struct ps_stream *stream, enum ps_allocation what, CUdeviceptr *address);

/* Frees the span or block that begins at `address`. `stream` as above: NULL keeps cudaFree's promise. 0 or -EINVAL: none that lives begins there. */
int ps_allocation_free(CUdeviceptr address, struct ps_stream *stream);

/* The same for one allocation that may lie in several pieces of a block that grows: all that lives in the stretch. */
void ps_allocation_free_all(CUdeviceptr address, size_t bytes);

#endif
