/*
 * What uses.c asks of streams.c, and the other way round. Threads as in streams.h.
 */
#ifndef PS_STREAMS_INSIDE_H
#define PS_STREAMS_INSIDE_H

#include <stdbool.h>
#include <stdint.h>

struct ps_stream;

/* Whether the program destroyed the stream, and all that was queued on it has ended. Asks the driver until it has. */
bool ps_stream_is_over(struct ps_stream *s);

/* Whether it stands for the streams that found no place in the table; and whether there are such streams. */
bool ps_stream_is_unplaced(const struct ps_stream *s);
bool ps_streams_are_unplaced(void);

/* Whether the calling thread may record on it: another thread's per-thread stream is recorded on by that thread alone. */
bool ps_stream_is_marked_here(const struct ps_stream *s);

/* The number of moments claimed so far (ps_uses_note_everything). */
uint64_t ps_uses_moments(void);

#endif
