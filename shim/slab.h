/*
 * The slab: pinned host memory in slots, each a host handle of its own (an offset into a handle can't be mapped, FACTS) that is mapped at a
 * slab address for the copy engine and, under the `host` guard, at the evicted span's address too.
 *
 * Slots are kept by size and used again; one that is free can give way to another size. The lock is the registry's: [locked], [unlocked].
 */
#ifndef PS_SLAB_H
#define PS_SLAB_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "settings.h"
#include "streams.h"

struct ps_slot {
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle pages;
    CUevent read_done;          /* end of the last H2D that read it */
    bool being_read;            /* read_done has been recorded and nobody has seen it over */
    TAILQ_ENTRY(ps_slot) order; /* free slots, oldest first */
};

struct ps_slab_figures {
    uint64_t bytes;      /* of all slots */
    uint64_t used_bytes; /* of those that hold a span's bytes or are being filled */
    uint64_t peak_used_bytes;
    uint64_t limit_bytes; /* as last worked out */
};

/* Sets the bound and the granularity. Makes nothing yet. `local_processes`: how many processes of this job share the host. */
void ps_slab_open(struct ps_amount host_budget, uint32_t local_processes, size_t granularity);

/* A free slot of just this size, or NULL. [locked] */
struct ps_slot *ps_slab_take(size_t bytes);

/* Whether ps_slab_make could succeed as far as the bound goes: in room that is left, or taken from free slots of other sizes. [locked] */
bool ps_slab_has_room(size_t bytes);

/* Whether a slot could be made without destroying others: for growth ahead of need. [locked] */
bool ps_slab_can_hold_more(size_t bytes);

/*
 * The program is about to run out of memory because the slab is at its bound. Under PENSTOCK_HOST_BUDGET=auto the bound rises from a half
 * towards three quarters of the host's memory, as far as a quarter of that memory stays available. True if there is more room now
 * for `bytes`; false too when the bound is not what stood in the way. [locked; releases the lock meanwhile]
 */
bool ps_slab_extend(size_t bytes);

/*
 * Makes a slot and takes it. Slow: 0.2 ms a MiB on the target machine. 0; -ENOSPC at the bound; -ENOMEM when the host refuses. [unlocked]
 * `keep_free` puts it among the free ones instead of taking it (*slot is not set): growth ahead of need.
 */
int ps_slab_make(size_t bytes, bool keep_free, struct ps_slot **slot);

/* Free for the next span. If an H2D still reads it, `being_read` says so and the next D2H waits for it. [locked] */
void ps_slab_give(struct ps_slot *slot);

/* Free bytes among the slots of this size. [locked] */
uint64_t ps_slab_free_of(size_t bytes);

/* [locked] or for a report */
struct ps_slab_figures ps_slab_figures(void);

#endif
