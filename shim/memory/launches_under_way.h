/*
 * Launches under way: those that the program has called for and the driver has not queued yet. A thread may stand in its call for long, where the driver's queue
 * is full or the launch waits for memory, while other threads launch. So who counts launches since a moment asks here for the oldest one under way.
 *
 * A launch has one of a few places at each device, with the number of that device's latest launch when it began. No lock: it takes a place by one exchange and
 * leaves it by one store. With more launches under way than places each question is answered with yes.
 *
 * A thread has one launch under way at a time; the functions without an argument are about that one, and do nothing where there is none. Any thread.
 */
#ifndef PS_LAUNCHES_UNDER_WAY_H
#define PS_LAUNCHES_UNDER_WAY_H

#include <stdbool.h>
#include <stdint.h>

/* The program has called: what follows may take any time. At each device, for it is not known yet whose launch it is. */
void ps_launches_under_way_begins(void);

/* It is the current device's. */
void ps_launches_under_way_is_here(void);

/* It has been given a number at the current device: the next one after the number at which it began. */
void ps_launches_under_way_is_numbered(void);

/* The driver has queued it, and whoever asks from now on finds that it is; or it is none. On each way out. */
void ps_launches_under_way_ends(void);

/* The number at which it began at the current device; the latest, if there is none. */
uint64_t ps_launches_under_way_began(void);

/* Whether a launch of the current device is under way, any thread's, that began at one of these numbers. */
bool ps_launches_under_way_is_any(uint64_t from, uint64_t to);

#endif
