/*
 * The layer of the model that the calling thread is in now. PENSTOCK_LAYERS chooses the markers:
 * the API's, NVTX ranges, or kernels.
 *
 * A layer that a thread began, or an NVTX range that it pushed, holds for that thread's launches
 * alone. In torch, forward runs on the program's thread and backward on autograd's. A range that
 * one has open while it waits for the other says nothing about the other's launches. An NVTX range
 * that was *started* belongs to the process, as in NVTX. It holds on every thread that has no range
 * of its own. So does a boundary at a kernel. Ranges nest; the innermost counts.
 *
 * Threads: all functions, from any thread, before the set-up too. The only driver call asks for a
 * kernel's name.
 */
#ifndef PS_LAYER_MARKERS_H
#define PS_LAYER_MARKERS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/settings.h"
#include "policy/recording/recorder.h"

/* Names without a number are numbered from here, in the order in which they are first seen. */
#define PS_LAYERS_UNNUMBERED 1000000u

/*
 * Sets the source of boundaries; only the first call counts. Markers before it are kept as if the
 * source were `auto`.
 */
void ps_layer_markers_open(const struct ps_layer_source *source);
enum ps_layers_from ps_layer_markers_from(void);

/*
 * Returns the layer in which the calling thread launches `function` now. `stretch` is 0 while
 * boundaries of the chosen sort are missing and the launches may be searched for layers. It is 1
 * outside of all layers before the first boundary that this thread has met.
 */
struct ps_recorded_layer ps_layer_markers_now(CUfunction function);

/*
 * The API's markers. `number` is as in the recorder. They have no effect if PENSTOCK_LAYERS names
 * another source.
 */
void ps_layer_markers_begin(const char *name, uint32_t number, enum penstock_direction direction);
void ps_layer_markers_end(void);

/* The program marked the end of a step. */
void ps_layer_markers_step(void);
/* Returns true once after the program marked the end of a step; the caller tells the detector. */
bool ps_layer_markers_take_step(void);

/*
 * NVTX ranges: on this thread's stack of `domain` (NULL: the default domain), or the process's.
 * `name` may be NULL. A range whose name does not match the pattern does not count. It is
 * remembered, so that its end is not taken for another's. Push and pop return the depth, as NVTX
 * wants it. Start returns a number, not 0, by which end knows the range.
 */
int ps_layer_markers_range_push(const void *domain, const char *name);
int ps_layer_markers_range_pop(const void *domain);
uint64_t ps_layer_markers_range_start(const char *name);
void ps_layer_markers_range_end(uint64_t id);

/* For the report. Any thread. Each figure is exact, but they are not read at one moment. */
struct ps_layer_markers_figures {
    uint64_t markers;    /* begins of layers that counted */
    uint64_t unbalanced; /* ends without a begin */
    /* begins beyond the depth or the number of names that are kept; they do not count */
    uint64_t too_deep;
    uint64_t steps; /* marked by the program */
};
struct ps_layer_markers_figures ps_layer_markers_figures(void);

#endif
