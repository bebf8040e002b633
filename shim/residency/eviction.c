#include "residency/eviction.h"

#include <errno.h>

#include "base/counters.h"
#include "base/log.h"
#include "base/ordering_rules.h"
#include "base/per_device.h"
#include "base/state.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "cuda/helper_thread.h"
#include "memory/blocks.h"
#include "memory/budget.h"
#include "memory/draining_spans.h"
#include "memory/registry.h"
#include "memory/shutdown.h"
#include "memory/slab.h"
#include "residency/block_order.h"
#include "residency/bouncing.h"
#include "residency/copies.h"
#include "residency/events.h"
#include "residency/eviction_queue.h"
#include "residency/grace.h"
#include "residency/guard.h"

/* The registry lock guards all fields. */
static PS_PER_DEVICE struct {
    enum ps_guard guard; /* constant once set up */
    struct {
        struct ps_transfer_list under_way; /* queued on that D2H stream, in about that order */
        uint32_t copies;                   /* queued and not finished, cancelled ones too */
        uint64_t bytes;                    /* of these copies */
    } on[PS_COPIES_D2H_STREAMS];
    struct ps_lazy_thread at_once;
    bool started; /* the helper threads run */
    bool start_failed;
    bool starting;           /* a thread is starting them */
    bool wanted;             /* they have been needed at least once */
    uint32_t finisher_calls; /* changes of the finishers' work so far */
    /*
     * Holds: the program waits for the device, or the link is measured. No copy is queued
     * meanwhile. `yielding`: the number of these that yield.
     */
    unsigned held, yielding;
    bool ended;                         /* no span leaves any more */
    void (*left)(struct ps_span *span); /* constant after the set-up; NULL: not called */
} first_dev;
#define dev (&PS_HERE(first_dev))

/*
 * A D2H stream with more than one copy is full at this many queued bytes: 2.4 ms of the link. A
 * thread that waits for the device waits for them too.
 */
#define BYTES_QUEUED_MAX (128ull << 20)

static void finish_evictions(void);
static void finish_those_at_once(void);
static void serve_transfers(void);

void ps_eviction_open(enum ps_guard how)
{
    dev->guard = how;
    for (unsigned i = 0; i < PS_COPIES_D2H_STREAMS; i++)
        STAILQ_INIT(&dev->on[i].under_way);
    ps_transfers_open();
    ps_events_count_evictions_by(ps_eviction_copies_under_way);
}

void ps_eviction_when_left(void (*call)(struct ps_span *span))
{
    dev->left = call;
}

/*
 * The helper threads; other threads wait for the work of each. The empty entries check that further
 * threads can start: later helper threads, and a few of the program's own.
 */
#define HELPERS 4u
#define ROOM_FOR 8u
static const struct ps_helper_task helpers[HELPERS + ROOM_FOR] = {
    {"penstock-evict", finish_evictions},
    {"penstock-guard", ps_guard_map_to_slots},
    {"penstock-slab", serve_transfers},
    {"penstock-slots", ps_eviction_make_slots},
};

/* A helper thread can't use its context: the start has failed for good. [unlocked] */
static void helper_is_gone(void *unused)
{
    (void)unused;
    ps_registry_lock();
    dev->started = false;
    dev->start_failed = true;
    ps_registry_changed();
    ps_registry_unlock();
}

bool ps_eviction_start_helpers(void)
{
    if (ps_shutdown_has_begun())
        return false;
    if (!dev->wanted) {
        dev->wanted = true;
        ps_eviction_look_ahead();
    }
    if (dev->started || dev->start_failed || dev->starting)
        return dev->started;
    dev->started = true;
    for (unsigned i = 0; i < HELPERS && dev->started; i++)
        dev->started = !ps_helper_thread_start(helpers[i].name, helpers[i].run, helper_is_gone, NULL);
    dev->start_failed = !dev->started;
    return dev->started;
}

int ps_eviction_prepare(const char **why)
{
    ps_registry_lock();
    const bool is_due = !dev->started && !dev->start_failed && !dev->starting;
    int r = dev->start_failed ? -EIO : 0;
    dev->starting |= is_due;
    ps_registry_unlock();
    if (is_due) {
        r = ps_helper_threads_start_together(helpers, HELPERS + ROOM_FOR);
        ps_registry_lock();
        dev->starting = false;
        dev->started = !r;
        dev->start_failed = r != 0;
        ps_registry_unlock();
    }
    *why = !r          ? NULL
           : r == -EIO ? "its helper threads can't use the device's context"
                       : "its helper threads can't be started, the limit of processes (ulimit -u) is too low";
    return r;
}

bool ps_eviction_is_wanted(void)
{
    return dev->wanted;
}

void ps_eviction_end(const char *why)
{
    ps_registry_lock();
    dev->ended = true;
    ps_budget.evictions_fail = true;
    ps_registry_changed();
    ps_registry_unlock();
    ps_process_stand_aside(why);
}

bool ps_eviction_is_impossible(void)
{
    return dev->start_failed || dev->ended;
}

static void call_finisher(void)
{
    dev->finisher_calls++;
    ps_registry_call(PS_HELPER_EVICT);
    ps_registry_call(PS_HELPER_AT_ONCE);
    ps_registry_changed();
}

/* ---- spans that may leave ---- */

bool ps_eviction_may_leave(const struct ps_span *span)
{
    return !dev->ended && !ps_registry.blind_launches && span->life == PS_LIFE_LIVE && !span->busy &&
           !span->holds.launching && !span->holds.pinned && !span->holds.user_pins && !span->holds.excluded &&
           span->has_pages && !ps_block_order_holds(span) &&
           (span->residency == PS_RESIDENT || span->residency == PS_RELOADING);
}

/*
 * Room is counted once for all spans of a choice. ps_eviction_start finds out if one of them does
 * not fit.
 */
bool ps_eviction_has_place(size_t bytes)
{
    return ps_slab_free_of(bytes) || ps_slab_has_room(bytes + ps_transfers_waiting_bytes());
}

/* ---- copies whose end can't be told ---- */

/*
 * The driver can neither wait for a D2H nor tell whether it is over. So the copy may be under way
 * as long as the process lives. [unlocked]
 */
static void say_unknown(void)
{
    ps_eviction_end(
        "the driver can't tell when copies to the host are over, so the memory that they use is left as it is");
}

/*
 * Two clocks: the D2H may read the pages and write to the slot at any time to come. So the span
 * stays on its pages, which `readers` keeps mapped, and the slot is never given back. The transfer
 * is not used again either: its event stands for that copy. [locked]
 */
static void leave_alone(struct ps_transfer *t)
{
    struct ps_span *span = t->span;

    ps_count(eviction_errors);
    if (!t->cancelled) {
        ps_block_order_rests(span);
        ps_transfer_call_off(span);
    }
    ps_events_eviction_ends(&t->told, false);
    ps_registry_changed();
}

/* ---- starting ---- */

static void begin_to_read(struct ps_span *span, enum ps_copies_d2h on)
{
    span->order.readers++;
    span->order.at_once_readers += on == PS_COPIES_AT_ONCE;
}

static void end_reading(struct ps_span *span, enum ps_copies_d2h on)
{
    span->order.readers--;
    span->order.at_once_readers -= on == PS_COPIES_AT_ONCE;
}

/*
 * Whether a cancelled copy on the other D2H stream still reads the span.
 *
 * Two clocks: when a copy is over, the span's addresses are unmapped. Copies of one stream end in
 * order, so earlier cancelled copies of that stream are over then. Those on the other stream may
 * not be.
 */
static bool is_read_elsewhere(const struct ps_span *span, enum ps_copies_d2h on)
{
    return on == PS_COPIES_AT_ONCE ? span->order.readers > span->order.at_once_readers
                                   : span->order.at_once_readers != 0;
}

/*
 * Queues the D2H of a transfer that has its slot. On failure the span stays. [locked; releases the
 * lock meanwhile]
 */
static int queue_copy(struct ps_transfer *t)
{
    struct ps_span *span = t->span;
    struct ps_uses uses = span->order.uses;
    int r = is_read_elsewhere(span, t->on) && ps_ordering_rule(EVICTION_WAITS_FOR_READERS) ? -EAGAIN : 0;

    ps_grace_add_uses(span, &uses);
    span->busy = true;
    begin_to_read(span, t->on);
    ps_block_order_moves(span, &uses);
    ps_events_eviction_begins(&t->told, span, t->by_plan);
    ps_registry_unlock();
    /* An event created while tracing is on also tells when the copy was over. */
    if (!r && !t->done)
        r = ps_cuda_errno(ps_cu.cuEventCreate(&t->done, CU_EVENT_BLOCKING_SYNC |
                                                            (ps_events_is_tracing() ? 0 : CU_EVENT_DISABLE_TIMING)));
    /*
     * Two clocks: the D2H waits on its stream for the span's uses; the host goes on. A span that a
     * launch names does not begin to leave before that launch is queued (PIN_WHILE_LAUNCHING). A
     * span in the line may be named by a launch that waits for another of its spans. The launch
     * comes to this span afterwards, and cancels the eviction or reloads the span.
     */
    if (!r && t->on == PS_COPIES_AT_ONCE)
        r = ps_copies_evict_would_wait(&uses, span->order.fence_set, span->order.fence, t->slot, NULL);
    if (!r)
        r = ps_copies_evict(t->on, span->address, &uses, span->order.fence_set, span->order.fence, t->slot,
                            t->told.begin, t->done);
    if (r == -EINPROGRESS)
        say_unknown();
    ps_registry_lock();
    span->busy = false;
    if (r == -EINPROGRESS) {
        leave_alone(t);
        return r;
    }
    if (r) {
        /* Not errors: a captured stream (-EBUSY) or unfinished work (-EAGAIN) is in the way. */
        if (r != -EBUSY && r != -EAGAIN) {
            ps_count(eviction_errors);
            ps_log_warn_once(COPIES,
                             "the driver refused a copy to the host (error %d); the span stays on "
                             "the device, and another one is evicted; see `penstock doctor`",
                             -r);
        }
        end_reading(span, t->on);
        ps_block_order_rests(span);
        ps_slab_give(t->slot);
        ps_events_eviction_ends(&t->told, false);
        ps_transfer_call_off(span);
        ps_transfer_end(t);
        ps_registry_changed();
        return r;
    }
    STAILQ_INSERT_TAIL(&dev->on[t->on].under_way, t, next);
    dev->on[t->on].copies++;
    dev->on[t->on].bytes += t->bytes;
    call_finisher();
    return 0;
}

static bool queue_is_full(enum ps_copies_d2h on)
{
    return dev->on[on].copies >= (ps_events_is_tracing() ? PS_COPIES_TRACED_MAX : PS_COPIES_QUEUED_MAX) ||
           (dev->on[on].copies > 1 && dev->on[on].bytes >= BYTES_QUEUED_MAX);
}

bool ps_eviction_are_there_copies(void)
{
    ps_registry_lock();
    bool some = ps_eviction_copies_under_way() || ps_transfers_waiting_bytes();
    ps_registry_unlock();
    return some;
}

void ps_eviction_hold(bool yields)
{
    ps_registry_lock();
    dev->held++;
    dev->yielding += yields;
    ps_registry_unlock();
}

void ps_eviction_go_on(bool yields)
{
    ps_registry_lock();
    dev->held--;
    dev->yielding -= yields;
    ps_registry_call(PS_HELPER_RELOAD);
    ps_eviction_look_ahead();
    ps_registry_unlock();
}

bool ps_eviction_is_held(void)
{
    return dev->held > (ps_budget.program_waits ? dev->yielding : 0);
}

/* Begins an eviction that a helper thread queues. [locked] */
static int start_later(struct ps_span *span, bool by_plan, bool only_seen)
{
    struct ps_transfer *t;

    if (!ps_eviction_start_helpers())
        return -EAGAIN;
    if (!ps_eviction_has_place(span->bytes))
        return -ENOSPC;
    t = ps_transfer_begin(span);
    if (!t)
        return -ENOMEM;
    t->by_plan = by_plan;
    t->only_seen = only_seen;
    ps_transfer_wait_for_slots(t);
    return 0;
}

int ps_eviction_start_planned(struct ps_span *span, bool only_seen)
{
    return start_later(span, true, only_seen);
}

/*
 * Begins an eviction on that stream: queues it if a slot is free, else puts it in line for slots.
 * [locked; releases the lock meanwhile]
 */
static int start_on(struct ps_span *span, enum ps_copies_d2h on)
{
    struct ps_slot *slot = ps_slab_take(span->bytes);
    struct ps_transfer *t;

    if (!slot && !ps_slab_has_room(span->bytes + ps_transfers_waiting_bytes()))
        return -ENOSPC;
    t = ps_transfer_begin(span);
    if (!t) {
        if (slot)
            ps_slab_give(slot);
        return -ENOMEM;
    }
    t->slot = slot;
    t->on = on;
    if (slot)
        return queue_copy(t);
    ps_transfer_wait_for_slots(t);
    return 0;
}

int ps_eviction_start(struct ps_span *span)
{
    ps_bouncing_leaves(span);
    if (ps_eviction_is_held() || queue_is_full(PS_COPIES_IN_TURN))
        return start_later(span, false, false);
    return start_on(span, PS_COPIES_IN_TURN);
}

int ps_eviction_start_at_once(struct ps_span *span, struct ps_late_uses *late)
{
    if (!ps_registry_thread_is_there(&dev->at_once, "penstock-leave", finish_those_at_once) ||
        queue_is_full(PS_COPIES_AT_ONCE))
        return -EAGAIN;
    /* Asks before the transfer begins, which takes the span out of the idle order. */
    const uint64_t number = span->number;
    struct ps_uses uses = span->order.uses;
    ps_grace_add_uses(span, &uses);
    span->busy = true;
    ps_registry_unlock();
    int r = ps_copies_evict_would_wait(&uses, span->order.fence_set, span->order.fence, NULL, late);
    ps_registry_lock();
    span->busy = false;
    ps_registry_changed();
    if (r || span->number != number || !ps_eviction_may_leave(span))
        return -EAGAIN;
    return start_on(span, PS_COPIES_AT_ONCE);
}

uint64_t ps_eviction_bytes_at_once(void)
{
    return dev->on[PS_COPIES_AT_ONCE].bytes;
}

uint32_t ps_eviction_copies_under_way(void)
{
    return dev->on[PS_COPIES_IN_TURN].copies + dev->on[PS_COPIES_AT_ONCE].copies;
}

/* ---- evictions that end early ---- */

void ps_eviction_cancel(struct ps_span *span)
{
    struct ps_transfer *t = span->transfer;

    ps_transfer_call_off(span);
    ps_block_order_rests(span);
    /*
     * A queued D2H goes on reading the pages. Its copy is not used, and its slot becomes free when
     * it is over.
     */
    if (!ps_transfer_withdraw(t))
        t->cancelled = true;
    ps_count(evictions_cancelled);
    ps_events_eviction_cancelled(span);
}

void ps_eviction_freed(struct ps_span *span)
{
    struct ps_transfer *t = span->transfer;

    ps_budget.leaving -= span->bytes;
    span->transfer = NULL;
    /*
     * The D2H goes on reading: `readers` keeps the addresses mapped until it is over. The next
     * owner of the pages may write to them meanwhile, since the copy is not used.
     */
    if (!ps_transfer_withdraw(t))
        t->cancelled = true;
    ps_registry_cache(span);
}

/* ---- finishing ---- */

void ps_eviction_draining_waits(void)
{
    /* If all spans begin on slots, the program comes here before its first eviction. */
    ps_eviction_start_helpers();
    call_finisher();
}

/* The driver is ending, or the context is broken: the span stays as it is. [locked] */
static void leave_as_it_is(struct ps_span *span, struct ps_transfer *t, int error)
{
    ps_count(eviction_errors);
    ps_log_warn_once(RESIDENCY,
                     "the driver refused to unmap a span's pages (error %d); the span stays on "
                     "the device, and another one is evicted; see `penstock doctor`",
                     -error);
    span->busy = false;
    ps_block_order_rests(span);
    ps_slab_give(t->slot);
    ps_events_eviction_ends(&t->told, false);
    ps_transfer_call_off(span);
    ps_registry_changed();
}

/*
 * The D2H is over: the pages go first, then the mapping moves to the slot. That takes longer (1.8
 * ms for 256 MiB, shim/README.md#mapping-memory), and no thread waits for it. [locked; releases the
 * lock meanwhile; the span is busy meanwhile]
 */
static void move_to_slot(struct ps_transfer *t)
{
    struct ps_span *span = t->span;

    span->busy = true;
    ps_registry_unlock();
    int r = ps_pages_unmap(span->address, span->bytes);
    ps_registry_lock();
    if (r) {
        leave_as_it_is(span, t, r);
        return;
    }
    struct ps_pages *pages = span->pages;
    span->pages = NULL;
    span->has_pages = false;
    span->backing = PS_BACKING_NONE;
    ps_budget.leaving -= pages->bytes;
    ps_budget.evictions_fail = false;
    ps_budget_let_go(pages, true);
    span->busy = false;
    span->transfer = NULL;
    span->residency = PS_EVICTED;
    span->slot = t->slot;
    span->order.fence_set = false;
    ps_uses_clear(&span->order.uses); /* the D2H came after them */
    ps_count(evictions);
    ps_count_by(evicted_bytes, span->bytes);
    if (dev->left)
        dev->left(span);
    ps_events_eviction_ends(&t->told, true);
    /*
     * A piece comes to rest when it is mapped, and launches that name its block wait for that. An
     * unseen access to a piece is not a fault that `penstock verify` looks for.
     */
    if (ps_block_of(span) && (dev->guard != PS_GUARD_UNMAP || ps_verify_is_on()))
        ps_guard_map_to_slot(span);
    else if (ps_guard_is_for(dev->guard, t->only_seen))
        ps_guard_soon(span);
    ps_block_order_rests(span);
    ps_registry_changed();
}

/*
 * Ends a transfer. `is_over`: its copy is over; else the driver can't tell. [locked; may release it
 * meanwhile]
 */
static void finish(struct ps_transfer *t, bool is_over)
{
    struct ps_span *span = t->span;

    if (t->on == PS_COPIES_IN_TURN)
        ps_budget.turn_stalls = false;
    dev->on[t->on].copies--;
    dev->on[t->on].bytes -= t->bytes;
    if (!is_over) {
        leave_alone(t);
        return;
    }
    ps_slab_read_is_over(t->slot);
    end_reading(span, t->on);
    if (ps_transfers_waiting_bytes())
        ps_eviction_look_ahead(); /* the queue has room, and a slot may be free */
    if (t->cancelled) {
        ps_slab_give(t->slot);
        ps_events_eviction_ends(&t->told, false);
        ps_eviction_look_ahead();
    } else {
        move_to_slot(t);
    }
    ps_transfer_end(t);
#ifdef PS_DEBUG
    ps_registry_is_valid();
#endif
}

static bool context_is_gone(CUevent event)
{
    return ps_cuda_has_ended(ps_cu.cuEventQuery(event));
}

/* Finishes the copies of one D2H stream. Those of the other may wait for longer. */
static void finish_those_on(enum ps_copies_d2h on, enum ps_helper helper)
{
    uint32_t seen = 0;

    ps_registry_lock();
    ps_shutdown_helper_begins();
    for (;;) {
        ps_shutdown_park_if_due();
        bool some_drain_still = ps_draining_spans_reap();
        struct ps_transfer *t = STAILQ_FIRST(&dev->on[on].under_way);
        /*
         * If the thread for the other stream failed, copies were maybe queued before that was
         * known.
         */
        if (!t && dev->at_once.failed)
            t = STAILQ_FIRST(&dev->on[PS_COPIES_AT_ONCE].under_way);
        if (!t) {
            /* Draining spans can wait; all other work calls this thread. */
            if (seen == dev->finisher_calls)
                ps_registry_rest(helper, some_drain_still ? 2000000u : PS_HELPER_LOOKS_NS);
            seen = dev->finisher_calls;
            continue;
        }
        STAILQ_REMOVE_HEAD(&dev->on[t->on].under_way, next);
        ps_registry_unlock();
        const bool is_over = !ps_ordering_rule(REMAP_WAITS_FOR_COPY) || !ps_event_host_wait(t->done);
        if (is_over)
            ps_events_eviction_copied(&t->told, t->done);
        else if (context_is_gone(t->done))
            ps_helper_thread_park();
        else
            say_unknown();
        ps_registry_lock();
        /*
         * Another thread may be giving the span's mapping to a peer. Meanwhile the eviction may be
         * cancelled, too.
         */
        while (!t->cancelled && t->span->busy)
            ps_registry_wait_changed(1000000u);
        finish(t, is_over);
    }
}

static void finish_evictions(void)
{
    finish_those_on(PS_COPIES_IN_TURN, PS_HELPER_EVICT);
}

static void finish_those_at_once(void)
{
    finish_those_on(PS_COPIES_AT_ONCE, PS_HELPER_AT_ONCE);
}

/* Calls off a transfer that has its slot, and whose copy is not queued. [locked] */
static void call_off(struct ps_transfer *t)
{
    ps_slab_give(t->slot);
    ps_transfer_call_off(t->span);
    ps_transfer_end(t);
    ps_registry_changed();
}

/* Queues the transfers that waited for their slots or their turn. */
static void serve_transfers(void)
{
    uint32_t seen = 0;

    ps_registry_lock();
    ps_shutdown_helper_begins();
    for (;;) {
        ps_shutdown_park_if_due();
        struct ps_transfer *t = ps_eviction_is_held() ? NULL : ps_transfer_next(!queue_is_full(PS_COPIES_IN_TURN));
        if (t && dev->ended) {
            call_off(t);
            continue;
        }
        if (t) {
            queue_copy(t);
            continue;
        }
        if (seen == ps_transfers_changes()) {
            ps_registry_rest(PS_HELPER_SLAB, PS_HELPER_LOOKS_NS);
            continue;
        }
        seen = ps_transfers_changes();
        /* The thread that makes slots may have seen a row that another thread has taken since. */
        if (ps_transfers_waiting_bytes())
            ps_registry_call(PS_HELPER_SLOTS);
    }
}
