/*
 * Which spans PENSTOCK_RULES lets move. A span's size is known at its birth. Its layer, order and
 * class are known once a step with it has been recorded. Until then a span that some rule could
 * exclude stays (span_rules.h).
 */
#ifndef PS_APPLY_SPAN_RULES_H
#define PS_APPLY_SPAN_RULES_H

#include "memory/span.h"
#include "penstock/policy.h"

/*
 * Fixes the spans that the rules exclude in the step recorded from launch `first` on. `span` is the
 * step's own array; `numbers[i]` is the number of its span i. Spans that outlive the step are
 * judged again by what is known now. [locked]
 */
void ps_apply_span_rules(const struct penstock_step *step, struct penstock_step_span *span, const uint64_t *numbers,
                         uint64_t first);

#endif
