#include "tracer/maybe_spans.h"

#include "plan/learning.h"

void ps_maybe_add(struct ps_maybe_spans *maybe, struct ps_span *span)
{
    for (size_t i = 0; i < maybe->count; i++)
        if (maybe->span[i] == span)
            return;
    if (maybe->count < PS_MAYBE_SPANS)
        maybe->span[maybe->count++] = span;
}

/* The access is no further launch. */
static struct ps_access_kind kind_of(const struct ps_access_kind *kind)
{
    return (struct ps_access_kind){.keeps_no_address = kind->keeps_no_address, .only_maybe = true};
}

struct ps_maybe_part ps_maybe_begin(struct ps_maybe_spans *maybe, unsigned device, struct ps_stream *stream,
                                    const struct ps_access_kind *kind)
{
    const struct ps_access_kind its = kind_of(kind);
    struct ps_maybe_part part = {.first = maybe->begun};

    for (size_t i = part.first; i < maybe->count && !kind->capturing; i++)
        if (maybe->span[i]->device == device) {
            struct ps_span *span = maybe->span[i];
            maybe->span[i] = maybe->span[maybe->begun];
            maybe->span[maybe->begun++] = span;
        }
    part.count = maybe->begun - part.first;
    if (part.count)
        (void)ps_access_begin(maybe->span + part.first, &part.count, stream, &its);
    return part;
}

void ps_maybe_end(struct ps_maybe_spans *maybe, struct ps_maybe_part part, struct ps_stream *stream,
                  const struct ps_access_kind *kind)
{
    const struct ps_access_kind its = kind_of(kind);

    if (part.count)
        ps_access_end(maybe->span + part.first, part.count, stream, &its, PS_LAUNCH_NOT_LEARNT);
}
