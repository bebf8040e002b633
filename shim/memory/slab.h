/*
 * The slab: pinned host memory in slots, each a host handle of its own (an offset into a handle can't be mapped, shim/README.md#mapping-memory) that is mapped at a
 * slab address for the copy engine and, under the `host` guard, at the evicted span's address too.
 *
 * Slots are kept by size and used again; one that is free can give way to another size. Where none of a size is free, several that add up to exactly
 * that size serve as one, a row: making a slot takes 0.2 to 0.3 ms a MiB, and a plan wants other sizes than those that were made before it. What
 * holds a span's bytes is always a row, by its first slot; a slot alone is a row of one. The lock is the registry's: [locked], [unlocked].
 */
#ifndef PS_SLAB_H
#define PS_SLAB_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/settings.h"
#include "cuda/streams.h"

struct ps_slot_size;

/* That of a free slot is the slab's and wants the lock; that of a taken one is its taker's, but for the lists. */
struct ps_slot {
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle pages;
    struct ps_slot *next_in_row; /* NULL: the last of its row */
    CUevent read_done;           /* its own: recorded behind each H2D of a row that it is the first of */
    CUevent read_by;             /* the read_done, its own or that of another, that was recorded behind the last H2D that read it */
    bool being_read;             /* that H2D has been queued, and nobody has seen it over */
    bool lent;                   /* read_done may be the read_by of others */
    struct ps_slot_size *size;
    TAILQ_ENTRY(ps_slot) order; /* free slots, oldest first */
    TAILQ_ENTRY(ps_slot) sized; /* free slots of its size, oldest first */
};

struct ps_slab_figures {
    uint64_t bytes;      /* of all slots */
    uint64_t used_bytes; /* of those that hold a span's bytes or are being filled */
    uint64_t peak_used_bytes;
    uint64_t limit_bytes; /* as last worked out */
    uint64_t rows;        /* times that several slots were taken for one */
};

/* Sets the bound and the granularity. Makes nothing yet. `local_processes`: how many processes of this job share the host. */
void ps_slab_open(struct ps_amount host_budget, uint32_t local_processes, size_t granularity);

/* What the slots may take in all: the bound, or less while the host refuses more. [locked] */
uint64_t ps_slab_limit(void);

/* A free slot of just this size, or NULL. [locked] */
struct ps_slot *ps_slab_take(size_t bytes);

/* The same, or else a row of free slots that add up to it, at most PS_SLAB_ROW_SLOTS_MAX of them; or NULL. [locked] */
struct ps_slot *ps_slab_take_row(size_t bytes);

/* Whether ps_slab_take_row would find something. [locked] */
bool ps_slab_has_row(size_t bytes);

/*
 * Whether ps_slab_make could succeed as far as the bound goes: in room that is left, or taken from free slots of other sizes. For a second after the host has
 * refused some, what was made then is the bound. [locked]
 */
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
 * Takes a row for `bytes`, of free slots or with new ones, for which free ones of other sizes may have to go. What is large is made in pieces, of which
 * rows for other sizes can be made as well. Slow: 0.2 ms a MiB on the target machine. 0; -ENOSPC at the bound; -ENOMEM when the host refuses. [unlocked]
 */
int ps_slab_make(size_t bytes, struct ps_slot **row);

/* Makes one free slot of just this size; fails as ps_slab_make does. [unlocked] */
int ps_slab_add(size_t bytes);

/* Makes free slots that add up to so much, ahead of need: destroys none for it, and fails with -ENOSPC instead. [unlocked] */
int ps_slab_add_row(size_t bytes);

/*
 * Spans of these sizes are to be away at one time: keeps in `bytes` the sizes of those that the slots made so far, free or not, have no row for when
 * the others have theirs. Returns how many. [locked]
 */
unsigned ps_slab_keep_lacking(size_t *bytes, unsigned n);

/*
 * Free for the next span, each slot of the row for itself. If an H2D still reads one, `being_read` says so and the next D2H into it waits for that.
 * [locked]
 */
void ps_slab_give(struct ps_slot *row);

/* An H2D of the row has been queued, and the first slot's read_done recorded behind it. [locked] */
void ps_slab_read_begins(struct ps_slot *row);

/* A D2H into the row is over, and it has waited for whatever read the row before. [locked] */
static inline void ps_slab_read_is_over(struct ps_slot *row)
{
    for (; row; row = row->next_in_row)
        row->being_read = false;
}

/* Waits on the host until no H2D reads the row any more. 0 or -errno. [unlocked] */
int ps_slab_wait_until_read(const struct ps_slot *row);

/*
 * Maps the row's slots one behind the other, from `address` on. 0 or -errno; then nothing stays mapped. They are unmapped by one ps_pages_unmap
 * of the whole range: the driver takes any that is made of whole mappings. [unlocked]
 */
int ps_slab_map_row(CUdeviceptr address, const struct ps_slot *row);

/* [locked], or by who has taken the row */
static inline size_t ps_slab_row_bytes(const struct ps_slot *row)
{
    size_t bytes = 0;

    for (; row; row = row->next_in_row)
        bytes += row->bytes;
    return bytes;
}

/* Free bytes among the slots of this size. [locked] */
uint64_t ps_slab_free_of(size_t bytes);

/* [locked] or for a report */
struct ps_slab_figures ps_slab_figures(void);

#endif
