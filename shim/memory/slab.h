/*
 * The slab: pinned host memory in slots. Each slot is a host handle of its own, because an offset
 * into a handle can't be mapped (shim/README.md#mapping-memory). The copy engine reaches a slot at
 * its slab address. Under the `host` guard the slot is mapped at the evicted span's address too.
 *
 * Slots are kept by size and reused; a free slot can give way to another size. If no slot of a size
 * is free, several that add up to exactly that size serve as a row. Making a slot takes 0.2 to
 * 0.3 ms a MiB, and a plan wants other sizes than those made before. A row, named by its first
 * slot, holds a span's bytes; a single slot is a row of one.
 *
 * The lock is the registry's: [locked], [unlocked].
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

/*
 * The registry lock guards the fields of a free slot. The fields of a taken slot belong to its
 * holder, except the list links.
 */
struct ps_slot {
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    struct ps_slot *next_in_row; /* NULL: this is the last slot of its row */
    CUevent read_done;           /* recorded behind each H2D of a row that this slot begins */
    CUevent read_by;             /* a slot's read_done, recorded behind the last H2D that read it */
    bool being_read;             /* that H2D has been queued, and its end has not been seen */
    bool lent;                   /* read_done may be the read_by of other slots */
    struct ps_slot_size *size;
    TAILQ_ENTRY(ps_slot) order; /* free slots, oldest first */
    TAILQ_ENTRY(ps_slot) sized; /* free slots of its size, oldest first */
};

struct ps_slab_figures {
    uint64_t bytes;      /* of all slots */
    uint64_t used_bytes; /* of slots that hold a span's bytes or are being filled */
    uint64_t peak_used_bytes;
    uint64_t limit_bytes; /* as last computed */
    uint64_t rows;        /* times that a row of several slots was taken */
};

/*
 * Sets the bound and the granularity, and makes nothing yet. `local_processes` is the number of
 * processes of this job that share the host.
 */
void ps_slab_open(struct ps_amount host_budget, uint32_t local_processes, size_t granularity);

/*
 * The next slot is asked for even if the host refused one less than a second ago. Returns whether
 * it did. For a thread that would otherwise fail for lack of slots. [locked]
 */
bool ps_slab_ask_again(void);

/* Returns the bound of all slots, in bytes; it is lower while the host refuses more. [locked] */
uint64_t ps_slab_limit(void);

/* Takes a free slot of exactly this size; NULL if none is free. [locked] */
struct ps_slot *ps_slab_take(size_t bytes);

/*
 * The same, or else a row of at most PS_SLAB_ROW_SLOTS_MAX free slots that add up to `bytes`.
 * Returns NULL without either. [locked]
 */
struct ps_slot *ps_slab_take_row(size_t bytes);

/* Whether ps_slab_take_row() would find a row. [locked] */
bool ps_slab_has_row(size_t bytes);

/*
 * Whether the bound lets ps_slab_make() succeed, in room that is left or taken from free slots of
 * other sizes. For a second after the host refused a slot, the bytes made at the refusal are the
 * bound. [locked]
 */
bool ps_slab_has_room(size_t bytes);

/* Whether a slot could be made without destroying others; for growth ahead of need. [locked] */
bool ps_slab_can_hold_more(size_t bytes);

/*
 * Raises the bound: the program is about to run out of memory because the slab is at its bound.
 * Under PENSTOCK_HOST_BUDGET=auto the bound rises from a half towards three quarters of the host's
 * memory. A quarter of that memory stays available. Returns true if the bound rose. Returns
 * false too if the bound did not stand in the way. [locked; releases the lock meanwhile]
 */
bool ps_slab_extend(size_t bytes);

/*
 * Takes a row for `bytes`, of free slots or with new slots. Free slots of other sizes may be
 * destroyed for new ones. A large row is made in pieces that rows for other sizes can use as well.
 * Slow: 0.2 ms a MiB on the target machine. Returns 0; -ENOSPC at the bound; -ENOMEM when the host
 * refuses. [unlocked]
 */
int ps_slab_make(size_t bytes, struct ps_slot **row);

/* Makes one free slot of exactly this size; fails as ps_slab_make() does. [unlocked] */
int ps_slab_add(size_t bytes);

/*
 * Makes free slots that add up to `bytes`, ahead of need. Fails with -ENOSPC rather than destroy
 * other slots. [unlocked]
 */
int ps_slab_add_row(size_t bytes);

/*
 * Spans of the `n` sizes in `bytes` are to be away at one time. Rows for them come from all slots
 * made so far, free or not. The call keeps in `bytes` the sizes that get no row beside the others,
 * and returns their number. [locked]
 */
unsigned ps_slab_keep_lacking(size_t *bytes, unsigned n);

/*
 * Frees each slot of the row for the next span. If an H2D still reads a slot, `being_read` says
 * so. The next D2H into the slot waits for that H2D. [locked]
 */
void ps_slab_give(struct ps_slot *row);

/* An H2D of the row has been queued, and the first slot's read_done recorded behind it. [locked] */
void ps_slab_read_begins(struct ps_slot *row);

/* A D2H into the row is over; it has waited for every H2D that read the row before. [locked] */
static inline void ps_slab_read_is_over(struct ps_slot *row)
{
    for (; row; row = row->next_in_row)
        row->being_read = false;
}

/* Waits on the host until no H2D reads the row any more. Returns 0 or -errno. [unlocked] */
int ps_slab_wait_until_read(const struct ps_slot *row);

/*
 * Maps the row's slots one behind the other, from `address` on. Returns 0, or -errno with nothing
 * mapped. One ps_pages_unmap() of the whole range unmaps them: the driver takes any range that is
 * made of whole mappings. [unlocked]
 */
int ps_slab_map_row(CUdeviceptr address, const struct ps_slot *row);

/* Returns the row's size in bytes. [locked], or for the holder of the row. */
static inline size_t ps_slab_row_bytes(const struct ps_slot *row)
{
    size_t bytes = 0;

    for (; row; row = row->next_in_row)
        bytes += row->bytes;
    return bytes;
}

/* Returns the free bytes among the slots of this size. [locked] */
uint64_t ps_slab_free_of(size_t bytes);

/* Returns the slab's figures. [locked], or for a report without the lock. */
struct ps_slab_figures ps_slab_figures(void);

#endif
