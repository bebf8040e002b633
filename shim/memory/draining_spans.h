/*
 * Draining spans: freed spans without pages of their own, whose addresses (and slots) are given back when nothing uses them any more.
 */
#ifndef PS_DRAINING_SPANS_H
#define PS_DRAINING_SPANS_H

#include <stdbool.h>

/*
 * Gives back addresses and slots of those whose uses are over. Returns whether some are still in use; false as well where another thread is at it. For the helper
 * threads that end evictions. [locked; releases the lock meanwhile]
 */
bool ps_draining_spans_reap(void);

#endif
