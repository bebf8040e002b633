/*
 * The life of a span or block from allocation to free.
 *
 * Threads: any, inside Penstock. [unlocked]
 */
#ifndef PS_ALLOCATION_H
#define PS_ALLOCATION_H

#include <cuda.h>
#include <stddef.h>

struct ps_stream;

/* The purpose of an allocation. */
enum ps_allocation {
    PS_ALLOCATION_TO_USE,
    PS_ALLOCATION_TO_ASK, /* to see how much there is, as ps_request_told_free says */
    PS_ALLOCATION_TO_MAP  /* where the program wants it: the span has exactly its size */
};

/*
 * Makes a new span of at least `bytes`, or a block if the allocation is large enough for one.
 * `stream`: the allocation is ordered on it (cudaMallocAsync). NULL: any stream may use the memory
 * at once (cudaMalloc).
 * 0; -ENOMEM: out of memory, logged once with demand, budget and slab; -ENOSPC: no addresses or no
 * memory for bookkeeping, so the caller goes to the real allocator; other -errno.
 */
int ps_allocation_make(size_t bytes, struct ps_stream *stream, enum ps_allocation what, CUdeviceptr *address);

/*
 * Frees the span or block that begins at `address`. `stream` as above; NULL keeps cudaFree's
 * promise.
 * 0; -EINVAL: no live span or block begins there, or the program mapped it itself.
 */
int ps_allocation_free(CUdeviceptr address, struct ps_stream *stream);

/*
 * Frees all live spans in the range: one allocation that may lie in several pieces of a growing
 * block.
 */
void ps_allocation_free_all(CUdeviceptr address, size_t bytes);

#endif
