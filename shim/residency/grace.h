/*
 * The grace of a span: the launches that come soon after one that named it, and may use it without naming it. A kernel that writes a table of addresses is given
 * the tensors; those that use the table are given the table alone.
 *
 * Two clocks. The D2H of a span waits on its stream for each launch of its grace, on whichever stream that was queued: of each stream it is kept which launches
 * a tick covers, and the tick that covers the last one of the grace is waited for, not what was queued after. So a span that has been idle for long waits for
 * nothing that is not long over. Launches of kernels that are known to find no other memory are left out (known_kernels.h), and so are spans whose address
 * no kernel can have kept.
 *
 * A span that must leave in its grace, because nothing else is left, is on the move from then on until its addresses lead to its slot, under each guard. A launch that may
 * use it waits for that, on the host; and its way back waits for those launches. A launch that was begun is queued before any span leaves in its grace, or comes
 * back in it. One that begins later waits on its stream for the H2D: the launch that wanted the span may be on another.
 *
 * A launch that began in a grace is one of it, however many others are queued before it is: its thread may stand in the driver's call, whose queue is full, while
 * another thread launches (launches_under_way.h).
 *
 * A launch belongs to the device that it runs on, and counts among the launches of that device. Threads: any.
 */
#ifndef PS_GRACE_H
#define PS_GRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/span.h"
#include "residency/copies.h"

/* `launches`: PENSTOCK_GRACE. */
void ps_grace_open(uint32_t launches);

/* Whether no further launch can use the span without naming it, as far as the grace goes. [locked] */
bool ps_grace_is_over(const struct ps_span *span);

/* The same for who has just queued the latest launch: copies, which a step's launches count too, are none of a grace. [locked] */
bool ps_grace_is_queued(const struct ps_span *span);

/* Adds the launches of the span's grace that have been queued. [locked] */
void ps_grace_add_uses(const struct ps_span *span, struct ps_uses *uses);

/*
 * A launch on the stream is about to name the span, whose grace begins anew: launches of the one before are uses of it. Where it left in that they may run on its
 * slot, and its mapping stays until they are over. A call that is captured is none, and its grace goes on. [locked]
 */
void ps_grace_begins_anew(struct ps_span *span, const struct ps_stream *stream, bool captured);

/* The span is about to leave in its grace. False: it may not now, as a launch that may use it is about to be queued. [locked] */
bool ps_grace_leaves(struct ps_span *span);

/*
 * What follows is about to be done with a span, which is not busy yet. A thread that did so again and again would hold up another one's launch for ever: launches
 * that were held up have their turn first, for a moment at most, unless other spans hold them up still. [locked; releases the lock meanwhile]
 */
void ps_grace_gives_way(void);

/*
 * The span that left, or stayed on its slot, in its grace is about to leave the slot: launches that were begun are queued and over, and none begins until the second
 * call. 0; else one takes long, `ns` at most, and the span stays where it is. [unlocked] / It has come back, by that reload, or has not (NULL). [locked]
 * For who has it busy.
 */
int ps_grace_comes_back(const struct ps_span *span, uint64_t ns);
void ps_grace_came_back(const struct ps_span *span, const struct ps_copies_nth *nth);

/*
 * Whoever was told so waits until no such launch is about to be queued, but not for long, and holds up those that would begin, until the second call. [locked;
 * the first releases the lock meanwhile]
 */
void ps_grace_hold_launches(void);
void ps_grace_let_launch(void);

/* The calling thread's launch is the next one of this device. [locked] */
void ps_grace_numbers_launch(void);

/*
 * Around the driver call of a launch that may use spans that it does not name. The first waits until none is on the move in its grace, makes the stream wait
 * for those that have come back in it, and returns a number for the second, which is called on each way out. [unlocked]
 */
uint64_t ps_grace_launch_begins(struct ps_stream *stream);
void ps_grace_launch_ends(struct ps_stream *stream, uint64_t began);

#endif
