/*
 * How fast the host queues launches: the time that the program's threads take from one launch to
 * the next, without Penstock's waits.
 *
 * Threads: [locked] with the registry lock.
 */
#ifndef PS_HOST_PACE_H
#define PS_HOST_PACE_H

#include <stdint.h>

/*
 * A launch is queued. Returns the host's time since the launch before, in ns, at most a
 * millisecond. The host's own waits for the device or for data are part of it.
 */
uint64_t ps_host_pace_launched(void);

#endif
