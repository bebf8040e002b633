#include "budget.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "bytes_text.h"
#include "clock.h"
#include "counters.h"
#include "device.h"
#include "eviction.h"
#include "following.h"
#include "helper_thread.h"
#include "log.h"
#include "per_device.h"
#include "preparing.h"
#include "reacting.h"
#include "real_cuda.h"
#include "registry.h"
#include "rules.h"
#include "slab.h"
#include "stopping.h"
#include "stopwatch.h"
#include "tell.h"
#include "tracing.h"
#include "waits.h"

PS_PER_DEVICE struct ps_budget_state ps_first_budget;

static PS_PER_DEVICE atomic_bool first_is_tight;
#define tight PS_HERE(first_is_tight)

#define GIB (1ull << 30)

/* How long a thread waits for evictions and last uses that don't end before it goes on without (they depend on the program's own queued work). */
#define GIVE_UP_NS (30ull * 1000000000u)
/* Evictions that end in errors, with none in between that frees pages, until the thread goes on without. */
#define ERRORS_MAX 8
/* With nothing released for so long, who waits is helped by others: at the link's rate a gigabyte has left by then. */
#define STARVING_NS 20000000u
/* Once one has, each waits for so long, until pages are released again: the next launch or allocation may be what all wait for. */
#define GIVE_UP_WHEN_STUCK_NS 20000000u
/* For so long a thread of the program waits for the last use of one freed span; then it looks at all of them again. */
#define ONE_USE_NS 20000000u
/* A wait is looked at anew this often, should the reason for it end without anybody saying so. */
#define LOOK_AGAIN_NS 2000000u

void ps_budget_open(struct ps_amount budget, struct ps_amount reserve, uint64_t device_total, uint64_t device_free)
{
    struct ps_budget_state *b = &ps_budget;
    /* What Penstock does not manage also grows: modules, library workspaces, small allocations. 1/64 is 2.2 GiB on the target GPU. */
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

bool ps_budget_is_tight(void)
{
    return atomic_load_explicit(&tight, memory_order_relaxed);
}

static void hold(size_t bytes)
{
    struct ps_budget_state *b = &ps_budget;

    b->held += bytes;
    if (b->held > b->peak_held)
        b->peak_held = b->held;
    look_whether_tight();
}

static void released(size_t bytes)
{
    ps_budget.held -= bytes;
    ps_budget.released_times++;
    ps_budget.starving = ps_budget.stuck = false;
    look_whether_tight();
    ps_registry_changed();
}

void ps_budget_let_go(struct ps_page_block *block, bool was_owner)
{
    if (--block->references) {
        if (was_owner) {
            block->ownerless = true;
            ps_budget.lingering += block->bytes;
        }
        return;
    }
    if (block->ownerless)
        ps_budget.lingering -= block->bytes;
    ps_budget.releasing += block->bytes; /* the driver has them yet: who looks meanwhile waits, and neither evicts nor gives up */
    ps_registry_unlock();
    ps_pages_release(block->handle);
    ps_registry_lock();
    ps_budget.releasing -= block->bytes;
    released(block->bytes);
    free(block);
}

void ps_budget_give_up(struct ps_page_block *block)
{
    if (!block->ownerless)
        return;
    block->ownerless = false;
    ps_budget.lingering -= block->bytes;
    ps_registry_changed();
}

/* Takes a freed span's pages over; the span becomes a husk that keeps its addresses until its uses are over. [locked] */
static bool take_over(size_t bytes, struct ps_pages *out)
{
    struct ps_span *donor = ps_registry_cached_take(bytes, NULL);

    if (!donor)
        return false;
    donor->life = PS_LIFE_HUSK;
    donor->busy = true;
    donor->has_pages = false;
    donor->pages->references++; /* the husk's mapping, beside the new owner */
    out->block = donor->pages;
    out->donor = donor;
    TAILQ_INSERT_TAIL(&ps_registry.husks, donor, order);
    return true;
}

void ps_budget_donor_done(struct ps_pages *pages)
{
    if (!pages->donor)
        return;
    pages->donor->busy = false;
    pages->donor = NULL;
    ps_eviction_husk_waits();
}

void ps_budget_return(struct ps_pages *pages)
{
    ps_budget_donor_done(pages);
    ps_budget_let_go(pages->block, true);
}

/* 1 when nothing uses the freed span any more, 0 when something does. [unlocked; the span is busy] */
static int uses_are_over(const struct ps_span *span)
{
    if (!ps_rule(RELEASE_WAITS_FOR_USES))
        return 1;
    int over = ps_uses_query(&span->uses);
    if (over == 1 && span->fence_set && ps_cu.cuEventQuery(span->fence) != CUDA_SUCCESS)
        over = 0;
    return over == 1;
}

/* What begins with this ends with end_cached. [locked] */
static void begin_to_end_cached(struct ps_span *span)
{
    span->busy = true;
    ps_budget.ending++;
}

/* The cached span is busy; if its uses are `over`, it is unmapped and released. Its bytes, or 0. [locked; releases the lock meanwhile] */
static uint64_t end_cached(struct ps_span *span, bool over)
{
    uint64_t bytes = span->bytes;
    int r = 0;

    if (over) {
        ps_registry_unlock();
        r = ps_pages_unmap(span->address, span->bytes); /* under a running kernel it would fault, and the driver does not wait (FACTS) */
        ps_registry_lock();
    }
    span->busy = false;
    ps_budget.ending--;
    ps_registry_changed();
    if (!over || r)
        return 0;
    struct ps_page_block *block = span->pages;
    ps_registry_cached_remove(span);
    span->has_pages = false;
    span->pages = NULL;
    span->backing = PS_BACKING_NONE;
    ps_registry_delete(span);
    ps_budget_let_go(block, true);
    return bytes;
}

/* Releases one cached span if its uses are over. Returns its bytes or 0. [locked; releases the lock meanwhile] */
static uint64_t release_cached(struct ps_span *span)
{
    begin_to_end_cached(span);
    ps_registry_unlock();
    bool over = uses_are_over(span);
    ps_registry_lock();
    return end_cached(span, over);
}

/* Whose pages may go. */
enum whose { ANYBODYS, SPARE_ONES, UNWANTED_ONES };

static bool is_among(const struct ps_span *span, enum whose whose)
{
    switch (whose) {
    case SPARE_ONES:
        return ps_preparing_can_spare(span);
    case UNWANTED_ONES:
        return ps_registry_is_unwanted(span);
    default:
        return true;
    }
}

/* A freed span that nobody works on and no D2H reads. [locked] */
static bool is_left_alone(const struct ps_span *span, enum whose whose)
{
    return !span->busy && (!span->readers || !ps_rule(FREE_WAITS_FOR_COPY)) && is_among(span, whose);
}

/* The same, and no launch may use it yet. [locked] */
static bool may_be_unmapped(const struct ps_span *span, enum whose whose)
{
    return !ps_registry_is_awaited(span) && is_left_alone(span, whose);
}

bool ps_budget_end_cached(struct ps_span *span)
{
    return may_be_unmapped(span, ANYBODYS) && release_cached(span);
}

/* Freed spans are freed in about the order in which their uses end: a few at the head that are still in use end the search. */
#define STILL_IN_USE_MAX 4

/* What is held too much for `bytes` more, by the budget or by what the driver has refused; 0: nothing. [locked] */
static uint64_t lacking(size_t bytes)
{
    const struct ps_budget_state *b = &ps_budget;
    uint64_t limit = b->refused_at && b->held && b->refused_at < b->limit ? b->refused_at : b->limit;

    return b->held + bytes > limit ? b->held + bytes - limit : 0;
}

/*
 * The freed span to give up for the pages that lack: the one freed longest ago of those that alone are enough, or the largest. Sizes come again, so
 * each that goes is made anew in the next step, and what a step makes and unmaps is what the driver has time for (ResNet-50 in 60 % of its memory: 172
 * times a step instead of 250, by a model of its recorded step; steps of larger spans are the same). [locked]
 */
static struct ps_span *worth_ending(uint64_t lack, enum whose whose, struct ps_span *const *in_use, int count)
{
    struct ps_span *span, *largest = NULL;

    TAILQ_FOREACH (span, &ps_registry.cached, order) {
        bool enough = span->bytes >= lack, tried = false;
        if (!enough && largest && span->bytes <= largest->bytes)
            continue;
        for (int i = 0; i < count; i++)
            tried |= in_use[i] == span;
        if (tried || !may_be_unmapped(span, whose))
            continue;
        if (enough)
            return span;
        largest = span;
    }
    return largest;
}

/* Releases freed spans whose uses are over, until `least` are released and `room` more may be held. The bytes. [locked; releases the lock meanwhile] */
static uint64_t release(uint64_t least, size_t room, enum whose whose)
{
    struct ps_span *in_use[STILL_IN_USE_MAX];
    uint64_t released = 0;

    for (int count = 0; count < STILL_IN_USE_MAX;) {
        uint64_t lack = room ? lacking(room) : 0;
        if (released >= least && !lack)
            break;
        struct ps_span *span = worth_ending(lack, whose, in_use, count);
        if (!span)
            break;
        uint64_t one = release_cached(span);
        released += one;
        if (!one)
            in_use[count++] = span;
    }
    return released;
}

/* Others have made room meanwhile. With nothing held it is for the driver to say whether there is any. [locked] */
static bool has_room(size_t bytes)
{
    return ps_budget.held && !lacking(bytes);
}

uint64_t ps_budget_trim(uint64_t bytes)
{
    return release(bytes, 0, ANYBODYS);
}

void ps_budget_trim_unwanted(uint64_t bytes)
{
    uint64_t unwanted = ps_registry_unwanted(ps_now_ns(), bytes);

    /* Some may still be in use, one that was only asked for above all: what is wanted does not go in their place. */
    if (unwanted)
        release(unwanted, 0, UNWANTED_ONES);
}

/*
 * Two clocks: the host waits until the device has come to the span's last use, and that may wait, on the device, for what a thread of the program is yet to
 * queue. Such a thread waits for a moment; others may be as long as it takes. 0; -ETIMEDOUT; other -errno. [unlocked; the span is busy]
 */
static int wait_for_uses(const struct ps_span *span)
{
    const bool helper = ps_helper_thread_is_one();
    int r = helper ? ps_uses_host_wait(&span->uses) : ps_uses_host_wait_at_most(&span->uses, ONE_USE_NS);

    if (r || !span->fence_set)
        return r;
    return helper ? ps_cuda_errno(ps_cu.cuEventSynchronize(span->fence)) : ps_event_host_wait_at_most(span->fence, ONE_USE_NS);
}

/*
 * Waits on the host for the oldest freed span's uses, and releases it. 0; -ENOENT: there is none; -ETIMEDOUT: they are not over, and others may be;
 * other -errno: the driver refuses. [locked; releases the lock meanwhile]
 */
static int wait_for_oldest_cached(enum whose whose)
{
    struct ps_span *span;

    TAILQ_FOREACH (span, &ps_registry.cached, order)
        if (may_be_unmapped(span, whose))
            break;
    /* A program that needs the pages of what it has freed before it launches anything would wait for itself: they are free, as it said. What it is launching is not. */
    if (!span && whose == ANYBODYS && !ps_helper_thread_is_one())
        TAILQ_FOREACH (span, &ps_registry.cached, order)
            if (is_left_alone(span, whose) && !span->launching)
                break;
    if (!span)
        return -ENOENT;
    begin_to_end_cached(span);
    ps_registry_unlock();
    int r = wait_for_uses(span);
    ps_registry_lock();
    if (end_cached(span, !r))
        return 0;
    return r ? r : -EIO;
}

/* Helper threads that work ahead leave what there is to a thread of the program that waits. [locked] */
static bool must_stand_back(void)
{
    return ps_budget.program_waits && ps_helper_thread_is_one();
}

bool ps_budget_make_some_room(size_t bytes)
{
    /* With room there it was something else that failed, and trying again at once would be all that this thread did. */
    if (must_stand_back() || has_room(bytes))
        return false;
    return release(0, bytes, SPARE_ONES) || !wait_for_oldest_cached(SPARE_ONES);
}

/* New pages if the budget has room. 0, -ENOMEM (no room, or the driver has none), -errno. [locked; releases the lock meanwhile] */
static int make_pages(size_t bytes, struct ps_pages *out)
{
    struct ps_budget_state *b = &ps_budget;

    if (bytes > b->limit || b->held > b->limit - bytes)
        return -ENOMEM;
    if (b->refused_at && b->held && b->held + bytes > b->refused_at)
        return -ENOMEM;
    struct ps_page_block *block = calloc(1, sizeof *block);
    if (!block)
        return -EIO;
    hold(bytes);
    ps_registry_unlock();
    int r = ps_device_pages_create(bytes, &block->handle);
    ps_registry_lock();
    block->bytes = bytes;
    block->references = 1;
    out->block = block;
    out->donor = NULL;
    if (!r) {
        b->refused_at = 0;
        if (b->held > b->most_there_was)
            b->most_there_was = 0;
    } else {
        free(block);
        b->held -= bytes;
        look_whether_tight();
        ps_count(pages_refused);
        if (r == -ENOMEM) {
            /* Something else holds the device's memory: less than now must be held before it is worth asking again. */
            b->refused_at = b->held;
            if (!b->most_there_was || b->held < b->most_there_was)
                b->most_there_was = b->held;
            ps_log_warn_once(
                BUDGET,
                "the device has no more pages although the budget has room: %s held of %s; spans leave instead, and a smaller PENSTOCK_BUDGET leaves others more",
                ps_bytes_text(b->held).text, ps_bytes_text(b->limit).text);
        }
    }
    return r;
}

/* What is still missing for `bytes` once everything under way has ended and every freed span is released. [locked] */
static uint64_t missing(size_t bytes)
{
    const struct ps_budget_state *b = &ps_budget;
    uint64_t limit = b->refused_at && b->refused_at < b->limit ? b->refused_at : b->limit;
    uint64_t stays = b->held - b->leaving - b->lingering - b->releasing - ps_registry.cached_bytes;

    return stays + bytes > limit ? stays + bytes - limit : 0;
}

/* [locked; releases the lock meanwhile] */
static int obtain_at_once(size_t bytes, bool may_take_over, struct ps_pages *out)
{
    if (may_take_over && take_over(bytes, out))
        return 0;
    return make_pages(bytes, out);
}

int ps_budget_obtain_now(size_t bytes, bool may_take_over, struct ps_pages *out)
{
    return must_stand_back() ? -ENOMEM : obtain_at_once(bytes, may_take_over, out);
}

/* Of one call of ps_budget_obtain. */
struct search {
    uint64_t began, stalled_since; /* ns; 0: there were pages at once */
    uint64_t released_before, errors_before;
    size_t bytes;
    enum ps_tell_wait wait; /* whose it is */
    bool program;           /* the thread is the program's */
    bool tried_to_trace;
};

/* The search has found nothing at once. [locked; releases the lock meanwhile] */
static void begin_to_wait(struct search *s)
{
    s->began = s->stalled_since = ps_waits_begin();
    s->program = !ps_helper_thread_is_one();
    if (!s->program)
        s->wait = PS_TELL_HELPER;
    ps_tell_wait_begins(s->wait, s->bytes);
    if (!s->program)
        return;
    ps_budget.program_waits++;
    /* The device will stand still for want of work unless there are pages soon: the stopwatch tells how long. */
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
    ps_tell_waited(s->wait, s->bytes, s->began, ps_waits_end(s->began));
}

/* Whether waiting leads nowhere any more: nothing was released for long, or evictions end in errors. [locked] */
static bool is_hopeless(struct search *s)
{
    struct ps_budget_state *b = &ps_budget;

    if (b->released_times != s->released_before) {
        s->released_before = b->released_times;
        s->stalled_since = ps_now_ns();
        s->errors_before = ps_counted(eviction_errors);
        return false;
    }
    if (ps_counted(eviction_errors) - s->errors_before >= (b->evictions_fail ? 1 : ERRORS_MAX)) {
        b->evictions_fail = true; /* the driver refuses: the line has been said where it did */
        return true;
    }
    uint64_t stalled_ns = ps_now_ns() - s->stalled_since;
    if (s->program && stalled_ns > STARVING_NS)
        b->starving = true;
    if (stalled_ns <= (b->stuck ? GIVE_UP_WHEN_STUCK_NS : GIVE_UP_NS))
        return false;
    b->stuck = true;
    ps_log_warn_once(
        BUDGET,
        "no eviction and no use of freed memory has ended in %llu s; going on without device pages, slowly; a larger PENSTOCK_BUDGET needs fewer",
        GIVE_UP_NS / 1000000000u);
    return true;
}

static void wait_for_news(void)
{
    ps_budget.waiting++;
    ps_registry_wait_changed(LOOK_AGAIN_NS);
    ps_budget.waiting--;
}

/* One look for pages that aren't there at once. 0: look again; -ENOMEM: nothing can give way. [locked; releases the lock meanwhile] */
static int make_way(size_t bytes, struct search *s)
{
    const struct ps_budget_state *b = &ps_budget;

    /* Freed spans first: releasing one costs microseconds and no copy. */
    if (has_room(bytes) || release(0, bytes, ANYBODYS))
        return 0;
    /* Then spans in use, longest idle first; they leave while we wait. */
    uint64_t need = missing(bytes);
    uint64_t started = need ? ps_reacting_evict(need) : 0;
    if (is_hopeless(s))
        return -ENOMEM;
    /* Wait for D2H copies under way. They wait for queued work only, none of which waits for this thread. */
    if ((b->leaving || b->lingering || b->releasing || ps_eviction_copies_under_way()) && !ps_stopping_has_begun()) {
        wait_for_news();
        return 0;
    }
    /*
     * None is under way: a freed span's last use is what stands between us and pages. One that another thread waits for already is most often the one
     * whose use ends first, and waiting here for the next would miss it; one whose use ends sooner still is found by the next look.
     */
    int r = b->ending ? -EBUSY : wait_for_oldest_cached(ANYBODYS);
    if (!r || r == -ETIMEDOUT)
        return 0;
    if (b->ending && !ps_stopping_has_begun()) {
        wait_for_news();
        return 0;
    }
    if (started || (need && ps_slab_extend(bytes)))
        return 0;
    return -ENOMEM;
}

/* Spans in use can't leave before launches are traced. True, once a search: they are from now on, or it was tried. [locked; releases the lock meanwhile] */
static bool tries_to_trace(struct search *s)
{
    if (s->tried_to_trace || ps_tracing_is_on() || ps_budget.limit == UINT64_MAX)
        return false;
    s->tried_to_trace = true; /* the device is full earlier than the budget says: others use it too */
    ps_registry_unlock();
    ps_tracing_start("the device has no more pages");
    ps_tracing_wait();
    ps_registry_lock();
    return true;
}

int ps_budget_obtain(size_t bytes, bool may_take_over, struct ps_pages *out)
{
    struct ps_budget_state *b = &ps_budget;
    struct search search = {
        .released_before = b->released_times,
        .errors_before = ps_counted(eviction_errors),
        .bytes = bytes,
        .wait = may_take_over ? PS_TELL_LAUNCH_FOR_PAGES : PS_TELL_ALLOCATION, /* only who reloads can take a freed span's pages over */
    };
    int r;

    while ((r = obtain_at_once(bytes, may_take_over, out))) {
        if (bytes > b->limit || (r != -ENOMEM && r != -EAGAIN))
            break;
        /* Else the program has not reached the budget: what it has freed only has to go. */
        if (missing(bytes)) {
            b->reached = true;
            look_whether_tight();
            if (tries_to_trace(&search))
                continue;
        }
        if (!search.began)
            begin_to_wait(&search);
        else if ((r = make_way(bytes, &search)) && !tries_to_trace(&search))
            break;
    }
    end_wait(&search);
    return r;
}

void ps_budget_keep_ahead(void)
{
    const struct ps_budget_state *b = &ps_budget;

    if (!b->reached || ps_following_is_on())
        return;
    uint64_t ahead = b->limit / 16 < 2 * GIB ? b->limit / 16 : 2 * GIB;
    uint64_t need = missing((size_t)ahead);
    if (need && !b->evictions_fail)
        ps_reacting_evict(need);
}
