/*
 * The stopwatch measures device time by timing events on the program's main stream. While a step is
 * learnt, it measures the duration of each launch. It always measures exposed time: how long the
 * stream stood still because bytes that Penstock moves were not there yet.
 *
 * Two clocks: an event is recorded where the host is; its time is known when the device has passed
 * it. A helper thread asks later (ps_stopwatch_read) and never waits. The main stream is the one
 * that launches most. Launches on other streams are not timed.
 *
 * Threads: any. All functions are [unlocked], but ps_stopwatch_learn and ps_stopwatch_learns may be
 * called with the lock held.
 */
#ifndef PS_STOPWATCH_H
#define PS_STOPWATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/streams.h"

/*
 * Sets, and returns, whether durations are wanted. They cost one event more a launch. Waits are
 * timed in any case.
 */
void ps_stopwatch_learn(bool durations);
bool ps_stopwatch_learns(void);

/*
 * The host is about to make `stream` wait, or to wait itself (NULL: the main stream will stand
 * still).
 */
void ps_stopwatch_wait_begins(struct ps_stream *stream);

/* Launch `number` is about to be queued, after the waits that it needed. */
void ps_stopwatch_launch_begins(struct ps_stream *stream, uint64_t number);

/* Launch `number` has been queued. */
void ps_stopwatch_launch_ends(struct ps_stream *stream, uint64_t number);

struct ps_stopwatch_sample {
    uint64_t launch;
    uint64_t ns;
    /* `ns` is the time that the stream stood still before the launch; else its duration. */
    bool waited;
};

/*
 * Reads the samples that the device has reached, oldest first. Returns the number of samples filled
 * in, at most `capacity`. One thread at a time may read.
 */
size_t ps_stopwatch_read(struct ps_stopwatch_sample *samples, size_t capacity);

/*
 * Returns the number of samples that are not read yet. Sets `*oldest` to the launch of the oldest
 * one, or to UINT64_MAX if all are read.
 */
size_t ps_stopwatch_outstanding(uint64_t *oldest);

#endif
