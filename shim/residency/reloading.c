#include "residency/reloading.h"

#include <errno.h>

#include "base/counters.h"
#include "base/log.h"
#include "base/ordering_rules.h"
#include "base/per_device.h"
#include "base/settings.h"
#include "base/state.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "memory/blocks.h"
#include "memory/registry.h"
#include "memory/slab.h"
#include "residency/block_order.h"
#include "residency/copies.h"
#include "residency/events.h"
#include "residency/grace.h"
#include "residency/guard.h"

static PS_PER_DEVICE enum ps_guard first_guard; /* constant once set up */

void ps_reload_open(enum ps_guard how)
{
    PS_HERE(first_guard) = how;
}

/*
 * A thread waits at most this long until uses of the slot are over. These may wait, on the device,
 * for work that this thread has yet to queue. Queues are shorter.
 */
#define SLOT_USES_NS 1000000000u
#define UNSEEN_NS 250000000u /* the same, until all queued work is over */

/*
 * Waits for launches that ran on the slot. They must be over before its mapping goes; the driver
 * does not wait. This is the only host wait in a reload. It is only for spans that found no pages
 * earlier. With the host far ahead the wait times out, and the next launch runs on the slot too.
 * [unlocked; the span is busy]
 */
static int wait_for_slot_uses(const struct ps_span *span, const struct ps_uses *uses, bool unseen)
{
    struct ps_block *block = ps_block_of(span);

    if (!ps_ordering_rule(RELOAD_WAITS_FOR_SLOT_USES))
        return 0;
    return block ? ps_block_order_wait_for(block, uses)
                 : ps_uses_host_wait_for_queued(uses, unseen ? UNSEEN_NS : SLOT_USES_NS);
}

/*
 * Moves the mapping from the slot to `pages`, and queues the H2D. On failure the mapping is as
 * before, as far as the driver allows. [unlocked; the span is busy]
 */
static int move_to_pages(struct ps_span *span, const struct ps_supply *supply, bool unseen, enum ps_copies_h2d on,
                         const struct ps_events_move *told, struct ps_copies_nth *nth)
{
    const struct ps_uses *pages_uses = supply->donor ? &supply->donor->order.uses : NULL;
    int r;

    if (span->backing == PS_BACKING_SLOT) {
        r = ps_pages_unmap(span->address, span->bytes);
        if (r)
            return r;
        span->backing = PS_BACKING_NONE;
    }
    r = ps_pages_map(span->address, supply->pages);
    if (!r) {
        if (!span->order.fence)
            r = ps_cuda_errno(
                ps_cu.cuEventCreate(&span->order.fence, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
        if (!r)
            r = ps_copies_reload(on, span->address, pages_uses, span->slot, told->begin, told->end, span->order.fence,
                                 nth);
        if (!r) {
            span->backing = PS_BACKING_DEVICE;
            if (unseen)
                ps_copies_drain_reloads(); /* a launch that uses the span unnamed waits for no event */
            return 0;
        }
        if (r == -EINPROGRESS) {
            span->backing = PS_BACKING_DEVICE;
            ps_process_stand_aside(
                "the driver can't tell whether a copy to the device succeeded, and results may be wrong from then on");
            return r;
        }
        ps_pages_unmap(span->address, span->bytes);
    }
    if (PS_HERE(first_guard) != PS_GUARD_UNMAP && !ps_slab_map_row(span->address, span->slot))
        span->backing = PS_BACKING_SLOT;
    return r;
}

/*
 * Two clocks: the H2D may write to the pages and read the slot at any later time. So the span stays
 * on the pages, which `readers` keeps mapped. The slot is never given back.
 */
static void leave_alone(struct ps_span *span, const struct ps_supply *supply)
{
    span->pages = supply->pages;
    span->has_pages = true;
    span->residency = PS_RESIDENT;
    span->order.readers++;
    span->slot = NULL;
    span->holds.pinned = true;
    TAILQ_INSERT_TAIL(&ps_registry.idle_order, span, listed);
    span->access.launch = ps_registry.launch_number;
    ps_count(reload_errors);
    ps_registry_changed();
}

/*
 * The reload failed: the span stays on its slot, and the pages are given back. If it is unknown
 * whether the H2D succeeds, leave_alone is called. [locked; may release the lock meanwhile]
 */
static int fail(struct ps_span *span, struct ps_supply *supply, int error)
{
    if (error == -EINPROGRESS) {
        leave_alone(span, supply);
        return error;
    }
    if (error != -ETIMEDOUT && span->backing == PS_BACKING_NONE && ps_guard_is_for(ps_settings.guard, false))
        ps_guard_soon(span); /* its slot could not be mapped again */
    /*
     * Nothing has been done. -ETIMEDOUT: launches on the slot go on. -EBUSY: an awaited use is on a
     * stream that is being captured.
     */
    if (error != -ETIMEDOUT && error != -EBUSY) {
        ps_count(reload_errors);
        ps_log_warn_once(RESIDENCY,
                         "the driver refused a reload (error %d); the span stays on the host, where kernels "
                         "read it slowly; a smaller PENSTOCK_BUDGET leaves more memory to the driver",
                         -error);
    }
    ps_page_supply_return(supply);
    return error == -EBUSY ? -ECANCELED : error;
}

bool ps_reload_is_in_grace(const struct ps_span *span)
{
    return span->grace.left_in && !ps_grace_is_over(span);
}

int ps_reload(struct ps_span *span, struct ps_supply *supply, const struct ps_need *need, bool ahead)
{
    struct ps_uses uses = span->order.uses;
    struct ps_events_move told;
    /*
     * A span that rules keep in its place may be used by launches that don't name it, on any
     * stream. The span may still be born on a slot, and from there it moves once.
     *
     * Two clocks: it moves when all queued work is over. This thread then queues nothing more until
     * the H2D is over. If queued work takes long, the span stays in its place. (A kernel may wait
     * for work that this thread has yet to queue.)
     */
    const bool unseen = span->holds.excluded && ps_ordering_rule(RELOAD_WAITS_FOR_UNSEEN);
    const bool in_grace = ps_reload_is_in_grace(span);
    struct ps_copies_nth nth = {.number = 0};

    if (unseen)
        ps_uses_note_all_streams(&uses);
    /* Every reload does so: by a launch, ahead of one, or to hold the span. */
    if (span->grace.left_in && ps_ordering_rule(RELOAD_WAITS_FOR_GRACE))
        ps_grace_add_uses(span, &uses);
    span->busy = true;
    ps_block_order_moves(span, &uses);
    ps_events_reload_begins(&told, span, ahead);
    ps_registry_unlock();
    int r = wait_for_slot_uses(span, &uses, unseen);
    if (!r && in_grace)
        r = ps_grace_comes_back(span, UNSEEN_NS);
    const bool comes_back = in_grace && !r;
    if (!r)
        r = move_to_pages(span, supply, unseen, need->stream ? PS_COPIES_BEHIND : PS_COPIES_READY, &told, &nth);
    if (!ps_ordering_rule(BLOCK_WAITS_FOR_LAST_RELOAD) && nth.number % 2) {
        ps_ordering_rule_widen_window();
    }
    ps_registry_lock();
    ps_page_supply_donor_done(supply);
    span->busy = false;
    if (comes_back)
        ps_grace_came_back(span, r ? NULL : &nth);
    if (!r)
        ps_block_order_reloads(span, nth);
    ps_block_order_rests(span);
    if (r)
        ps_events_reload_ends(&told, r);
    if (r)
        return fail(span, supply, r);
    span->pages = supply->pages;
    span->has_pages = true;
    span->residency = PS_RELOADING;
    span->order.fence_set = true;
    span->order.fence_seen = 0;
    ps_uses_clear(&span->order.uses); /* all are over, as above */
    ps_slab_read_begins(span->slot);
    ps_slab_give(span->slot); /* the next D2H into it waits for this H2D */
    span->slot = NULL;
    TAILQ_INSERT_TAIL(&ps_registry.idle_order, span, listed);
    span->access.launch = ps_registry.launch_number;
    ps_count(reloads);
    ps_count_by(reloaded_bytes, span->bytes);
    ps_events_reload_ends(&told, 0);
    ps_registry_changed();
    return 0;
}
