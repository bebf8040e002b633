/*
 * The `host` guard: an evicted span's addresses come to lead to its slot, by a thread of its own, since that takes longer than the copy did and
 * nobody waits for it.
 */
#ifndef PS_GUARD_H
#define PS_GUARD_H

#include "span.h"

/*
 * The span has just been EVICTED and its addresses lead nowhere: they are mapped soon; at once when many wait. From the unmapping of its pages until
 * then an access that nobody foresaw would fault; everything that is seen maps or reloads the span itself, and a reload that comes first
 * spares the work. [locked; may release the lock meanwhile]
 */
void ps_guard_soon(struct ps_span *span);

/* The thread. */
void ps_guard_map_to_slots(void);

#endif
