/*
 * What happened, one record each, on its way from the threads on which it happens to the one that writes the trace (trace.h): a ring of fixed
 * size into which any thread puts without a lock or a wait, and from which one takes. Where it is full a record is dropped: the program never
 * waits for its trace. (Vyukov's bounded queue: each cell says whose turn it is.)
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
    PS_EVENT_VOID_EVICTION,      /* one after which it did not: cancelled, freed, or the driver refused */
    PS_EVENT_EVICTION_CANCELLED, /* at that moment */
    PS_EVENT_RELOAD,
    PS_EVENT_WAIT,  /* a thread waited */
    PS_EVENT_STALL, /* the program's stream stood still */
    PS_EVENT_STEP,  /* begins here */
    PS_EVENT_STEP_ENDS,
    PS_EVENT_LAYER, /* begins here; without name and number: none does, the former ends */
    PS_EVENT_PLAN,
    PS_EVENT_PLAN_LOST,
    PS_EVENT_OUT_OF_MEMORY,
    PS_EVENT_LEVELS, /* nothing but these */
};

/* What is held, as of a record's told_ns. Bytes, and copies that are queued and not over. */
struct ps_event_levels {
    uint64_t held, live, slab_used;
    uint32_t evictions, reloads;
    bool known;
};

/* What a field means depends on the kind; those that it doesn't mention are 0. */
struct ps_event_record {
    enum ps_event_kind kind;
    uint8_t device; /* its number (devices.h) */
    uint8_t why;    /* moves: whether planned; waits: enum ps_events_wait */
    uint8_t direction;
    int32_t thread;            /* waits and cancelled evictions */
    uint64_t told_ns;          /* CLOCK_MONOTONIC, as all of these */
    uint64_t begin_ns, end_ns; /* 0: not known */
    uint64_t queued_ns;        /* moves: when the host began with it */
    uint64_t bytes;
    uint64_t address;
    uint64_t number;                  /* moves: the span's; stalls: the launch's; steps and plans: launches */
    uint64_t other;                   /* steps and plans: the pattern; plans: moves in the upper half */
    const char *layer_name;           /* lives as long as the process; may be NULL */
    uint32_t layer;                   /* PENSTOCK_NEVER: none */
    struct ps_device_mark *from, *to; /* reloads: what tells begin_ns and end_ns once the device has come to it; the record owns them */
    struct ps_event_levels levels;
};

struct ps_event_cell;
struct ps_event_ring {
    struct ps_event_cell *cells;
    uint64_t mask;
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) uint64_t taken; /* the taker's */
};

/* `capacity`: a power of two. 0 or -ENOMEM. */
int ps_event_ring_open(struct ps_event_ring *ring, size_t capacity);
void ps_event_ring_close(struct ps_event_ring *ring); /* nobody puts or takes any more */

/* Any thread; false: there is no room. */
bool ps_event_ring_put(struct ps_event_ring *ring, const struct ps_event_record *record);

/* One thread at a time. False: there is none, or the next is just being put. */
bool ps_event_ring_take(struct ps_event_ring *ring, struct ps_event_record *record);

#endif
