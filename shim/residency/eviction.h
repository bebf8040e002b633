/*
 * Evictions: finding a row of slots, queuing the D2H, and moving the mapping when the copy is over.
 * Also the helper threads for these.
 *
 * The lock is the registry's: [locked], [unlocked].
 */
#ifndef PS_EVICTION_H
#define PS_EVICTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/settings.h"
#include "memory/span.h"

/* Sets the module up. The helper threads start at the first need. */
void ps_eviction_open(enum ps_guard guard);

/*
 * Sets the function that is called, with the lock held, for each span that has left the device.
 * Once for each device, in its set-up.
 */
void ps_eviction_when_left(void (*call)(struct ps_span *span));

/*
 * Starts the helper threads and waits until each can work. Returns 0 or -errno. An error is final:
 * `*why` names what is missing, no helper thread is there, and no span ever leaves. For a caller
 * that can wait, before any span leaves. [unlocked]
 */
int ps_eviction_prepare(const char **why);

/*
 * Starts the helper threads if they are not there yet. Returns false if that failed, for good, or
 * if the process is ending. [locked]
 */
bool ps_eviction_start_helpers(void);

/*
 * Whether a slot of that size is free or could be made, so that the slab allows an eviction.
 * [locked]
 */
bool ps_eviction_has_place(size_t bytes);

/*
 * Begins one eviction of a span that may leave (ps_eviction_may_leave). Returns 0; -ENOSPC if the
 * slab has no room; another -errno if the span stays. [locked; releases the lock meanwhile]
 */
int ps_eviction_start(struct ps_span *span);

/*
 * The same on the other D2H stream, beside evictions whose copies wait. -EAGAIN: the copy would
 * have to wait, and the span stays. An unfinished use is noted in `late`. For a caller that has
 * waited for pages in vain. [locked; releases the lock meanwhile]
 */
int ps_eviction_start_at_once(struct ps_span *span, struct ps_late_uses *late);

/* Bytes of the copies under way on that stream. [locked] */
uint64_t ps_eviction_bytes_at_once(void);

bool ps_eviction_may_leave(const struct ps_span *span);

/*
 * Begins an eviction for a plan, on a launching thread. A helper thread makes the driver calls, in
 * the order of these calls. Until it comes to the span, an access takes the span back. `only_seen`:
 * see ps_guard_is_for. [locked]
 */
int ps_eviction_start_planned(struct ps_span *span, bool only_seen);

/*
 * An access comes while the span is EVICTING (and not busy). The span keeps its pages and is
 * RESIDENT again. [locked]
 */
void ps_eviction_cancel(struct ps_span *span);

/*
 * Whether a span was ever about to leave, or addresses to be taken back. Work ahead for evictions
 * then pays. [locked]
 */
bool ps_eviction_is_wanted(void);

/*
 * No span of this device leaves from now on, and Penstock stands aside. `why` is logged once.
 * [unlocked]
 */
void ps_eviction_end(const char *why);

/*
 * Whether no span leaves any more: the helper threads failed to start, or ps_eviction_end was
 * called. The driver can't tell when a copy is over, for example. CUDA itself then serves requests
 * better. [locked]
 */
bool ps_eviction_is_impossible(void);

/* Whether copies are queued or about to be. [unlocked] */
bool ps_eviction_are_there_copies(void);

/*
 * Holds evictions and planned reloads: no copy is queued until each hold has had its
 * ps_eviction_go_on. `yields`: the hold pauses while a thread of the program waits for pages. That
 * thread may be about to queue the work that the holder waits for. [unlocked]
 */
void ps_eviction_hold(bool yields);

/* Ends one hold; `yields` is the same as at its beginning. [unlocked] */
void ps_eviction_go_on(bool yields);

/* Whether evictions are held now. [locked] */
bool ps_eviction_is_held(void);

/* The number of D2H copies that are queued and not over, cancelled ones included. [locked] */
uint32_t ps_eviction_copies_under_way(void);

/*
 * The program frees a span that is EVICTING. The span becomes CACHED, since its life has ended. A
 * copy under way counts among its readers. [locked]
 */
void ps_eviction_freed(struct ps_span *span);

/*
 * A draining span was put in the registry's list. Its addresses are taken back when its uses are
 * over. [locked]
 */
void ps_eviction_draining_waits(void);

#endif
