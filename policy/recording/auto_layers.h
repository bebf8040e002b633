/*
 * Layers without markers: finds the sub-sequence of launches that repeats inside one step in
 * forward, and its mirror in backward.
 *
 * Pure: memory from the caller. O(n log n) for n launches. Threads: any.
 */
#ifndef PS_AUTO_LAYERS_H
#define PS_AUTO_LAYERS_H

#include <stddef.h>
#include <stdint.h>

#include "penstock/policy.h"

/* Returns the bytes of workspace that ps_auto_layers_find wants. */
size_t ps_auto_layers_workspace_bytes(uint32_t launches);

/*
 * Fills `layer`, which has room for `capacity`, with stretches that cover the step, in order.
 * Returns their number. If no sub-sequence repeats it returns 1: the whole step, without a
 * direction. `fingerprint[0..launches)` are one step's launches. The launches before, between and
 * after the layers form stretches of their own, with number PENSTOCK_NEVER.
 */
uint32_t ps_auto_layers_find(const uint64_t *fingerprint, uint32_t launches, void *workspace,
                             struct penstock_layer *layer, uint32_t capacity);

#endif
