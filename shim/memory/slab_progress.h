/*
 * Slab progress: tells the user when making the slab's slots takes long. Pinning host memory takes
 * seconds for tens of GiB. Slots made in quick succession form one batch. A batch gets a log line
 * after two seconds of work, then every five seconds, and at its end.
 *
 * Threads and locks: slots are made one at a time under slab.c's lock, without the registry lock.
 * The thread that makes slots ahead (eviction_queue.c) makes them or, where memory is short, the
 * program's allocating thread. That thread writes the line after the slot, and holds at most
 * slab.c's lock; a large slot is made in pieces. The thread that makes slots ahead writes the last
 * line when it finds nothing more to make. It holds no lock then. The module makes no driver call
 * and never waits.
 */
#ifndef PS_SLAB_PROGRESS_H
#define PS_SLAB_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* A batch has ended when no slot was made for this long. */
#define PS_SLAB_PAUSE_NS 500000000u

/* The caller is about to make a slot. [unlocked, one thread at a time] */
void ps_slab_progress_begins(void);

/*
 * The caller has made a slot of `bytes`, or failed to make it (0). The slab may have `limit` bytes.
 * [unlocked, one thread at a time]
 */
void ps_slab_progress_made(uint64_t bytes, uint64_t limit);

/* Whether a batch has had a line, but none at its end yet. Any thread, any lock. */
bool ps_slab_progress_is_told(void);

/* Writes the last line of a batch that has ended. [unlocked] */
void ps_slab_progress_end(void);

#endif
