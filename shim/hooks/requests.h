/*
 * Requests: an allocation or a free as the program asks for it, by whichever function. Decides
 * whether a span serves it, and finds the span. The hooks of the runtime (runtime_memory.c) and of
 * the driver (driver_memory.c) share this.
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

/*
 * Returns the bytes from row to row of a pitched allocation. They are a multiple of 512 on every
 * device of compute capability 2.0 and later (measured on an H200). A result below `width` means
 * that `width` is too large.
 */
static inline size_t ps_pitch(size_t width)
{
    return (width + 511) & ~(size_t)511;
}

/*
 * Returns whether an allocation of `bytes` in the current context may become a span; counts why
 * not. The calling thread is at that device then. Begins Penstock at a process's first request that
 * is large enough. Begins each further device at the first such request on it. There must be a
 * current context by then, or a runtime that makes one.
 */
bool ps_request_may_be_span(size_t bytes);

/*
 * Returns the context that is current on this thread. NULL: none, and nothing can be allocated. For
 * the driver's hooks, like the next function: the runtime makes a context.
 */
CUcontext ps_request_context(void);

/* Like ps_request_may_be_span, in that context; counts why not. */
bool ps_request_may_be_span_here(size_t bytes);

/*
 * The program was just told, on this thread, that `bytes` are free. It may then allocate them all,
 * or half of them, in stream order. Most often it only asks how much it could have, and gives the
 * memory back unused (torch, for cuDNN's workspaces). Until the next allocation that is no reason
 * to trace launches or to evict ahead of need. It does not count as memory that the program needed.
 */
void ps_request_told_free(size_t bytes);

enum ps_request {
    PS_REQUEST_SPAN,          /* *address is set */
    PS_REQUEST_OUT_OF_MEMORY, /* the program gets the error */
    PS_REQUEST_REAL,          /* the real allocator must be asked */
};

/*
 * Makes a span of at least `bytes`. With a stream, the span's first use is ordered after the work
 * given to that stream so far.
 */
enum ps_request ps_request_span(size_t bytes, struct ps_stream *stream, CUdeviceptr *address);

/*
 * Like ps_request_span, usable on any stream at once, and of exactly `bytes`: the program maps it
 * where it wants.
 */
enum ps_request ps_request_span_to_map(size_t bytes, CUdeviceptr *address);

/*
 * Frees the span that begins at `address`. False: no live span begins there; the real function has
 * the error for that.
 */
bool ps_request_free(CUdeviceptr address, struct ps_stream *stream);

/*
 * Moves the thread to the managed device whose default pool `pool` is. False: it is no such pool,
 * and the thread stays. To the program, spans are allocations from these pools. A pool that the
 * program made has properties (sharing, location) that a span does not have. The runtime's pools
 * are the driver's (driver_types.h).
 */
bool ps_request_enter_pool(CUmemoryPool pool);

/*
 * Returns whether an allocation in stream order belongs to a capture that began before the set-up.
 * Such a capture was not counted (capture.h), and the allocation is the graph's. The set-up would
 * break the capture, and is left to a later allocation. Ask this before the functions above.
 */
bool ps_request_is_captured_unseen(CUstream stream, bool per_thread_default);

/*
 * Call it after ps_request_may_be_span. Returns whether an allocation in stream order may still be
 * a span; counts why not. The pool is `pool`, or the current one if `current`. It must be the
 * default pool of the thread's device, and the stream must be on that device.
 */
bool ps_request_may_be_pooled(bool current, CUmemoryPool pool, const struct ps_stream *stream);

/*
 * Returns the stream on which a request too small for a span is ordered. A block that the program
 * freed there may serve it (small_cache.h). `current`: it is for the pool that is current. NULL:
 * ask the real allocator as the program asks.
 */
struct ps_stream *ps_request_small_on(size_t bytes, bool current, CUstream stream, bool per_thread_default);

/* The program frees memory that may be such a block, on a stream. */
enum ps_small ps_request_free_small(CUdeviceptr address, CUstream stream, bool per_thread_default,
                                    struct ps_stream **on);

/*
 * The program frees memory on a stream, while Penstock reads it on another one (made_tables.h).
 * Frees it then behind that, and returns true. Cheap while nothing is read.
 */
bool ps_request_free_behind_looks(CUdeviceptr address, CUstream stream, bool per_thread_default);

/*
 * The same for a free in no stream's order. The driver then waits for nothing if the memory comes
 * from a pool (asked on an H200), and for the device otherwise.
 */
bool ps_request_free_at_once_behind_looks(CUdeviceptr address);

/* Like ps_request_free_small, in no stream's order: nothing is kept. */
enum ps_small ps_request_free_small_at_once(CUdeviceptr address);

/* The program is about to choose the current pool: nothing small is kept from now on. */
void ps_request_chooses_pool(void);

/*
 * Call it before memory at `address` is freed at once, by any owner: its pointer tables are
 * forgotten. Memory freed in stream order may be read by later launches
 * (ps_registry_await_launches). Its tables stay known until the memory is allocated again.
 */
void ps_request_forget_tables(CUdeviceptr address);

/*
 * `bytes` at `address` have been allocated, by any allocator: a table there is undefined now. Cheap
 * while there are no tables.
 */
void ps_request_allocated(CUdeviceptr address, size_t bytes);

#endif
