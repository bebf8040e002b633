/*
 * The recorder: keeps what the program did lately (allocations, frees, launches and the spans they name) and makes a recorded step
 * (penstock_step) of the last P launches once they are known to be a step.
 *
 * Pure: memory from the caller, constant work per event. Threads: the caller serialises calls on one recorder.
 */
#ifndef PS_RECORDER_H
#define PS_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "penstock/policy.h"
#include "policy/steps/detector.h"

#define PS_RECORDER_MOMENTS (1u << 20) /* events kept, accesses counted one by one: four a launch of two rounds of the longest step */

struct ps_recorder;

size_t ps_recorder_bytes(void);
void ps_recorder_init(struct ps_recorder *recorder); /* of zeroed memory */

/* `span`: a number that belongs to one allocation alone, never used again; not 0. */
void ps_recorder_allocated(struct ps_recorder *recorder, uint64_t span, uint64_t bytes);
void ps_recorder_freed(struct ps_recorder *recorder, uint64_t span);

/*
 * A launch on that stream (any number that is the stream's alone), then each span that it names (once or more). `layer`: number of the layer it lies in
 * as the caller counts them (a new number at each boundary marker; ascending), `direction` and `number` as the marker says.
 */
struct ps_recorded_layer {
    uint64_t stretch; /* changes at every boundary marker; 0: there are no markers */
    uint32_t number;  /* PENSTOCK_NEVER: not one of the model's layers */
    enum penstock_direction direction;
    const char *name; /* lives as long as the process; may be NULL */
    bool counted; /* `number` says how many came before, maybe in earlier steps: a recorded step counts anew from where forward begins */
};
void ps_recorder_launch(struct ps_recorder *recorder, struct ps_step_launch launch, uint32_t stream, struct ps_recorded_layer layer);
void ps_recorder_access(struct ps_recorder *recorder, uint64_t span, uint64_t bytes, bool fixed);

/* The host took so long, in ns, from the launch before the latest one to that; what made it wait is not of it. */
void ps_recorder_host(struct ps_recorder *recorder, uint64_t host_ns);

/* The span that launch `launch` (counted from 0 since the start) named in that place, counted from 0; 0: none, or no longer kept. */
uint64_t ps_recorder_named(const struct ps_recorder *recorder, uint64_t launch, uint32_t place);

/* Device time of the latest launches becomes known later: of launch `launch` (counted from 0 since the start), in ns. */
void ps_recorder_duration(struct ps_recorder *recorder, uint64_t launch, uint64_t duration_ns);
uint64_t ps_recorder_launches(const struct ps_recorder *recorder); /* so far */

/* Of more than 65,536 spans alive at once the rest is known only while it is used: how often a span found no room. */
uint64_t ps_recorder_unknown_spans(const struct ps_recorder *recorder);

/*
 * A step made from `length` launches that begin with launch `first` (counted from 0 since the start). Sizes first: 0 or -ENODATA (no longer
 * kept). Then the step, in `memory` of that size, aligned for any type; *out and *details point into it. A duration that is not
 * known is guessed: the mean of what the same kernel took elsewhere in the step, else that of all. On a stream of which no launch was timed, beside one
 * of which some were, launches take none: what they hold up is the launch that waits for them, and its duration tells it. (Guessed at, they made a step of
 * FSDP2 on two H200s, with its collectives on streams of their own, one of 424 to 500 ms instead of 302.) Links, budget and slab are left 0.
 *
 * Layers come from the markers; without markers from the launches alone (policy/recording/auto_layers.h); classes from lives and uses.
 */
int ps_recorder_step_bytes(const struct ps_recorder *recorder, uint64_t first, uint32_t length, size_t *bytes);
struct ps_recorded_details {
    const uint64_t *number;  /* by span of the step: the caller's number for it, in the round that was recorded */
    const uint16_t *ordinal; /* by use of the step: which of its launch's accesses it is, counted from 0 (repeats too) */
    const bool *timed;       /* by launch of the step: its duration was measured, or it is known to take none; else it is a guess */
};
int ps_recorder_step(const struct ps_recorder *recorder, uint64_t first, uint32_t length, void *memory, struct penstock_step *out,
                     struct ps_recorded_details *details);

/* Whether these launches are kept, with what the step is made from. */
bool ps_recorder_keeps(const struct ps_recorder *recorder, uint64_t first, uint32_t length);

#endif
