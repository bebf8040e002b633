/*
 * Evictions: finding a row of slots, queuing the D2H, and moving the mapping when it is over; plus the helper threads that this takes.
 *
 * The lock is the registry's: [locked], [unlocked].
 */
#ifndef PS_EVICTION_H
#define PS_EVICTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/settings.h"
#include "memory/span.h"

/* The helper threads start at first need. */
void ps_eviction_open(enum ps_guard guard);

/* `call` is told of each span that has left the device, with the lock held. Once for each device, in its set-up. */
void ps_eviction_when_left(void (*call)(struct ps_span *span));

/*
 * Starts them and waits until each can work. 0; -errno, once and for all: `*why` says what is missing, none is there, and nothing ever leaves. For who can
 * wait, before anything does. [unlocked]
 */
int ps_eviction_prepare(const char **why);

/* Starts them where they are not there yet. False if that failed, once and for all, or the process is ending. [locked] */
bool ps_eviction_start_helpers(void);

/* A slot of that size is free, or could be made: an eviction could be begun as far as the slab goes. [locked] */
bool ps_eviction_has_place(size_t bytes);

/*
 * A plan will have spans of these sizes away at one time: slots that are missing for them are made ahead. Takes `bytes` over, which malloc gave; a
 * later call takes an earlier one's place. [locked]
 */
void ps_eviction_foresee(size_t *bytes, unsigned n);

/* What is next in line to leave has changed: slots may be worth making. [locked] */
void ps_eviction_look_ahead(void);

/*
 * Begins one eviction of a span that may leave (ps_eviction_may_leave). 0; -ENOSPC: the slab has no room; other -errno: it stays.
 * [locked; releases the lock meanwhile]
 */
int ps_eviction_start(struct ps_span *span);

/*
 * The same, beside evictions whose copies wait for something: -EAGAIN: what the span's copy comes after is not over, and it stays; a use that is not is noted. For a
 * caller that has waited for pages in vain. [locked; releases the lock meanwhile]
 */
int ps_eviction_start_at_once(struct ps_span *span, struct ps_late_uses *late);

/* Bytes whose copies are under way there. [locked] */
uint64_t ps_eviction_bytes_at_once(void);

bool ps_eviction_may_leave(const struct ps_span *span);

/*
 * The same for a plan, on a launching thread: the driver calls are made by a helper thread, in the order of these calls. Until it has come to it an access
 * takes the span back. `only_seen`: as ps_guard_is_for says. [locked]
 */
int ps_eviction_start_planned(struct ps_span *span, bool only_seen);

/* An access comes while the span is EVICTING (and not busy): it keeps its pages and is RESIDENT again. [locked] */
void ps_eviction_cancel(struct ps_span *span);

/* Something has been about to leave, or to be taken back: what helps that is worth doing ahead. [locked] */
bool ps_eviction_is_wanted(void);

/* Nothing leaves from now on, at this device, and Penstock stands aside; `why` is said once. [unlocked] */
void ps_eviction_end(const char *why);

/* Nothing leaves any more: there are no helper threads, or the driver can't tell when a copy is over. What is asked for is better CUDA's own. [locked] */
bool ps_eviction_is_impossible(void);

/* Whether copies are queued or about to be. [unlocked] */
bool ps_eviction_are_there_copies(void);

/*
 * Until as many times go_on: no copy is queued, evictions and planned reloads wait. `yields`: they don't while a thread of the program waits for pages, which may be
 * about to queue what the holder waits for. go_on is told the same. [unlocked]
 */
void ps_eviction_hold(bool yields);
void ps_eviction_go_on(bool yields);
bool ps_eviction_is_held(void); /* [locked] */

/* How many D2H copies are queued that are not over, cancelled ones too. [locked] */
uint32_t ps_eviction_copies_under_way(void);

/* The program frees a span that is EVICTING (its life has ended): it becomes CACHED; a copy under way counts among its readers. [locked] */
void ps_eviction_freed(struct ps_span *span);

/* A draining span was put in the registry's list: its addresses are to be taken back when its uses are over. [locked] */
void ps_eviction_draining_waits(void);

#endif
