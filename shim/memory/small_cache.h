/*
 * What the program asks for in stream order that is too small for a span, kept when it is freed and handed out again.
 *
 * Such requests are the real allocator's. Once Penstock makes and unmaps spans' pages, though, they wait for the driver's lock that those calls hold: of
 * 90 ms of a ResNet-50's step in 10 of 11 GiB, 20 were such waits, of 750 requests (stacks sampled on an H200). So a block that the program frees stays
 * allocated, and is what it gets when it next asks for as much on the same stream. Each is the real allocator's own, from the device's current pool, and
 * goes back to it in time. While memory suffices there is no such lock to wait for, and what is saved is the driver's call; blocks are kept then only where
 * the pool would keep their pages, too (ps_device_pool_keeps_all).
 *
 * What is freed on a stream on which nothing was asked for yet goes to the real allocator: it would be kept for nobody. (What several streams have used torch frees
 * on one that waits for them all, and that has no other use.)
 *
 * Two clocks: a block is handed out only on the stream on which it was freed. What was queued there before the free comes before whatever is queued there
 * after the allocation, as with the driver's own pools; no event is needed, and nobody waits.
 *
 * Threads: any, inside Penstock or not; no lock may be held. Streams: no per-thread default streams, and none of a context that is not managed.
 */
#ifndef PS_SMALL_CACHE_H
#define PS_SMALL_CACHE_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_stream;

/* What is asked of the real allocator for a request of `bytes`, so that the block serves every request that comes to the same: whole units of 512 bytes. */
#define PS_SMALL_UNIT ((size_t)512)
static inline size_t ps_small_bytes(size_t bytes)
{
    return (bytes + PS_SMALL_UNIT - 1) & ~(PS_SMALL_UNIT - 1);
}

/* A block of so many bytes, whole units, that was freed on the stream, whose index is below PS_STREAMS_MAX; 0: none is kept. */
CUdeviceptr ps_small_take(struct ps_stream *stream, size_t bytes);

/* The real allocator gave the program `bytes`, whole units, at `address`: that can be kept when it is freed. Without memory for it, or beside 16,384: it can't. */
void ps_small_note(CUdeviceptr address, size_t bytes);

/* Whether anything was noted yet. */
bool ps_small_are_known(void);

enum ps_small {
    PS_SMALL_UNKNOWN, /* it is the real allocator's to free; from now on nothing is known of it here */
    PS_SMALL_KEPT,    /* it is freed, and kept */
    PS_SMALL_TWICE,   /* it was kept already: the program frees it a second time */
};

/* The program frees `address` on the stream; NULL: at once, or where nothing can be kept. */
enum ps_small ps_small_free(CUdeviceptr address, struct ps_stream *stream);

/*
 * What is kept of the stream's beyond what may be kept in all, the longest-kept first; 0: nothing. It is no longer kept, and for the caller to free by the real
 * function on that stream.
 */
CUdeviceptr ps_small_excess(const struct ps_stream *stream);

/*
 * Gives back to the real allocator what is kept of a stream that is about to be destroyed (by its handle), or of all streams of the context that is current
 * (true: there was something). Of the first nothing is on its way back by another thread either, when this returns.
 */
void ps_small_give_back_of(CUstream handle);
bool ps_small_give_back(void);

/* Bytes kept that are of the current pool of the device that the thread is at. */
uint64_t ps_small_kept(void);

#endif
