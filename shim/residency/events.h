/*
 * What Penstock tells tools of while it happens: one function for each sort of event, called where it happens. They serve the probes (probes.h) and, if
 * PENSTOCK_TRACE names a file, the trace (trace.h).
 *
 * Nothing here makes a driver call, allocates or waits, unless it says so: what is told goes into a ring, and is dropped and counted where that is full.
 * While nothing is traced a call is a nop or two and a branch. Threads: any; the lock is the registry's: [locked], [unlocked].
 */
#ifndef PS_EVENTS_H
#define PS_EVENTS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda/device_clock.h"
#include "policy/recording/recorder.h"
#include "policy/steps/detector.h"

struct ps_span;

/* Whether there is a trace to write; constant but for its end. */
extern atomic_bool ps_events_traces;

static inline bool ps_events_is_tracing(void)
{
    return __builtin_expect(atomic_load_explicit(&ps_events_traces, memory_order_relaxed), false);
}

/* One span's way out or back, kept by whoever moves it from the beginning to the end. */
struct ps_events_move {
    uint64_t number; /* of the span's life */
    CUdeviceptr address;
    uint64_t bytes;
    bool planned;                       /* begun by a plan, or ahead of need; else by who needs pages, or the span */
    struct ps_recorded_layer layer;     /* that the program was launching in */
    uint64_t queued_ns;                 /* of the host's clock; 0: nothing is traced, nor is what follows */
    uint64_t begin_ns, end_ns;          /* of the copy, once they are known */
    struct ps_device_mark *begin, *end; /* to be recorded before and after the copy; NULL: not */
};

/* A D2H is about to be queued: gives it a mark for its beginning, as its end has an event of its own. [locked] */
void ps_events_eviction_begins(struct ps_events_move *move, const struct ps_span *span, bool planned);

/* It is over, and `done` tells when; that must be a timing event while something is traced. Asks the driver. [unlocked, not on a launching thread] */
void ps_events_eviction_copied(struct ps_events_move *move, CUevent done);

/* The span has left the device and is counted as evicted; or it stays, for whatever reason. [locked] */
void ps_events_eviction_ends(struct ps_events_move *move, bool left);

/* An eviction is cancelled by an access, and counted as that. [locked] */
void ps_events_eviction_cancelled(const struct ps_span *span);

/* A reload begins: gives it marks for its H2D. [locked] */
void ps_events_reload_begins(struct ps_events_move *move, const struct ps_span *span, bool planned);

/* Its H2D is queued and counted, or nothing came of it (`error`). [locked] */
void ps_events_reload_ends(struct ps_events_move *move, int error);

/* The writer has seen the device come to the end of a reload that was told of. Any lock. */
void ps_events_reload_is_over(void);

/* A thread begins to wait on the host for pages, or for its reload's turn; it has waited. [locked] */
enum ps_events_wait {
    PS_EVENTS_LAUNCH_FOR_PAGES, /* a launch or copy names a span that is away */
    PS_EVENTS_LAUNCH_FOR_TURN,  /* the same, whose reload a plan is about to begin */
    PS_EVENTS_ALLOCATION,
    PS_EVENTS_HELPER, /* a thread of Penstock's */
};
void ps_events_wait_begins(enum ps_events_wait wait, uint64_t bytes);
void ps_events_waited(enum ps_events_wait wait, uint64_t bytes, uint64_t began_ns, uint64_t ended_ns);

/* The program's stream stood still for `ns`, from this timing event on, before the launch of that number. Asks the driver. [unlocked, not on a launching thread] */
void ps_events_stood_still(uint64_t launch, CUevent from, uint64_t ns);

/* What the step detector says, where that is news; and each launch while something is traced. [locked] */
void ps_events_step(struct ps_steps_state state);
void ps_events_launch(const struct ps_recorded_layer *layer);

/* A plan comes into force, or is left. [locked] */
void ps_events_plan(bool in_force, uint32_t pattern, uint32_t launches, uint32_t moves);

/* [locked] */
void ps_events_out_of_memory(uint64_t bytes);

/* What is held now: for the writer, which asks now and then. [locked] */
void ps_events_levels(void);

/* `count` tells the D2H copies under way, for the levels of a record; it is called with the lock held. Once for each device, in its set-up. */
void ps_events_count_evictions_by(uint32_t (*count)(void));

#endif
