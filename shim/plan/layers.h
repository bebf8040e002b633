/*
 * Which layer of the model the calling thread is in now, by the markers that PENSTOCK_LAYERS chooses: the API's, NVTX ranges, or kernels.
 *
 * A layer that a thread began, or an NVTX range that it pushed, holds for that thread's launches alone: in torch forward runs on the program's
 * thread and backward on autograd's, and a range that the one has open while it waits for the other says nothing about what the other
 * launches. An NVTX range that was *started* belongs to the process, as NVTX has it: it holds on every thread that has none of its own. So
 * does a boundary at a kernel. Ranges nest; the innermost counts.
 *
 * Threads: everything, from any thread, before the set-up too. Nothing here calls the driver but to ask for a kernel's name.
 */
#ifndef PS_LAYERS_H
#define PS_LAYERS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/settings.h"
#include "policy/recording/recorder.h"

/* Names without a number are numbered from here, in the order in which they are first seen. */
#define PS_LAYERS_UNNUMBERED 1000000u

/* Sets the source of boundaries. The first call counts; markers that come before it are kept as if it had been `auto`. */
void ps_layers_open(const struct ps_layer_source *source);
enum ps_layers_from ps_layers_from(void);

/*
 * The layer in which the calling thread launches `function` now. `stretch` is 0 while there are no boundaries of the chosen sort and
 * the launches themselves may be searched for layers; it is 1 outside of all layers before the first boundary that this thread has met.
 */
struct ps_recorded_layer ps_layers_now(CUfunction function);

/* The API's markers. `number` as the recorder has it. Without effect where PENSTOCK_LAYERS names another source. */
void ps_layers_begin(const char *name, uint32_t number, enum penstock_direction direction);
void ps_layers_end(void);

/* The program marked the end of a step. / True once after it did: the caller tells the detector. */
void ps_layers_step(void);
bool ps_layers_take_step(void);

/*
 * NVTX ranges: on this thread's stack of `domain` (NULL: the default domain), or the process's. `name` may be NULL. A range whose name does
 * not match the pattern counts for nothing, and is remembered so that its end is taken for no other's.
 * push and pop return the depth, as NVTX wants it; start returns a number, not 0, by which end knows the range.
 */
int ps_layers_range_push(const void *domain, const char *name);
int ps_layers_range_pop(const void *domain);
uint64_t ps_layers_range_start(const char *name);
void ps_layers_range_end(uint64_t id);

/* For the report. Any thread; exact, in no order with each other. */
struct ps_layers_figures {
    uint64_t markers;    /* begins of layers that counted */
    uint64_t unbalanced; /* ends without a begin */
    uint64_t too_deep;   /* begins beyond the depth or the number of names that are kept; they count for nothing */
    uint64_t steps;      /* marked by the program */
};
struct ps_layers_figures ps_layers_figures(void);

/*
 * What a range's name says: direction by a word (forward, backward, fwd, bwd, in any case), number by the last whole number in it, which
 * must not belong to such a word. PENSTOCK_NEVER and PENSTOCK_DIRECTION_NONE when it doesn't say. Pure.
 */
void ps_layers_read_name(const char *name, uint32_t *number, enum penstock_direction *direction);

#endif
