/*
 * The events that Penstock reports to tools while they happen. Each sort of event has one function,
 * called where it happens. They serve the probes (probes.h) and, if PENSTOCK_TRACE names a file,
 * the trace (trace.h).
 *
 * No function here makes a driver call, allocates or waits, unless it says so. Events go into a
 * ring. A full ring drops and counts them. While tracing is off, a call is a nop or two and a
 * branch.
 * Threads: any; the lock is the registry's: [locked], [unlocked].
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

/* Whether a trace is being written; constant except for its end. */
extern atomic_bool ps_events_traces;

static inline bool ps_events_is_tracing(void)
{
    return __builtin_expect(atomic_load_explicit(&ps_events_traces, memory_order_relaxed), false);
}

/* One eviction or reload of a span. The code that moves the span keeps it from beginning to end. */
struct ps_events_move {
    uint64_t number; /* of the span's life */
    CUdeviceptr address;
    uint64_t bytes;
    bool planned;                       /* by a plan or ahead of need; else for pages or the span */
    struct ps_recorded_layer layer;     /* the layer in which the program was launching */
    uint64_t queued_ns;                 /* host clock; 0: not traced, the next fields are unused */
    uint64_t begin_ns, end_ns;          /* of the copy, once they are known */
    struct ps_device_mark *begin, *end; /* marks to record around the copy; NULL: no mark */
};

/*
 * A D2H is about to be queued. Gives it a mark for its beginning; its end has an event of its own.
 * [locked]
 */
void ps_events_eviction_begins(struct ps_events_move *move, const struct ps_span *span, bool planned);

/*
 * The D2H is over, and `done` tells when. While tracing is on, `done` must be a timing event. Asks
 * the driver. [unlocked, not on a launching thread]
 */
void ps_events_eviction_copied(struct ps_events_move *move, CUevent done);

/*
 * The eviction is over. `left`: the span has left the device and is counted as evicted; else it
 * stays, for any reason. [locked]
 */
void ps_events_eviction_ends(struct ps_events_move *move, bool left);

/* An access has cancelled an eviction, which is counted as cancelled. [locked] */
void ps_events_eviction_cancelled(const struct ps_span *span);

/* A reload begins. Gives it marks for its H2D. [locked] */
void ps_events_reload_begins(struct ps_events_move *move, const struct ps_span *span, bool planned);

/* The reload's H2D is queued and counted, or the reload failed (`error`). [locked] */
void ps_events_reload_ends(struct ps_events_move *move, int error);

/* The writer has seen the device come to the end of a reported reload. Any lock. */
void ps_events_reload_is_over(void);

/* The reasons for which a thread waits on the host. */
enum ps_events_wait {
    PS_EVENTS_LAUNCH_FOR_PAGES, /* a launch or copy names a span that is away */
    PS_EVENTS_LAUNCH_FOR_TURN,  /* the same; a plan is about to begin the reload */
    PS_EVENTS_ALLOCATION,
    PS_EVENTS_HELPER, /* a helper thread */
};

/* A thread begins to wait on the host for pages, or for its reload's turn. [locked] */
void ps_events_wait_begins(enum ps_events_wait wait, uint64_t bytes);

/* The thread has waited. [locked] */
void ps_events_waited(enum ps_events_wait wait, uint64_t bytes, uint64_t began_ns, uint64_t ended_ns);

/*
 * The program's stream stood still for `ns` from the timing event `from` on, before the launch of
 * this number. Asks the driver. [unlocked, not on a launching thread]
 */
void ps_events_stood_still(uint64_t launch, CUevent from, uint64_t ns);

/* The step detector has news. [locked] */
void ps_events_step(struct ps_steps_state state);

/* A launch in this layer; called for each launch while tracing is on. [locked] */
void ps_events_launch(const struct ps_recorded_layer *layer);

/* A plan comes into force, or is dropped. [locked] */
void ps_events_plan(bool in_force, uint32_t pattern, uint32_t launches, uint32_t moves);

/* A request for `bytes` found no memory. [locked] */
void ps_events_out_of_memory(uint64_t bytes);

/* Reports the levels now. For the writer, which asks now and then. [locked] */
void ps_events_levels(void);

/*
 * `count` returns the number of D2H copies under way, for the levels of a record. It is called with
 * the lock held. Called once for each device, in its set-up.
 */
void ps_events_count_evictions_by(uint32_t (*count)(void));

#endif
