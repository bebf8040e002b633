/*
 * The `host` guard: an evicted span's addresses come to lead to its slot. A thread of the guard's
 * own maps them: the mapping takes longer than the copy did, and no other thread waits for it.
 */
#ifndef PS_GUARD_H
#define PS_GUARD_H

#include "base/settings.h"
#include "kernels/host_tables.h"
#include "memory/span.h"

/*
 * Whether each use of a live span (NULL: of a span that is gone) is seen.
 *
 * A span that outlives the step may have unseen uses. A pointer table on the device, made once, may
 * lead to it in every step, and no launch names it. That is impossible if no table and no kernel
 * can have kept its address (span->known). The state of torch's optimizers is such a case. The
 * address of a span that was born in the step must have been told in this step. A launch or a copy
 * that names it tells it, or host memory that kernels read (host_tables.h).
 */
static inline bool ps_guard_sees_all(const struct ps_span *span, bool outlives_step)
{
    return !ps_host_tables_exist() &&
           (!outlives_step || (span && !atomic_load_explicit(&span->grace.known, memory_order_relaxed)));
}

/*
 * Whether an evicted span must be mapped to its slot meanwhile. `only_seen`: a plan brings it back
 * ahead of its next use, and every use is seen.
 *
 * The mapping of 64 MiB takes 1 to 2 ms and its end 0.5 ms (H200). Both hold a lock of the driver's
 * that every allocation wants. Sparing them saves a tenth of a step whose optimizer's state moves.
 */
static inline bool ps_guard_is_for(enum ps_guard guard, bool only_seen)
{
    return guard == PS_GUARD_HOST || (guard == PS_GUARD_AUTO && !only_seen);
}

/*
 * The span has just been EVICTED, and its addresses lead nowhere. They are mapped soon, or at once
 * if many spans wait. From the unmapping of its pages until then an unforeseen access would fault.
 * Accesses that are seen map or reload the span themselves; a reload that comes first spares the
 * mapping. [locked; may release the lock meanwhile]
 */
void ps_guard_soon(struct ps_span *span);

/*
 * Maps the span (or NULL) now, if it is still evicted, leads nowhere and is not busy.
 * [locked; releases the lock meanwhile]
 */
void ps_guard_map_to_slot(struct ps_span *span);

/* The body of the guard's thread. */
void ps_guard_map_to_slots(void);

#endif
