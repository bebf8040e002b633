/*
 * The stopwatch: device time, by timing events on the program's main stream. While a step is learnt, the duration of each launch; always, how
 * long the stream stood still because something that Penstock moves was not there yet (exposed time).
 *
 * Two clocks: an event is recorded where the host is; what it says is known when the device has passed it. A helper thread asks later
 * (ps_stopwatch_read) and never waits. Launches on other streams than the main one, which is the one that launches most, are not timed.
 *
 * Threads: any. Nothing here is called with the registry lock held, but for ps_stopwatch_learn and ps_stopwatch_learns.
 */
#ifndef PS_STOPWATCH_H
#define PS_STOPWATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/streams.h"

/* Whether durations are wanted; waits are timed in any case. One event a launch more while they are. */
void ps_stopwatch_learn(bool durations);
bool ps_stopwatch_learns(void);

/* The host is about to make `stream` wait, or to wait itself (NULL: the main stream will stand still). */
void ps_stopwatch_wait_begins(struct ps_stream *stream);

/* Launch `number` is about to be queued, after the waits that it needed; it has been queued. */
void ps_stopwatch_launch_begins(struct ps_stream *stream, uint64_t number);
void ps_stopwatch_launch_ends(struct ps_stream *stream, uint64_t number);

struct ps_stopwatch_sample {
    uint64_t launch;
    uint64_t ns;
    bool waited; /* ns is how long the stream stood still before the launch; else the launch's duration */
};

/* Samples that the device has come to, oldest first. Returns how many of `capacity` were filled. One reader. */
size_t ps_stopwatch_read(struct ps_stopwatch_sample *samples, size_t capacity);

/* Samples that are not read yet. Their launches may be older than `*oldest` says only if there are none. */
size_t ps_stopwatch_outstanding(uint64_t *oldest);

#endif
