/*
 * How long threads of the program have waited for pages: the counter host_wait_ns, waits that last included.
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

#endif
