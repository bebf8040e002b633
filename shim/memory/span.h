/*
 * A span: a contiguous device address range that Penstock manages, and what its addresses are backed by.
 *
 * Every field is guarded by the registry lock (registry.h) unless it says otherwise. A thread that must make driver calls on a span sets
 * `busy`, releases the lock, makes them, takes the lock and clears `busy`: until then nobody else changes the span, and who needs it waits
 * for ps_registry_changed(). A busy thread never waits for pages, slots or another span.
 *
 * Span structures are recycled but never given back to libc, so a stale pointer found in the address map is safe to look at.
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
    PS_LIFE_CACHED,   /* freed; keeps pages and mapping for the next allocation of its size, after `uses` */
    PS_LIFE_DRAINING, /* freed; has no device pages of its own; addresses (and slot) are given back after `uses` and `readers` */
};

enum ps_residency {
    PS_RESIDENT,  /* on device pages */
    PS_EVICTING,  /* D2H queued, or about to be; still on device pages */
    PS_EVICTED,   /* the bytes are in the slot; no device pages */
    PS_RELOADING, /* on device pages whose H2D is queued; `fence` is its end; no stream has been made to wait for it yet */
};

/* What the span's addresses are mapped to now. */
enum ps_backing {
    PS_BACKING_NONE,
    PS_BACKING_DEVICE,
    PS_BACKING_SLOT,
};

struct ps_slot;
struct ps_transfer;
struct ps_block;

struct ps_span {
    CUdeviceptr address;
    size_t bytes;     /* a multiple of the granularity */
    size_t requested; /* as the program asked */
    enum ps_life life;
    enum ps_residency residency;
    enum ps_backing backing;
    bool busy;
    const void *
        shown_by; /* busy, since that thread has stand-ins shown to the driver at its addresses (standing_in.h), or is about to; else NULL */
    bool is_shown;       /* they are mapped */
    bool holds_launches; /* and meanwhile no launch begins that may use the span without naming it */
    bool moving;         /* a piece whose bytes are on the move: blocks.h */
    uint32_t launching;  /* launches and copies that name it and are not queued yet: it is no victim */
    bool on_slot;        /* a launch that is not queued yet will run on the slot: no reload until `launching` is 0 */
    uint32_t pinned;     /* never a victim, nor brought from its slot: so many graphs that kernels launch may use it at any time */
    uint32_t user_pins;  /* the same, asked for so many times by the program (penstock_pin), or by what gave it to a card */
    bool
        placed; /* at addresses that the program chose (program_mappings.h): they stay its own, and freed the span serves no other allocation */
    bool hidden;        /* the program has it mapped nowhere, or without access: to its questions there is nothing at these addresses */
    _Atomic bool known; /* its address may have been kept on the device: by a table, or by a kernel that may make one (known_kernels.h) */
    /* Launches could still use it unseen when it began to leave, or stayed on its slot (grace.h): these come before its way back. */
    bool left_in_grace;
    bool is_shared;              /* in this life it was named on another stream than the sole one (sole_stream.h) */
    bool is_early;               /* it came back before a launch named it, and none has since (prefetch.h) */
    bool is_unwanted;            /* it did so in vain */
    bool excluded;               /* never a victim: PENSTOCK_RULES say so, or may say so once more is known of it */
    struct ps_page_block *pages; /* has_pages: its own. DRAINING: those that its addresses still map, somebody else's by now; or NULL */
    bool has_pages;
    struct ps_slot *slot;         /* EVICTED: the first of the row of slots that holds the bytes */
    struct ps_transfer *transfer; /* EVICTING: the D2H that evicts it; NULL after a cancel */
    uint32_t readers;             /* D2H copies queued that read its addresses, cancelled ones too: they stay mapped until none is left */
    uint32_t at_once_readers;     /* of them, those on the D2H stream of copies that wait for nothing */
    struct ps_uses uses;          /* accesses since the last transfer; once freed: what its reuse waits for */
    CUevent fence;                /* created at first need, kept with the structure */
    bool fence_set;               /* each stream waits for `fence` before its first access */
    uint64_t fence_seen;          /* streams (by index, under 64) that have been made to wait */
    struct ps_stream *used_on;    /* LIVE: where it was named last; NULL: not yet */
    struct ps_stream
        *awaited_on;            /* CACHED, DRAINING: launches there may still use what was freed (ps_registry_await_launches); NULL: none */
    unsigned awaited;           /* so many */
    struct ps_use after;        /* cudaMalloc'd again in a one-stream program: other streams wait for this use first; stream NULL: none */
    uint64_t after_seen;        /* streams (by index, under 64) that have been made to wait for it */
    bool in_order;              /* CACHED: freed in the order of a stream: nothing promises that its uses are over */
    uint64_t freed_in;          /* CACHED: the registry's period then, plus 1; 0: it was only asked for */
    uint64_t last_access;       /* kernel-launch number of the last access, reload, or eviction called off: the idle order goes by it */
    uint64_t accessed;          /* the registry's count of accesses then: each launch, copy and fill is one */
    uint64_t named;             /* the same of its birth or last access alone, captured ones apart: so in each run of a program */
    uint64_t grace_since;       /* the same of the access with which its grace began, which later ones may have prolonged (grace.h) */
    uint64_t number;            /* of this life: the structure's address, and in the top 16 bits how many lives it has had */
    uint64_t buffer_id;         /* of this life: no other in the process has it, whichever device's; the program may ask for it */
    uint64_t nth;               /* spans of its size that were born before it, where they are counted; else PS_SPAN_UNKNOWN_NTH */
    uint64_t born;              /* the learner's count of launches at its birth */
    uint64_t mentioned;         /* the learner's count of launches when it was born or last named */
    uint64_t left;              /* bouncing.h: the launch when it began to leave by reaction, plus 1; or 0 */
    uint64_t stays_until;       /* no launch brings it before that kernel-launch number; 0: it may come */
    uint32_t bounces, stays;    /* times in a row that it was demanded soon after it left; and that it stayed for that */
    uint32_t move;              /* of the plan in force that was last bound to it, counted from 1; a hint */
    uint64_t due;               /* its reload's place in the queue of reloads, counted from 1; 0: none was ever due */
    TAILQ_ENTRY(ps_span) order; /* LIVE and resident: by last access. CACHED: by age. DRAINING: by age. NONE: pool */
    TAILQ_ENTRY(ps_span) sized; /* CACHED: with others of its size, if has_class */
    bool has_class;

    /* From here on what is read without the lock, and stays when the structure is used again. */
    unsigned device;                /* whose it is (devices.h), constant */
    struct ps_block *_Atomic block; /* LIVE: that it is a piece of; else NULL; see ps_block_of */
};

TAILQ_HEAD(ps_span_list, ps_span);

#endif
