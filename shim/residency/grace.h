/*
 * The grace of a span: the launches that come soon after one that named it, and may use it without
 * naming it. A kernel that writes a table of addresses is given the tensors; kernels that use the
 * table are given the table alone.
 *
 * Two clocks. The D2H of a span waits on its stream for each launch of its grace, on any stream.
 * Each stream keeps which launches a tick covers. The D2H waits for the tick that covers the last
 * launch of the grace, not for later work. So the D2H of a span that was idle for long waits only
 * for launches that are long over. Launches of kernels that are known to find no other memory are
 * left out (known_kernels.h). So are spans whose address no kernel can have kept.
 *
 * A span must leave in its grace if no other span can leave. It is then moving until its addresses
 * lead to its slot, under each guard. A launch that may use it waits for that, on the host. The
 * span's reload waits for those launches. A launch that was begun is queued before any span leaves
 * in its grace, or comes back in it. A launch that begins later waits on its stream for the H2D:
 * the launch that wanted the span may be on another stream.
 *
 * A launch that began in a grace belongs to it, even if others are queued before it. Its thread may
 * stand in the driver's call, whose queue is full, while another thread launches
 * (launches_under_way.h).
 *
 * A launch belongs to the device that it runs on, and counts among the launches of that device.
 * Threads: any.
 */
#ifndef PS_GRACE_H
#define PS_GRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/span.h"
#include "residency/copies.h"

/* `launches`: the value of PENSTOCK_GRACE. */
void ps_grace_open(uint32_t launches);

/*
 * Whether no further launch can use the span without naming it, as far as the grace goes. [locked]
 */
bool ps_grace_is_over(const struct ps_span *span);

/*
 * The same for a caller that has just queued the latest launch. Copies count among a step's
 * launches, but not in a grace. [locked]
 */
bool ps_grace_is_queued(const struct ps_span *span);

/* Adds the launches of the span's grace that have been queued. [locked] */
void ps_grace_add_uses(const struct ps_span *span, struct ps_uses *uses);

/* A launch that is about to name spans: what is the same for all of them. */
struct ps_grace_naming {
    bool is_captured; /* it is no launch, and the former graces go on */
    uint64_t launch;  /* its number */
    uint64_t in_time; /* a span is in its grace if it was named less than this many launches ago */
    /* All later launches were on this launch's stream. UINT64_MAX: the latest one was not. */
    uint64_t other_until;
    /* Found once: the launches in the grace of a span that was named at launch `named`. */
    bool is_known;
    uint64_t named;
    struct ps_uses former;
};

/* The launch on `stream` has its number (ps_grace_numbers_launch). [locked] */
void ps_grace_begin_naming(struct ps_grace_naming *naming, const struct ps_stream *stream, bool is_captured);

/* Ends the span's former grace: its launches become uses of the span. [locked] */
void ps_grace_end_former(struct ps_span *span, struct ps_grace_naming *naming);

/*
 * Returns whether the launches of the former grace are uses of the span already. So it is for
 * nearly all spans of a launch: most of them were named by one launch before. [locked]
 */
static inline bool ps_grace_has_former(const struct ps_span *span, const struct ps_grace_naming *naming)
{
    return naming->is_known && naming->named == span->access.named &&
           ps_uses_include(&span->order.uses, &naming->former);
}

/*
 * The launch names the span, whose grace begins anew. If the span left in its former grace,
 * launches of that grace may run on its slot. The slot's mapping then stays until they are over.
 * The lock is held since ps_grace_begin_naming. [locked]
 */
static inline void ps_grace_begins_anew(struct ps_span *span, struct ps_grace_naming *naming)
{
    const bool is_in_time = atomic_load_explicit(&span->grace.known, memory_order_relaxed) &&
                            naming->launch - span->access.named < naming->in_time;

    if (!naming->is_captured && !is_in_time && ps_grace_is_over(span))
        span->grace.since = naming->launch;
    if (span->grace.left_in || (span->access.named <= naming->other_until && !ps_grace_has_former(span, naming)))
        ps_grace_end_former(span, naming);
    if (!naming->is_captured)
        span->access.named = naming->launch;
}

/*
 * The span is about to leave in its grace. Returns false if it may not now: a launch that may use
 * it is about to be queued, or too many spans are leaving in their grace. [locked]
 */
bool ps_grace_leaves(struct ps_span *span);

/*
 * Called before ps_grace_comes_back, while the span is not busy yet. Waits for a moment at most, so
 * that launches that were held up begin first. Does not wait while other spans hold those launches
 * up. Without this, a thread that brings spans back again and again would hold up another thread's
 * launch for ever. [locked; releases the lock meanwhile]
 */
void ps_grace_gives_way(void);

/*
 * The span left, or stayed on its slot, in its grace, and is about to leave the slot. Waits until
 * launches that were begun are queued and over. Waits `ns` at most for their end. No launch begins
 * until ps_grace_came_back. Returns 0, or -errno if a launch takes too long: then the span stays
 * where it is, and launches may begin. The caller has the span busy. [unlocked]
 */
int ps_grace_comes_back(const struct ps_span *span, uint64_t ns);

/* The span has come back by that reload, or has not (NULL). The caller has it busy. [locked] */
void ps_grace_came_back(const struct ps_span *span, const struct ps_copies_nth *nth);

/*
 * For a caller whose span may not leave (ps_grace_leaves). Holds up launches that would begin,
 * until ps_grace_let_launch. Waits, but not for long, until no launch is about to be queued.
 * [locked; releases the lock meanwhile]
 */
void ps_grace_hold_launches(void);

/* Lets launches begin again. [locked] */
void ps_grace_let_launch(void);

/* Gives the calling thread's launch the next number of this device. [locked] */
void ps_grace_numbers_launch(void);

/*
 * Called before the driver call of a launch that may use spans that it does not name. Waits until
 * no span moves in its grace. Makes the stream wait for the spans that have come back in their
 * grace. Returns a number for ps_grace_launch_ends. [unlocked]
 */
uint64_t ps_grace_launch_begins(struct ps_stream *stream);

/* Called on each way out of that driver call. [unlocked] */
void ps_grace_launch_ends(struct ps_stream *stream, uint64_t began);

#endif
