/*
 * A span: a contiguous device address range that Penstock manages, and the backing of its
 * addresses.
 *
 * The registry lock (registry.h) guards every field unless the field's comment says otherwise. A
 * thread that must make driver calls on a span sets `busy`, releases the lock and makes them. Then
 * it takes the lock and clears `busy`. Until then no other thread changes the span; a thread that
 * needs the span waits for ps_registry_changed(). A busy thread never waits for pages, slots or
 * another span.
 *
 * Span structures are reused but never given back to libc. So a stale pointer found in the address
 * map is safe to read.
 */
#ifndef PS_SPAN_H
#define PS_SPAN_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "cuda/device_memory.h"
#include "cuda/streams.h"

enum ps_life {
    PS_LIFE_NONE,     /* in the pool of unused structures */
    PS_LIFE_LIVE,     /* the program owns it */
    PS_LIFE_CACHED,   /* freed; keeps pages and mapping for its next allocation, after `uses` */
    PS_LIFE_DRAINING, /* freed, no own pages; addresses, slot go back after `uses` and `readers` */
};

enum ps_residency {
    PS_RESIDENT,  /* on device pages */
    PS_EVICTING,  /* D2H queued, or about to be; still on device pages */
    PS_EVICTED,   /* the bytes are in the slot; no device pages */
    PS_RELOADING, /* on device pages; the H2D is queued, `fence` is its end; no stream waits yet */
};

/* The current mapping of the span's addresses. */
enum ps_backing {
    PS_BACKING_NONE,
    PS_BACKING_DEVICE,
    PS_BACKING_SLOT,
};

struct ps_pages;
struct ps_slot;
struct ps_transfer;
struct ps_block;

/* Holds: what keeps a span where it is. */
struct ps_span_holds {
    uint32_t launching; /* launches and copies that name it, not queued yet: it is no victim */
    uint32_t idle;      /* those of them that queue no work: captured calls and the driver's looks */
    /* A launch that is not queued yet will run on the slot: no reload while there are others. */
    bool on_slot;
    bool excluded; /* never a victim: PENSTOCK_RULES exclude it, or may do so later */
    /*
     * The number of graphs that kernels launch and that may use it at any time: no eviction, no
     * reload. A failed reload sets it too.
     */
    uint32_t pinned;
    /* Pins by the program (penstock_pin) and by external holds: never a victim. */
    uint32_t user_pins;
};

/* Stand-ins at a span's addresses, for the driver to see (standing_in.h). */
struct ps_span_stand_ins {
    /* The thread that shows them, or is about to; else NULL. The span is busy meanwhile. */
    const void *shown_by;
    bool mapped;
};

/* Order on streams: what a span's next use, move or owner waits for. */
struct ps_span_order {
    CUevent fence;       /* created at first need, kept with the structure */
    uint64_t fence_seen; /* streams (by index, under 64) that have been made to wait */
    bool fence_set;      /* each stream waits for `fence` before its first access */
    /*
     * Queued D2H copies that read its addresses, cancelled ones included. The addresses stay mapped
     * until none is left.
     */
    uint32_t readers;
    uint32_t at_once_readers; /* of these, on the D2H stream of copies that wait for nothing */
    /*
     * Reused by cudaMalloc in a one-stream program: other streams wait for this use first. Stream
     * NULL: none.
     */
    struct ps_use after;
    uint64_t after_seen; /* streams (by index, under 64) that have been made to wait for `after` */
    struct ps_uses uses; /* accesses since the last transfer; freed: reuse waits for them */
};

/* A freed span (CACHED, DRAINING). */
struct ps_span_freed {
    /* Launches there may still use it (ps_registry_await_launches); NULL: none. */
    struct ps_stream *awaited_on;
    unsigned awaited; /* the number of these launches */
    bool in_order;    /* CACHED: freed in the order of a stream; its uses may not be over */
    /* CACHED: the fence stands for all work that was queued on any stream before the free. */
    bool behind_everything;
    /* CACHED: the thread that freed it by cudaFree (ps_thread_number); 0: freed in another way. */
    uint64_t by;
    uint64_t period; /* CACHED: the registry's period at its free, plus 1; 0: only asked for */
};

/* Launches that may use a span without naming it (grace.h). */
struct ps_span_grace {
    /*
     * A pointer table, or a kernel that may make one (known_kernels.h), may have kept the span's
     * address on the device.
     */
    _Atomic bool known;
    /*
     * Launches could use it unseen when it began to leave, or stayed on its slot: its reload comes
     * after them.
     */
    bool left_in;
    bool holds_launches; /* meanwhile no launch begins that may use the span without naming it */
    /* Kernel-launch number of the access that began its grace; later ones may have prolonged it. */
    uint64_t since;
};

/* Accesses to a span in this life. */
struct ps_span_access {
    /*
     * Kernel-launch number of the last access, reload, or cancelled eviction: sorts the idle order.
     */
    uint64_t launch;
    uint64_t count; /* the registry's count of accesses (launches, copies, fills) at that time */
    /*
     * Kernel-launch number of its birth or last access only, captured accesses apart. So it is the
     * same in each run of a program.
     */
    uint64_t named;
    struct ps_stream *stream; /* LIVE: the stream that named it last; NULL: none yet */
    bool is_shared;           /* in this life: not only the sole stream named it (sole_stream.h) */
};

/* How a span leaves and comes back without a plan. */
struct ps_span_returns {
    bool is_early;        /* prefetch.h: it came back unnamed, and no launch has named it since */
    bool is_unwanted;     /* it came back early and left again unused */
    uint64_t left;        /* bouncing.h: launch when it began to leave by reaction, plus 1; or 0 */
    uint64_t stays_until; /* no launch reloads it before this kernel-launch number; 0: any may */
    uint32_t bounces;     /* times in a row that it was demanded soon after it left */
    uint32_t stays;       /* times in a row that it stayed away for that */
};

/* A span as the learner and the plan in force know it. */
struct ps_span_plan {
    uint64_t nth;       /* spans of its size born before it; PS_SPAN_UNKNOWN_NTH: not counted */
    uint64_t born;      /* the learner's count of launches at its birth */
    uint64_t mentioned; /* the learner's count of launches when it was born or last named */
    uint64_t due;       /* its reload's place in the queue, from 1; 0: never due */
    uint32_t move;      /* the move of the plan in force last bound to it, from 1; a hint */
};

/* What each launch reads or writes stands first: a launch may name hundreds of spans. */
struct ps_span {
    /* These two are read without the lock, and stay when the structure is reused. */
    unsigned device;                /* its device (devices.h), constant */
    struct ps_block *_Atomic block; /* LIVE: the block of this piece; else NULL; see ps_block_of */

    CUdeviceptr address; /* from here on: set anew when the structure is reused */
    size_t bytes;        /* a multiple of the granularity */
    enum ps_life life;
    enum ps_residency residency;
    enum ps_backing backing;
    bool busy;
    /*
     * has_pages: its own pages. DRAINING: pages that its addresses still map, now of another span;
     * or NULL.
     */
    bool has_pages;
    bool moving; /* a piece whose bytes are on the move: blocks.h */
    /*
     * At addresses that the program chose and keeps (program_mappings.h). Freed, it serves no other
     * allocation.
     */
    bool placed;
    /*
     * The program has it mapped nowhere, or without access: queries find nothing at its addresses.
     */
    bool hidden;

    struct ps_span_holds holds;
    struct ps_span_grace grace;
    struct ps_span_access access;
    struct ps_span_plan plan;
    uint64_t number; /* of this life: the address; top 16 bits: count of lives */
    /* LIVE and resident: by last access. CACHED, DRAINING: by age. NONE: the pool. */
    TAILQ_ENTRY(ps_span) listed;
    struct ps_span_returns returns;
    struct ps_span_order order;

    size_t requested; /* as the program asked */
    struct ps_pages *pages;
    struct ps_slot *slot;         /* EVICTED: the first slot of the row that holds the bytes */
    struct ps_transfer *transfer; /* EVICTING: the D2H that evicts it; NULL after a cancel */
    uint64_t buffer_id;           /* of this life: unique; the program may query it */
    struct ps_span_stand_ins stand_ins;
    struct ps_span_freed freed;
    TAILQ_ENTRY(ps_span) sized; /* CACHED: with others of its size, if has_class */
    bool has_class;
};

TAILQ_HEAD(ps_span_list, ps_span);

#endif
