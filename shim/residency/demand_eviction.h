/*
 * Reacting: which spans leave when pages are missing and no plan provides them. The spans idle
 * longest leave first.
 *
 * The lock is the registry's: [locked].
 */
#ifndef PS_DEMAND_EVICTION_H
#define PS_DEMAND_EVICTION_H

#include <stdbool.h>
#include <stdint.h>

/*
 * `grace`: launches after a span's last access before it may leave, for accesses that parameters
 * don't show. Called once, in the set-up.
 */
void ps_demand_eviction_open(uint32_t grace);

/*
 * Chooses spans by the policy and begins their evictions. Stops when `need` bytes are on their way
 * or no span can leave. Returns the bytes begun. [locked; releases the lock meanwhile]
 */
uint64_t ps_demand_eviction_evict(uint64_t need);

/*
 * The same ahead of need: grace does not give way. Only spans that a plan gathers leave in theirs.
 * [locked; releases the lock meanwhile]
 */
uint64_t ps_demand_eviction_evict_ahead(uint64_t need);

/*
 * The same for spans that can leave at once, those idle longest first: evictions that were begun
 * before may wait, on the device, for work that the program is yet to queue.
 * [locked; releases the lock meanwhile]
 */
uint64_t ps_demand_eviction_evict_at_once(uint64_t need);

/*
 * Whether `need` bytes would become free if every span left that may. If not, evictions are in
 * vain: a launch whose spans exceed the budget would push out at each turn the spans that the next
 * one names. Also true while that can't be told yet. [locked]
 */
bool ps_demand_eviction_could_free(uint64_t need);

#endif
