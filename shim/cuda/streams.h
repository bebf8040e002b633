/*
 * The program's streams, and positions in them.
 *
 * A *tick* is a numbered event on a stream. A thread that uses a span notes the stream and its next
 * tick. The first event recorded on that stream from then on covers the use, whichever thread
 * records it. Most ticks are never recorded. A tick is recorded when something must wait for a use,
 * or every few launches while memory is short. A later wait then finds a tick close behind the use,
 * although the host has gone far ahead.
 *
 * Two clocks. A use is noted after the launch was queued (host order). A recorder claims the tick
 * number first and records second. So a thread that still reads the old number has queued its work
 * before the event was recorded. A tick that was overwritten in the ring stands for a later one of
 * the same stream. A wait for it lasts longer, but is never too short.
 *
 * Threads: any thread may call each function here, unless its comment says otherwise. No function
 * here takes the registry lock, and none may be called with it held.
 */
#ifndef PS_STREAMS_H
#define PS_STREAMS_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda/uses.h"

#define PS_TICK_RING 256u     /* events kept per stream */
#define PS_STREAMS_MAX 65536u /* streams known at a time; see ps_stream_find for others */

/* The stream's figures for run_ahead.c. */
struct ps_run_ahead {
    _Atomic uint64_t work;                    /* ns of work before the latest tick, as told then */
    _Atomic uint64_t ring_work[PS_TICK_RING]; /* the same for each tick in the ring */
    _Atomic uint64_t stuck_at;                /* a tick that did not come for long; 0: no tick */
    _Atomic uint32_t stuck_times;             /* the number of such ticks */
};

/* The stream's marks for grace.c. */
#define PS_GRACE_MARKS 32u
struct ps_grace_mark {
    _Atomic uint64_t tick, first, last; /* `tick` covers the launches `first` to `last` */
};
struct ps_grace_marks {
    _Atomic uint64_t marked;    /* the number of marks made; the latest are kept */
    _Atomic uint64_t came_back; /* spans back in their grace whose H2D the stream waits for */
    struct ps_grace_mark mark[PS_GRACE_MARKS];
};

struct ps_stream {
    CUstream handle;
    CUcontext context; /* the stream's own; NULL: it could not be told, or was destroyed */
    bool per_thread;   /* CU_STREAM_PER_THREAD of `owner`; only the owner can name it and record */
    bool legacy;       /* the legacy default stream of its context */
    /*
     * Of the legacy stream: a blocking stream of Penstock's, which comes after it. It is made under
     * record_lock at first need.
     */
    CUstream shadow;
    uint64_t owner; /* the number of that thread, which no later thread gets */
    uint32_t index; /* place in the table; PS_STREAMS_MAX: none */
    /*
     * The program destroyed the stream, or its thread ended; its last tick was recorded before. It
     * is set under record_lock; check it there before using `handle`.
     */
    atomic_bool gone;
    atomic_bool captured_from; /* a counted capture began here (capture.h) */
    /* When the latest capture began, the last tick covered all work of the stream. */
    atomic_bool covered;
    atomic_bool over;                         /* gone and its work over; set under record_lock */
    _Atomic uint64_t next;                    /* the tick of the next record; starts at 1 */
    _Atomic uint64_t recorded;                /* the highest tick recorded; 0: none */
    _Atomic uint64_t done;                    /* a wait for the device saw ticks up to it over */
    _Atomic uint64_t done_at;                 /* the same for moments (ps_uses_note_everything) */
    _Atomic uint64_t come_to;                 /* a tick that was seen over (ps_streams_progress) */
    _Atomic uint32_t launches;                /* launches with spans since the last tick; a hint */
    atomic_bool unmarked;                     /* per-thread: launches without spans since then */
    pthread_mutex_t record_lock;              /* one recorder at a time */
    CUevent ring[PS_TICK_RING];               /* created at first use */
    _Atomic uint64_t ring_tick[PS_TICK_RING]; /* the tick that each event holds; 0: none */
    /*
     * The last moment (ps_uses_note_everything) before each event's record. Guarded by record_lock.
     */
    uint64_t ring_moment[PS_TICK_RING];
    struct ps_run_ahead run_ahead; /* how far the host is ahead: run_ahead.h */
    struct ps_grace_marks grace;   /* the launches that its ticks cover: grace.h */
};

/*
 * Returns the stream that a call names. `handle` is as the program passed it. `per_thread_default`:
 * 0 means the per-thread default stream (the _ptsz and _ptds entry points).
 *
 * Never fails. When the table is full or memory is short, one entry without a place stands for all
 * further streams. Its index is PS_STREAMS_MAX. A use on these streams counts as a use on all
 * streams. From then on the host waits for such uses, with the whole device. The host also waits
 * for all that the work of these streams comes after, before that work is queued.
 */
struct ps_stream *ps_stream_find(CUstream handle, bool per_thread_default);

/*
 * At each piece of its work the legacy default stream waits for all blocking streams of its
 * context. They wait for it, too. So Penstock gives it no work that the program would not. While
 * the program may have blocking streams, the legacy stream's ticks are recorded on another one.
 * That is a stream of Penstock's, which comes after it.
 */

/* Notes that a stream was created with these flags. Any thread. */
void ps_streams_created(unsigned flags);

/*
 * Returns whether the program uses several streams, or has made one that it may be about to use.
 * Any thread.
 */
bool ps_streams_may_be_several(void);

/* Returns the legacy default stream of the current context, or NULL if it was not used yet. */
struct ps_stream *ps_stream_find_legacy(void);

/* Returns the calling thread's number, from 1. From now on its own streams end with the thread. */
uint64_t ps_thread_number(void);

/*
 * Called when memory is freed in the order of `stream`, after ps_uses_note. On the legacy stream
 * the real call comes after the work that blocking streams were given before. It comes before their
 * later work. So does the tick that this function records. Returns 0 or -errno. After -errno the
 * noted uses lack the work of blocking streams.
 */
int ps_stream_free_is_barrier(struct ps_stream *stream);

/* Returns whether a free on the stream orders other streams, too. */
bool ps_stream_orders_others(const struct ps_stream *stream);

/*
 * Notes that a launch that names no span was queued on the stream. Its unseen uses count where the
 * uses of all streams do. Any thread.
 */
void ps_stream_launched_unseen(struct ps_stream *stream);

/*
 * Records a last tick on a stream that goes away. Called before the program's cuStreamDestroy
 * begins, while no lock of the driver's is held.
 */
void ps_stream_retire(CUstream handle);

/*
 * All streams of a context go away, with the events on them. Waits here, on the host, for their
 * queued work. Called before the program's cuCtxDestroy begins.
 */
void ps_streams_end_context(CUcontext context);

/*
 * The state of a wait for a managed context. It has a tick for each of the first PS_STREAMS_WAITED
 * streams.
 */
#define PS_STREAMS_WAITED 64u
struct ps_streams_wait {
    uint64_t tick[PS_STREAMS_WAITED];
    uint64_t moment;
    uint32_t count;
};

/*
 * Called before a wait for the managed context of the thread's device. Claims a tick of the first
 * PS_STREAMS_WAITED streams.
 */
void ps_streams_wait_begins(struct ps_streams_wait *wait);

/*
 * Called after the wait has succeeded. Uses of these streams that were noted before the wait are
 * then over. Without this call, an event recorded later for such a use stands behind newer work of
 * the stream.
 */
void ps_streams_wait_ended(const struct ps_streams_wait *wait);

/*
 * Returns a number that changes when a stream of the program has come to a tick since the last
 * call. Asks the driver. Any thread; of two threads at once, one may miss a change.
 */
uint64_t ps_streams_progress(void);

/* Returns the number of places in use in the table, including destroyed streams. */
uint32_t ps_streams_count(void);

/* Returns the stream at a place below that number. */
struct ps_stream *ps_streams_at(uint32_t index);

/*
 * Returns whether the stream belongs to another device than the thread's. Such a stream can wait
 * for events of this device. Events that are recorded on it are its own context's.
 */
bool ps_stream_is_foreign(const struct ps_stream *stream);

/*
 * Records the next tick on the stream. Returns 0, or -errno if nothing was recorded. A per-thread
 * stream's owner alone may call it (-EXDEV otherwise).
 */
int ps_stream_tick(struct ps_stream *stream);

/*
 * Makes the stream wait for the event, from any thread. Returns 0, or -ENOENT if the stream is
 * destroyed; nothing is queued on it any more. Returns -EXDEV for another thread's per-thread
 * stream, -EBUSY during a capture of the stream, or another -errno.
 */
int ps_stream_wait_event(struct ps_stream *stream, CUevent event);

/*
 * Records the program's position on the stream into an event of the caller's. Returns the same as
 * ps_stream_wait_event.
 */
int ps_stream_record(struct ps_stream *s, CUevent event);

/*
 * Records a tick on a per-thread default stream. Only its owner can record on it, so the owner does
 * so before any thread notes a use. Call it without the registry lock, after the work was queued
 * and before ps_uses_note. `stream` NULL stands for the calling thread's own stream, if it has used
 * that. Makes no driver call for other streams.
 */
void ps_stream_settle(const struct ps_stream *stream);

/*
 * Makes the program's stream wait for an event; the calling thread is about to queue work on it.
 * Returns 0 or -errno; after -errno the order is NOT established.
 */
int ps_stream_comes_after(const struct ps_stream *stream, CUevent event);

/*
 * The same for an order that must hold. If the stream can't be made to wait, the calling thread
 * waits. It waits for the whole device if events fail.
 */
void ps_stream_or_host_comes_after(const struct ps_stream *stream, CUevent event);

/*
 * Holds back threads that are about to record an event on the stream, until ps_stream_let_record by
 * the same thread (capture.h).
 */
void ps_stream_hold_records(struct ps_stream *s);

/* Ends the hold of ps_stream_hold_records. */
void ps_stream_let_record(struct ps_stream *s);

#endif
