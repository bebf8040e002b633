/*
 * How a span comes back: its mapping moves from the slot to pages, and the H2D is queued. For residency.c.
 */
#ifndef PS_RELOADING_H
#define PS_RELOADING_H

#include <stdbool.h>

#include "base/settings.h"
#include "memory/budget.h"
#include "memory/span.h"
#include "residency/page_supply.h"

/* Once, in the set-up of a device. */
void ps_reload_open(enum ps_guard how);

/* Whether launches of the grace in which the span left may use it unseen until it has come back. [locked] */
bool ps_reload_is_in_grace(const struct ps_span *span);

/*
 * The span is EVICTED and not busy, and has these pages from here on; `need` is what they were had for. `ahead`: no call names it yet. On failure it stays on its slot, and
 * the pages are given back. Where nobody can tell whether the copy is over (-EINPROGRESS, copies.h) it stays on the pages for good, and the slot is never used again.
 * 0, or -errno: not -EBUSY, which means that somebody works on the span. [locked; releases the lock meanwhile]
 */
int ps_reload(struct ps_span *span, struct ps_pages *pages, const struct ps_need *need, bool ahead);

#endif
