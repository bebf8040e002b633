/*
 * Spans that go to and fro. Two spans that launches name in turn, and that don't fit together, push
 * each other out at each launch. A span that takes a large share of the budget may be demanded
 * again soon after it left. After several times in a row it stays on its slot for a while. Launches
 * then reach the parts that they touch over the link. Then it is tried again; each failed try
 * doubles its stay. Smaller spans stay as well, where launches are known to use only a part of the
 * spans that they name. Recurrent networks do so: two spans are used in turn, beside one that all
 * launches name.
 *
 * The lock is the registry's: [locked].
 */
#ifndef PS_BOUNCING_H
#define PS_BOUNCING_H

#include <stdbool.h>

#include "memory/span.h"

/* The span begins to leave, by reaction. [locked] */
void ps_bouncing_leaves(struct ps_span *span);

/*
 * A launch names the span, which is on its slot. Returns true if the span must stay there. [locked]
 */
bool ps_bouncing_stays(struct ps_span *span);

#endif
