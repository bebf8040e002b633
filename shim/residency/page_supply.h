/*
 * The supply of device pages within the budget: pages that are made, taken over from a freed span, or won by evicting. It searches and waits; the ledger is
 * memory/budget.h. The lock is the registry's: [locked], [unlocked].
 */
#ifndef PS_PAGE_SUPPLY_H
#define PS_PAGE_SUPPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/budget.h"

/* A reload that pages are for. */
struct ps_need {
    const struct ps_stream *stream; /* for whose uses it may wait (sole_stream.h); NULL: for none that is not over */
};

/* `call` begins to trace launches and waits until they are traced: the supply does so when pages are short before the budget is. Once, in the set-up. */
void ps_page_supply_when_untraced(void (*call)(void));

/*
 * Device pages for `bytes`, within the budget: made; taken over from a freed span of the size (for a reload, `reload`); after releasing freed spans;
 * or after evicting, for which it waits. It waits only for copies and launches that are queued already. Those may wait, on the device, for what this
 * thread is yet to queue: when nothing has given way for half a minute it waits no more. 0; -ENOMEM: nothing can give way. [locked; releases the lock meanwhile, so look at everything anew]
 */
int ps_page_supply_obtain(size_t bytes, const struct ps_need *reload, struct ps_pages *out);

/*
 * The same without waiting or evicting. A helper thread gets none while a thread of the program waits for some: the device will stand still for
 * want of that thread's work, and for nothing that comes later. [locked; releases the lock meanwhile]
 */
int ps_page_supply_obtain_now(size_t bytes, const struct ps_need *reload, struct ps_pages *out);

/* The work that used the donor's pages is ordered before the new owner's: its addresses may go when its uses are over. [locked] */
void ps_page_supply_donor_done(struct ps_pages *pages);

/* Pages that were not put to use go back. [locked; releases the lock meanwhile] */
void ps_page_supply_return(struct ps_pages *pages);

/* Releases freed spans whose uses are over, until `bytes` are released or none is left, and gives all that is spare back. Returns the bytes. [locked; releases it meanwhile] */
uint64_t ps_page_supply_trim(uint64_t bytes);

/* The same of those that no allocation has wanted for a while (ps_registry_unwanted). [locked; releases the lock meanwhile] */
void ps_page_supply_trim_unwanted(uint64_t bytes);

/*
 * Releases freed spans for someone who wants so many bytes of pages, waiting for a last use if need be; those that allocations to come soon would take stay.
 * False: there is none, or room already, or a thread of the program waits for pages and sees to it itself. For helper threads.
 * [locked; releases the lock meanwhile]
 */
bool ps_page_supply_make_some_room(size_t bytes);

/* Begins evictions ahead of need once the budget has been reached, so that the next allocation finds pages. [locked; releases it] */
void ps_page_supply_keep_ahead(void);

#endif
