/*
 * Mapping time: how long the driver takes for a mapping, and which direction's copies its mappings
 * wait for (copy_gate.h).
 *
 * It is measured when a device is set up with a named budget. Otherwise it is measured before the
 * first host memory for evictions is made; most programs with enough memory never need that.
 * Later measurements are unreliable (tests/results/README.md#mappings-beside-copies):
 * - At the first eviction, threads were making host memory: two of three measurements on H100
 *   found nothing or the wrong direction.
 * - Once there are reloads, copies of the other direction look like theirs.
 * - Of two processes on two H100, one found that a mapping takes 47 us, the other 473 us.
 */
#ifndef PS_MAPPING_TIME_H
#define PS_MAPPING_TIME_H

#include <stdint.h>

/*
 * The first call measures and sets the copy gate's direction. It uses a page, a stream and host
 * memory of its own: 2 MiB outside the budget meanwhile. A failed measurement changes nothing at
 * the gate. The copies take 5 ms, or 15 ms where mappings do wait for them. Two clocks: the host
 * waits for that stream alone. One thread at a time. [unlocked]
 */
void ps_mapping_time_find(void);

/* Returns the host's time to map and unmap a page without copies, in ns; 0: unknown. Any thread. */
uint64_t ps_mapping_time_ns(void);

#endif
