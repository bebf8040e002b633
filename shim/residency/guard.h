/*
 * The `host` guard: an evicted span's addresses come to lead to its slot, by a thread of its own, since that takes longer than the copy did and
 * nobody waits for it.
 */
#ifndef PS_GUARD_H
#define PS_GUARD_H

#include "base/settings.h"
#include "kernels/host_tables.h"
#include "memory/span.h"

/*
 * Whether an evicted span is to be mapped to its slot meanwhile. `only_seen`: a plan brings it back ahead of its next use, and there is no use that is not
 * seen. Such may be those of a span that outlives the step, for a table of pointers on the device, made once, may lead to it in every step without a
 * launch that names it: unless no kernel that may have kept its address was ever given it, and no table (span->known), as it is with the state of torch's
 * optimizers. Where a span lies that was born in the step must have been told in this step, by a launch or a copy that names it, or in host memory that
 * kernels read (host_tables.h).
 *
 * ps_guard_sees_all: whether each use of the span that lives (or NULL: of one that is gone) is seen.
 *
 * The mapping of 64 MiB takes 1 to 2 ms and its end 0.5, with a lock of the driver's held that every allocation wants (H200): what spares them is worth
 * a tenth of a step whose optimizer's state moves.
 */
static inline bool ps_guard_sees_all(const struct ps_span *span, bool outlives_step)
{
    return !ps_host_tables_exist() && (!outlives_step || (span && !atomic_load_explicit(&span->known, memory_order_relaxed)));
}

static inline bool ps_guard_is_for(enum ps_guard guard, bool only_seen)
{
    return guard == PS_GUARD_HOST || (guard == PS_GUARD_AUTO && !only_seen);
}

/*
 * The span has just been EVICTED and its addresses lead nowhere: they are mapped soon; at once when many wait. From the unmapping of its pages until
 * then an access that nobody foresaw would fault; everything that is seen maps or reloads the span itself, and a reload that comes first
 * spares the work. [locked; may release the lock meanwhile]
 */
void ps_guard_soon(struct ps_span *span);

/* The same now, if the span (or NULL) is still evicted, leads nowhere and is not busy. [locked; releases the lock meanwhile] */
void ps_guard_map_to_slot(struct ps_span *span);

/* The thread. */
void ps_guard_map_to_slots(void);

#endif
