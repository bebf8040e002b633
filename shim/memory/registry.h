/*
 * The registry: which spans there are, where an address lies, and what the process holds.
 *
 * One lock guards it, and all span and slot fields. No driver call, no copy and no wait for the device is made with it held; it is a leaf but
 * for the log. Functions marked [locked] are called with the lock held; [unlocked] without.
 */
#ifndef PS_REGISTRY_H
#define PS_REGISTRY_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/per_device.h"
#include "cuda/address_map.h"
#include "memory/address_space.h"
#include "memory/span.h"

/* Of more spans that launches may still use after their free, the one freed longest ago is given up. */
#define PS_AWAITING_MAX 16u

/* What a device has of the registry. */
struct ps_registry_state {
    bool counts_births; /* each span is given its `nth`: rules ask for it, or `penstock verify` does. Constant after the set-up */
    CUdeviceptr start;  /* of the device's area; constant likewise */

    /* Guarded by the lock. */
    struct ps_address_space addresses;
    struct ps_span_list idle_order; /* LIVE, on device pages, not EVICTING: longest idle first */
    struct ps_span_list cached;     /* CACHED, oldest first */
    struct ps_span_list draining;   /* DRAINING, oldest first */
    struct ps_span_list unused;     /* structures */
    struct ps_block *unused_blocks; /* structures */
    uint64_t live_bytes;            /* rounded bytes of LIVE spans */
    uint64_t live_requested;        /* the same as the program asked, each rounded up to 512 bytes */
    uint64_t padding_bytes;       /* of live_bytes: what spans have beyond their requests, each of which was served by a larger freed one */
    uint64_t peak_live_bytes;     /* without padding, and without what was only asked for */
    uint64_t only_asked_bytes;    /* of the last allocation, if it takes all that is free (ps_request_told_free): 0 at the next */
    uint64_t peak_live_requested; /* resettable by the program (cudaMemPoolSetAttribute) */
    uint64_t peak_reserved_bytes; /* of live and cached together; resettable likewise */
    uint64_t cached_bytes;        /* device bytes of CACHED spans */
    struct ps_span *awaiting[PS_AWAITING_MAX]; /* those with `awaited_on`, oldest first */
    uint32_t awaiting_count;
    uint64_t period, period_began; /* of half a minute and more, counted when somebody asks what is unwanted; ns */
    uint64_t live_spans;
    uint32_t blind_launches;        /* launches whose spans can't be known and that are not queued yet: nothing may leave */
    CUdeviceptr highest;            /* end of the highest span ever */
    _Atomic uint64_t launch_number; /* kernel launches that named a span so far; read without the lock too */
    uint64_t access_number;         /* calls that named spans, launches among them */
};

extern PS_PER_DEVICE struct ps_registry_state ps_first_registry;
#define ps_registry PS_HERE(ps_first_registry)

/*
 * Opens the registry of the device that the thread is at, which has area number `area` of `areas`. The first call reserves the addresses for all of them
 * (as many as the system gives, at most 16 TiB), and makes the unit the first device's. 0; -EINVAL: the device's unit is larger than that; -ENOSPC: there is
 * no such area; other -errno. One thread at a time. [unlocked]
 */
int ps_registry_open(size_t granularity, unsigned areas, unsigned area);

/* Makes the lock of the device that the thread is at ready to be waited with. By ps_registry_open. */
void ps_registry_lock_open(void);

void ps_registry_lock(void);
void ps_registry_unlock(void);

/* Tries for up to 100 ms: for the report, which a signal handler may write on the thread that holds the lock. True: locked. */
bool ps_registry_lock_soon(void);

/* No address is ours from now on: for a forked child, whose copies of lock and spans are nobody's. */
void ps_registry_disown(void);

/* Waits until a span, page or slot has changed, or `timeout_ns` is over; the lock is released meanwhile. [locked] */
void ps_registry_wait_changed(uint64_t timeout_ns);
void ps_registry_changed(void); /* wakes all of them [locked or not] */

/*
 * Helper threads that have nothing to do rest, each on its own: were they woken by every change, six of them would look for work at each of a launch's, and
 * the launching thread would wait for the lock that they take in turn (a tenth of a step of ResNet-50's, on an H200).
 */
enum ps_helper {
    PS_HELPER_EVICT,    /* ends evictions */
    PS_HELPER_AT_ONCE,  /* ends those that waited for nothing */
    PS_HELPER_GUARD,    /* maps what was evicted to its slot */
    PS_HELPER_SLAB,     /* queues the D2H that wait for slots or for their turn */
    PS_HELPER_SLOTS,    /* makes slots */
    PS_HELPER_RELOAD,   /* reloads ahead */
    PS_HELPER_PAGES,    /* makes spans ahead */
    PS_HELPER_PLAN,     /* plans */
    PS_HELPER_PREFETCH, /* brings back what left, while memory is free */
    PS_HELPER_HOARD,    /* gives back what was kept for who asks how much there is */
    PS_HELPERS
};

/* Who rests looks for work that often without being called. */
#define PS_HELPER_LOOKS_NS 100000000u

/* A helper thread that starts at first need; callers go on without it if it can't start. One a device, guarded by the lock. */
struct ps_lazy_thread {
    bool started, failed;
};

/* True if it runs; the first call starts it. `name` and `run` as for ps_helper_thread_start. [locked] */
bool ps_registry_thread_is_there(struct ps_lazy_thread *thread, const char *name, void (*run)(void));

/* The calling helper rests until it is called, or `timeout_ns` is over; the lock is released meanwhile. [locked] */
void ps_registry_rest(enum ps_helper helper, uint64_t timeout_ns);
/* There is work for it. / For all of them: the process ends. [locked] */
void ps_registry_call(enum ps_helper helper);
void ps_registry_call_all(void);

/* The span of a number, if that life still goes on, else NULL. [locked] */
struct ps_span *ps_registry_numbered(uint64_t number);

/* The LIVE span that holds the address, which is in this device's area, or NULL. [locked] */
struct ps_span *ps_registry_live_at(CUdeviceptr address);

/* The device's first span (of any life) at or after an address, which is in its area, or NULL. For walks over all of them: a look at every unit. [locked] */
struct ps_span *ps_registry_next(CUdeviceptr address);

/*
 * For walks that may have to wait: the next one (of LIVE ones only) from `*from` on, which goes behind it, when nobody works on it. Its structure may be
 * another span's, elsewhere, when the wait is over: then what is there now is next. Those that are not LIVE may be busy for as long as the device
 * waits for the program. [locked; releases the lock meanwhile]
 */
struct ps_span *ps_registry_next_settled(CUdeviceptr *from, bool only_live);

/* A new LIVE span of `bytes` (a multiple of the granularity) with addresses and nothing behind them. NULL: no addresses or no memory. [locked] */
struct ps_span *ps_registry_new(size_t bytes, size_t requested);

/*
 * Addresses for the pieces of a block, which then take them with their structures and give them back when they end; 0: there are none. / Takes back
 * those of pieces that were never made. [locked]
 */
CUdeviceptr ps_registry_take_addresses(size_t bytes);
void ps_registry_give_addresses(CUdeviceptr address, size_t bytes);

/* The same as ps_registry_new for a piece of the block, at addresses that were taken. NULL: no memory. [locked] */
struct ps_span *ps_registry_new_piece(struct ps_block *block, CUdeviceptr address, size_t bytes, size_t requested);

/* How many allocations of the size were born before this one, where that is counted; else PS_SPAN_UNKNOWN_NTH. [locked] */
uint64_t ps_registry_count_birth(size_t bytes);

/*
 * Ahead of need: a span with addresses that nobody knows of yet, for its maker to back with pages; then CACHED, as if it had been freed and no use
 * were left. NULL: no addresses or no memory. ps_registry_delete() takes it back. [locked]
 */
struct ps_span *ps_registry_new_unowned(size_t bytes);
void ps_registry_cache_unowned(struct ps_span *span);

/* Takes addresses and structure back, the addresses unless it is `placed`. It must have no pages, no slot and no mapping. [locked] */
void ps_registry_delete(struct ps_span *span);

/* A LIVE span that leads nowhere lies at other addresses from now on, which nobody has; `placed` says whose they are. The old ones go back. [locked] */
void ps_registry_move(struct ps_span *span, CUdeviceptr address, bool placed);

/* Whose a span's addresses are from now on, whatever its life. [locked] */
void ps_registry_set_placed(struct ps_span *span, bool placed);

/* A LIVE span ends: counted out, taken from the idle order. The caller gives it its next life. [locked] */
void ps_registry_end_life(struct ps_span *span);

/* CACHED: keeps it for reuse. / A cached span of this size, taken out: a late one used on `stream` alone, else the oldest; or NULL. [locked] */
void ps_registry_cache(struct ps_span *span);
/*
 * Bytes of the freed spans that no allocation has wanted for a while, half a minute at least, counted from the oldest on and until they are `at_most` or
 * more. One that was only asked for (ps_request_told_free) is unwanted at once. `now_ns`: ps_now_ns(). [locked]
 */
uint64_t ps_registry_unwanted(uint64_t now_ns, uint64_t at_most);
/* Whether this freed span was, when that was asked last. [locked] */
bool ps_registry_is_unwanted(const struct ps_span *span);
/* Takes a freed span of the size out, as ps_size_class_find chooses: its uses may not be over. NULL: there is none. [locked] */
struct ps_span *ps_registry_cached_take(size_t bytes, const struct ps_stream *stream);
/* The same of that size or by as little as can be larger, as ps_size_class_find_ordered chooses: `stream` comes after its uses by itself. [locked] */
struct ps_span *ps_registry_cached_take_ordered(size_t bytes, size_t at_most, const struct ps_stream *stream, bool for_any);
/* The same of one that cudaFree gave back, whose uses may not be over. [locked] */
struct ps_span *ps_registry_cached_take_at_once(size_t bytes);
void ps_registry_cached_remove(struct ps_span *span);
uint32_t ps_registry_cached_count(size_t bytes); /* those of the size */

/*
 * A span that was freed in the order of `stream` (CACHED or DRAINING) stays what it is until some more launches there are queued: torch frees a pointer table, in
 * stream order, just before it launches the kernel that reads it (chunk_cat in its TensorShape.cu, which FSDP2 uses), and CUDA's own pool lets that pass.
 * Only an allocation on the same stream gets it meanwhile. / A launch is queued; if it has used such a span, its use has been noted there. / Whether there
 * may be more; on a stream that the program has destroyed there are none. [locked]
 */
void ps_registry_await_launches(struct ps_span *span, struct ps_stream *stream);
void ps_registry_launched(const struct ps_stream *stream);
static inline bool ps_registry_is_awaited(const struct ps_span *span)
{
    return span->awaited_on && !atomic_load_explicit(&span->awaited_on->gone, memory_order_relaxed);
}

/* A CACHED span (already taken out) begins a new life. [locked] */
void ps_registry_revive(struct ps_span *span, size_t requested);

/* Marks it as the most recently used. [locked] */
void ps_registry_touch(struct ps_span *span);

/* Makes it the longest idle of all, until it is used again. [locked] */
void ps_registry_hint_idle(struct ps_span *span);

/* Checks every invariant of the registry; says what is wrong in the log. True if all hold. Debug builds call it at transitions. [locked] */
bool ps_registry_is_valid(void);

#endif
