/*
 * Launches under way: the program has called for them, and the driver has not queued them yet. A
 * thread may stay in its call for long, while other threads launch: the driver's queue may be full,
 * or the launch may wait for memory. Code that counts launches since a moment must therefore ask
 * here whether an older launch is still under way.
 *
 * A launch takes one of a few places at each device. The place holds the number of that device's
 * latest launch when this one began. No lock: one exchange takes a place, one store leaves it.
 * While more launches are under way than there are places, ps_launches_under_way_is_any() returns
 * true.
 *
 * A thread has at most one launch under way. The functions without an argument are about that
 * launch, and do nothing if the thread has none. Any thread.
 */
#ifndef PS_LAUNCHES_UNDER_WAY_H
#define PS_LAUNCHES_UNDER_WAY_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The calling thread's launch begins; the rest of the call may take any time. The launch counts at
 * each device, because its device is not known yet.
 */
void ps_launches_under_way_begins(void);

/* The launch belongs to the current device: it leaves its places at the others. */
void ps_launches_under_way_is_here(void);

/*
 * The launch has been given a number at the current device. Its place then holds the number after
 * the one at which it began.
 */
void ps_launches_under_way_is_numbered(void);

/*
 * The launch ends: the driver has queued it and other threads can see that, or the call launches
 * nothing. Called on each way out.
 */
void ps_launches_under_way_ends(void);

/*
 * Returns the number at which the launch began at the current device. Without a launch it returns
 * the latest number.
 */
uint64_t ps_launches_under_way_began(void);

/*
 * Whether any launch is under way at the current device that began at a number from `from` to `to`.
 * Launches of all threads count.
 */
bool ps_launches_under_way_is_any(uint64_t from, uint64_t to);

#endif
