/*
 * Reacting: what leaves when pages are missing and no plan has seen to it, those idle longest first.
 *
 * The lock is the registry's: [locked].
 */
#ifndef PS_DEMAND_EVICTION_H
#define PS_DEMAND_EVICTION_H

#include <stdbool.h>
#include <stdint.h>

/* `grace`: launches after a span's last access before it may leave, for accesses that parameters don't show. Once, in the set-up. */
void ps_demand_eviction_open(uint32_t grace);

/*
 * Chooses spans by the policy and begins their evictions, until `need` bytes are on their way or nothing can leave. Returns the bytes begun.
 * [locked; releases the lock meanwhile]
 */
uint64_t ps_demand_eviction_evict(uint64_t need);

/* The same ahead of need: nothing leaves in its grace. [locked; releases the lock meanwhile] */
uint64_t ps_demand_eviction_evict_ahead(uint64_t need);

/*
 * The same of spans that can leave at once, those idle longest: what was begun before may wait, on the device, for what the program is yet to queue.
 * [locked; releases the lock meanwhile]
 */
uint64_t ps_demand_eviction_evict_at_once(uint64_t need);

/*
 * Whether `need` bytes could be freed if all left that may. Where they can't, evictions would help nobody: a launch whose spans exceed the budget together would push
 * out at each turn what the next one names. True as well where that can't be told yet. [locked]
 */
bool ps_demand_eviction_could_free(uint64_t need);

#endif
