/*
 * Tells the person when making the slab's slots takes long: pinning host memory takes seconds for tens of GiB. Slots that are made with hardly a pause
 * between them are one go. A go that has taken more than two seconds is told of in a line, then every five seconds, and at its end.
 *
 * Threads and locks: a slot is made without the registry lock, on the thread that makes slots ahead (eviction_queue.c) or, where memory is short, on the
 * program's own that allocates; one at a time, under slab.c's lock for that. That thread says it, with no more than that lock held, after the slot (a
 * large one is made in pieces). The end is
 * said by the thread that makes slots ahead, when it has found nothing more to make, with no lock at all. Nothing is asked of the driver, and nothing waits.
 */
#ifndef PS_SLAB_PROGRESS_H
#define PS_SLAB_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* A go has ended when nothing was made for so long. */
#define PS_SLAB_PAUSE_NS 500000000u

/* A slot is about to be made; it is, with so many bytes, or could not be (0). The slab may have `limit` bytes. [unlocked, one thread at a time] */
void ps_slab_progress_begins(void);
void ps_slab_progress_made(uint64_t bytes, uint64_t limit);

/* Whether there is a go that was told of, and whose end was not. Any thread, any lock. */
bool ps_slab_progress_is_told(void);

/* Says that it has ended, if it has. [unlocked] */
void ps_slab_progress_end(void);

#endif
