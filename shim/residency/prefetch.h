/*
 * Prefetching without a plan. The backward pass frees the memory that the forward pass kept, more
 * than evictions ahead of need keep free. While memory is free again, the spans that left last come
 * back before a launch names them. The activation that is needed next comes first, then older ones.
 * The optimizer's state comes last: it was idle longest and so left first. Under a plan, the plan's
 * own reloads do all this (following.h).
 *
 * A span that came back and left again unused was in the way. For the rest of its life, it waits
 * for the launch that names it.
 *
 * Threads: any; everything is [locked] with the registry lock.
 */
#ifndef PS_PREFETCH_H
#define PS_PREFETCH_H

#include "memory/span.h"

/* The span's eviction has ended, and the span has left the device. [locked] */
void ps_prefetch_left(struct ps_span *span);

/*
 * The program has freed memory. If plenty is free, spans that left come back, on a helper thread.
 * Costs some ns if there is nothing to do. [locked]
 */
void ps_prefetch_freed(void);

#endif
