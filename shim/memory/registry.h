/*
 * The registry: the list of spans, the map from addresses to spans, and the bytes that the process
 * holds.
 *
 * One lock guards it, and all span and slot fields. No driver call, no copy and no wait for the
 * device is made with it held. It is a leaf, except for the log. [locked]: the caller holds it;
 * [unlocked]: the caller does not.
 */
#ifndef PS_REGISTRY_H
#define PS_REGISTRY_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/per_device.h"
#include "cuda/address_map.h"
#include "memory/address_space.h"
#include "memory/registry_lock.h"
#include "memory/span.h"

/* The most spans that launches may still use after their free; one more drops the oldest. */
#define PS_AWAITING_MAX 16u

/* A device's part of the registry. */
struct ps_registry_state {
    /*
     * Each span gets its `nth`, because rules or `penstock verify` need it. Constant after the
     * set-up.
     */
    bool counts_births;
    CUdeviceptr start; /* of the device's area; constant after the set-up */

    /* Guarded by the lock. */
    struct ps_address_space addresses;
    struct ps_span_list idle_order; /* LIVE, on device pages, not EVICTING: longest idle first */
    struct ps_span_list cached;     /* CACHED, oldest first */
    struct ps_span_list draining;   /* DRAINING, oldest first */
    struct ps_span_list unused;     /* structures */
    struct ps_block *unused_blocks; /* structures */
    struct ps_block *holed_blocks;  /* growing blocks with memory of CUDA's own between their pieces */
    uint64_t live_bytes;            /* rounded bytes of LIVE spans */
    uint64_t live_requested;        /* their requests, each rounded up to 512 bytes */
    /* Of live_bytes: the bytes beyond the requests of spans that reuse a larger freed span. */
    uint64_t padding_bytes;
    uint64_t peak_live_bytes; /* without padding and without only_asked_bytes */
    /* Bytes of the last allocation if it takes all free memory (ps_request_told_free); else 0. */
    uint64_t only_asked_bytes;
    /* The program can reset these two peaks (cudaMemPoolSetAttribute). */
    uint64_t peak_live_requested;
    uint64_t peak_reserved_bytes;              /* of live and cached spans together */
    uint64_t cached_bytes;                     /* device bytes of CACHED spans */
    struct ps_span *awaiting[PS_AWAITING_MAX]; /* spans with `awaited_on`, oldest first */
    uint32_t awaiting_count;
    /*
     * Number and start (ns) of the period, half a minute or longer; for ps_registry_unwanted().
     */
    uint64_t period, period_began;
    uint64_t live_spans;
    uint32_t blind_launches;        /* blind launches that are not queued yet: no span may leave */
    CUdeviceptr highest;            /* end of the highest span so far */
    _Atomic uint64_t launch_number; /* kernel launches that named a span; also read unlocked */
    uint64_t access_number;         /* calls that named spans, launches included */
};

extern PS_PER_DEVICE struct ps_registry_state ps_first_registry;
#define ps_registry PS_HERE(ps_first_registry)

/*
 * Opens the registry of the device that the thread is at; the device has area `area` of `areas`.
 * The first call reserves the addresses of all areas: as many as the system gives, at most 16 TiB.
 * It also sets the unit, to the first device's granularity. Returns 0; -EINVAL if this device's
 * granularity is larger than the unit; -ENOSPC if the reservation lacks the area; another -errno.
 * One thread at a time. [unlocked]
 */
int ps_registry_open(size_t granularity, unsigned areas, unsigned area);

/*
 * Makes no address ours from now on. For a forked child: its copies of lock and spans have no
 * owner.
 */
void ps_registry_disown(void);

/* Returns the LIVE span with this number, or NULL if that life is over. [locked] */
struct ps_span *ps_registry_numbered(uint64_t number);

/*
 * Returns the LIVE span that holds the address, or NULL. The address is in this device's area.
 * [locked]
 */
struct ps_span *ps_registry_live_at(CUdeviceptr address);

/*
 * Returns the device's first span, of any life, at or after the address, or NULL. The address is in
 * the device's area. For walks over all spans: it looks at every unit. [locked]
 */
struct ps_span *ps_registry_next(CUdeviceptr address);

/*
 * For walks that may wait: returns the next span from `*from` on, once no thread is busy with it,
 * and sets `*from` behind it. `only_live`: LIVE spans only. During the wait the structure may
 * become another span's, elsewhere; then the span that is there now is next. Spans that are not
 * LIVE may be busy for as long as the device waits for the program.
 * [locked; releases the lock meanwhile]
 */
struct ps_span *ps_registry_next_settled(CUdeviceptr *from, bool only_live);

/*
 * Makes a LIVE span of `bytes` (a multiple of the granularity) whose addresses are backed by
 * nothing. NULL: no addresses or no memory. [locked]
 */
struct ps_span *ps_registry_new(size_t bytes, size_t requested);

/*
 * Takes addresses for the pieces of a block; 0: none are left. No span has the units before and
 * behind them, while there are enough addresses. Each piece gives its addresses back when it ends.
 * [locked]
 */
CUdeviceptr ps_registry_take_addresses(size_t bytes);

/* Gives the addresses of pieces that were never made back. [locked] */
void ps_registry_give_addresses(CUdeviceptr address, size_t bytes);

/*
 * As ps_registry_new(), for a piece of the block at addresses already taken. NULL: no memory.
 * [locked]
 */
struct ps_span *ps_registry_new_piece(struct ps_block *block, CUdeviceptr address, size_t bytes, size_t requested);

/*
 * Counts a birth. Returns the number of allocations of the size born before it, or
 * PS_SPAN_UNKNOWN_NTH if births are not counted. [locked]
 */
uint64_t ps_registry_count_birth(size_t bytes);

/*
 * Makes a span ahead of need, with addresses that only the caller knows; the caller backs it with
 * pages. NULL: no addresses or no memory. ps_registry_delete() takes it back. [locked]
 */
struct ps_span *ps_registry_new_unowned(size_t bytes);

/* Makes such a span CACHED, as if it had been freed and had no uses left. [locked] */
void ps_registry_cache_unowned(struct ps_span *span);

/*
 * Takes back the span's structure and, unless it is `placed`, its addresses. The span must have no
 * pages, no slot and no mapping. [locked]
 */
void ps_registry_delete(struct ps_span *span);

/*
 * Moves a LIVE span without backing to addresses that no other span has. `placed`: the program owns
 * the new addresses. The old ones go back unless they were the program's. [locked]
 */
void ps_registry_move(struct ps_span *span, CUdeviceptr address, bool placed);

/* Sets whether the program owns the span's addresses, whatever the span's life. [locked] */
void ps_registry_set_placed(struct ps_span *span, bool placed);

/*
 * Ends a LIVE span: counts it out, and takes it from the idle order. The caller sets its next life.
 * [locked]
 */
void ps_registry_end_life(struct ps_span *span);

/* Makes the span CACHED: keeps it for reuse. [locked] */
void ps_registry_cache(struct ps_span *span);

/*
 * Returns the bytes of freed spans that no allocation has wanted for at least half a minute. It
 * adds them from the oldest on, and stops at `at_most` or more. A span that was only asked for
 * (ps_request_told_free) is unwanted at once. `now_ns`: ps_now_ns(). [locked]
 */
uint64_t ps_registry_unwanted(uint64_t now_ns, uint64_t at_most);

/* Whether this freed span was unwanted at the last ps_registry_unwanted(). [locked] */
bool ps_registry_is_unwanted(const struct ps_span *span);

/*
 * Takes out a freed span of the size, as ps_size_class_find() chooses: its uses may not be over.
 * NULL: none is free to take. [locked]
 */
struct ps_span *ps_registry_cached_take(size_t bytes, const struct ps_stream *stream);

/*
 * The same for a span of `bytes` or as little more as possible, up to `at_most`. As
 * ps_size_class_find_ordered() chooses: `stream` comes after the span's uses by itself. [locked]
 */
struct ps_span *ps_registry_cached_take_ordered(size_t bytes, size_t at_most, const struct ps_stream *stream,
                                                bool for_any);

/* The same for a span that cudaFree gave back, whose uses may not be over. [locked] */
struct ps_span *ps_registry_cached_take_at_once(size_t bytes);

/* Takes this CACHED span out. [locked] */
void ps_registry_cached_remove(struct ps_span *span);

/* Returns the number of CACHED spans of exactly that size on offer. [locked] */
uint32_t ps_registry_cached_count(size_t bytes);

/*
 * Keeps a span (CACHED or DRAINING) as it is until some more launches are queued on `stream`. The
 * span was freed in the order of that stream. torch frees a pointer table in stream order just
 * before it launches the kernel that reads it. CUDA's own pool lets that pass. (chunk_cat in
 * torch's TensorShape.cu does so; FSDP2 uses it.) Only an allocation on the same stream gets the
 * span meanwhile. [locked]
 */
void ps_registry_await_launches(struct ps_span *span, struct ps_stream *stream);

/* A launch is queued on the stream; its uses of such spans have been noted already. [locked] */
void ps_registry_launched(const struct ps_stream *stream);

/*
 * Whether such launches may still come; a stream that the program has destroyed gets no more.
 * [locked]
 */
static inline bool ps_registry_is_awaited(const struct ps_span *span)
{
    return span->freed.awaited_on && !atomic_load_explicit(&span->freed.awaited_on->gone, memory_order_relaxed);
}

/* A CACHED span (already taken out) begins a new life as LIVE. [locked] */
void ps_registry_revive(struct ps_span *span, size_t requested);

/* Marks the span as the most recently used. [locked] */
void ps_registry_touch(struct ps_span *span);

/* Makes the span the longest idle of all, until its next use. [locked] */
void ps_registry_hint_idle(struct ps_span *span);

/*
 * Checks every invariant of the registry, and logs each broken one. Returns true if all hold. Debug
 * builds call it at transitions. [locked]
 */
bool ps_registry_is_valid(void);

#endif
