/*
 * How long the driver takes for a mapping, and for which way's copies it waits with one (gate.h): measured when a device is set up, while nobody copies and this
 * process makes no other calls. Later it can't be told: at the first eviction, beside threads that made host memory, two of three measurements on H100 found
 * nothing or the wrong way; once there are reloads, copies of the other way look like theirs; and of two processes on two H100 one took 47 us, another 473.
 */
#ifndef PS_MAPPING_TIME_H
#define PS_MAPPING_TIME_H

#include <cuda.h>
#include <stdint.h>

/*
 * Measures with a page and host memory of its own, beside nothing and beside copies to the host, and tells the gate; what can't be measured stays as it was.
 * 4 ms of copies, 12 where mappings do wait for them. Two clocks: the host waits for the stream, on which there may be nothing else. Once, by who sets the device up.
 */
void ps_mapping_time_measure(CUstream d2h);

/* What it takes to map a page and to unmap it, beside nothing: the host's time, ns. 0: unknown. Any thread. */
uint64_t ps_mapping_time_ns(void);

#endif
