/* The tracer's other source: our functions in front of the driver's. */
#ifndef PS_SOURCE_HOOKS_H
#define PS_SOURCE_HOOKS_H

#include <stdbool.h>

/*
 * Starts our functions in front of the driver's as the source. Returns 0; -ENOTSUP: impossible in
 * this process, for the reason `*why`.
 */
int ps_source_hooks_start(const char **why);

/*
 * Returns whether the other source is on. Functions of hooks.def then report their calls in CUPTI's
 * place. Any thread.
 */
bool ps_source_hooks_are_on(void);

#endif
