/*
 * Husks: freed spans without pages of their own, whose addresses (and slots) are given back when nothing uses them any more.
 */
#ifndef PS_HUSKS_H
#define PS_HUSKS_H

#include <stdbool.h>

/*
 * Gives back addresses and slots of those whose uses are over. Returns whether some are still in use; false as well where another thread is at it. For the helper
 * threads that end evictions. [locked; releases the lock meanwhile]
 */
bool ps_husks_reap(void);

#endif
