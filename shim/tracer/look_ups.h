/*
 * Decides which look-ups of functions by name are answered with ours (hooks/symbol_lookup.h answers
 * them). It decides once, from the environment at the first look-up.
 *
 * Threads: any, even before any constructor has run.
 */
#ifndef PS_LOOK_UPS_H
#define PS_LOOK_UPS_H

#include <stdbool.h>

enum ps_look_ups {
    PS_LOOK_UPS_UNDECIDED,
    PS_LOOK_UPS_NONE,  /* Penstock is off */
    PS_LOOK_UPS_HOOKS, /* our hooks instead of the driver's functions, with either source */
    PS_LOOK_UPS_ALL,   /* launches and copies, too: the source is our functions, or may become so */
};

enum ps_look_ups ps_look_ups_answered(void);

/*
 * Returns whether launches and copies are among the look-ups that we answer. They are unless
 * Penstock is off or PENSTOCK_TRACER=cupti. Decided once, from the environment at the first
 * look-up. Any thread.
 */
bool ps_look_ups_is_ours(void);

/* Returns whether the environment announced a tool that wants CUPTI, at that time. Any thread. */
bool ps_look_ups_tool_is_announced(void);

/*
 * Returns whether a look-up got a kernel launch function of ours. The runtime passes through it
 * then. Any thread.
 */
bool ps_look_ups_gave_launch(void);

/* A look-up got a kernel launch function of ours. Any thread. */
void ps_look_ups_give_launch(void);

#endif
