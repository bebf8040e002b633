/*
 * Which reloads may wait on the device for a use that is not over, and so take pages of what was freed on a stream that has not come to its last use.
 *
 * Two clocks: whoever names the span waits for its H2D, and so for that use. The stream of the use comes after it anyway. Another one may be what that stream waits
 * for, and there is no telling who will name a span. So such a reload is for the sole stream that the program works on. Copies on default streams make no
 * second one of these, since the host waits for most of them (cudaMemcpy); what they name is shared.
 */
#ifndef PS_SOLE_STREAM_H
#define PS_SOLE_STREAM_H

#include <stdbool.h>

#include "cuda/streams.h"
#include "memory/span.h"

/* The program is about to give the stream work (NULL: none). [locked] */
void ps_sole_stream_works(const struct ps_stream *stream, bool is_kernel);

/* That work names the span. [locked] */
void ps_sole_stream_names(struct ps_span *span, const struct ps_stream *stream);

/* `stream` if a reload that it needs of the span may wait for uses of its own; NULL: for none. [locked] */
const struct ps_stream *ps_sole_stream_for(const struct ps_span *span, const struct ps_stream *stream);

#endif
