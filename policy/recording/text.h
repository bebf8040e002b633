/*
 * A recorded step as text, so that plans can be made and judged without a GPU. One line each, in this order:
 *
 *     penstock-recording 1
 *     links D2H H2D D2H_BOTH H2D_BOTH EVICT_NS RELOAD_NS [MAPPING_NS]    bytes per second, and what a transfer and a mapping take besides, ns
 *     budget BYTES                                          may be left out: no limit
 *     slab BYTES                                            may be left out: no limit
 *     s BYTES CLASS [fixed] [guarded]                       for each span, with what struct penstock_step_span says; they are counted from 0
 *     a SPAN                                                then the moments: allocated,
 *     f SPAN                                                freed,
 *     l NS[+HOST_NS] [SPAN]...                              or a launch, its device and host time, and the spans that it names;
 *     y NUMBER|- forward|backward|none [NAME]               between them: the next launch begins a layer
 *
 * CLASS: unknown, activation, gradient, parameter, optimizer, workspace. A span without `a` outlives the step. What follows # is a comment.
 *
 * Pure: memory from the caller. Threads: any.
 */
#ifndef PS_TEXT_H
#define PS_TEXT_H

#include "penstock/policy.h"

/* Takes the next piece of the text; it is not terminated. */
typedef void (*ps_recording_sink)(void *ctx, const char *text, size_t bytes);

/* Bytes of memory that printing this step wants. */
size_t ps_recording_print_bytes(const struct penstock_step *step);
/* The step as text; `workspace` is aligned for uint32_t. UINT64_MAX as budget or slab is left out. */
void ps_recording_print(const struct penstock_step *step, void *workspace, ps_recording_sink sink, void *ctx);

/* What is wrong with a text, and in which line (from 1; 0: as a whole). Constant strings. */
struct ps_recording_problem {
    uint32_t line;
    const char *what;
};

/*
 * Bytes of memory that ps_recording_parse wants for this text; 0 or -EINVAL with *problem. The text need not be terminated, and may be
 * anything at all.
 */
int ps_recording_bytes(const char *text, size_t length, size_t *bytes, struct ps_recording_problem *problem);
/* Makes the step in `memory`, aligned for any type; *step points into it. 0 or -EINVAL with *problem: what it gives is a valid step. */
int ps_recording_parse(const char *text, size_t length, void *memory, struct penstock_step *step, struct ps_recording_problem *problem);

#endif
