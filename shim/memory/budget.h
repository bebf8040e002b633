/*
 * The budget: the device bytes that spans may hold at any time. This is the ledger; residency/page_supply.h finds pages within it.
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
    uint32_t program_waits;  /* of these, the program's own, in ps_page_supply_obtain */
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

/* Whether `bytes` more have room now. With nothing held the answer is the driver's to give: false. [locked] */
bool ps_budget_has_room(size_t bytes);

/* Bytes still missing for `bytes` more once everything under way has ended and every freed span is released; 0: none. [locked] */
uint64_t ps_budget_missing(size_t bytes);

/* Bytes that evictions ahead of need keep free. [locked] */
uint64_t ps_budget_kept_ahead(void);

/* Something in use has to give way: memory counts as tight from now on. [locked] */
void ps_budget_is_reached(void);

/* Pages for a span. */
struct ps_pages {
    struct ps_page_block *block;
    struct ps_span
        *donor; /* a draining span (busy) whose pages these were: order after its uses, then ps_page_supply_donor_done(). Or NULL */
};

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

/* Makes what `pages` lack, within the budget. 0 and `*out`; -ENOMEM (no room, or the driver has none); other -errno. [locked; releases the lock meanwhile] */
int ps_budget_make_pages(struct ps_page_block *pages, struct ps_pages *out);

/* Gives up `pages`, whose parts belong to no span: they become spare, or go back to the driver. [locked; releases the lock meanwhile] */
void ps_budget_part_with(struct ps_page_block *pages);

/* Whether memory is short enough that positions in streams are worth marking. Any thread. */
bool ps_budget_is_tight(void);

#endif
