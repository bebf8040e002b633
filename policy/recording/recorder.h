/*
 * The recorder keeps the latest events of the program: allocations, frees, launches, and the spans
 * that launches name. Once some launches are known to be a step, it makes a recorded step of them
 * (penstock_step).
 *
 * Pure: memory from the caller, constant work per event. Threads: the caller serialises calls on
 * one recorder.
 */
#ifndef PS_RECORDER_H
#define PS_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "penstock/policy.h"
#include "policy/steps/detector.h"

/*
 * The number of events kept; each access counts as one. They allow for four events a launch in two
 * rounds of the longest step.
 */
#define PS_RECORDER_MOMENTS (1u << 20)

struct ps_recorder;

/* Returns the bytes that a recorder takes; a constant. */
size_t ps_recorder_bytes(void);

/* Prepares zeroed memory of that size. */
void ps_recorder_init(struct ps_recorder *recorder);

/* Notes an allocation. `span` is a number of this allocation alone, never used again, and not 0. */
void ps_recorder_allocated(struct ps_recorder *recorder, uint64_t span, uint64_t bytes);

/* Notes the free of the span. */
void ps_recorder_freed(struct ps_recorder *recorder, uint64_t span);

/* The layer of a launch. The last boundary marker gives `direction` and `number`. */
struct ps_recorded_layer {
    uint64_t stretch; /* ascending, a new number at each boundary marker; 0: no markers */
    uint32_t number;  /* PENSTOCK_NEVER: not one of the model's layers */
    enum penstock_direction direction;
    const char *name; /* lives as long as the process; may be NULL */
    /*
     * `number` is the number of layers before, maybe in earlier steps. A recorded step then counts
     * again from where forward begins.
     */
    bool counted;
};

/* Notes a launch on a stream. `stream` is any number that belongs to this stream alone. */
void ps_recorder_launch(struct ps_recorder *recorder, struct ps_step_launch launch, uint32_t stream,
                        struct ps_recorded_layer layer);

/*
 * Notes a span that the latest launch names. The caller calls this right after the launch, once or
 * more for each span.
 */
void ps_recorder_access(struct ps_recorder *recorder, uint64_t span, uint64_t bytes, bool fixed);

/* Notes the host's time, in ns, from the previous launch to the latest one, without its waits. */
void ps_recorder_host(struct ps_recorder *recorder, uint64_t host_ns);

/*
 * Returns the span that the launch (counted from 0 since the start) named in that place, counted
 * from 0. Returns 0 if it named none there, or is no longer kept.
 */
uint64_t ps_recorder_named(const struct ps_recorder *recorder, uint64_t launch, uint32_t place);

/*
 * Notes the device time, in ns, of a launch (counted from 0 since the start). This time becomes
 * known later than the launch. The recorder ignores launches that it no longer keeps.
 */
void ps_recorder_duration(struct ps_recorder *recorder, uint64_t launch, uint64_t duration_ns);

/* Returns the number of launches so far. */
uint64_t ps_recorder_launches(const struct ps_recorder *recorder);

/*
 * Returns the number of times that a span found no room. Of more than 65,536 live spans, the rest
 * is known only while it is used.
 */
uint64_t ps_recorder_unknown_spans(const struct ps_recorder *recorder);

#endif
