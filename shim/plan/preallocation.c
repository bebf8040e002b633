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
 * How long ahead of the host, which is ahead itself (run_ahead.h), by the recorded durations: some
 * mappings' worth, and few enough pages that nothing else misses them. (Up to 8 of 30 GiB were kept
 * back from reloads with 15 ms of a step that makes 7 GB in 20.)
 */
#define AHEAD_NS 3000000u
/*
 * So many rounds an allocation goes on being prepared for when others of its size would have served
 * it.
 */
#define ROUNDS_KEPT 3u
#define DUE_MAX 1024u

/* An allocation of the step. */
struct birth {
    size_t bytes;
    uint32_t after;   /* the launch that it follows */
    uint8_t missed;   /* it found nothing lately: worth preparing for, for so many rounds more */
    bool is_due;      /* comes soon, and has not come */
    bool is_prepared; /* a span was made for it in this round */
};

struct ps_preallocation {
    uint32_t launches, births;
    struct birth *birth; /* by `after`, those of one launch in their order */
    uint32_t *first;     /* by launch: its first birth; one more at the end */
    uint32_t
        *ahead; /* by launch: the first launch that is not soon after it, counted from 0 and going on over the end */
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
    size_t making; /* bytes of the span that is just being made; 0: none */
    struct ps_preallocation_figures figures;
    struct ps_lazy_thread thread;
} first_dev;
#define dev (&PS_HERE(first_dev))

/* ---- a step made ready ---- */

static void find_births(struct ps_preallocation *p, const struct penstock_step *step)
{
    uint32_t sum = 0;

    for (uint32_t pass = 0; pass < 2; pass++) { /* counted, then put in their places */
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
    for (uint32_t l = step->launches; l > 0; l--) /* each ran on to where the next one's began */
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

/* ---- what comes soon ---- */

/*
 * Births that follow the launches from now_place to before `now->ahead[now_place]`: begin there,
 * end at *end, going round.
 */
static uint32_t soon(uint32_t *end)
{
    uint32_t last = dev->now->ahead[dev->now_place];

    *end = last <= dev->now->launches ? dev->now->first[last]
                                      : dev->now->births + dev->now->first[last - dev->now->launches];
    return dev->now->first[dev->now_place];
}

/* Allocations of the size that are due and come before birth `before`. */
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
            b->missed--; /* one of the others would have done */
        return;
    }
}

static bool is_still_due(uint64_t at)
{
    const struct ps_preallocation *p = dev->due[at % DUE_MAX].of;

    if (!p || p != dev->now)
        return false;
    const struct birth *b = &p->birth[dev->due[at % DUE_MAX].birth];
    /* One whose place was passed did not come in this round. */
    return b->is_due &&
           (b->after + p->launches - dev->now_place) % p->launches < p->ahead[dev->now_place] - dev->now_place;
}

/* ---- the thread ---- */

/*
 * A span with pages behind it comes to the freed ones. 0, -ENOMEM (no pages now), -errno. [locked;
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
 * Two clocks: what is due is told by the host, which may be far ahead of the device; the pages come
 * when the device has let go of them. They are taken when they are nobody's any more (released, or
 * unmapped after their last use), so what is laid with the freed spans is ordered after everything
 * already.
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
            dev->due_done++; /* there will be one left for it */
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
        if (!r && is_still_due(at)) /* the lock was released: it may have come meanwhile, or its step be gone */
            b->is_prepared = true;
        if (at == dev->due_done)
            dev->due_done++;
    }
}

/* The birth comes soon. */
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
        from = place; /* just begun: what came between is soon too */
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
