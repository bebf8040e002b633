/*
 * Which spans PENSTOCK_RULES lets move. A span's size is known at its birth, its layer, order and class when a step with it has been recorded;
 * until then a span that some rule could exclude stays (span_rules.h).
 */
#ifndef PS_MOVABLE_H
#define PS_MOVABLE_H

#include "penstock/policy.h"
#include "span.h"

/*
 * A step was recorded, from launch `first` on: what the rules exclude becomes fixed in it. `span` is the step's own array. Spans that outlive the step,
 * by `numbers`, are judged anew by what is known now. [locked]
 */
void ps_movable_learnt(const struct penstock_step *step, struct penstock_step_span *span, const uint64_t *numbers, uint64_t first);

#endif
