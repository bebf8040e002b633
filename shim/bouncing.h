/*
 * Spans that go to and fro: two that launches name in turn, and that have no room together, push each other out at each launch. So do two smaller
 * ones beside one that all launches name, or that takes the rest of the budget. What takes more than a small part of the budget and was demanded again soon after it
 * left, some times in a row, stays on its slot for a while, where launches reach what they touch of it over the link. Then it is tried again: each time in vain it stays
 * twice as long. Pieces of blocks are what large ones are made small for: they come and go.
 *
 * The lock is the registry's: [locked].
 */
#ifndef PS_BOUNCING_H
#define PS_BOUNCING_H

#include <stdbool.h>

#include "span.h"

/* The span begins to leave, by reaction. [locked] */
void ps_bouncing_leaves(struct ps_span *span);

/* A call names the span, which is on its slot. True: it is to stay there. [locked] */
bool ps_bouncing_stays(struct ps_span *span);

#endif
