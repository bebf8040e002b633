/*
 * A recorded step as text, so that plans can be made and judged without a GPU. The lines come in
 * this order:
 *
 *     penstock-recording 1
 *     links D2H H2D D2H_BOTH H2D_BOTH EVICT_NS RELOAD_NS [MAPPING_NS]
 *                                               rates in bytes per second, overheads in ns
 *     budget BYTES                              may be omitted: no limit
 *     slab BYTES                                may be omitted: no limit
 *     s BYTES CLASS [fixed] [guarded]           each span, counted from 0 (penstock_step_span)
 *     a SPAN                                    then the moments: a span is allocated,
 *     f SPAN                                    a span is freed,
 *     l NS[+HOST_NS] [SPAN]...                  a launch: device and host time, and its spans;
 *     y NUMBER|- forward|backward|none [NAME]   between moments: the next launch begins a layer
 *
 * CLASS is unknown, activation, gradient, parameter, optimizer or workspace. A span without an `a`
 * line outlives the step. A # begins a comment.
 *
 * Pure: memory from the caller. Threads: any.
 */
#ifndef PS_TEXT_H
#define PS_TEXT_H

#include "penstock/policy.h"

/* Takes the next part of the text, which has no terminating null. */
typedef void (*ps_recording_sink)(void *ctx, const char *text, size_t bytes);

/* Returns the bytes of workspace that ps_recording_print wants for this step. */
size_t ps_recording_print_bytes(const struct penstock_step *step);

/*
 * Prints the step as text. `workspace` is aligned for uint32_t. A budget or slab of UINT64_MAX is
 * omitted.
 */
void ps_recording_print(const struct penstock_step *step, void *workspace, ps_recording_sink sink, void *ctx);

/* The problem of a text. */
struct ps_recording_problem {
    uint32_t line;    /* counted from 1; 0: the text as a whole */
    const char *what; /* a constant string */
};

/*
 * Writes to *bytes the memory that ps_recording_parse wants for this text. Returns 0, or -EINVAL
 * with *problem. The text needs no terminating null, and may have any content.
 */
int ps_recording_bytes(const char *text, size_t length, size_t *bytes, struct ps_recording_problem *problem);

/*
 * Makes the step in `memory`, which is aligned for any type; *step points into it. Returns 0, or
 * -EINVAL with *problem. After 0 the step is valid.
 */
int ps_recording_parse(const char *text, size_t length, void *memory, struct penstock_step *step,
                       struct ps_recording_problem *problem);

#endif
