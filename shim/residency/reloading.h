/*
 * How a span comes back: its mapping moves from the slot to pages, and the H2D is queued. For
 * residency.c.
 */
#ifndef PS_RELOADING_H
#define PS_RELOADING_H

#include <stdbool.h>

#include "base/settings.h"
#include "memory/budget.h"
#include "memory/span.h"
#include "residency/page_supply.h"

/* Sets the guard. Called once, in the set-up of a device. */
void ps_reload_open(enum ps_guard how);

/*
 * Returns whether launches of the grace in which the span left may use it unseen until it is back.
 * [locked]
 */
bool ps_reload_is_in_grace(const struct ps_span *span);

/*
 * Reloads a span that is EVICTED and not busy. The span takes `supply` over; `need` is the need
 * that they were obtained for. `ahead`: no call names the span yet.
 *
 * On failure the span stays on its slot, and the supply is given back. -EINPROGRESS (copies.h): the
 * driver can't tell whether the copy is over. Then the span stays on the pages for good, and the
 * slot is never used again. 0 or -errno. Never -EBUSY, which means that another thread works on the
 * span. [locked; releases the lock meanwhile]
 */
int ps_reload(struct ps_span *span, struct ps_supply *supply, const struct ps_need *need, bool ahead);

#endif
