/*
 * Which look-ups of functions by name are answered with ours (hooks/symbol_lookup.h answers them). Decided once, from the environment as it is at the first
 * look-up.
 *
 * Threads: any, before any constructor has run, too.
 */
#ifndef PS_LOOK_UPS_H
#define PS_LOOK_UPS_H

#include <stdbool.h>

enum ps_look_ups {
    PS_LOOK_UPS_UNDECIDED,
    PS_LOOK_UPS_NONE,  /* Penstock is off */
    PS_LOOK_UPS_HOOKS, /* what programs get instead of the driver's functions, whoever traces */
    PS_LOOK_UPS_ALL,   /* launches and copies, too: the tracer is ours, or may become so */
};

enum ps_look_ups ps_look_ups_answered(void);

/*
 * Whether launches and copies are among what we answer: unless PENSTOCK_TRACER=cupti. Decided once, from the environment as it is at the first
 * look-up. Any thread.
 */
bool ps_look_ups_is_ours(void);

/* Whether the environment announced a tool that wants CUPTI, at that time. Any thread. */
bool ps_look_ups_tool_is_announced(void);

/* Whether a kernel launch function of ours was given to anybody: the runtime passes through it then. Any thread. */
bool ps_look_ups_gave_launch(void);

/* One was. */
void ps_look_ups_give_launch(void);

#endif
