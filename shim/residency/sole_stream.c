#include "residency/sole_stream.h"

#include "base/per_device.h"

/* Guarded by the registry lock. */
static PS_PER_DEVICE struct {
    const struct ps_stream *stream; /* the first stream that was given work; NULL: none yet */
    bool are_several;
} first_dev;
#define dev (&PS_HERE(first_dev))

void ps_sole_stream_works(const struct ps_stream *stream, bool is_kernel)
{
    if (!stream || (!is_kernel && (stream->legacy || stream->per_thread)))
        return;
    if (!dev->stream)
        dev->stream = stream;
    dev->are_several |= dev->stream != stream;
}

bool ps_sole_stream_shares(const struct ps_stream *stream)
{
    return dev->stream && stream != dev->stream;
}

const struct ps_stream *ps_sole_stream_for(const struct ps_span *span, const struct ps_stream *stream)
{
    return dev->are_several || stream != dev->stream || span->access.is_shared ? NULL : stream;
}
