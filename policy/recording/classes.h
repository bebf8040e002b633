/*
 * Classes of the spans of a recorded step, from their lives, their uses and the directions of the layers.
 *
 * Pure. Threads: the caller owns the step. About as many operations as there are launches and uses.
 */
#ifndef PS_CLASSES_H
#define PS_CLASSES_H

#include "penstock/policy.h"

/* Of classes, as rules, recordings and reports have them. */
extern const char *const ps_class_names[PENSTOCK_CLASSES];

/*
 * Sets class_ of each of the step's spans; `span` is the writable step->span. What isn't plain stays PENSTOCK_CLASS_UNKNOWN. `start`: the launch
 * where the program's own step begins. `scratch` has room for a byte for each layer.
 */
void ps_classes_assign(const struct penstock_step *step, struct penstock_step_span *span, uint32_t start, uint8_t *scratch);

#endif
