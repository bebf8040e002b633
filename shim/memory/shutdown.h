/*
 * The end of the process: the helper threads stop making driver calls, because those must not meet
 * the driver's own end. The lock is the registry's.
 */
#ifndef PS_SHUTDOWN_H
#define PS_SHUTDOWN_H

#include <stdbool.h>

/*
 * Tells the helper threads to park at their next look, and waits for them: at most one second for
 * all devices together. Evictions under way stay so; threads that wait for pages get none.
 * [unlocked]
 */
void ps_shutdown_begin(void);
/* Whether the shutdown has begun. [locked] */
bool ps_shutdown_has_begun(void);

/* The same for callers without the lock. [unlocked] */
bool ps_shutdown_asked(void);

/* A helper thread begins: the shutdown waits for it from now on. [locked] */
void ps_shutdown_helper_begins(void);

/* For a helper thread between two tasks: does not return once the shutdown has begun. [locked] */
void ps_shutdown_park_if_due(void);

/* A helper thread ends: it makes no driver call any more. [locked] */
void ps_shutdown_helper_ends(void);

#endif
