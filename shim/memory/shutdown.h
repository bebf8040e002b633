/*
 * The end of the process: the helper threads stop making driver calls, which must not meet the driver's own end. The lock is the registry's.
 */
#ifndef PS_SHUTDOWN_H
#define PS_SHUTDOWN_H

#include <stdbool.h>

/*
 * Helper threads park at their next look. Waits for them, a second at most for all devices together. Evictions under way stay so; who waits for pages gets none.
 * [unlocked]
 */
void ps_shutdown_begin(void);
bool ps_shutdown_has_begun(void); /* [locked] */
bool ps_shutdown_asked(void);     /* the same [unlocked] */

/* For helper threads, so that the end waits for them: once at the beginning; between two pieces of work (may not return). [locked] */
void ps_shutdown_helper_begins(void);
void ps_shutdown_park_if_due(void);
void ps_shutdown_helper_ends(void); /* it makes no driver call any more */

#endif
