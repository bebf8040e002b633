/*
 * The part of evictions before a copy is queued. Transfers wait in a line for a row of slots or for
 * their turn. A thread makes slots, for these transfers and ahead of need. eviction.c queues the
 * copies of the transfers that leave the line.
 *
 * All functions are called with the registry lock held, except the thread's, which takes it.
 */
#ifndef PS_EVICTION_QUEUE_H
#define PS_EVICTION_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "cuda/driver.h"
#include "memory/slab.h"
#include "memory/span.h"
#include "residency/copies.h"
#include "residency/events.h"

/*
 * One D2H of a span. A cancelled transfer outlives its eviction: it still writes to its slot until
 * `done`.
 */
struct ps_transfer {
    struct ps_span *span;
    struct ps_slot *slot; /* the first of its row; NULL while it waits for a row or its turn */
    struct ps_slot *made; /* a row that was made for it, and waits with it */
    size_t bytes;
    CUevent done;          /* created at first use, kept with the structure */
    enum ps_copies_d2h on; /* the stream of its copy */
    bool cancelled;
    bool only_seen; /* every use of the span meanwhile is seen: ps_guard_is_for */
    bool by_plan;   /* begun by a plan, `only_seen` or not */
    struct ps_events_move told;
    STAILQ_ENTRY(ps_transfer) next;
};

STAILQ_HEAD(ps_transfer_list, ps_transfer);

/* Sets the line up. Called once, before all other functions. */
void ps_transfers_open(void);

/*
 * Makes a transfer, by which the span is EVICTING from now on. Returns NULL without memory: the
 * span stays.
 */
struct ps_transfer *ps_transfer_begin(struct ps_span *span);

/*
 * The EVICTING span stays where it is: RESIDENT, without a transfer. The caller keeps the transfer.
 */
void ps_transfer_call_off(struct ps_span *span);

/* No span and no list has the transfer any more. Its structure is kept for another. */
void ps_transfer_end(struct ps_transfer *t);

/* Puts the transfer at the end of the line. */
void ps_transfer_wait_for_slots(struct ps_transfer *t);

/*
 * Takes the first transfer with an available row out of the line and gives it that row. Passes over
 * spans that are busy or held by their block's launches. Passes over transfers that go in turn,
 * unless `in_turn`. Returns NULL if no transfer is left.
 */
struct ps_transfer *ps_transfer_next(bool in_turn);

/*
 * Takes a transfer out of the line, if it is in it, and ends it: nothing is queued for it. Returns
 * false if the transfer has its slots.
 */
bool ps_transfer_withdraw(struct ps_transfer *t);

/* Bytes of all transfers in the line; 0 if the line is empty. */
uint64_t ps_transfers_waiting_bytes(void);

/* The number of changes of the work for the line and the slab (ps_eviction_look_ahead). */
uint32_t ps_transfers_changes(void);

/* The body of the thread that makes slots. */
void ps_eviction_make_slots(void);

/*
 * A plan will have spans of these sizes away at one time. Missing slots for them are made ahead.
 * Takes over `bytes`, which malloc gave. A later call replaces an earlier one. [locked]
 */
void ps_eviction_foresee(size_t *bytes, unsigned n);

/* The next spans to leave have changed, so slots may be worth making. [locked] */
void ps_eviction_look_ahead(void);

#endif
