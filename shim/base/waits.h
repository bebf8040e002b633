/*
 * The time in which threads waited for pages: the counter host_wait_ns, which includes waits that
 * still last. Also the time in which Penstock kept threads of the program, by waits or by the work
 * of getting pages. The time that a call takes when pages are there does not count.
 *
 * Threads: any, with or without the registry lock.
 */
#ifndef PS_WAITS_H
#define PS_WAITS_H

#include <stdint.h>

/* Begins a wait. Returns its start time, by ps_now_ns(). */
uint64_t ps_waits_begin(void);

/* Ends the wait that started at `began`. Returns its end time. */
uint64_t ps_waits_end(uint64_t began);

/*
 * Brings the counter up to now and returns it, in ns. It never shrinks. Never waits for a lock;
 * async-signal-safe.
 */
uint64_t ps_waits_ns(void);

/*
 * Adds the time since `began` (by ps_now_ns()): a thread of the program was kept on this device.
 */
void ps_waits_kept_since(uint64_t began);

/* Returns the sum of these times on this device, in ns. It never shrinks. */
uint64_t ps_waits_kept_ns(void);

#endif
