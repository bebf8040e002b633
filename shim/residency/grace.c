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

/* At most this many spans leave in their grace at a time; further ones stay. */
#define LEAVING_MAX 64u

/*
 * Launches and spans that are to leave wait for each other at most this long. A driver call that
 * queues a launch takes microseconds, if the queue has room.
 */
#define LAUNCH_NS 20000000u

/*
 * A launch waits for a D2H at most this long. On the device, the D2H waits for queued work. That
 * work may wait for other work that this thread is yet to queue.
 */
#define MOVE_NS 250000000u

static PS_PER_DEVICE struct {
    uint32_t launches; /* constant once set up */
    /*
     * `launching`: launches between their two calls. `leaving`: spans in the list. A launch counts
     * itself before it looks at the list. A thread adds a span to the list before it looks at the
     * count. So one of the two sees the other.
     */
    atomic_uint launching;
    atomic_uint leaving;
    atomic_uint held;           /* holds: no launch begins meanwhile */
    atomic_uint coming;         /* spans that come back in their grace: no launch begins meanwhile */
    _Atomic uint64_t came_back; /* spans that have come back in it so far */
    atomic_uint held_up;        /* launches that found a span leaving or coming back, and have not begun yet */
    _Atomic uint64_t let_by;    /* launches that were held up, and have begun */
    /*
     * The last H2D of such spans on each H2D stream, and the event behind it; NULL: no H2D yet. The
     * registry lock guards these and the list.
     */
    struct ps_copies_nth last[PS_COPIES_H2D_STREAMS];
    CUevent last_end[PS_COPIES_H2D_STREAMS];
    uint64_t span[LEAVING_MAX]; /* the list: spans that leave, by number */
    /*
     * The stream of the last launch. `changed`: the number of the last launch on another stream
     * than the launch before it.
     */
    struct ps_stream *_Atomic last_stream;
    _Atomic uint64_t changed;
} first_dev;
#define dev (&PS_HERE(first_dev))

static pthread_mutex_t marking = PTHREAD_MUTEX_INITIALIZER; /* a leaf lock; the registry lock may be held */
static atomic_bool unplaced;                                /* a launch was on a stream without a place in the table */

void ps_grace_open(uint32_t launches)
{
    dev->launches = launches;
}

static uint64_t launch_number(void)
{
    return atomic_load_explicit(&ps_registry.launch_number, memory_order_relaxed);
}

/*
 * Whether a launch that began in the span's grace is still under way. Any number of others may have
 * been queued since.
 */
static bool is_waited_for(const struct ps_span *span)
{
    return ps_ordering_rule(GRACE_WAITS_FOR_SLOW_LAUNCH) &&
           ps_launches_under_way_is_any(span->grace.since, span->access.named + dev->launches);
}

/*
 * Whether the span's grace goes on. The last launch of a grace has its number before it is queued.
 * So the grace goes on until the next launch begins. The order of the two reads matters:
 * launches_under_way.c.
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

/* Two threads may mark their launches on one stream in any order, and late. */
static void widen(struct ps_grace_mark *m, uint64_t began, uint64_t launch)
{
    lower_to(&m->first, began);
    raise_to(&m->last, launch);
}

/*
 * A launch has been queued on the stream, and the tick covers it. `began`, `launch`: the numbers of
 * the latest launches when it began and when it ended.
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
        /* Not less than `last` of the mark before it: a search for that finds this mark first. */
        const uint64_t before = n ? atomic_load_explicit(&mark_at(s, n - 1)->last, memory_order_relaxed) : 0;
        atomic_store_explicit(&m->tick, tick, memory_order_relaxed);
        atomic_store_explicit(&m->first, began, memory_order_relaxed);
        atomic_store_explicit(&m->last, launch > before ? launch : before, memory_order_relaxed);
        atomic_store_explicit(&s->grace.marked, n + 1, memory_order_release);
    } else { /* another thread has marked its launch there first */
        widen(mark_at(s, n - 1), began, launch);
    }
    pthread_mutex_unlock(&marking);
}

/*
 * Returns the tick that covers the stream's launches with numbers `from` to `to`; 0 if it had none.
 * The oldest mark also covers older launches: a stream's later tick covers everything that an
 * earlier one covers. [marking]
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

/* Sets `uses` to the queued launches of the grace of a span that was named at that number. */
static void find_launches(uint64_t named, struct ps_uses *uses)
{
    ps_uses_clear(uses);
    if (atomic_load_explicit(&unplaced, memory_order_relaxed))
        ps_uses_note_everything(uses);
    pthread_mutex_lock(&marking);
    for (uint32_t i = 0, n = ps_streams_count(); i < n && !uses->everywhere; i++) {
        struct ps_stream *s = ps_streams_at(i);
        if (atomic_load_explicit(&s->over, memory_order_relaxed) || ps_stream_is_foreign(s))
            continue;
        ps_uses_add_another(uses, (struct ps_use){s, tick_of(s, named, named + dev->launches)});
    }
    pthread_mutex_unlock(&marking);
}

/* Whether launches of its grace may have used the span. */
static bool may_be_used_in_grace(const struct ps_span *span)
{
    return dev->launches && atomic_load_explicit(&span->grace.known, memory_order_relaxed) &&
           ps_ordering_rule(EVICTION_WAITS_FOR_GRACE);
}

void ps_grace_add_uses(const struct ps_span *span, struct ps_uses *uses)
{
    struct ps_uses launches;

    if (!may_be_used_in_grace(span))
        return;
    find_launches(span->access.named, &launches);
    ps_uses_merge(uses, &launches);
}

void ps_grace_begin_naming(struct ps_grace_naming *naming, const struct ps_stream *stream, bool is_captured)
{
    const bool was_other = atomic_load_explicit(&dev->last_stream, memory_order_relaxed) != stream;

    naming->is_captured = is_captured;
    naming->launch = launch_number();
    naming->in_time = dev->launches ? (uint64_t)dev->launches + 1 : 0;
    naming->other_until = was_other ? UINT64_MAX : atomic_load_explicit(&dev->changed, memory_order_relaxed);
    naming->is_known = false;
}

/* Most spans of a launch were last named by the same launch. */
static const struct ps_uses *former_launches(const struct ps_span *span, struct ps_grace_naming *naming)
{
    if (!naming->is_known || naming->named != span->access.named)
        find_launches(span->access.named, &naming->former);
    naming->is_known = true;
    naming->named = span->access.named;
    return &naming->former;
}

void ps_grace_end_former(struct ps_span *span, struct ps_grace_naming *naming)
{
    const bool may_be_used_away = span->grace.left_in && ps_ordering_rule(GRACE_WAITS_FOR_MOVE);

    if ((span->residency != PS_EVICTED || may_be_used_away) && may_be_used_in_grace(span))
        ps_uses_merge(&span->order.uses, former_launches(span, naming));
    if (span->residency == PS_RESIDENT || span->residency == PS_RELOADING ||
        (span->residency == PS_EVICTED && ps_grace_is_over(span)))
        span->grace.left_in = false;
}

/* ---- leaving in the grace ---- */

/* Whether a launch need neither wait for the span nor act on it. [locked] */
static bool is_at_rest(const struct ps_span *span)
{
    if (!span || span->life != PS_LIFE_LIVE || !is_in_time(span))
        return true;
    return !span->busy && span->residency != PS_EVICTING &&
           (span->residency != PS_EVICTED || span->backing != PS_BACKING_NONE);
}

/*
 * Takes spans at rest from the list. Only launches that may use spans without naming them do so
 * otherwise. Without such launches the list would stay full for good. [locked]
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
 * Whether the span has come to rest, so that no launch need look at it again. Cancels an eviction
 * that takes longer than MOVE_NS. [locked; releases the lock meanwhile]
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
        /* The lock was released, so the list may have changed. */
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

/* ---- coming back in the grace ---- */

void ps_grace_came_back(const struct ps_span *span, const struct ps_copies_nth *nth)
{
    if (nth) {
        /* Two threads may come here in the other order. */
        if (nth->number > dev->last[nth->on].number) {
            dev->last[nth->on] = *nth;
            dev->last_end[nth->on] = span->order.fence;
        }
        atomic_fetch_add(&dev->came_back, 1);
    }
    atomic_fetch_sub(&dev->coming, 1);
    ps_registry_changed();
}

/*
 * Waits until launches that were begun are queued. Returns false if one takes too long. [locked;
 * releases the lock meanwhile]
 */
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
     * A launch counts itself before it looks at `coming`. This thread raises `coming` before it
     * looks at the launches. So one of the two sees the other.
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
 * Two clocks: a launch of the grace waits on its own stream for the H2D of each span that has come
 * back. It waits whichever stream the H2D was for. An event that was recorded again since stands
 * for a later copy of its span. The span's earlier copy was over before the span left again.
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

/* Whether the stream waits for all spans that have come back, and no other span is about to. */
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

/* Notes a launch on the stream as the latest of the launches up to number `launch`. */
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
     * Meanwhile another thread's launch may name a span again. That launch has its number before it
     * looks for this mark. Either it finds the mark, or this launch is marked with that number and
     * is in the new grace.
     */
    do {
        launch = latest;
        note_launch(stream, tick, began, launch);
        atomic_thread_fence(memory_order_seq_cst);
        latest = launch_number();
    } while (latest != launch && ps_ordering_rule(GRACE_LOOKS_AGAIN));
    atomic_fetch_sub(&dev->launching, 1);
}
