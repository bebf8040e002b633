#include "plan/preallocation.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/per_device.h"
#include "cuda/device_memory.h"
#include "cuda/helper_thread.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/shutdown.h"
#include "policy/planner/gaps.h"
#include "residency/page_supply.h"

/*
 * How far preparing is ahead of the host, in recorded durations. The host is ahead of the device
 * itself (run_ahead.h). This leaves time for some mappings, and holds few pages, so that no reload
 * lacks them. (15 ms kept up to 8 of 30 GiB back from reloads, in a step that makes 7 GB in 20 ms.)
 */
#define AHEAD_NS 3000000u
/*
 * An allocation is prepared for this many more rounds after freed spans of its size would have
 * done.
 */
#define ROUNDS_KEPT 3u
#define DUE_MAX 1024u

/* An allocation of the step. */
struct birth {
    size_t bytes;
    uint32_t after;   /* the launch that it follows */
    uint8_t missed;   /* rounds for which the allocation is still prepared, because it found no span lately */
    bool is_due;      /* the allocation comes soon, and has not come */
    bool is_prepared; /* a span was made for it in this round */
};

struct ps_preallocation {
    uint32_t launches, births;
    struct birth *birth; /* sorted by `after`; births of one launch keep their order */
    uint32_t *first;     /* by launch: its first birth; one more at the end */
    /*
     * By launch: the first launch that is not soon after it. Counted from 0 and going on beyond
     * the step's end.
     */
    uint32_t *ahead;
};

/* All guarded by the registry lock. */
static PS_PER_DEVICE struct {
    struct ps_preallocation *now;
    uint32_t now_place;
    struct {
        struct ps_preallocation *of;
        uint32_t birth;
    } due[DUE_MAX];
    uint64_t due_written, due_done;
    size_t making; /* bytes of the span that is being made now; 0: none */
    struct ps_preallocation_figures figures;
    struct ps_lazy_thread thread;
} first_dev;
#define dev (&PS_HERE(first_dev))

/* ---- a step made ready ---- */

static void find_births(struct ps_preallocation *p, const struct penstock_step *step)
{
    uint32_t sum = 0;

    for (uint32_t pass = 0; pass < 2; pass++) { /* the first pass counts the births, the second puts them in place */
        for (uint32_t i = 0; i < step->spans; i++) {
            const struct penstock_step_span *span = &step->span[i];
            if (span->born == PENSTOCK_NEVER)
                continue;
            uint32_t after = (ps_launch_from(step, span->born) + step->launches - 1) % step->launches;
            if (pass)
                p->birth[p->first[after]++] = (struct birth){.bytes = span->bytes, .after = after};
            else
                p->first[after]++;
        }
        for (uint32_t l = 0; !pass && l <= step->launches; l++) {
            uint32_t count = p->first[l];
            p->first[l] = sum;
            sum += count;
        }
    }
    for (uint32_t l = step->launches; l > 0; l--) /* each entry ran on to the start of the next one */
        p->first[l] = p->first[l - 1];
    p->first[0] = 0;
}

static void find_ahead(struct ps_preallocation *p, const struct penstock_step *step)
{
    uint32_t end = 0;
    uint64_t ns = 0; /* of the launches after `l` up to `end` */

    for (uint32_t l = 0; l < step->launches; l++) {
        if (end <= l) {
            end = l + 1;
            ns = 0;
        }
        while (end < l + step->launches && ns < AHEAD_NS)
            ns += step->launch[end++ % step->launches].duration_ns;
        p->ahead[l] = end;
        ns -= end > l + 1 ? step->launch[(l + 1) % step->launches].duration_ns : 0;
    }
}

struct ps_preallocation *ps_preallocation_make(const struct penstock_step *step)
{
    struct ps_preallocation *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->launches = step->launches;
    for (uint32_t i = 0; i < step->spans; i++)
        p->births += step->span[i].born != PENSTOCK_NEVER;
    p->birth = calloc(p->births + 1u, sizeof *p->birth);
    p->first = calloc(step->launches + 1u, sizeof *p->first);
    p->ahead = calloc(step->launches + 1u, sizeof *p->ahead);
    if (!p->birth || !p->first || !p->ahead) {
        ps_preallocation_free(p);
        return NULL;
    }
    find_births(p, step);
    find_ahead(p, step);
    return p;
}

void ps_preallocation_leave(void)
{
    dev->now = NULL;
}

void ps_preallocation_free(struct ps_preallocation *p)
{
    if (!p)
        return;
    if (p == dev->now)
        dev->now = NULL;
    for (uint64_t i = dev->due_done; i < dev->due_written; i++)
        if (dev->due[i % DUE_MAX].of == p)
            dev->due[i % DUE_MAX].of = NULL;
    free(p->birth);
    free(p->first);
    free(p->ahead);
    free(p);
}

/* ---- births that come soon ---- */

/*
 * Returns the first birth that comes soon, and sets *end behind the last one. Soon are births after
 * launches from now_place to before `now->ahead[now_place]`, across the step's end if need be.
 */
static uint32_t soon(uint32_t *end)
{
    uint32_t last = dev->now->ahead[dev->now_place];

    *end = last <= dev->now->launches ? dev->now->first[last]
                                      : dev->now->births + dev->now->first[last - dev->now->launches];
    return dev->now->first[dev->now_place];
}

/* Returns the number of due allocations of the size that come before birth `before`. */
static uint32_t due_of(size_t bytes, uint32_t before)
{
    uint32_t end, count = 0;

    for (uint32_t i = soon(&end); i < end && i % dev->now->births != before; i++)
        count += dev->now->birth[i % dev->now->births].is_due && dev->now->birth[i % dev->now->births].bytes == bytes;
    return count;
}

#define NONE UINT32_MAX

bool ps_preallocation_can_spare(const struct ps_span *span)
{
    if (!dev->now || !dev->now->births)
        return true;
    return ps_registry_cached_count(span->bytes) > due_of(span->bytes, NONE);
}

bool ps_preallocation_is_making(size_t bytes)
{
    return dev->making == bytes;
}

void ps_preallocation_allocated(size_t bytes, bool found)
{
    if (!dev->now)
        return;
    dev->figures.missing += !found;
    for (uint32_t i = dev->now->first[dev->now_place]; i < dev->now->first[dev->now_place + 1]; i++) {
        struct birth *b = &dev->now->birth[i];
        if (!b->is_due || b->bytes != bytes)
            continue;
        b->is_due = false;
        if (!found)
            b->missed = ROUNDS_KEPT;
        else if (b->missed && b->is_prepared && ps_registry_cached_count(bytes) > due_of(bytes, NONE))
            b->missed--; /* another freed span would have done */
        return;
    }
}

static bool is_still_due(uint64_t at)
{
    const struct ps_preallocation *p = dev->due[at % DUE_MAX].of;

    if (!p || p != dev->now)
        return false;
    const struct birth *b = &p->birth[dev->due[at % DUE_MAX].birth];
    /* A birth whose place has passed did not come in this round. */
    return b->is_due &&
           (b->after + p->launches - dev->now_place) % p->launches < p->ahead[dev->now_place] - dev->now_place;
}

/* ---- the thread ---- */

/*
 * Adds a freed span with pages. Returns 0, -ENOMEM (no pages now) or another -errno. [locked;
 * releases the lock meanwhile]
 */
static int make(size_t bytes)
{
    struct ps_supply supply;
    int r = ps_page_supply_obtain_now(bytes, NULL, &supply);

    if (r)
        return r;
    struct ps_span *span = ps_registry_new_unowned(bytes);
    if (span) {
        dev->making = bytes;
        ps_registry_unlock();
        r = ps_pages_map(span->address, supply.pages);
        ps_registry_lock();
        dev->making = 0;
        if (!r) {
            span->backing = PS_BACKING_DEVICE;
            span->pages = supply.pages;
            span->has_pages = true;
            ps_registry_cache_unowned(span);
            dev->figures.made++;
        } else {
            ps_registry_delete(span);
        }
    } else {
        r = -ENOSPC;
    }
    if (r)
        ps_page_supply_return(&supply);
    ps_registry_changed();
    return r;
}

/*
 * Two clocks: the host says which births are due, and may be far ahead of the device. Pages come
 * when the device has let go of them. They are taken only when they belong to no span: released, or
 * unmapped after their last use. So a span that is put with the freed ones is ordered after
 * everything already.
 */
static void make_ahead(void)
{
    ps_registry_lock();
    ps_shutdown_helper_begins();
    for (;;) {
        ps_shutdown_park_if_due();
        if (dev->due_done == dev->due_written) {
            ps_registry_rest(PS_HELPER_PAGES, PS_HELPER_LOOKS_NS);
            continue;
        }
        uint64_t at = dev->due_done;
        if (!is_still_due(at)) {
            dev->due_done++;
            continue;
        }
        struct birth *b = &dev->now->birth[dev->due[at % DUE_MAX].birth];
        size_t bytes = b->bytes;
        if (ps_registry_cached_count(bytes) > due_of(bytes, dev->due[at % DUE_MAX].birth)) {
            dev->due_done++; /* a freed span will be left for it */
            continue;
        }
        int r = make(bytes);
        if (r == -ENOMEM) {
            if (ps_page_supply_make_some_room(bytes))
                continue;
            ps_budget.waiting++;
            ps_registry_wait_changed(1000000u);
            ps_budget.waiting--;
            continue;
        }
        /*
         * The lock was released: the allocation may have come meanwhile, or its step may be gone.
         */
        if (!r && is_still_due(at))
            b->is_prepared = true;
        if (at == dev->due_done)
            dev->due_done++;
    }
}

/* Queues the birth to be prepared, because it comes soon. */
static void falls_due(struct ps_preallocation *p, uint32_t birth)
{
    struct birth *b = &p->birth[birth];

    b->is_due = true;
    b->is_prepared = false;
    if (!b->missed || dev->due_written - dev->due_done == DUE_MAX ||
        !ps_registry_thread_is_there(&dev->thread, "penstock-pages", make_ahead))
        return;
    dev->due[dev->due_written % DUE_MAX].of = p;
    dev->due[dev->due_written++ % DUE_MAX].birth = birth;
    ps_registry_call(PS_HELPER_PAGES);
}

void ps_preallocation_at(struct ps_preallocation *p, uint32_t place)
{
    uint32_t from = p->ahead[place ? place - 1 : p->launches - 1], to = p->ahead[place];

    if (!p->births)
        return;
    if (p != dev->now)
        from = place; /* the plan has just begun: births in between are soon, too */
    else if (!place)
        from -= from >= p->launches ? p->launches : from;
    dev->now = p;
    dev->now_place = place;
    for (uint32_t l = from; l < to; l++)
        for (uint32_t i = p->first[l % p->launches]; i < p->first[l % p->launches + 1]; i++)
            falls_due(p, i);
}

struct ps_preallocation_figures ps_preallocation_figures(void)
{
    return dev->figures;
}
