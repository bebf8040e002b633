/*
 * The program's streams, and positions in them.
 *
 * A *tick* is a numbered event on a stream. Whoever uses a span notes (stream, next tick): the first event recorded on that stream from now
 * on covers the use, whoever records it and when. Most ticks are never recorded: only when something must wait for a use, or every few
 * launches while memory is short, so that a later wait finds a tick close behind the use although the host has gone far ahead.
 *
 * Two clocks. A use is noted after the launch was queued (host order). A recorder claims the tick number first and records second. So whoever
 * still reads the old number has queued its work before the event was recorded. A tick that has been overwritten in the ring stands for a
 * later one of the same stream: waiting for it waits longer, never too short.
 *
 * Threads: everything here may be called from any thread unless said otherwise. No function here takes the registry lock, and none may be
 * called with it held.
 */
#ifndef PS_STREAMS_H
#define PS_STREAMS_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda/uses.h"

#define PS_TICK_RING 256u     /* events kept a stream */
#define PS_STREAMS_MAX 65536u /* streams known at a time; see ps_stream_find for what happens beyond */

/* For run_ahead.c. */
struct ps_lead {
    _Atomic uint64_t work;                    /* queued before the latest tick, as told then */
    _Atomic uint64_t ring_work[PS_TICK_RING]; /* the same by tick in the ring */
    _Atomic uint64_t stuck_at;                /* a tick that did not come for long; 0: none */
    _Atomic uint32_t stuck_times;             /* how often there was one */
};

/* For grace.c. */
#define PS_GRACE_MARKS 32u
struct ps_grace_mark {
    _Atomic uint64_t tick, first, last; /* it covers the launches of these numbers, and those between */
};
struct ps_grace_marks {
    _Atomic uint64_t marked;    /* so many marks were made, the latest are kept */
    _Atomic uint64_t came_back; /* the stream waits for the H2D of so many spans that came back in their grace */
    struct ps_grace_mark mark[PS_GRACE_MARKS];
};

struct ps_stream {
    CUstream handle;
    CUcontext context; /* its own; NULL: it could not be told, or has been destroyed */
    bool per_thread;   /* CU_STREAM_PER_THREAD of `owner`; nobody else can name that stream, so only the owner records */
    bool legacy;       /* the legacy default stream of its context */
    CUstream shadow;   /* of the legacy stream: a blocking stream of ours, which comes after it; made under record_lock at first need */
    uint64_t owner;    /* the number of that thread; no other has it, also when that one has ended */
    uint32_t index;    /* place in the table; PS_STREAMS_MAX: none */
    /* The program destroyed it, or its thread ended; its last tick was recorded before. Set under record_lock: look there before using handle. */
    atomic_bool gone;
    atomic_bool captured_from;                /* a capture that is counted began here (capture.h) */
    atomic_bool covered;                      /* all that it was given before the latest capture began is covered by its last tick then */
    atomic_bool over;                         /* gone, and all that was queued on it has ended; set under record_lock */
    _Atomic uint64_t next;                    /* the tick that the next record will be; starts at 1 */
    _Atomic uint64_t recorded;                /* the highest tick recorded; 0 = none */
    _Atomic uint64_t done;                    /* ticks up to this one stand for work that a wait for the device has seen over */
    _Atomic uint64_t done_at;                 /* the same of moments (ps_uses_note_everything) */
    _Atomic uint64_t come_to;                 /* a tick that was seen to be over (ps_streams_progress) */
    _Atomic uint32_t launches;                /* launches with spans since the last tick; a hint */
    atomic_bool unmarked;                     /* a per-thread stream: launches since the last tick that named no span */
    pthread_mutex_t record_lock;              /* one recorder at a time */
    CUevent ring[PS_TICK_RING];               /* created at first use */
    _Atomic uint64_t ring_tick[PS_TICK_RING]; /* which tick each holds; 0 = none */
    uint64_t ring_moment[PS_TICK_RING];       /* the last moment (ps_uses_note_everything) before it was recorded; guarded by record_lock */
    struct ps_lead lead;                      /* how far the host is ahead: run_ahead.h */
    struct ps_grace_marks grace;              /* which launches its ticks cover: grace.h */
};

/*
 * The stream that a call names. `handle` as the program passed it; `per_thread_default` tells that 0 means the per-thread default stream
 * (the _ptsz and _ptds entry points). Never fails: when the table is full or memory is short, one entry without a place, whose index is PS_STREAMS_MAX, stands
 * for all further streams. What is used there is used everywhere, which from then on is waited for on the host, with the whole device; and so is what their
 * work comes after, before it is queued.
 */
struct ps_stream *ps_stream_find(CUstream handle, bool per_thread_default);

/*
 * The legacy default stream waits for all blocking streams of its context, and they for it, at each piece of work that it is given. So Penstock gives it
 * none that the program would not: while the program may have blocking streams, the legacy stream's ticks are recorded on a stream of ours that comes after it.
 */

/* A stream was created with these flags. Any thread. */
void ps_streams_created(unsigned flags);

/* Whether the program uses several streams, or has made one that it may be about to use. Any thread. */
bool ps_streams_may_be_several(void);

/* The legacy default stream of the current context, or NULL where nobody has used it. */
struct ps_stream *ps_stream_find_legacy(void);

/*
 * Memory is freed in the order of `stream`. On the legacy stream the real call comes after what every blocking stream was given, and before what they will be:
 * so does the tick that this records. Call it after ps_uses_note. 0, or -errno: what blocking streams were given is not among what was noted.
 */
int ps_stream_free_is_barrier(struct ps_stream *stream);

/* Whether a free on it orders other streams, too. */
bool ps_stream_orders_others(const struct ps_stream *stream);

/* A launch that names no span was queued there: what it uses unseen counts where all streams do. Any thread. */
void ps_stream_launched_unseen(struct ps_stream *stream);

/* The stream goes away: records a last tick. Called before the program's cuStreamDestroy begins, while no lock of the driver's is held. */
void ps_stream_retire(CUstream handle);

/* So do all streams of a context, with the events on them: what is queued there is waited for here, on the host. Called before the program's cuCtxDestroy begins. */
void ps_streams_end_context(CUcontext context);

/*
 * Around a wait for the managed context of the device that the thread is at: what was noted of its streams before it began is over when it has succeeded. Else an event
 * that is recorded for such a use later stands behind whatever the stream has been given meanwhile. begin claims a tick of the first PS_STREAMS_WAITED streams.
 */
#define PS_STREAMS_WAITED 64u
struct ps_streams_wait {
    uint64_t tick[PS_STREAMS_WAITED];
    uint64_t moment;
    uint32_t count;
};
void ps_streams_wait_begins(struct ps_streams_wait *wait);
void ps_streams_wait_ended(const struct ps_streams_wait *wait);

/* A number that has changed when some stream of the program has come to a tick since the last call. Asks the driver. Any thread; of two at once one may miss it. */
uint64_t ps_streams_progress(void);

/* How many places the table has in use, destroyed streams included, and the i-th of them. */
uint32_t ps_streams_count(void);
struct ps_stream *ps_streams_at(uint32_t index);

/*
 * Whether the stream is another device's than the one that the thread is at. Such a stream can wait for events of this device; events that are recorded on
 * it are its own context's.
 */
bool ps_stream_is_foreign(const struct ps_stream *stream);

/* Records the next tick on the stream. 0 or -errno (nothing recorded). For a per-thread stream: by its owner only (-EXDEV otherwise). */
int ps_stream_tick(struct ps_stream *stream);

/*
 * Makes the stream wait for the event, from whatever thread. 0; -ENOENT: the program has destroyed it (nothing is queued on it any more);
 * -EXDEV: another thread's per-thread stream; -EBUSY: being captured; other -errno.
 */
int ps_stream_wait_event(struct ps_stream *stream, CUevent event);

/* Records the program's position on the stream into an event of the caller's. Results as ps_stream_wait_event, and -EXDEV. */
int ps_stream_record(struct ps_stream *s, CUevent event);

/*
 * A per-thread default stream can be recorded on by its owner alone, so the owner does it before anybody notes a use: call it, without the
 * registry lock, after the work was queued and before ps_uses_note. `stream` NULL: the calling thread's own, if it has used it. No driver call
 * for other streams.
 */
void ps_stream_settle(const struct ps_stream *stream);

/* Makes the program's stream wait for an event, where the calling thread is about to queue work on it. 0 or -errno: then the order is NOT established. */
int ps_stream_comes_after(const struct ps_stream *stream, CUevent event);

/* The same for an order that must hold: if the stream can't be made to wait, the calling thread waits, for the whole device if events fail. */
void ps_stream_or_host_comes_after(const struct ps_stream *stream, CUevent event);

/* Holds back whoever is about to record an event on the stream, until the other call by the same thread (capture.h). */
void ps_stream_hold_records(struct ps_stream *s);
void ps_stream_let_record(struct ps_stream *s);

#endif
