/*
 * How long threads have waited for pages: the counter host_wait_ns, waits that last included. And for how long those of the program were kept, by waits or by
 * the work of getting pages, beyond what a call takes where there are some.
 *
 * Any thread, with or without the registry lock.
 */
#ifndef PS_WAITS_H
#define PS_WAITS_H

#include <stdint.h>

/* A wait begins: when. / The one that began then is over: when. */
uint64_t ps_waits_begin(void);
uint64_t ps_waits_end(uint64_t began);

/* Brings the counter up to now, and returns it. It never shrinks. Waits for nobody; async-signal-safe. */
uint64_t ps_waits_ns(void);

/* A thread of the program was kept on this device since then, by ps_now_ns(), until now. */
void ps_waits_kept_since(uint64_t began);

/* For how long they were on this device, ns, all together. It never shrinks. */
uint64_t ps_waits_kept_ns(void);

#endif
