/*
 * A ring of event records, from the threads where events happen to the thread that writes the trace
 * (trace.h). Its size is fixed. Any thread puts records without a lock or a wait; one thread takes
 * them. A full ring drops a record: the program never waits for its trace. (Vyukov's bounded queue:
 * each cell says whose turn it is.)
 */
#ifndef PS_EVENT_RING_H
#define PS_EVENT_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/device_clock.h"

enum ps_event_kind {
    PS_EVENT_EVICTION,           /* a D2H after which the span left the device */
    PS_EVENT_VOID_EVICTION,      /* the same, but the span stayed: cancelled, freed, refused */
    PS_EVENT_EVICTION_CANCELLED, /* an access cancelled an eviction at this time */
    PS_EVENT_RELOAD,
    PS_EVENT_WAIT,  /* a thread waited */
    PS_EVENT_STALL, /* the program's stream stood still */
    PS_EVENT_STEP,  /* a step begins */
    PS_EVENT_STEP_ENDS,
    PS_EVENT_LAYER, /* a layer begins; without name and number, the former one ends */
    PS_EVENT_PLAN,
    PS_EVENT_PLAN_LOST,
    PS_EVENT_OUT_OF_MEMORY,
    PS_EVENT_LEVELS, /* the levels alone */
};

/* Levels at a record's told_ns: bytes, and the numbers of copies that are queued and not over. */
struct ps_event_levels {
    uint64_t held, live, slab_used;
    uint32_t evictions, reloads;
    bool known;
};

/* The meaning of a field depends on the kind; fields that the kind doesn't use are 0. */
struct ps_event_record {
    enum ps_event_kind kind;
    uint8_t device; /* the device's number (devices.h) */
    uint8_t why;    /* moves: whether planned; waits: enum ps_events_wait */
    uint8_t direction;
    int32_t thread;            /* all kinds but moves and stalls */
    uint64_t told_ns;          /* CLOCK_MONOTONIC, like all times here */
    uint64_t begin_ns, end_ns; /* 0: unknown */
    uint64_t queued_ns;        /* moves: when the host began the move */
    uint64_t bytes;
    uint64_t address;
    uint64_t number;        /* moves: the span's; stalls: the launch's; steps, plans: launches */
    uint64_t other;         /* steps, plans: the pattern; plans: moves in the upper half */
    const char *layer_name; /* lives as long as the process; may be NULL */
    uint32_t layer;         /* PENSTOCK_NEVER: no layer */
    /*
     * Reloads: marks that tell begin_ns and end_ns once the device has come to them. The record
     * owns them.
     */
    struct ps_device_mark *from, *to;
    struct ps_event_levels levels;
};

struct ps_event_cell;
struct ps_event_ring {
    struct ps_event_cell *cells;
    uint64_t mask;
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) uint64_t taken; /* owned by the taking thread */
};

/* `capacity`: a power of two. Returns 0 or -ENOMEM. */
int ps_event_ring_open(struct ps_event_ring *ring, size_t capacity);

/* No thread puts or takes any more. */
void ps_event_ring_close(struct ps_event_ring *ring);

/* Puts a record, on any thread. Returns false if the ring is full. */
bool ps_event_ring_put(struct ps_event_ring *ring, const struct ps_event_record *record);

/*
 * Takes the next record, on one thread at a time. Returns false if the ring is empty, or the next
 * record is just being put.
 */
bool ps_event_ring_take(struct ps_event_ring *ring, struct ps_event_record *record);

#endif
