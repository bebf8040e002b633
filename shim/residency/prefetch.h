/*
 * Prefetching without a plan. While memory is free again (the backward pass frees what the forward pass kept, and that is more than evictions ahead of need keep
 * free) what left last comes back before a launch names it: an activation that is wanted next, then older ones, then the optimizer's state, which has been idle
 * longest and so left first. Under a plan its own reloads do all that (following.h).
 *
 * A span that came back and left again unused was in the way: in that life it waits for the launch that names it.
 *
 * Threads: any; everything is [locked] with the registry lock.
 */
#ifndef PS_PREFETCH_H
#define PS_PREFETCH_H

#include "memory/span.h"

/* The span's eviction has ended in its leaving the device. [locked] */
void ps_prefetch_left(struct ps_span *span);

/* Memory has been freed: if it is plenty, what has left comes back, on a thread of its own. Some ns if there is nothing to do. [locked] */
void ps_prefetch_freed(void);

#endif
