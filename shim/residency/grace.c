#include "residency/grace.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/ordering_rules.h"
#include "base/per_device.h"
#include "cuda/streams.h"
#include "memory/launches_under_way.h"
#include "memory/registry.h"
#include "residency/eviction.h"
#include "residency/guard.h"

/* Spans that leave in their grace at a time. More of them stay. */
#define LEAVING_MAX 64u

/*
 * For so long at most launches and what is to leave wait for each other. A driver call that queues
 * a launch takes microseconds, if the queue has room.
 */
#define LAUNCH_NS 20000000u

/*
 * For so long at most a launch waits for a D2H: that waits, on the device, for queued work, which
 * may wait for what this thread is yet to queue.
 */
#define MOVE_NS 250000000u

static PS_PER_DEVICE struct {
    uint32_t launches; /* constant once set up */
    /*
     * How many launches are between their two calls; how many spans are in the list. A launch
     * counts itself before it looks at the list, and whoever adds to the list does so before it
     * looks at the count: one of the two sees the other.
     */
    atomic_uint launching;
    atomic_uint leaving;
    atomic_uint held;           /* launches that would begin wait */
    atomic_uint coming;         /* spans that come back in their grace: launches that would begin wait for these, too */
    _Atomic uint64_t came_back; /* spans that have, so far */
    atomic_uint held_up;        /* launches that have found such a span, or one that leaves, and have not begun yet */
    _Atomic uint64_t let_by;    /* launches that had, and have begun */
    /*
     * The last of their copies on each H2D stream, and the event behind it; NULL: there was none.
     * With the next guarded by the registry lock.
     */
    struct ps_copies_nth last[PS_COPIES_H2D_STREAMS];
    CUevent last_end[PS_COPIES_H2D_STREAMS];
    uint64_t span[LEAVING_MAX]; /* by number */
    /*
     * The stream that was launched on last, and the number of the last launch that was on another
     * one than the launch before.
     */
    struct ps_stream *_Atomic last_stream;
    _Atomic uint64_t changed;
} first_dev;
#define dev (&PS_HERE(first_dev))

static pthread_mutex_t marking = PTHREAD_MUTEX_INITIALIZER; /* a leaf, taken with the registry lock held too */
static atomic_bool unplaced; /* a launch was on a stream that has no place in the table */

void ps_grace_open(uint32_t launches)
{
    dev->launches = launches;
}

static uint64_t launch_number(void)
{
    return atomic_load_explicit(&ps_registry.launch_number, memory_order_relaxed);
}

/*
 * Whether a launch that began in the span's grace is under way, however many others have been
 * queued since.
 */
static bool is_waited_for(const struct ps_span *span)
{
    return ps_ordering_rule(GRACE_WAITS_FOR_SLOW_LAUNCH) &&
           ps_launches_under_way_is_any(span->grace.since, span->access.named + dev->launches);
}

/*
 * The last launch of a grace has its number before it is queued, so it is in time until the next
 * one begins. Here the order of the two looks counts: launches_under_way.c.
 */
static bool is_in_time(const struct ps_span *span)
{
    return dev->launches &&
           (atomic_load(&ps_registry.launch_number) - span->access.named <= dev->launches || is_waited_for(span));
}

bool ps_grace_is_over(const struct ps_span *span)
{
    return !atomic_load_explicit(&span->grace.known, memory_order_relaxed) || !is_in_time(span);
}

bool ps_grace_is_queued(const struct ps_span *span)
{
    return !atomic_load_explicit(&span->grace.known, memory_order_relaxed) ||
           (atomic_load(&ps_registry.launch_number) - span->access.named >= dev->launches && !is_waited_for(span));
}

/* ---- which launches a tick covers ---- */

static struct ps_grace_mark *mark_at(struct ps_stream *s, uint64_t n)
{
    return &s->grace.mark[n % PS_GRACE_MARKS];
}

static void raise_to(_Atomic uint64_t *value, uint64_t to)
{
    uint64_t now = atomic_load_explicit(value, memory_order_relaxed);

    while (now < to &&
           !atomic_compare_exchange_weak_explicit(value, &now, to, memory_order_release, memory_order_relaxed)) {
    }
}

static void lower_to(_Atomic uint64_t *value, uint64_t to)
{
    uint64_t now = atomic_load_explicit(value, memory_order_relaxed);

    while (now > to &&
           !atomic_compare_exchange_weak_explicit(value, &now, to, memory_order_release, memory_order_relaxed)) {
    }
}

/* What two threads launch there they mark in any order, and late. */
static void widen(struct ps_grace_mark *m, uint64_t began, uint64_t launch)
{
    lower_to(&m->first, began);
    raise_to(&m->last, launch);
}

/*
 * A launch has been queued on the stream, begun and ended when launches of these numbers were the
 * latest; the tick covers it.
 */
static void mark(struct ps_stream *s, uint64_t tick, uint64_t began, uint64_t launch)
{
    uint64_t n = atomic_load_explicit(&s->grace.marked, memory_order_acquire);

    if (n && atomic_load_explicit(&mark_at(s, n - 1)->tick, memory_order_relaxed) == tick) {
        widen(mark_at(s, n - 1), began, launch);
        if (atomic_load(&s->grace.marked) == n)
            return; /* else the next mark may have been made without this one's numbers */
    }
    pthread_mutex_lock(&marking);
    n = atomic_load_explicit(&s->grace.marked, memory_order_relaxed);
    if (!n || atomic_load_explicit(&mark_at(s, n - 1)->tick, memory_order_relaxed) < tick) {
        struct ps_grace_mark *m = mark_at(s, n);
        /* Not before the last of the mark before it: who looks for that finds this one first. */
        const uint64_t before = n ? atomic_load_explicit(&mark_at(s, n - 1)->last, memory_order_relaxed) : 0;
        atomic_store_explicit(&m->tick, tick, memory_order_relaxed);
        atomic_store_explicit(&m->first, began, memory_order_relaxed);
        atomic_store_explicit(&m->last, launch > before ? launch : before, memory_order_relaxed);
        atomic_store_explicit(&s->grace.marked, n + 1, memory_order_release);
    } else { /* another thread's launch there came first */
        widen(mark_at(s, n - 1), began, launch);
    }
    pthread_mutex_unlock(&marking);
}

/*
 * The tick that covers what was launched on the stream from one launch to another; 0: nothing was.
 * What is older than all marks is covered by the oldest one: a later tick of a stream covers what
 * an earlier one does. [marking]
 */
static uint64_t tick_of(struct ps_stream *s, uint64_t from, uint64_t to)
{
    const uint64_t marked = atomic_load_explicit(&s->grace.marked, memory_order_acquire);
    const uint64_t oldest = marked > PS_GRACE_MARKS ? marked - PS_GRACE_MARKS : 0;

    for (uint64_t n = marked; n > oldest; n--) {
        const struct ps_grace_mark *m = mark_at(s, n - 1);
        if (atomic_load_explicit(&m->first, memory_order_relaxed) > to)
            continue;
        return atomic_load_explicit(&m->last, memory_order_acquire) >= from
                   ? atomic_load_explicit(&m->tick, memory_order_relaxed)
                   : 0;
    }
    return oldest ? atomic_load_explicit(&mark_at(s, oldest)->tick, memory_order_relaxed) : 0;
}

void ps_grace_add_uses(const struct ps_span *span, struct ps_uses *uses)
{
    const uint64_t to = span->access.named + dev->launches;

    if (!dev->launches || !atomic_load_explicit(&span->grace.known, memory_order_relaxed) ||
        !ps_ordering_rule(EVICTION_WAITS_FOR_GRACE))
        return;
    if (atomic_load_explicit(&unplaced, memory_order_relaxed))
        ps_uses_note_everything(uses);
    pthread_mutex_lock(&marking);
    for (uint32_t i = 0, n = ps_streams_count(); i < n && !uses->everywhere; i++) {
        struct ps_stream *s = ps_streams_at(i);
        if (atomic_load_explicit(&s->over, memory_order_relaxed) || ps_stream_is_foreign(s))
            continue;
        struct ps_uses of_stream = {.use = {{s, tick_of(s, span->access.named, to)}}, .count = 1};
        if (of_stream.use[0].tick)
            ps_uses_merge(uses, &of_stream);
    }
    pthread_mutex_unlock(&marking);
}

/*
 * Whether all launches since the span was named last were on that stream, where the one that is
 * about to be queued comes after them.
 */
static bool were_all_on(const struct ps_span *span, const struct ps_stream *stream)
{
    return atomic_load_explicit(&dev->last_stream, memory_order_relaxed) == stream &&
           span->access.named > atomic_load_explicit(&dev->changed, memory_order_relaxed);
}

/* What launches of the former one have done is uses of the span. */
static void end_former(struct ps_span *span, const struct ps_stream *stream)
{
    if (!span->grace.left_in && were_all_on(span, stream))
        return;
    if (span->residency != PS_EVICTED || (span->grace.left_in && ps_ordering_rule(GRACE_WAITS_FOR_MOVE)))
        ps_grace_add_uses(span, &span->order.uses);
    if (span->residency == PS_RESIDENT || span->residency == PS_RELOADING ||
        (span->residency == PS_EVICTED && ps_grace_is_over(span)))
        span->grace.left_in = false;
}

void ps_grace_begins_anew(struct ps_span *span, const struct ps_stream *stream, bool captured)
{
    if (!captured && ps_grace_is_over(span))
        span->grace.since = launch_number();
    end_former(span, stream);
    if (!captured)
        span->access.named = launch_number();
}

/* ---- leaving in it ---- */

/* Whether a launch need not wait for the span, nor do anything about it. [locked] */
static bool is_at_rest(const struct ps_span *span)
{
    if (!span || span->life != PS_LIFE_LIVE || !is_in_time(span))
        return true;
    return !span->busy && span->residency != PS_EVICTING &&
           (span->residency != PS_EVICTED || span->backing != PS_BACKING_NONE);
}

/*
 * Launches take spans from the list; where none comes that may use what it does not name, the list
 * would be full for good. [locked]
 */
static void forget_those_at_rest(void)
{
    unsigned kept = 0;

    for (unsigned i = 0, n = atomic_load(&dev->leaving); i < n; i++)
        if (!is_at_rest(ps_registry_numbered(dev->span[i])))
            dev->span[kept++] = dev->span[i];
    atomic_store(&dev->leaving, kept);
}

bool ps_grace_leaves(struct ps_span *span)
{
    if (atomic_load(&dev->leaving) == LEAVING_MAX)
        forget_those_at_rest();
    const unsigned n = atomic_load(&dev->leaving);
    if (n == LEAVING_MAX)
        return false;
    dev->span[n] = span->number;
    atomic_store(&dev->leaving, n + 1);
    if (atomic_load(&dev->launching) && ps_ordering_rule(GRACE_WAITS_FOR_MOVE)) {
        atomic_store(&dev->leaving, n);
        return false;
    }
    span->grace.left_in = true;
    return true;
}

/*
 * Whether the span has come to rest: then it need not be looked at again. [locked; releases the
 * lock meanwhile]
 */
static bool has_settled(struct ps_span *span, uint64_t began)
{
    if (!span || span->life != PS_LIFE_LIVE || !is_in_time(span))
        return true;
    if (span->busy)
        return false;
    if (span->residency == PS_EVICTED && span->backing == PS_BACKING_NONE) {
        ps_guard_map_to_slot(span);
        return true;
    }
    if (span->residency != PS_EVICTING)
        return true;
    if (ps_now_ns() - began < MOVE_NS)
        return false;
    ps_eviction_cancel(span);
    return true;
}

static void wait_until_settled(void)
{
    const uint64_t began = ps_now_ns();

    ps_registry_lock();
    for (unsigned n; (n = atomic_load(&dev->leaving));) {
        const uint64_t number = dev->span[n - 1];
        if (!has_settled(ps_registry_numbered(number), began)) {
            ps_registry_wait_changed(1000000u);
            continue;
        }
        /* The lock was released: the list may be another one. */
        n = atomic_load(&dev->leaving);
        for (unsigned i = 0; i < n; i++) {
            if (dev->span[i] != number)
                continue;
            dev->span[i] = dev->span[n - 1];
            atomic_store(&dev->leaving, n - 1);
            break;
        }
    }
    ps_registry_unlock();
}

void ps_grace_hold_launches(void)
{
    const uint64_t began = ps_now_ns();

    atomic_fetch_add(&dev->held, 1);
    while (atomic_load(&dev->launching) && ps_now_ns() - began < LAUNCH_NS)
        ps_registry_wait_changed(50000u);
}

void ps_grace_let_launch(void)
{
    atomic_fetch_sub(&dev->held, 1);
    ps_registry_changed();
}

/* ---- coming back in it ---- */

void ps_grace_came_back(const struct ps_span *span, const struct ps_copies_nth *nth)
{
    if (nth) {
        if (nth->number > dev->last[nth->on].number) { /* two threads may come here the other way round */
            dev->last[nth->on] = *nth;
            dev->last_end[nth->on] = span->order.fence;
        }
        atomic_fetch_add(&dev->came_back, 1);
    }
    atomic_fetch_sub(&dev->coming, 1);
    ps_registry_changed();
}

/* False: a launch that was begun takes long to be queued. [locked; releases the lock meanwhile] */
static bool let_launches_by(void)
{
    const uint64_t began = ps_now_ns();

    while (atomic_load(&dev->launching) && ps_ordering_rule(GRACE_WAITS_FOR_RELOAD)) {
        if (ps_now_ns() - began > LAUNCH_NS)
            return false;
        ps_registry_wait_changed(50000u);
    }
    return true;
}

/* Whether launches wait for a D2H, which may take long. [locked] */
static bool are_some_leaving(void)
{
    for (unsigned i = 0, n = atomic_load(&dev->leaving); i < n; i++) {
        const struct ps_span *span = ps_registry_numbered(dev->span[i]);
        if (span && span->life == PS_LIFE_LIVE && span->residency == PS_EVICTING)
            return true;
    }
    return false;
}

void ps_grace_gives_way(void)
{
    const uint64_t began = ps_now_ns();
    uint64_t until = atomic_load(&dev->let_by);

    until += atomic_load(&dev->held_up);
    while (atomic_load(&dev->let_by) < until && !atomic_load(&dev->coming) && !are_some_leaving() &&
           ps_now_ns() - began < LAUNCH_NS)
        ps_registry_wait_changed(50000u);
}

int ps_grace_comes_back(const struct ps_span *span, uint64_t ns)
{
    struct ps_uses uses = {.count = 0};

    ps_registry_lock();
    /*
     * A launch counts itself before it looks at this number, and here it is the other way round:
     * one of the two sees the other.
     */
    atomic_fetch_add(&dev->coming, 1);
    int r = let_launches_by() ? 0 : -ETIMEDOUT;
    if (!r && ps_ordering_rule(RELOAD_WAITS_FOR_GRACE))
        ps_grace_add_uses(span, &uses);
    ps_registry_unlock();
    if (!r)
        r = ps_uses_host_wait_for_queued(&uses, ns);
    ps_registry_lock();
    if (r)
        ps_grace_came_back(span, NULL);
    ps_registry_unlock();
    return r;
}

/*
 * Two clocks: a launch of the grace waits on its own stream for each H2D of what has come back,
 * whatever stream that was for. An event that has been recorded anew since stands for a later copy,
 * of a span whose earlier one was over before it left again.
 */
static void come_after_those_back(struct ps_stream *stream)
{
    CUevent end[PS_COPIES_H2D_STREAMS];

    ps_registry_lock();
    while (atomic_load(&dev->coming))
        ps_registry_wait_changed(1000000u);
    const uint64_t came_back = atomic_load(&dev->came_back);
    for (unsigned i = 0; i < PS_COPIES_H2D_STREAMS; i++)
        end[i] = dev->last_end[i];
    ps_registry_unlock();
    for (unsigned i = 0; i < PS_COPIES_H2D_STREAMS; i++)
        if (end[i] && ps_ordering_rule(GRACE_WAITS_FOR_RELOAD))
            ps_stream_or_host_comes_after(stream, end[i]);
    atomic_store_explicit(&stream->grace.came_back, came_back, memory_order_relaxed);
}

/* Whether the stream waits for all that has come back, and nothing is about to. */
static bool are_all_back(const struct ps_stream *stream)
{
    return !atomic_load(&dev->coming) &&
           atomic_load(&dev->came_back) == atomic_load_explicit(&stream->grace.came_back, memory_order_relaxed);
}

/* ---- launches ---- */

static void wait_until_let(void)
{
    const uint64_t began = ps_now_ns();

    ps_registry_lock();
    while (atomic_load(&dev->held) && ps_now_ns() - began < LAUNCH_NS)
        ps_registry_wait_changed(1000000u);
    ps_registry_unlock();
}

void ps_grace_numbers_launch(void)
{
    ps_registry.launch_number++;
    ps_launches_under_way_is_numbered();
}

uint64_t ps_grace_launch_begins(struct ps_stream *stream)
{
    bool is_held_up = false;

    if (atomic_load_explicit(&dev->held, memory_order_relaxed))
        wait_until_let();
    for (;;) {
        atomic_fetch_add(&dev->launching, 1);
        const bool may_be_on_the_move = atomic_load(&dev->leaving) && ps_ordering_rule(GRACE_WAITS_FOR_MOVE);
        if (!may_be_on_the_move && are_all_back(stream))
            break;
        atomic_fetch_sub(&dev->launching, 1);
        if (!is_held_up)
            atomic_fetch_add(&dev->held_up, 1);
        is_held_up = true;
        if (may_be_on_the_move)
            wait_until_settled();
        come_after_those_back(stream);
    }
    if (is_held_up) {
        atomic_fetch_sub(&dev->held_up, 1);
        atomic_fetch_add(&dev->let_by, 1);
    }
    return ps_launches_under_way_began();
}

/* It was the last one of launches up to that number. */
static void note_launch(struct ps_stream *stream, uint64_t tick, uint64_t began, uint64_t launch)
{
    if (atomic_load_explicit(&dev->last_stream, memory_order_relaxed) != stream) {
        raise_to(&dev->changed, launch);
        atomic_store_explicit(&dev->last_stream, stream, memory_order_relaxed);
    }
    if (stream->index == PS_STREAMS_MAX)
        atomic_store_explicit(&unplaced, true, memory_order_relaxed);
    else if (tick)
        mark(stream, tick, began, launch);
}

void ps_grace_launch_ends(struct ps_stream *stream, uint64_t began)
{
    uint64_t launch, latest = launch_number();

    if (!ps_ordering_rule(GRACE_LOOKS_AGAIN)) {
        ps_ordering_rule_widen_window();
    }
    ps_stream_settle(stream);
    const uint64_t tick = atomic_load(stream->per_thread ? &stream->recorded : &stream->next);
    /*
     * A span may be named anew by another thread meanwhile, whose launch has its number before it
     * looks for this mark. Either it finds the mark, or the launch has that number here, and is in
     * the new grace.
     */
    do {
        launch = latest;
        note_launch(stream, tick, began, launch);
        atomic_thread_fence(memory_order_seq_cst);
        latest = launch_number();
    } while (latest != launch && ps_ordering_rule(GRACE_LOOKS_AGAIN));
    atomic_fetch_sub(&dev->launching, 1);
}
