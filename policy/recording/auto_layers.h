/*
 * Layers without markers: the repeating sub-sequence of launches inside one step, forward, and its mirror in backward.
 *
 * Pure: memory from the caller. O(n log n) for n launches.
 */
#ifndef PS_AUTO_LAYERS_H
#define PS_AUTO_LAYERS_H

#include <stddef.h>
#include <stdint.h>

#include "penstock/policy.h"

size_t ps_layers_auto_workspace_bytes(uint32_t launches);

/*
 * `fingerprint[0..launches)`: one step's launches. Fills `layer` (room for `capacity`) with stretches that cover the step, in order, and returns
 * how many; 1 (the whole step, no direction) when nothing repeats. What comes before, between and after the layers is a stretch of its own
 * with number PENSTOCK_NEVER.
 */
uint32_t ps_layers_auto(const uint64_t *fingerprint, uint32_t launches, void *workspace, struct penstock_layer *layer, uint32_t capacity);

#endif
