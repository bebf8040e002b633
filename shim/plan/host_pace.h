/*
 * How fast the host queues launches: what the program's threads take from one to the next when Penstock does not keep them.
 *
 * Threads: [locked] with the registry lock.
 */
#ifndef PS_HOST_PACE_H
#define PS_HOST_PACE_H

#include <stdint.h>

/* A launch is queued: how long the host took for it since the one before, ns, of its own waits (for the device, for data) no more than a millisecond. */
uint64_t ps_host_pace_launched(void);

#endif
