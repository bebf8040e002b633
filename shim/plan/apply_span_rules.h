/*
 * Which spans PENSTOCK_RULES lets move. A span's size is known at its birth, its layer, order and class when a step with it has been recorded;
 * until then a span that some rule could exclude stays (span_rules.h).
 */
#ifndef PS_APPLY_SPAN_RULES_H
#define PS_APPLY_SPAN_RULES_H

#include "memory/span.h"
#include "penstock/policy.h"

/*
 * A step was recorded, from launch `first` on: what the rules exclude becomes fixed in it. `span` is the step's own array. Spans that outlive the step,
 * by `numbers`, are judged anew by what is known now. [locked]
 */
void ps_apply_span_rules(const struct penstock_step *step, struct penstock_step_span *span, const uint64_t *numbers, uint64_t first);

#endif
