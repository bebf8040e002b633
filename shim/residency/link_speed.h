/*
 * The speed of the link between host and device, measured once: each direction alone, then both at
 * once. The measurement uses pinned host pages of its own, and takes 16 ms of copies. It takes
 * 60 ms where other ranks of the machine measure at the same time. The ranks wait for each other
 * (rank_exchange.h), since their copies run beside each other during the run too.
 */
#ifndef PS_LINK_SPEED_H
#define PS_LINK_SPEED_H

#include <stdbool.h>

#include "penstock/policy.h"

/*
 * Returns the link's speed; never NULL. The figures are a usual link's until it is measured. The
 * first call with `measure_it` measures on the calling (helper) thread, for tens of ms. A failed
 * measurement is tried again at a later such call, three times in all. [unlocked]
 */
const struct penstock_links *ps_link_speed(bool measure_it);

#endif
