/*
 * The budget: the device bytes that spans may hold at any time. This is the ledger;
 * residency/page_supply.h finds pages within it.
 *
 * Held bytes count pages from before they are made until after they are released: pages of
 * live spans on the device, of freed spans that keep theirs, and of evictions under way.
 * The lock is the registry's: [locked], [unlocked].
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
    uint64_t limit;     /* bytes; UINT64_MAX: none */
    uint64_t held;      /* bytes */
    uint64_t peak_held; /* bytes */
    uint64_t leaving;   /* of held: evictions under way will release them */
    uint64_t lingering; /* of held: only draining spans still map these pages */
    uint64_t releasing; /* of held: pages on their way back to the driver */
    /* Threads that wait for pages: they must hear of a span that may leave or was freed. */
    uint32_t waiting;
    uint32_t program_waits;  /* of these, the program's own threads, in ps_page_supply_obtain */
    bool starving;           /* one of these has waited long, and no pages were released */
    uint32_t ending;         /* freed spans to release when a host wait for their last use ends */
    bool reached;            /* a span in use has had to leave at least once */
    uint64_t released_times; /* releases of pages so far: they show whether waiting helps */
    bool stuck;              /* a thread has given up waiting, and no pages were released since */
    /* A thread waits beside a device that stands for a time halved this often (page_supply.c). */
    unsigned standing_shorter;
    /* Evictions in their turn ended nothing for long, others left beside them; until one ends. */
    bool turn_stalls;
    bool evictions_fail; /* the last evictions failed by errors: few are tried until one succeeds */
    uint64_t refused_at; /* held bytes when the driver refused pages; 0: it gives pages */
    /* The least held bytes at any refusal of the driver. 0: none, or more have been held since. */
    uint64_t most_there_was;
};

extern PS_PER_DEVICE struct ps_budget_state ps_first_budget;
/* Guarded by the registry lock; `limit` may be read without it. */
#define ps_budget PS_HERE(ps_first_budget)

/*
 * Computes the limit from the setting, the device's size, its free bytes now and, under `auto`, the
 * reserve.
 */
void ps_budget_open(struct ps_amount budget, struct ps_amount reserve, uint64_t device_total, uint64_t device_free);

/*
 * Returns the bytes that must be freed before `bytes` more fit, or 0 if they fit. The bound is the
 * budget, or the held bytes at which the driver refused more. Spare pages count as free. [locked]
 */
uint64_t ps_budget_lacking(size_t bytes);

/*
 * Returns the bytes that a plan may count on: the limit, or less on a device where others use
 * memory too. [locked]
 */
uint64_t ps_budget_to_plan_for(void);

/*
 * Returns the bytes that spans may have beyond their requests. These are the
 * limit less the program's peak use, the padding of now, and a share for later demand. [locked]
 */
uint64_t ps_budget_to_spare(void);

/*
 * Whether `bytes` more fit beside twice the bytes that evictions ahead of need keep free. It counts
 * everything under way as ended and freed spans as released. [locked]
 */
bool ps_budget_has_plenty(size_t bytes);

/*
 * Whether a span in use would have to leave for `bytes` more. It counts everything under way as
 * ended and freed spans as released. [locked]
 */
bool ps_budget_must_evict_for(size_t bytes);

/* Whether `bytes` more fit now. False with nothing held: only the driver can tell then. [locked] */
bool ps_budget_has_room(size_t bytes);

/*
 * Returns the bytes still missing for `bytes` more, once everything under way has ended and every
 * freed span is released; 0: none. [locked]
 */
uint64_t ps_budget_missing(size_t bytes);

/* Returns the bytes that evictions ahead of need keep free. [locked] */
uint64_t ps_budget_kept_ahead(void);

/* A span in use has to leave: memory counts as tight from now on. [locked] */
void ps_budget_is_reached(void);

/* Pages for a span. */
struct ps_supply {
    struct ps_pages *pages;
    /*
     * NULL, or a draining span (busy) whose pages these were. The new owner orders itself after the
     * donor's uses, then calls ps_page_supply_donor_done().
     */
    struct ps_span *donor;
};

/*
 * A span is unmapped and lets go of its pages: their owner, or a draining span that mapped them.
 * The last one to do so releases them: they become spare while memory is tight, or go back to the
 * driver. They count as held until the driver has them. [locked; releases the lock meanwhile]
 */
void ps_budget_let_go(struct ps_pages *pages, bool was_owner);

/*
 * The same for an owner whose pages are wanted again soon: they stay spare for a while, even if
 * memory is not tight. [locked; may release the lock meanwhile]
 */
void ps_budget_let_go_as_spare(struct ps_pages *pages);

/*
 * A draining span can't be unmapped, or the end of its uses can't be known: no thread waits for its
 * pages any more. [locked]
 */
void ps_budget_give_up(struct ps_pages *pages);

/*
 * Gives spare pages back to the driver: at least `bytes`, or all of them.
 * [locked; releases the lock meanwhile]
 */
void ps_budget_give_back_spare(uint64_t bytes);

/*
 * Makes the parts that `pages` lack, within the budget. Returns 0 and sets `*out`. Returns -ENOMEM
 * (no room, or the driver has no memory) or another -errno, and gives up `pages`.
 * [locked; releases the lock meanwhile]
 */
int ps_budget_make_pages(struct ps_pages *pages, struct ps_supply *out);

/*
 * Gives up `pages`, whose parts belong to no span: they become spare, or go back to the driver.
 * [locked; releases the lock meanwhile]
 */
void ps_budget_part_with(struct ps_pages *pages);

/* Whether memory is short enough that positions in streams are worth marking. Any thread. */
bool ps_budget_is_tight(void);

#endif
