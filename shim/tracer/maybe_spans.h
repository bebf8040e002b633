/*
 * Spans that a launch may use, and mostly does not: a launch before it was given them, and may have
 * written their addresses to memory that this one is given (kernels/launch_tables.h). They are held
 * and brought as those that the launch names. The learner is not told, since the next step has no
 * such launch.
 *
 * A value belongs to the thread that launches.
 */
#ifndef PS_MAYBE_SPANS_H
#define PS_MAYBE_SPANS_H

#include <stddef.h>

#include "core/access.h"
#include "memory/span.h"

#define PS_MAYBE_SPANS 64u /* further ones are left out */

struct ps_maybe_spans {
    size_t count, begun;
    struct ps_span *span[PS_MAYBE_SPANS];
};

/* Those of one device, from ps_maybe_begin to ps_maybe_end. */
struct ps_maybe_part {
    size_t first, count;
};

/* Adds the span, unless it is there. */
void ps_maybe_add(struct ps_maybe_spans *maybe, struct ps_span *span);

/* Around the launch on that device. `kind`: the launch's. [unlocked] */
struct ps_maybe_part ps_maybe_begin(struct ps_maybe_spans *maybe, unsigned device, struct ps_stream *stream,
                                    const struct ps_access_kind *kind);
void ps_maybe_end(struct ps_maybe_spans *maybe, struct ps_maybe_part part, struct ps_stream *stream,
                  const struct ps_access_kind *kind);

#endif
