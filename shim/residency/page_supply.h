/*
 * The supply of device pages within the budget. Pages are made, taken over from a freed span, or
 * won by evicting. This module searches and waits; memory/budget.h keeps the ledger.
 *
 * The lock is the registry's: [locked], [unlocked].
 */
#ifndef PS_PAGE_SUPPLY_H
#define PS_PAGE_SUPPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/budget.h"

/* A reload that needs pages. */
struct ps_need {
    /* The H2D may wait for this stream's uses (sole_stream.h). NULL: for no unfinished use. */
    const struct ps_stream *stream;
};

/*
 * Sets the function that starts the tracing of launches and waits until it is on. The supply calls
 * it when pages are short before the budget is used up. Called once, in the set-up.
 */
void ps_page_supply_when_untraced(void (*call)(void));

/*
 * Obtains device pages for `bytes`, within the budget. `reload`: the reload that needs them, or
 * NULL. The pages are made, or taken over from a freed span of the size (for a reload). Otherwise
 * the supply releases freed spans, or evicts spans and waits for that.
 *
 * The call waits only for copies and launches that are queued already. These may wait, on the
 * device, for work that this thread has yet to queue. So the wait ends when nothing has given way
 * for half a minute, or sooner if no stream makes progress.
 * 0; -ENOMEM: nothing can give way; other -errno: the pages could not be made. Afterwards the
 * caller must look at all state again. [locked; releases the lock meanwhile]
 */
int ps_page_supply_obtain(size_t bytes, const struct ps_need *reload, struct ps_supply *out);

/*
 * Does the same without waiting or evicting. A helper thread gets no pages while a thread of the
 * program waits for some. The device runs out of that thread's work first.
 * [locked; releases the lock meanwhile]
 */
int ps_page_supply_obtain_now(size_t bytes, const struct ps_need *reload, struct ps_supply *out);

/*
 * The new owner's work is now ordered after the work that used the donor's pages. The donor's
 * addresses may go when the donor's uses are over. [locked]
 */
void ps_page_supply_donor_done(struct ps_supply *supply);

/* Gives pages back that were not put to use. [locked; releases the lock meanwhile] */
void ps_page_supply_return(struct ps_supply *supply);

/*
 * Releases freed spans whose uses are over, until `bytes` are released or no such span is left.
 * Also gives all spare pages back. Returns the bytes of the released spans.
 * [locked; releases the lock meanwhile]
 */
uint64_t ps_page_supply_trim(uint64_t bytes);

/*
 * Gives about `bytes` back: spare pages, then freed spans that no allocation has wanted for a while
 * (ps_registry_unwanted). [locked; releases the lock meanwhile]
 */
void ps_page_supply_trim_unwanted(uint64_t bytes);

/*
 * Releases freed spans for a caller that wants `bytes` of pages, and waits for a last use if
 * needed. Freed spans that coming allocations would soon take stay. For helper threads.
 * Returns false if no such span exists or there is room already. Also returns false if a thread of
 * the program waits for pages; that thread releases spans itself.
 * [locked; releases the lock meanwhile]
 */
bool ps_page_supply_make_some_room(size_t bytes);

/*
 * Begins evictions ahead of need once the budget has been reached, so that the next allocation
 * finds pages. [locked; releases the lock meanwhile]
 */
void ps_page_supply_keep_ahead(void);

#endif
