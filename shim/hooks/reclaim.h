/*
 * Reclaim: gives device memory that Penstock holds to small allocations, the runtime's pools and
 * libraries.
 */
#ifndef PS_RECLAIM_H
#define PS_RECLAIM_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The real allocator is out of memory: releases freed spans, and evicts, until about `bytes` are
 * free. Waits for the copies. Returns whether anything was released. Not from inside Penstock;
 * without the registry lock.
 */
bool ps_reclaim_for_others(size_t bytes);

/* Releases freed spans until at most `keep` bytes of them are held: for cudaMemPoolTrimTo. */
void ps_reclaim_cached(size_t keep);

#endif
