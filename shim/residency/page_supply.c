#include "residency/page_supply.h"

#include <errno.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/ordering_rules.h"
#include "base/state.h"
#include "base/waits.h"
#include "cuda/helper_thread.h"
#include "memory/registry.h"
#include "memory/shutdown.h"
#include "memory/size_classes.h"
#include "memory/slab.h"
#include "memory/spare_pages.h"
#include "residency/demand_eviction.h"
#include "residency/events.h"
#include "residency/eviction.h"
#include "residency/eviction_queue.h"
#include "residency/freed_spans.h"
#include "residency/plan_table.h"
#include "residency/stopwatch.h"

/*
 * A thread waits this long for evictions and last uses that don't end. Then it goes on without
 * pages. (These depend on the program's own queued work.)
 */
#define GIVE_UP_NS (30ull * 1000000000u)
/*
 * The wait is only this long if no stream of the program makes progress meanwhile. A launch in a
 * training takes less. Each give-up of this kind shortens the next wait, because a program that
 * holds the device up does so in each step. A wait that was worth its time lengthens it again.
 */
#define GIVE_UP_STANDING_NS (5ull * 1000000000u)
#define GIVE_UP_STANDING_LEAST_NS 20000000u
/* A give-up divides the wait by two to this power. A wait that was worth its time doubles it. */
#define SHORTER_AFTER_GIVE_UP 3u
#define SHORTER_MAX 8u
/* The device's progress is queried this often, or more often where the wait is short. */
#define PROGRESS_EVERY_NS 100000000u
/*
 * After this number of failed evictions, with no release of pages in between, the thread goes on
 * without pages.
 */
#define ERRORS_MAX 8
/*
 * If no pages are released for this long, other threads help the waiting one. A gigabyte leaves in
 * that time at the link's rate.
 */
#define STARVING_NS 20000000u
/* After this long, spans that can leave at once do so, beside those that can't leave yet. */
#define STALLED_NS 50000000u
/*
 * Once a thread has given up, each thread waits only this long, until pages are released again. The
 * next launch or allocation may be the one that all wait for.
 */
#define GIVE_UP_WHEN_STUCK_NS 20000000u
/*
 * A waiting thread looks again this often, in case the reason for its wait ends without a signal.
 */
#define LOOK_AGAIN_NS 2000000u
/*
 * If more time lies between two looks of a wait, the excess does not count as waiting. The program
 * or the machine was stopped, and so was the awaited work.
 */
#define PAUSE_NS 1000000000u

static void (*trace)(void); /* constant once set up */

void ps_page_supply_when_untraced(void (*call)(void))
{
    trace = call;
}

/* The number of freed spans of a size to look at, the oldest first. */
#define DONORS 8u

/*
 * Returns whether all uses of the span's pages, its own H2D among them, are in the order of
 * `stream`.
 */
static bool comes_before_on(const struct ps_span *span, const struct ps_stream *stream)
{
    const struct ps_uses *uses = &span->order.uses;
    const bool is_filled =
        !span->order.fence_set || (uses->count && stream->index < 64 && span->order.fence_seen & 1ull << stream->index);

    return is_filled && !uses->everywhere && (!uses->count || (uses->count == 1 && uses->use[0].stream == stream));
}

/*
 * Finds a freed span whose pages serve a reload. The reload may wait for uses that `stream` has not
 * reached yet (sole_stream.h). Returns NULL if no such span exists.
 *
 * Two clocks: the H2D waits for the donor's last use, and each launch that names the span waits as
 * long. So that use must be over, or be on `stream`, which comes after it anyway. Pointer tables
 * that later launches on the stream may read are not taken: the H2D would come before them.
 * [locked; may release it meanwhile]
 */
static struct ps_span *find_donor(size_t bytes, const struct ps_stream *stream)
{
    struct ps_span *donors[DONORS];
    const struct ps_stream *const awaited_on = ps_ordering_rule(FREED_TABLE_STAYS) ? NULL : stream;
    const unsigned n = stream ? ps_size_class_oldest(bytes, bytes, awaited_on, donors, DONORS) : 0;

    for (unsigned i = 0; i < n; i++) {
        if (!comes_before_on(donors[i], stream))
            continue;
        ps_registry_cached_remove(donors[i]);
        return donors[i];
    }
    return ps_freed_take_over(bytes, bytes, awaited_on);
}

/*
 * Takes over the pages of a freed span. The freed span becomes a draining span, which keeps its
 * addresses until its uses are over. [locked; may release it meanwhile]
 */
static bool take_over(size_t bytes, const struct ps_need *reload, struct ps_supply *out)
{
    struct ps_span *donor = find_donor(bytes, reload->stream);

    if (!donor)
        return false;
    donor->life = PS_LIFE_DRAINING;
    donor->busy = true;
    donor->has_pages = false;
    donor->pages->references++; /* for the draining span's mapping, beside the new owner's */
    out->pages = donor->pages;
    out->donor = donor;
    TAILQ_INSERT_TAIL(&ps_registry.draining, donor, listed);
    return true;
}

void ps_page_supply_donor_done(struct ps_supply *supply)
{
    if (!supply->donor)
        return;
    supply->donor->busy = false;
    supply->donor = NULL;
    ps_eviction_draining_waits();
}

void ps_page_supply_return(struct ps_supply *supply)
{
    ps_page_supply_donor_done(supply);
    ps_budget_let_go(supply->pages, true);
}

uint64_t ps_page_supply_trim(uint64_t bytes)
{
    uint64_t released = ps_freed_release(bytes, 0, PS_FREED_ANY);

    ps_budget_give_back_spare(UINT64_MAX);
    return released;
}

void ps_page_supply_trim_unwanted(uint64_t bytes)
{
    const uint64_t spare = ps_spare_bytes();

    ps_budget_give_back_spare(bytes);
    uint64_t unwanted = bytes > spare ? ps_registry_unwanted(ps_now_ns(), bytes - spare) : 0;
    /*
     * Some of the unwanted spans may still be in use, above all one whose allocation only asked.
     * Wanted spans are not released in their place.
     */
    if (unwanted)
        ps_budget_give_back_spare(ps_freed_release(unwanted, 0, PS_FREED_UNWANTED));
}

/*
 * Returns whether this thread must leave pages to a waiting thread of the program. That holds for
 * helper threads, which work ahead. [locked]
 */
static bool must_stand_back(void)
{
    return ps_budget.program_waits && ps_helper_thread_is_one();
}

bool ps_page_supply_make_some_room(size_t bytes)
{
    /*
     * If there is room, the supply failed for another reason. A thread that tried again at once
     * would do nothing else.
     */
    if (must_stand_back() || ps_budget_has_room(bytes))
        return false;
    return ps_freed_release(0, bytes, PS_FREED_NOT_DUE) || !ps_freed_wait_for_oldest(PS_FREED_NOT_DUE);
}

/*
 * Spare pages are used before a freed span's pages, which an allocation may still want. [locked;
 * releases the lock meanwhile]
 */
static int obtain_at_once(size_t bytes, const struct ps_need *reload, struct ps_supply *out)
{
    struct ps_pages *pages = ps_spare_gather(bytes);

    if (!pages)
        return -EIO;
    if (reload && ps_pages_lacking(pages) && take_over(bytes, reload, out)) {
        ps_budget_part_with(pages);
        return 0;
    }
    return ps_budget_make_pages(pages, out);
}

int ps_page_supply_obtain_now(size_t bytes, const struct ps_need *reload, struct ps_supply *out)
{
    return must_stand_back() ? -ENOMEM : obtain_at_once(bytes, reload, out);
}

/* The state of one call of ps_page_supply_obtain. */
struct search {
    uint64_t began, stalled_since; /* ns; 0: there were pages at once */
    uint64_t looked_at;            /* ns, the latest look */
    uint64_t asked_at;             /* ns, the latest query of the device's progress */
    uint64_t progress, standing_since;
    uint64_t released_before, errors_before;
    size_t bytes;
    enum ps_events_wait wait; /* the kind of wait */
    bool program;             /* the thread is the program's */
    bool tried_to_trace;
    bool asked_again; /* the host, for slots that it has refused a moment ago */
    uint64_t stood;   /* ns, the longest time without progress at a look */
};

/*
 * The first look found no pages, so the thread begins to wait. [locked; releases the lock
 * meanwhile]
 */
static void begin_to_wait(struct search *s)
{
    s->began = s->stalled_since = s->looked_at = ps_waits_begin();
    s->program = !ps_helper_thread_is_one();
    if (!s->program)
        s->wait = PS_EVENTS_HELPER;
    ps_events_wait_begins(s->wait, s->bytes);
    if (!s->program)
        return;
    ps_budget.program_waits++;
    ps_registry_call(PS_HELPER_RELOAD); /* helper threads that yielded go on */
    ps_eviction_look_ahead();
    /*
     * Unless pages come soon, the device will stand still for lack of work. The stopwatch measures
     * how long.
     */
    ps_registry_unlock();
    ps_stopwatch_wait_begins(NULL);
    ps_registry_lock();
}

static void end_wait(const struct search *s)
{
    if (s->program && !--ps_budget.program_waits)
        ps_budget.starving = false;
    if (!s->began)
        return;
    ps_events_waited(s->wait, s->bytes, s->began, ps_waits_end(s->began));
}

/*
 * Returns for how many ns the device may stand before a thread gives up. Evictions have time for
 * their copies, on a link that carries 8 bytes a nanosecond. [locked]
 */
static uint64_t standing_patience(void)
{
    const struct ps_budget_state *b = &ps_budget;
    const uint64_t shortened = GIVE_UP_STANDING_NS >> b->standing_shorter;
    const uint64_t least = GIVE_UP_STANDING_LEAST_NS + b->leaving / 8;

    return shortened > least ? shortened : least < GIVE_UP_STANDING_NS ? least : GIVE_UP_STANDING_NS;
}

/* A wait has ended with pages. A shorter one might have given up. [locked] */
static void was_worth_waiting(const struct search *s)
{
    if (ps_budget.standing_shorter && s->stood > standing_patience() / 2)
        ps_budget.standing_shorter--;
}

/*
 * Returns for how many ns no stream has reached a new tick. Each stream may be waiting for work
 * that the program has yet to queue. Launches record ticks while memory is tight. [locked; releases
 * the lock meanwhile]
 */
static uint64_t device_stands_for(struct search *s)
{
    const uint64_t now = ps_now_ns();

    if (now - s->asked_at < PROGRESS_EVERY_NS >> ps_budget.standing_shorter)
        return s->standing_since ? now - s->standing_since : 0;
    s->asked_at = now;
    ps_registry_unlock();
    const uint64_t progress = ps_streams_progress();
    ps_registry_lock();
    if (progress != s->progress || !s->standing_since)
        s->standing_since = now;
    s->progress = progress;
    if (now - s->standing_since > s->stood)
        s->stood = now - s->standing_since;
    return now - s->standing_since;
}

static void leave_out_pause(struct search *s)
{
    const uint64_t now = ps_now_ns(), since = now - s->looked_at;

    s->looked_at = now;
    if (since <= PAUSE_NS)
        return;
    s->stalled_since += since - PAUSE_NS;
    if (s->standing_since)
        s->standing_since += since - PAUSE_NS;
}

/*
 * Returns whether waiting is useless by now: no pages were released for long, or evictions fail.
 * [locked; may release the lock meanwhile]
 */
static bool is_hopeless(struct search *s)
{
    struct ps_budget_state *b = &ps_budget;

    leave_out_pause(s);
    if (b->released_times != s->released_before) {
        s->released_before = b->released_times;
        s->stalled_since = ps_now_ns();
        s->errors_before = ps_counted(eviction_errors);
        return false;
    }
    if (ps_counted(eviction_errors) - s->errors_before >= (b->evictions_fail ? 1 : ERRORS_MAX)) {
        b->evictions_fail = true; /* the driver refuses, and the failed call has logged that */
        return true;
    }
    uint64_t stalled_ns = ps_now_ns() - s->stalled_since;
    if (s->program && stalled_ns > STARVING_NS)
        b->starving = true;
    const bool stands = s->program && stalled_ns > STARVING_NS && device_stands_for(s) > standing_patience();
    if (stalled_ns <= (b->stuck ? GIVE_UP_WHEN_STUCK_NS : GIVE_UP_NS) && !stands)
        return false;
    if (stands && !b->stuck) {
        b->standing_shorter += SHORTER_AFTER_GIVE_UP;
        if (b->standing_shorter > SHORTER_MAX)
            b->standing_shorter = SHORTER_MAX;
    }
    b->stuck = true;
    ps_log_warn_once(BUDGET,
                     "no eviction and no use of freed memory ended within %llu s, so kernels read "
                     "from host memory, slowly; a larger PENSTOCK_BUDGET needs fewer evictions",
                     (unsigned long long)(stalled_ns / 1000000000u));
    return true;
}

static void wait_for_news(void)
{
    ps_budget.waiting++;
    ps_registry_wait_changed(LOOK_AGAIN_NS);
    ps_budget.waiting--;
}

/*
 * Spans that are leaving, and freed spans, may be in use until the program queues more work. Then
 * other spans leave beside them. Returns the number of bytes that begin to leave. [locked; releases
 * the lock meanwhile]
 */
static uint64_t leave_at_once(size_t bytes, const struct search *s)
{
    struct ps_budget_state *b = &ps_budget;

    /* Evictions take their time on the link; a slow link carries 8 bytes a nanosecond. */
    if (!s->program || (!b->turn_stalls && ps_now_ns() - s->stalled_since < STALLED_NS + b->leaving / 8))
        return 0;
    const uint64_t lack = ps_budget_lacking(bytes), coming = ps_eviction_bytes_at_once();
    const uint64_t begun = lack > coming ? ps_demand_eviction_evict_at_once(lack - coming) : 0;
    b->turn_stalls |= begun != 0;
    return begun;
}

/*
 * Makes one attempt to get pages that were not there at once. Returns 0 if the caller shall look
 * again, and -ENOMEM if nothing can give way. [locked; releases the lock meanwhile]
 */
static int make_way(size_t bytes, struct search *s)
{
    const struct ps_budget_state *b = &ps_budget;

    /* Freed spans first: releasing one costs microseconds and no copy. */
    if (ps_budget_has_room(bytes) || ps_freed_release(0, bytes, PS_FREED_ANY))
        return 0;
    /* Then spans in use are evicted, those idle longest first; they leave during the wait. */
    uint64_t need = ps_budget_missing(bytes);
    if (need && !ps_demand_eviction_could_free(need))
        return -ENOMEM;
    uint64_t started = leave_at_once(bytes, s);
    if (need && !started)
        started = ps_demand_eviction_evict(need);
    if (is_hopeless(s))
        return -ENOMEM;
    /*
     * D2H copies are under way: wait for them. They wait for queued work only, and none of it waits
     * for this thread.
     */
    if ((b->leaving || b->lingering || b->releasing || ps_eviction_copies_under_way()) && !ps_shutdown_has_begun() &&
        !ps_eviction_is_impossible()) {
        wait_for_news();
        return 0;
    }
    /*
     * No D2H is under way, so only the last use of a freed span can give pages. The use that ends
     * first is most often that of a span that another thread waits for already. A wait for the next
     * one would miss it. If another use ends sooner, the next look finds its span.
     */
    int r = b->ending
                ? -EBUSY
                : ps_freed_wait_for_oldest(s->wait == PS_EVENTS_ALLOCATION ? PS_FREED_EVEN_AWAITED : PS_FREED_ANY);
    if (!r || r == -ETIMEDOUT)
        return 0;
    if (b->ending && !ps_shutdown_has_begun()) {
        wait_for_news();
        return 0;
    }
    if (started || (need && ps_slab_extend(bytes)))
        return 0;
    return -ENOMEM;
}

/*
 * Starts tracing, without which spans in use can't leave. Returns true once in a search: launches
 * are traced now, or the attempt failed. [locked; releases the lock meanwhile]
 */
static bool tries_to_trace(struct search *s)
{
    if (s->tried_to_trace || !trace || ps_tracing_is_on() || ps_budget.limit == UINT64_MAX)
        return false;
    /* The device is full before the budget is used up, since other programs use it too. */
    s->tried_to_trace = true;
    ps_registry_unlock();
    trace();
    ps_registry_lock();
    return true;
}

/*
 * Returns true once in a search, if the host has refused slots a moment ago. It is asked again
 * before the program is refused memory.
 */
static bool asks_host_again(struct search *s)
{
    const bool again = !s->asked_again && ps_slab_ask_again();

    s->asked_again |= again;
    return again;
}

int ps_page_supply_obtain(size_t bytes, const struct ps_need *reload, struct ps_supply *out)
{
    struct ps_budget_state *b = &ps_budget;
    struct search search = {
        .released_before = b->released_times,
        .errors_before = ps_counted(eviction_errors),
        .bytes = bytes,
        .wait = reload ? PS_EVENTS_LAUNCH_FOR_PAGES : PS_EVENTS_ALLOCATION,
    };
    int r;

    while ((r = obtain_at_once(bytes, reload, out))) {
        if (bytes > b->limit || (r != -ENOMEM && r != -EAGAIN))
            break;
        /*
         * If no bytes are missing, the program is below its budget: only spans that it has freed
         * must go.
         */
        if (ps_budget_missing(bytes)) {
            ps_budget_is_reached();
            if (tries_to_trace(&search))
                continue;
        }
        if (!search.began)
            begin_to_wait(&search);
        else if ((r = make_way(bytes, &search)) && !tries_to_trace(&search) && !asks_host_again(&search))
            break;
    }
    if (!r)
        was_worth_waiting(&search);
    end_wait(&search);
    return r;
}

void ps_page_supply_keep_ahead(void)
{
    const struct ps_budget_state *b = &ps_budget;

    if (!b->reached || ps_plan.is_on())
        return;
    uint64_t need = ps_budget_missing((size_t)ps_budget_kept_ahead());
    if (need && !b->evictions_fail)
        ps_demand_eviction_evict_ahead(need);
}
