/*
 * The end of the process: the helper threads stop making driver calls, which must not meet the driver's own end. The lock is the registry's.
 */
#ifndef PS_STOPPING_H
#define PS_STOPPING_H

#include <stdbool.h>

/*
 * Helper threads park at their next look. Waits for them, a second at most for all devices together. Evictions under way stay so; who waits for pages gets none.
 * [unlocked]
 */
void ps_stopping_begin(void);
bool ps_stopping_has_begun(void); /* [locked] */
bool ps_stopping_asked(void);     /* the same [unlocked] */

/* For helper threads, so that the end waits for them: once at the beginning; between two pieces of work (may not return). [locked] */
void ps_stopping_helper_begins(void);
void ps_stopping_park_if_due(void);
void ps_stopping_helper_ends(void); /* it makes no driver call any more */

#endif
