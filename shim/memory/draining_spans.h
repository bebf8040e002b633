/*
 * Draining spans: freed spans without pages of their own. Their addresses (and slots) go back when
 * nothing uses them any more.
 */
#ifndef PS_DRAINING_SPANS_H
#define PS_DRAINING_SPANS_H

#include <stdbool.h>

/*
 * Gives back the addresses and slots of draining spans whose uses are over. Returns whether others
 * are still in use; those that still await launches don't count. Returns false if another thread
 * is reaping. For the helper threads that end evictions. [locked; releases the lock meanwhile]
 */
bool ps_draining_spans_reap(void);

#endif
