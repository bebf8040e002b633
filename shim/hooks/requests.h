/*
 * An allocation or a free as the program asks for it, by whichever function: whether a span is to serve it, and the span. What the hooks of the
 * runtime (runtime_memory.c) and of the driver (driver_memory.c) have in common.
 *
 * Any thread; not from inside Penstock.
 */
#ifndef PS_REQUESTS_H
#define PS_REQUESTS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#include "memory/small_cache.h"

struct ps_stream;

/* From row to row of a pitched allocation, in bytes: 512 on every device of compute capability 2.0 and later (measured on an H200). Less than `width`: it is too large. */
static inline size_t ps_pitch(size_t width)
{
    return (width + 511) & ~(size_t)511;
}

/*
 * Whether an allocation of `bytes` in the current context may become a span; counts why not. The calling thread is at that device then. Begins Penstock at
 * a process's first request that is large enough, and a device of the process at the first on that: there must be a current context by then, or a
 * runtime that makes one.
 */
bool ps_request_may_be_span(size_t bytes);

/* The context that is current on this thread; NULL: none, and nothing can be had. For the driver's hooks, as the next: the runtime makes one. */
CUcontext ps_request_context(void);

/* The same as ps_request_may_be_span, in that context; counts why not. */
bool ps_request_may_be_span_here(size_t bytes);

/*
 * The calling thread's program was just told that so many bytes are free. One that then allocates them all in stream order, or half of them, most often only
 * asks how much it could have, as torch does for cuDNN's workspaces, and gives them back unused: until the next allocation that is no reason to trace
 * launches or to evict ahead of need, and no memory that the program needed.
 */
void ps_request_told_free(size_t bytes);

enum ps_request {
    PS_REQUEST_SPAN,          /* *address is set */
    PS_REQUEST_OUT_OF_MEMORY, /* the program gets the error */
    PS_REQUEST_REAL,          /* the real allocator is to be asked */
};

/* A span of at least `bytes`; with a stream its first use is ordered after what that stream has been given so far. */
enum ps_request ps_request_span(size_t bytes, struct ps_stream *stream, CUdeviceptr *address);

/* The same usable on any stream at once, and of just its size: the program maps it where it wants. */
enum ps_request ps_request_span_to_map(size_t bytes, CUdeviceptr *address);

/* Frees the span that begins at `address`. False: it is none of ours, or no live one begins there; the real function has the error for that. */
bool ps_request_free(CUdeviceptr address, struct ps_stream *stream);

/*
 * The thread goes to the managed device whose default pool it is; false: it is none's, and the thread stays. Spans are allocations from these as far as the program can
 * tell. A pool that the program made has properties (sharing, location) that a span does not have. The runtime's pools are the driver's (driver_types.h).
 */
bool ps_request_enter_pool(CUmemoryPool pool);

/*
 * Whether an allocation in the stream's order belongs to a capture that began before the set-up, and so was not counted (capture.h).
 * It is the graph's. The set-up would break the capture, and is left to a later allocation. Asked before the functions above.
 */
bool ps_request_is_captured_unseen(CUstream stream, bool per_thread_default);

/*
 * After ps_request_may_be_span: whether an allocation in the stream's order, from that pool or (`current`) from the one that is current, may still be one: it is
 * the default pool of the device that the thread is at, and so is the stream's device. Counts why not.
 */
bool ps_request_may_be_pooled(bool current, CUmemoryPool pool, const struct ps_stream *stream);

/*
 * The stream that a request too small for a span is ordered on, where what the program freed there may serve it (small_cache.h); NULL: the real allocator is to be asked
 * as the program asks. `current`: it is for the pool that is current.
 */
struct ps_stream *ps_request_small_on(size_t bytes, bool current, CUstream stream, bool per_thread_default);

/* The program frees what may be such a block, on a stream. */
enum ps_small ps_request_free_small(CUdeviceptr address, CUstream stream, bool per_thread_default, struct ps_stream **on);

/* The same, in no stream's order: nothing is kept. */
enum ps_small ps_request_free_small_at_once(CUdeviceptr address);

/* The program is about to choose which pool is current: nothing small is kept from now on. */
void ps_request_chooses_pool(void);

/*
 * Before memory at `address` is freed at once, whosever it is: pointer tables in it are none any more. What is freed in stream order may be read by launches
 * that come after (ps_registry_await_launches), so those are known until the memory is allocated again.
 */
void ps_request_forget_tables(CUdeviceptr address);

/* So many bytes at `address` have been allocated, by whomsoever: what they held, if it was a table, is undefined. Cheap while there are no tables. */
void ps_request_allocated(CUdeviceptr address, size_t bytes);

#endif
