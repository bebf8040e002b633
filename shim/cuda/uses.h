/*
 * Uses: accesses that something must wait for, as positions in the program's streams (ticks,
 * streams.h).
 *
 * Threads: any. No function here takes the registry lock, and none may be called with it held. The
 * exceptions make no driver call: ps_use_of, ps_uses_add, ps_uses_note, ps_uses_note_everything,
 * ps_uses_merge, ps_uses_merge_one, ps_uses_copy, ps_uses_are_late, ps_uses_are_marked and
 * ps_uses_clear.
 */
#ifndef PS_USES_H
#define PS_USES_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct ps_stream;

/*
 * The uses to wait for: up to PS_USES pairs of a stream and a tick. With more streams than that,
 * they are all work that was queued on any stream at a moment.
 *
 * Two clocks: the moment is a number that is claimed after the work was queued. A tick gets the
 * last number before it is recorded. So the first tick of a stream that knows the moment covers the
 * stream's work up to then. Every query uses that same tick.
 */
#define PS_USES 16u
struct ps_use {
    struct ps_stream *stream;
    uint64_t tick;
};
struct ps_uses {
    uint64_t everywhere; /* more streams than fit: the moment of all queued work; 0: not so */
    uint8_t count;
    struct ps_use use[PS_USES];
};

static inline void ps_uses_clear(struct ps_uses *uses)
{
    uses->count = 0;
    uses->everywhere = 0;
}

/* Returns all work queued on `stream` so far, as a use. Call it after the work was queued. */
struct ps_use ps_use_of(struct ps_stream *stream);

/* Adds a use from ps_use_of; the first function is for a stream that has none there yet. */
void ps_uses_add_another(struct ps_uses *uses, struct ps_use use);
static inline void ps_uses_add(struct ps_uses *uses, struct ps_use use)
{
    for (unsigned i = 0; i < uses->count; i++)
        if (uses->use[i].stream == use.stream) {
            uses->use[i].tick = use.tick;
            return;
        }
    ps_uses_add_another(uses, use);
}

/* Notes that all work queued on `stream` so far matters. */
static inline void ps_uses_note(struct ps_uses *uses, struct ps_stream *stream)
{
    ps_uses_add(uses, ps_use_of(stream));
}

/* Notes that all work queued on any stream so far matters. */
void ps_uses_note_everything(struct ps_uses *uses);

/*
 * The same for all streams of the thread's device; `uses` keeps its uses of other devices. Returns
 * false if another thread's per-thread stream has work that only that thread could mark. The caller
 * must then wait for the device.
 */
bool ps_uses_note_all_streams(struct ps_uses *uses);

/* Adds the uses of `from` to `into`. */
void ps_uses_merge(struct ps_uses *into, const struct ps_uses *from);

/* Returns whether ps_uses_merge would change nothing. False where a use has a moment. */
static inline bool ps_uses_include(const struct ps_uses *into, const struct ps_uses *from)
{
    bool includes = !from->everywhere && !into->everywhere;

    for (unsigned i = 0; includes && i < from->count; i++) {
        const struct ps_use *use = into->use, *end = use + into->count;
        while (use < end && use->stream != from->use[i].stream)
            use++;
        includes = use < end && use->tick >= from->use[i].tick;
    }
    return includes;
}

/* Adds one use. */
void ps_uses_merge_one(struct ps_uses *into, struct ps_use use);

/* Copies only the entries that are in use: the whole array would cost a launch or free much. */
static inline void ps_uses_copy(struct ps_uses *to, const struct ps_uses *from)
{
    to->everywhere = from->everywhere;
    to->count = from->count;
    for (unsigned i = 0; i < from->count; i++)
        to->use[i] = from->use[i];
}

/*
 * Records the missing ticks of the uses, as far as possible. A wait for the uses then does not wait
 * for work that is queued later.
 */
void ps_uses_mark(const struct ps_uses *uses);

/*
 * Returns whether a wait for the uses waits for no work that was queued later. It is not so while a
 * tick is missing, or where the uses are those of a moment.
 */
bool ps_uses_are_marked(const struct ps_uses *uses);

/*
 * Makes `waiter`, a stream of Penstock's, wait for the uses. Returns 0 or -errno; after -errno the
 * order is NOT established.
 */
int ps_uses_stream_wait(const struct ps_uses *uses, CUstream waiter);

/*
 * Makes the program's stream wait for the uses on other streams. The calling thread is about to
 * queue work on it. Returns the same as ps_uses_stream_wait.
 */
int ps_stream_comes_after_uses(const struct ps_stream *stream, const struct ps_uses *uses);

/* Returns 1 if all uses are over, 0 if not yet, or -errno. Records missing ticks. */
int ps_uses_query(const struct ps_uses *uses);

/*
 * A few uses that were not over when they were queried. They are for one search, because the device
 * goes on.
 */
struct ps_late_uses {
    struct ps_use use[4];
    unsigned count;
};

/* The same; also adds the use that is not over to `late`, unless `late` is NULL. */
int ps_uses_query_noting(const struct ps_uses *uses, struct ps_late_uses *late);

/* Returns whether one of the uses is at or behind a late one, so that no query is needed. */
bool ps_uses_are_late(const struct ps_uses *uses, const struct ps_late_uses *late);

/*
 * Waits on the host until the uses are over. Returns 0 or -errno. Never call it on a launching
 * thread where a stream could wait instead.
 */
int ps_uses_host_wait(const struct ps_uses *uses);

/*
 * The same for at most `ns`, with a look every few microseconds. It is for callers that the uses
 * themselves may wait for. Returns -ETIMEDOUT if they are not over.
 */
int ps_uses_host_wait_at_most(const struct ps_uses *uses, uint64_t ns);

/*
 * The same for memory that the program has not freed. On a stream that is being captured, it waits
 * for the work from before the capture.
 */
int ps_uses_host_wait_for_queued(const struct ps_uses *uses, uint64_t ns);

#endif
