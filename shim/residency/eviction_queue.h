/*
 * The part of evictions that comes before a copy is queued: transfers, the line of those that wait for a row of slots or for their turn, and the thread
 * that makes slots, for them and ahead of need. For eviction.c, which queues what comes out of the line; what others may ask is in eviction.h.
 *
 * All with the registry lock, which only the thread takes for itself.
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

/* One D2H of a span. It outlives the span's interest in it: a cancelled one still writes to its slot until `done`. */
struct ps_transfer {
    struct ps_span *span;
    struct ps_slot *slot; /* the first of its row; NULL while it waits for one, or its turn */
    struct ps_slot *made; /* a row that was made for it, and waits with it */
    size_t bytes;
    CUevent done;          /* created at first use, kept with the structure */
    enum ps_copies_d2h on; /* the stream that its copy goes to */
    bool cancelled;
    bool only_seen; /* nobody uses the span meanwhile without being seen: ps_guard_is_for */
    bool by_plan;   /* begun by one, whether or not it is so */
    struct ps_events_move told;
    STAILQ_ENTRY(ps_transfer) next;
};

STAILQ_HEAD(ps_transfer_list, ps_transfer);

/* Once, before all else. */
void ps_transfers_open(void);

/* The span is EVICTING from here on, by this transfer. NULL: no memory, and it stays. */
struct ps_transfer *ps_transfer_begin(struct ps_span *span);

/* The span, EVICTING, stays where it is: RESIDENT, without a transfer. What becomes of the transfer is the caller's business. */
void ps_transfer_call_off(struct ps_span *span);

/* Nobody knows it any more: the structure is kept for another. */
void ps_transfer_end(struct ps_transfer *t);

/* At the end of the line. */
void ps_transfer_wait_for_slots(struct ps_transfer *t);

/*
 * Out of the line: the first that a row can be had for, with its row, and on whose span nobody makes driver calls; `in_turn`: those that go in turn count. NULL:
 * none.
 */
struct ps_transfer *ps_transfer_next(bool in_turn);

/* Out of the line and ended, if it is in it, for nothing is queued then. False: it has its slots. */
bool ps_transfer_withdraw(struct ps_transfer *t);

/* Of all that are in the line; 0: it is empty. */
uint64_t ps_transfers_waiting_bytes(void);

/* How often what there is to do for the line and for the slab has changed (ps_eviction_look_ahead). */
uint32_t ps_transfers_changes(void);

/* The thread that makes slots. */
void ps_eviction_make_slots(void);

#endif
