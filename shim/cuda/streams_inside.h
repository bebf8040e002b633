/* The functions that uses.c and streams.c offer to each other. Threads as in streams.h. */
#ifndef PS_STREAMS_INSIDE_H
#define PS_STREAMS_INSIDE_H

#include <stdbool.h>
#include <stdint.h>

struct ps_stream;

/*
 * Returns whether the stream is gone and all work queued on it has ended. Asks the driver until
 * then.
 */
bool ps_stream_is_over(struct ps_stream *s);

/* Returns whether the entry stands for the streams that found no place in the table. */
bool ps_stream_is_unplaced(const struct ps_stream *s);

/* Returns whether any stream found no place. */
bool ps_streams_are_unplaced(void);

/*
 * Returns whether the calling thread may record on the stream. Only its owner records on a
 * per-thread stream.
 */
bool ps_stream_is_marked_here(const struct ps_stream *s);

/* Returns the number of moments claimed so far (ps_uses_note_everything). */
uint64_t ps_uses_moments(void);

#endif
