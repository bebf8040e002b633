#include "residency/eviction_queue.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/per_device.h"
#include "memory/blocks.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/shutdown.h"
#include "memory/slab_progress.h"
#include "residency/block_order.h"
#include "residency/eviction.h"
#include "residency/plan_table.h"

/* Slots are made ahead of need for the idlest spans, up to this many bytes of them. */
#define SLOTS_AHEAD_BYTES (1ull << 30)

static PS_PER_DEVICE struct {
    struct ps_transfer_list line;
    uint64_t line_bytes;
    struct ps_transfer_list unused;
    uint32_t changes;
    struct {
        size_t *bytes; /* of each span that a plan will have away; NULL: no plan yet */
        unsigned n;
        bool looked; /* the list has only spans without slots */
    } foreseen;
} first_dev;
#define dev (&PS_HERE(first_dev))

void ps_transfers_open(void)
{
    STAILQ_INIT(&dev->line);
    STAILQ_INIT(&dev->unused);
}

void ps_eviction_look_ahead(void)
{
    dev->changes++;
    ps_registry_call(PS_HELPER_SLAB);
    ps_registry_call(PS_HELPER_SLOTS);
    ps_registry_changed();
}

uint32_t ps_transfers_changes(void)
{
    return dev->changes;
}

/* ---- transfers ---- */

struct ps_transfer *ps_transfer_begin(struct ps_span *span)
{
    struct ps_transfer *t = STAILQ_FIRST(&dev->unused);

    if (t)
        STAILQ_REMOVE_HEAD(&dev->unused, next);
    else if (!(t = calloc(1, sizeof *t)))
        return NULL;
    t->span = span;
    t->slot = t->made = NULL;
    t->bytes = span->bytes;
    t->cancelled = false;
    t->only_seen = t->by_plan = false;
    t->on = PS_COPIES_IN_TURN;
    TAILQ_REMOVE(&ps_registry.idle_order, span, listed);
    span->residency = PS_EVICTING;
    span->transfer = t;
    ps_budget.leaving += span->bytes;
    return t;
}

void ps_transfer_call_off(struct ps_span *span)
{
    ps_budget.leaving -= span->bytes;
    span->residency = PS_RESIDENT;
    span->transfer = NULL;
    /*
     * The span counts as the most recently used. In its old place it would be the first to be tried
     * again. The order must match `access.launch`.
     */
    span->access.launch = ps_registry.launch_number;
    TAILQ_INSERT_TAIL(&ps_registry.idle_order, span, listed);
}

void ps_transfer_end(struct ps_transfer *t)
{
    STAILQ_INSERT_HEAD(&dev->unused, t, next);
}

/* ---- the line ---- */

void ps_transfer_wait_for_slots(struct ps_transfer *t)
{
    STAILQ_INSERT_TAIL(&dev->line, t, next);
    dev->line_bytes += t->bytes;
    ps_eviction_look_ahead();
}

static void leave_line(struct ps_transfer *t)
{
    STAILQ_REMOVE(&dev->line, t, ps_transfer, next);
    dev->line_bytes -= t->bytes;
}

bool ps_transfer_withdraw(struct ps_transfer *t)
{
    if (t->slot)
        return false;
    leave_line(t);
    if (t->made)
        ps_slab_give(t->made);
    ps_transfer_end(t);
    return true;
}

struct ps_transfer *ps_transfer_next(bool in_turn)
{
    struct ps_transfer *t;
    size_t no_row_for = 0;

    STAILQ_FOREACH(t, &dev->line, next)
    {
        if (t->span->busy || (t->bytes == no_row_for && !t->made) || (t->on == PS_COPIES_IN_TURN && !in_turn))
            continue;
        if (ps_block_order_holds(t->span)) {
            ps_block_of(t->span)->put_off = true;
            continue;
        }
        t->slot = t->made ? t->made : ps_slab_take_row(t->bytes);
        t->made = NULL;
        if (t->slot)
            break;
        no_row_for = t->bytes;
    }
    if (t)
        leave_line(t);
    return t;
}

uint64_t ps_transfers_waiting_bytes(void)
{
    return dev->line_bytes;
}

/* ---- making slots ---- */

void ps_eviction_foresee(size_t *bytes, unsigned n)
{
    free(dev->foreseen.bytes);
    dev->foreseen.bytes = bytes;
    dev->foreseen.n = n;
    dev->foreseen.looked = false;
    ps_eviction_look_ahead();
}

/* Returns the first transfer in line for which no row is available, or NULL. */
static struct ps_transfer *next_without_row(void)
{
    struct ps_transfer *t;
    size_t row_for = 0;

    STAILQ_FOREACH(t, &dev->line, next)
    {
        if (t->made || t->bytes == row_for)
            continue;
        if (!ps_slab_has_row(t->bytes))
            return t;
        row_for = t->bytes;
    }
    return NULL;
}

/* Returns the bytes of slots to make for a span that a plan will evict; 0 if the slots suffice. */
static size_t next_foreseen(void)
{
    if (!dev->foreseen.looked) {
        dev->foreseen.looked = true;
        dev->foreseen.n = ps_slab_keep_lacking(dev->foreseen.bytes, dev->foreseen.n);
    }
    return dev->foreseen.n ? dev->foreseen.bytes[--dev->foreseen.n] : 0;
}

/*
 * Returns a size to make slots for ahead of need, or 0. That is the size of the idlest span that
 * would find no row.
 */
static size_t worth_making(void)
{
    const struct ps_span *span;
    uint64_t in_line = 0;

    /* While a plan is followed, the plan says which spans leave, not idleness. */
    if (!ps_eviction_is_wanted() || !ps_budget_is_tight() || ps_plan.moves_spans())
        return 0;
    TAILQ_FOREACH (span, &ps_registry.idle_order, listed) {
        if (in_line >= SLOTS_AHEAD_BYTES)
            break;
        in_line += span->bytes;
        struct ps_slab_figures slab = ps_slab_figures();
        if (slab.bytes - slab.used_bytes < in_line && !ps_slab_has_row(span->bytes))
            return ps_slab_can_hold_more(span->bytes) ? span->bytes : 0;
    }
    return 0;
}

/*
 * Gives the row to the first transfer of its size that waits for one. The transfer that it was made
 * for may be gone.
 */
static void hand_over(struct ps_slot *row, size_t bytes)
{
    struct ps_transfer *t;

    STAILQ_FOREACH(t, &dev->line, next)
    if (t->bytes == bytes && !t->made)
        break;
    if (t)
        t->made = row;
    else
        ps_slab_give(row);
}

/* No slot could be made: the first span without a row stays. */
static void give_up(size_t bytes, int error)
{
    struct ps_transfer *t = next_without_row();

    ps_log_debug(SLAB, "no slot of %zu bytes is available (error %d)", bytes, -error);
    if (!t)
        return; /* other slots have become free meanwhile */
    ps_transfer_call_off(t->span);
    ps_transfer_withdraw(t);
    ps_registry_changed();
}

/* Runs on a thread of its own: spans that need no new slots go on leaving meanwhile. */
void ps_eviction_make_slots(void)
{
    uint32_t seen = 0;

    ps_registry_lock();
    ps_shutdown_helper_begins();
    for (;;) {
        ps_shutdown_park_if_due();
        /*
         * First slots that are wanted now, then those for a plan, then those that idleness makes
         * likely.
         */
        const struct ps_transfer *t = next_without_row();
        bool wanted = t != NULL;
        size_t bytes = wanted ? t->bytes : next_foreseen();
        if (!bytes)
            bytes = worth_making();
        if (bytes) {
            struct ps_slot *row = NULL;
            ps_registry_unlock();
            int r = wanted ? ps_slab_make(bytes, &row) : ps_slab_add_row(bytes);
            ps_registry_lock();
            if (r && wanted)
                give_up(bytes, r);
            else if (wanted)
                hand_over(row, bytes);
            else if (r)
                dev->foreseen.n = 0; /* the host has no more memory; evictions take the slots that exist */
            if (!r)
                ps_eviction_look_ahead();
            if (!r || wanted)
                continue;
        }
        if (ps_slab_progress_is_told()) {
            ps_registry_unlock();
            ps_slab_progress_end();
            ps_registry_lock();
        }
        if (seen == dev->changes)
            ps_registry_rest(PS_HELPER_SLOTS, ps_slab_progress_is_told() ? PS_SLAB_PAUSE_NS : PS_HELPER_LOOKS_NS);
        seen = dev->changes;
    }
}
