#include "residency/sole_stream.h"

#include "base/per_device.h"

/* Guarded by the registry lock. */
static PS_PER_DEVICE struct {
    const struct ps_stream *stream; /* the first that was given work; NULL: none yet */
    bool are_several;
} of_first;
#define here PS_HERE(of_first)

void ps_sole_stream_works(const struct ps_stream *stream, bool is_kernel)
{
    if (!stream || (!is_kernel && (stream->legacy || stream->per_thread)))
        return;
    if (!here.stream)
        here.stream = stream;
    here.are_several |= here.stream != stream;
}

void ps_sole_stream_names(struct ps_span *span, const struct ps_stream *stream)
{
    span->is_shared |= here.stream && stream != here.stream;
}

const struct ps_stream *ps_sole_stream_for(const struct ps_span *span, const struct ps_stream *stream)
{
    return here.are_several || stream != here.stream || span->is_shared ? NULL : stream;
}
