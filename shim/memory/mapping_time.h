/*
 * How long the driver takes for a mapping, and for which way's copies it waits with one (copy_gate.h). Measured when a device is set up with a budget that is named;
 * else before the first host memory for what leaves the device is made, which most programs with memory enough never need. Later it can't be told: at the first
 * eviction, beside threads that made host memory, two of three measurements on H100 found nothing or the wrong way; once there are reloads, copies of the other
 * way look like theirs; and of two processes on two H100 one found that a mapping takes 47 us, another 473 (tests/results/README.md#mappings-beside-copies).
 */
#ifndef PS_MAPPING_TIME_H
#define PS_MAPPING_TIME_H

#include <stdint.h>

/*
 * Measures when it is called first, with a page, a stream and host memory of its own, 2 MiB beside the budget for as long, and tells the gate; what can't be
 * measured stays as it was. 5 ms of copies, 15 where mappings do wait for them. Two clocks: the host waits for that stream alone. One thread at a time, without the
 * registry lock.
 */
void ps_mapping_time_find(void);

/* What it takes to map a page and to unmap it, beside nothing: the host's time, ns. 0: unknown. Any thread. */
uint64_t ps_mapping_time_ns(void);

#endif
