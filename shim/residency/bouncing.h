/*
 * Spans that go to and fro: two that launches name in turn, and that have no room together, push each other out at each launch. What takes a large share of the budget
 * and was demanded again soon after it left, some times in a row, stays on its slot for a while, where launches reach what they touch of it over the link. Then
 * it is tried again: each time in vain it stays twice as long. Where launches are known to use a part of what they name (recurrent networks), so do smaller ones, as
 * two that are used in turn beside one that all launches name.
 *
 * The lock is the registry's: [locked].
 */
#ifndef PS_BOUNCING_H
#define PS_BOUNCING_H

#include <stdbool.h>

#include "memory/span.h"

/* The span begins to leave, by reaction. [locked] */
void ps_bouncing_leaves(struct ps_span *span);

/* A launch names the span, which is on its slot. True: it is to stay there. [locked] */
bool ps_bouncing_stays(struct ps_span *span);

#endif
