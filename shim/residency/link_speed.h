/*
 * What the link between host and device reaches here, measured once: each direction alone, and both at once. Pinned host pages of its own,
 * 16 ms of copies; 60 where other ranks of the machine measure at the same time, which they wait for (rank_exchange.h), since in the run they copy beside each other.
 */
#ifndef PS_LINK_SPEED_H
#define PS_LINK_SPEED_H

#include <stdbool.h>

#include "penstock/policy.h"

/*
 * Measures at the first call that asks for it, on the calling (helper) thread; takes tens of ms. Until then what a usual link reaches is said.
 * Without the registry lock. Never NULL.
 */
const struct penstock_links *ps_link_speed(bool measure_it);

#endif
