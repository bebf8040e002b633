/*
 * Classes of the spans of a recorded step, from their lives, their uses and the directions of
 * layers.
 *
 * Pure; takes about one operation for each launch and use. Threads: the caller owns the step.
 */
#ifndef PS_CLASSES_H
#define PS_CLASSES_H

#include "penstock/policy.h"

/* The names of classes, as rules, recordings and reports write them. */
extern const char *const ps_class_names[PENSTOCK_CLASSES];

/*
 * Sets class_ of each span of the step; `span` is the writable step->span. A span whose class is
 * not clear stays PENSTOCK_CLASS_UNKNOWN. `start` is the launch where the program's own step
 * begins. `scratch` has room for a byte for each layer.
 */
void ps_classes_assign(const struct penstock_step *step, struct penstock_step_span *span, uint32_t start,
                       uint8_t *scratch);

#endif
