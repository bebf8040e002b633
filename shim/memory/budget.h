/*
 * The budget: the device bytes that spans may hold at any time, and how pages are had within it.
 *
 * Held bytes count pages from before they are made until after they are released: live spans on the device, freed ones that keep their pages,
 * and evictions under way. The lock is the registry's: [locked], [unlocked].
 */
#ifndef PS_BUDGET_H
#define PS_BUDGET_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/per_device.h"
#include "base/settings.h"
#include "memory/span.h"

struct ps_budget_state {
    uint64_t limit;          /* bytes; UINT64_MAX: none */
    uint64_t held;           /* bytes */
    uint64_t peak_held;      /* bytes */
    uint64_t leaving;        /* of held: evictions under way that will release their pages */
    uint64_t lingering;      /* of held: pages that only draining spans still map */
    uint64_t releasing;      /* of held: pages that the driver is being given back */
    uint32_t waiting;        /* threads that wait for pages: a span that may leave or was freed is news to them */
    uint32_t program_waits;  /* of these, the program's own, in ps_budget_obtain */
    bool starving;           /* one of these has waited for long, and no pages were released meanwhile */
    uint32_t ending;         /* freed spans whose last use somebody waits for on the host, to release them */
    bool reached;            /* something has had to give way at least once */
    uint64_t released_times; /* how often pages were released: whether waiting leads anywhere */
    bool stuck;              /* a thread has given up waiting, and no pages were released since */
    bool turn_stalls;        /* evictions in their turn have ended nothing for long, and others have left beside them; until one ends */
    bool evictions_fail;     /* the last ones came to nothing by errors: little is tried until one succeeds */
    uint64_t refused_at;     /* the driver refused pages with this many held; 0 = never */
    uint64_t most_there_was; /* the least held when the driver refused, while no more than that has been had since; 0: no such */
};

extern PS_PER_DEVICE struct ps_budget_state ps_first_budget;
#define ps_budget PS_HERE(ps_first_budget) /* guarded by the registry lock; `limit` may be read without it */

/* Works out the limit: from the setting, the device's size, its free bytes now, and under `auto` the reserve. */
void ps_budget_open(struct ps_amount budget, struct ps_amount reserve, uint64_t device_total, uint64_t device_free);

/* What is held too much for `bytes` more, beside what is spare, by the budget or by what the driver has refused; 0: nothing. [locked] */
uint64_t ps_budget_lacking(size_t bytes);

/* What a plan may count on: the limit, or what there is on a device that others use too. [locked] */
uint64_t ps_budget_to_plan_for(void);

/* Bytes that spans may have beyond their requests: what the budget has beyond the most that the program has had in use, less a share for what is yet to come. [locked] */
uint64_t ps_budget_to_spare(void);

/* Whether there is room for so many bytes more beside twice what evictions ahead of need keep free, once freed spans are released. [locked] */
bool ps_budget_has_plenty(size_t bytes);

/* Whether something in use would have to leave for so many bytes more, once everything under way has ended and freed spans are released. [locked] */
bool ps_budget_must_evict_for(size_t bytes);

/* Pages for a span. */
struct ps_pages {
    struct ps_page_block *block;
    struct ps_span *donor; /* a draining span (busy) whose pages these were: order after its uses, then ps_budget_donor_done(). Or NULL */
};

/* A reload that pages are for. */
struct ps_need {
    const struct ps_stream *stream; /* for whose uses it may wait (sole_stream.h); NULL: for none that is not over */
};

/*
 * Device pages for `bytes`, within the budget: made; taken over from a freed span of the size (for a reload, `reload`); after releasing freed spans;
 * or after evicting, for which it waits. It waits only for copies and launches that are queued already. Those may wait, on the device, for what this
 * thread is yet to queue: when nothing has given way for half a minute it waits no more. 0; -ENOMEM: nothing can give way. [locked; releases the lock meanwhile, so look at everything anew]
 */
int ps_budget_obtain(size_t bytes, const struct ps_need *reload, struct ps_pages *out);

/*
 * The same without waiting or evicting. A helper thread gets none while a thread of the program waits for some: the device will stand still for
 * want of that thread's work, and for nothing that comes later. [locked; releases the lock meanwhile]
 */
int ps_budget_obtain_now(size_t bytes, const struct ps_need *reload, struct ps_pages *out);

/* The work that used the donor's pages is ordered before the new owner's: its addresses may go when its uses are over. [locked] */
void ps_budget_donor_done(struct ps_pages *pages);

/* Pages that were not put to use go back. [locked; releases the lock meanwhile] */
void ps_budget_return(struct ps_pages *pages);

/*
 * A span that had the pages, or a draining span that mapped them, is unmapped and lets go of them. The last one to do so releases them, and only then do
 * they stop counting as held. [locked; releases the lock meanwhile]
 */
void ps_budget_let_go(struct ps_page_block *block, bool was_owner);

/* The same of a span whose pages are wanted again soon, though memory need not be short: they stay spare for a while. [locked; may release the lock meanwhile] */
void ps_budget_let_go_as_spare(struct ps_page_block *block);

/* A draining span can't be unmapped, or nobody can tell when: nobody is to wait for its pages. [locked] */
void ps_budget_give_up(struct ps_page_block *block);

/* Gives spare pages back to the driver until so many bytes are given back or none are left. [locked; releases the lock meanwhile] */
void ps_budget_give_back_spare(uint64_t bytes);

/* Releases freed spans whose uses are over, until `bytes` are released or none is left, and gives all that is spare back. Returns the bytes. [locked; releases it meanwhile] */
uint64_t ps_budget_trim(uint64_t bytes);

/* The same of those that no allocation has wanted for a while (ps_registry_unwanted). [locked; releases the lock meanwhile] */
void ps_budget_trim_unwanted(uint64_t bytes);

/*
 * Releases freed spans for someone who wants so many bytes of pages, waiting for a last use if need be; those that allocations to come soon would take stay.
 * False: there is none, or room already, or a thread of the program waits for pages and sees to it itself. For helper threads.
 * [locked; releases the lock meanwhile]
 */
bool ps_budget_make_some_room(size_t bytes);

/* Whether memory is short enough that positions in streams are worth marking. Any thread. */
bool ps_budget_is_tight(void);

/* Begins evictions ahead of need once the budget has been reached, so that the next allocation finds pages. [locked; releases it] */
void ps_budget_keep_ahead(void);

#endif
