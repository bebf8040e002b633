/*
 * Uses: what somebody must wait for, as positions in the program's streams (ticks, streams.h).
 *
 * Threads: any. No function here takes the registry lock, and none may be called with it held, except ps_uses_note, ps_uses_note_everything, ps_uses_merge,
 * ps_uses_are_late and ps_uses_clear, which make no driver call.
 */
#ifndef PS_USES_H
#define PS_USES_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct ps_stream;

/*
 * What to wait for: up to PS_USES (stream, tick) pairs, or, with more streams than that, everything that was queued on any stream at a moment.
 *
 * Two clocks: the moment is a number that is claimed after the work was queued. A tick is told the last number before it is recorded. So the first tick of a
 * stream that knows the moment covers what the stream had been given by then, and every question asks after that same tick.
 */
#define PS_USES 16u
struct ps_use {
    struct ps_stream *stream;
    uint64_t tick;
};
struct ps_uses {
    struct ps_use use[PS_USES];
    uint8_t count;
    uint64_t everywhere; /* more streams than fit: all that was queued anywhere at this moment; 0: not so */
};

static inline void ps_uses_clear(struct ps_uses *uses)
{
    uses->count = 0;
    uses->everywhere = 0;
}

/* Notes that everything queued on `stream` so far matters. Call after the work was queued. */
void ps_uses_note(struct ps_uses *uses, struct ps_stream *stream);

/* Notes that all that is queued anywhere by now matters. */
void ps_uses_note_everything(struct ps_uses *uses);

/*
 * The same for all streams of the device that the thread is at, and for what `uses` has of others. False: another thread's per-thread stream was given work
 * that only that thread could mark; the device is to be waited for.
 */
bool ps_uses_note_all_streams(struct ps_uses *uses);

void ps_uses_merge(struct ps_uses *into, const struct ps_uses *from);

/* Records the ticks that have not been, as far as that can be: nobody who waits for the uses waits for what is queued later. */
void ps_uses_mark(const struct ps_uses *uses);

/* Makes `waiter`, a stream of ours, wait for the uses. 0 or -errno: then the order is NOT established. */
int ps_uses_stream_wait(const struct ps_uses *uses, CUstream waiter);

/* Makes the program's stream wait for the uses on other streams than it, where the calling thread is about to queue work on it. Likewise. */
int ps_stream_comes_after_uses(const struct ps_stream *stream, const struct ps_uses *uses);

/* 1: all are over; 0: not yet; -errno. Records missing ticks. */
int ps_uses_query(const struct ps_uses *uses);

/* A few uses that were not over when they were asked after. For one search: the device goes on. */
struct ps_late_uses {
    struct ps_use use[4];
    unsigned count;
};

/* The same, and notes among `late` (NULL: not) the one that is not over. */
int ps_uses_query_noting(const struct ps_uses *uses, struct ps_late_uses *late);

/* Whether one of the uses is at or behind one of those, and need not be asked after. */
bool ps_uses_are_late(const struct ps_uses *uses, const struct ps_late_uses *late);

/* Waits on the host until they are over. 0 or -errno. Never call it on a launching thread where a stream could wait instead. */
int ps_uses_host_wait(const struct ps_uses *uses);

/* The same for so long at most, looking every few microseconds: for who may itself be what they wait for. -ETIMEDOUT: they are not over. */
int ps_uses_host_wait_at_most(const struct ps_uses *uses, uint64_t ns);

/* The same of memory that the program has not freed: on a stream that is being captured, to what it was given before. */
int ps_uses_host_wait_for_queued(const struct ps_uses *uses, uint64_t ns);

#endif
