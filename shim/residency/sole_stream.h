/*
 * Decides which reloads may wait on the device for a use that is not over. Such a reload may take a
 * freed span's pages before the stream of the free reaches that span's last use.
 *
 * Two clocks: a launch that names the span waits for its H2D, and so for that use. The use's own
 * stream comes after the use anyway. Another stream that names the span may be one that the use's
 * stream waits for. It can't be known which stream will name a span. So such a reload is only for
 * the sole stream that the program works on.
 *
 * Copies on default streams don't count as a second stream, since the host waits for most of them
 * (cudaMemcpy). The spans that they name are shared.
 */
#ifndef PS_SOLE_STREAM_H
#define PS_SOLE_STREAM_H

#include <stdbool.h>

#include "cuda/streams.h"
#include "memory/span.h"

/* The program is about to give work to `stream` (NULL: to none). [locked] */
void ps_sole_stream_works(const struct ps_stream *stream, bool is_kernel);

/* Returns whether work on `stream` makes the spans that it names shared. [locked] */
bool ps_sole_stream_shares(const struct ps_stream *stream);

/*
 * Returns `stream` if a reload of the span for that stream may wait for the stream's own uses.
 * Returns NULL if the reload may wait for no unfinished use. [locked]
 */
const struct ps_stream *ps_sole_stream_for(const struct ps_span *span, const struct ps_stream *stream);

#endif
