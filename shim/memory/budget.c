#include "memory/budget.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/bytes_text.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/per_device.h"
#include "memory/registry.h"
#include "memory/spare_pages.h"

PS_PER_DEVICE struct ps_budget_state ps_first_budget;

static PS_PER_DEVICE atomic_bool first_is_tight;
#define tight PS_HERE(first_is_tight)

#define GIB (1ull << 30)

void ps_budget_open(struct ps_amount budget, struct ps_amount reserve, uint64_t device_total, uint64_t device_free)
{
    struct ps_budget_state *b = &ps_budget;
    /*
     * Memory that Penstock does not manage grows, too: modules, library workspaces, small
     * allocations. 1/64 is 2.2 GiB on the target GPU.
     */
    uint64_t kept = reserve.kind == PS_AMOUNT_AUTO ? device_total / 64 : ps_amount_bytes(reserve, device_total);

    if (budget.kind == PS_AMOUNT_AUTO)
        b->limit = device_free > kept ? device_free - kept : 0;
    else
        b->limit = ps_amount_bytes(budget, device_total);
}

uint64_t ps_budget_to_plan_for(void)
{
    const struct ps_budget_state *b = &ps_budget;

    return b->most_there_was && b->most_there_was < b->limit ? b->most_there_was : b->limit;
}

static void look_whether_tight(void)
{
    const struct ps_budget_state *b = &ps_budget;

    atomic_store_explicit(&tight, b->reached || b->held > b->limit - b->limit / 8, memory_order_relaxed);
}

void ps_budget_is_reached(void)
{
    ps_budget.reached = true;
    look_whether_tight();
}

bool ps_budget_is_tight(void)
{
    return atomic_load_explicit(&tight, memory_order_relaxed);
}

/* Returns the bytes that may be held: the budget, or fewer if the driver has refused pages. */
static uint64_t limit_now(void)
{
    const struct ps_budget_state *b = &ps_budget;

    return b->refused_at && b->held && b->refused_at < b->limit ? b->refused_at : b->limit;
}

static void hold(size_t bytes)
{
    struct ps_budget_state *b = &ps_budget;

    b->held += bytes;
    if (b->held > b->peak_held)
        b->peak_held = b->held;
    look_whether_tight();
}

/* Wakes threads that wait for pages, because some have become available. */
static void there_are_pages(void)
{
    ps_budget.released_times++;
    ps_budget.starving = ps_budget.stuck = false;
    ps_registry_changed();
}

/* Gives the pages back to the driver. [locked; releases the lock meanwhile] */
static void give_back(struct ps_pages *pages)
{
    const size_t lacking = ps_pages_lacking(pages), bytes = pages->bytes - lacking;

    /*
     * The driver still has these bytes. A thread that checks meanwhile waits; it neither evicts nor
     * gives up.
     */
    ps_budget.releasing += bytes;
    ps_registry_unlock();
    ps_pages_give_back(pages);
    ps_registry_lock();
    ps_budget.releasing -= bytes;
    ps_budget.held -= bytes;
    look_whether_tight();
    there_are_pages();
}

void ps_budget_let_go(struct ps_pages *pages, bool was_owner)
{
    if (--pages->references) {
        if (was_owner) {
            pages->ownerless = true;
            ps_budget.lingering += pages->bytes;
        }
        return;
    }
    if (pages->ownerless)
        ps_budget.lingering -= pages->bytes;
    pages->ownerless = false;
    if (!ps_budget_is_tight() || ps_spare_keep(pages))
        give_back(pages);
    else
        there_are_pages();
}

void ps_budget_let_go_as_spare(struct ps_pages *pages)
{
    if (pages->references > 1 || ps_spare_keep(pages))
        ps_budget_let_go(pages, true);
    else
        there_are_pages();
}

void ps_budget_give_back_spare(uint64_t bytes)
{
    struct ps_pages *pages;

    for (uint64_t given = 0; given < bytes && (pages = ps_spare_take_out(bytes - given));) {
        given += pages->bytes;
        give_back(pages);
    }
}

void ps_budget_give_up(struct ps_pages *pages)
{
    if (!pages->ownerless)
        return;
    pages->ownerless = false;
    ps_budget.lingering -= pages->bytes;
    ps_registry_changed();
}

uint64_t ps_budget_lacking(size_t bytes)
{
    const uint64_t limit = limit_now(), held = ps_budget.held - ps_spare_bytes();

    return held + bytes > limit ? held + bytes - limit : 0;
}

uint64_t ps_budget_to_spare(void)
{
    const uint64_t limit = limit_now(), wanted = ps_registry.peak_live_bytes + ps_registry.padding_bytes;

    return limit - limit / 16 > wanted ? limit - limit / 16 - wanted : 0;
}

/*
 * Returns whether other threads have made room meanwhile. With no bytes held, only the driver knows
 * whether it has room. [locked]
 */
bool ps_budget_has_room(size_t bytes)
{
    return ps_budget.held && !ps_budget_lacking(bytes);
}

/*
 * Notes that the driver refused pages, because another user of the device holds its memory. The
 * driver is asked again when fewer bytes are held. [locked]
 */
static void note_refusal(void)
{
    struct ps_budget_state *b = &ps_budget;

    ps_count(pages_refused);
    b->refused_at = b->held;
    if (!b->most_there_was || b->held < b->most_there_was)
        b->most_there_was = b->held;
    ps_log_warn_once(BUDGET,
                     "the device has no more memory although the budget has room: %s held of %s; spans are "
                     "evicted instead; a smaller PENSTOCK_BUDGET leaves more to other users of the device",
                     ps_bytes_text(b->held).text, ps_bytes_text(b->limit).text);
}

/* Makes the pages spare, or gives them back to the driver. [locked; releases the lock meanwhile] */
void ps_budget_part_with(struct ps_pages *pages)
{
    if (ps_spare_keep(pages))
        give_back(pages);
}

/*
 * Makes the parts that the pages lack, if the budget has room. Returns 0, -ENOMEM (no room, or the
 * driver has none) or another -errno. [locked; releases the lock meanwhile]
 */
static int make_what_lacks(struct ps_pages *pages)
{
    struct ps_budget_state *b = &ps_budget;
    struct ps_pages *other;
    size_t lack = ps_pages_lacking(pages);
    int r = 0;

    if (!lack)
        return 0;
    for (; lack; lack = ps_pages_lacking(pages)) {
        bool has_room = b->held + lack <= limit_now();
        if (!has_room && b->held + lack - ps_spare_bytes() > limit_now())
            return -ENOMEM; /* no room even if all spare pages are given back */
        if (has_room) {
            hold(lack);
            ps_registry_unlock();
            r = ps_pages_make(pages);
            ps_registry_lock();
            b->held -= ps_pages_lacking(pages);
            look_whether_tight();
        }
        if (has_room && r != -ENOMEM)
            break;
        /* Spare pages that do not fit here make room, in the budget or on the device. */
        if (!(other = ps_spare_take_out(has_room ? lack : b->held + lack - limit_now()))) {
            if (has_room)
                note_refusal();
            return -ENOMEM;
        }
        give_back(other);
    }
    if (r) {
        ps_count(pages_refused);
        return r;
    }
    b->refused_at = 0;
    if (b->held > b->most_there_was)
        b->most_there_was = 0;
    return 0;
}

/*
 * Completes the pages. Some parts were spare; the driver makes the rest if the budget has room.
 * Returns 0, -ENOMEM or another -errno. [locked; releases the lock meanwhile]
 */
int ps_budget_make_pages(struct ps_pages *pages, struct ps_supply *out)
{
    const size_t reused = pages->bytes - ps_pages_lacking(pages);
    int r = make_what_lacks(pages);

    if (!r) {
        ps_count_by(pages_reused_bytes, reused);
        *out = (struct ps_supply){.pages = pages};
        return 0;
    }
    ps_budget_part_with(pages);
    return r;
}

/*
 * Returns the bytes still missing for `bytes` once everything under way has ended and every freed
 * span is released. [locked]
 */
uint64_t ps_budget_missing(size_t bytes)
{
    const struct ps_budget_state *b = &ps_budget;
    uint64_t limit = b->refused_at && b->refused_at < b->limit ? b->refused_at : b->limit;
    uint64_t stays = b->held - b->leaving - b->lingering - b->releasing - ps_registry.cached_bytes - ps_spare_bytes();

    return stays + bytes > limit ? stays + bytes - limit : 0;
}

/* Returns the bytes that evictions ahead of need keep free. */
uint64_t ps_budget_kept_ahead(void)
{
    return ps_budget.limit / 16 < 2 * GIB ? ps_budget.limit / 16 : 2 * GIB;
}

bool ps_budget_has_plenty(size_t bytes)
{
    return !ps_budget_missing(bytes + 2 * ps_budget_kept_ahead());
}

bool ps_budget_must_evict_for(size_t bytes)
{
    return ps_budget_missing(bytes) != 0;
}
