/*
 * The small cache: keeps freed small blocks and hands them out again. A small block is an
 * allocation in stream order that is too small for a span.
 *
 * Such requests go to the real allocator. Once Penstock makes and unmaps spans' pages, they wait
 * for the driver's lock that those calls hold. In 10 of 11 GiB, 20 ms of a ResNet-50 step's 90 ms
 * were such waits, of 750 requests. (Stacks sampled on an H200.) So a small block that the program
 * frees stays allocated. The program gets it again when it next asks for as much on the same
 * stream. Each small block comes from the real allocator, from the device's current pool, and goes
 * back to it in time. With enough memory no request waits for that lock, and the cache saves only
 * the driver's call. It then keeps small blocks only where the pool would keep their pages too
 * (ps_device_pool_keeps_all).
 *
 * A small block goes to the real allocator if its free is on a stream that never allocated any: no
 * request would take it from the cache. (Memory that several streams used is an example: torch
 * frees it on a stream that waits for all of them and has no other use.)
 *
 * Two clocks: a small block is handed out only on the stream on which it was freed. Work queued
 * there before the free comes before work queued there after the allocation, as with the driver's
 * own pools. No event is needed, and no thread waits.
 *
 * Threads: any, inside Penstock or not; the caller holds no lock. Streams: no per-thread default
 * streams, and no streams of a context that is not managed.
 */
#ifndef PS_SMALL_CACHE_H
#define PS_SMALL_CACHE_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_stream;

/* The unit of small blocks, in bytes. */
#define PS_SMALL_UNIT ((size_t)512)

/*
 * Returns the bytes to ask of the real allocator for a request of `bytes`: whole units. The small
 * block then serves every request that rounds up to the same size.
 */
static inline size_t ps_small_bytes(size_t bytes)
{
    return (bytes + PS_SMALL_UNIT - 1) & ~(PS_SMALL_UNIT - 1);
}

/*
 * Takes a kept small block of `bytes`, whole units, that was freed on the stream. The stream's
 * index is below PS_STREAMS_MAX. Returns 0 if none is kept.
 */
CUdeviceptr ps_small_take(struct ps_stream *stream, size_t bytes);

/*
 * Notes that the real allocator gave the program `bytes`, whole units, at `address`: its free may
 * then keep it. The note is dropped without memory for it, or beside 16,384 others.
 */
void ps_small_note(CUdeviceptr address, size_t bytes);

/* Whether any small block was noted yet. */
bool ps_small_are_known(void);

enum ps_small {
    PS_SMALL_UNKNOWN, /* the real allocator must free it; the cache no longer knows it */
    PS_SMALL_KEPT,    /* the free is done, and the cache keeps the small block */
    PS_SMALL_TWICE,   /* it was kept already: the program frees it a second time */
};

/* The program frees `address` on the stream; NULL: at once, or where it can't be kept. */
enum ps_small ps_small_free(CUdeviceptr address, struct ps_stream *stream);

/*
 * Takes the stream's longest-kept small block out if the cache keeps more than it may in all;
 * returns 0 otherwise. The caller frees it by the real function on that stream.
 */
CUdeviceptr ps_small_excess(const struct ps_stream *stream);

/*
 * Gives the kept small blocks of a stream that is about to be destroyed back to the real allocator.
 * When it returns, no other thread is still giving back one of that stream's.
 */
void ps_small_give_back_of(CUstream handle);

/*
 * Gives the kept small blocks of all streams of the current device's managed context back to
 * the real allocator. Returns true if there were any.
 */
bool ps_small_give_back(void);

/* Returns the kept bytes that come from the current pool of the device that the thread is at. */
uint64_t ps_small_kept(void);

#endif
