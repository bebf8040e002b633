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
#include "policy/planner/moments.h"
#include "residency/page_supply.h"

/*
 * How long ahead of the host, which is ahead itself (run_ahead.h), by the recorded durations: some mappings' worth, and few enough pages that nothing else misses
 * them. (Up to 8 of 30 GiB were kept back from reloads with 15 ms of a step that makes 7 GB in 20.)
 */
#define AHEAD_NS 3000000u
/* So many rounds an allocation goes on being prepared for when others of its size would have served it. */
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
    uint32_t *ahead;     /* by launch: the first launch that is not soon after it, counted from 0 and going on over the end */
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
} of_first;
#define here PS_HERE(of_first)

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
    here.now = NULL;
}

void ps_preallocation_free(struct ps_preallocation *p)
{
    if (!p)
        return;
    if (p == here.now)
        here.now = NULL;
    for (uint64_t i = here.due_done; i < here.due_written; i++)
        if (here.due[i % DUE_MAX].of == p)
            here.due[i % DUE_MAX].of = NULL;
    free(p->birth);
    free(p->first);
    free(p->ahead);
    free(p);
}

/* ---- what comes soon ---- */

/* Births that follow the launches from now_place to before `now->ahead[now_place]`: begin there, end at *end, going round. */
static uint32_t soon(uint32_t *end)
{
    uint32_t last = here.now->ahead[here.now_place];

    *end = last <= here.now->launches ? here.now->first[last] : here.now->births + here.now->first[last - here.now->launches];
    return here.now->first[here.now_place];
}

/* Allocations of the size that are due and come before birth `before`. */
static uint32_t due_of(size_t bytes, uint32_t before)
{
    uint32_t end, count = 0;

    for (uint32_t i = soon(&end); i < end && i % here.now->births != before; i++)
        count += here.now->birth[i % here.now->births].is_due && here.now->birth[i % here.now->births].bytes == bytes;
    return count;
}

#define NONE UINT32_MAX

bool ps_preallocation_can_spare(const struct ps_span *span)
{
    if (!here.now || !here.now->births)
        return true;
    return ps_registry_cached_count(span->bytes) > due_of(span->bytes, NONE);
}

bool ps_preallocation_is_making(size_t bytes)
{
    return here.making == bytes;
}

void ps_preallocation_allocated(size_t bytes, bool found)
{
    if (!here.now)
        return;
    here.figures.missing += !found;
    for (uint32_t i = here.now->first[here.now_place]; i < here.now->first[here.now_place + 1]; i++) {
        struct birth *b = &here.now->birth[i];
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
    const struct ps_preallocation *p = here.due[at % DUE_MAX].of;

    if (!p || p != here.now)
        return false;
    const struct birth *b = &p->birth[here.due[at % DUE_MAX].birth];
    /* One whose place was passed did not come in this round. */
    return b->is_due && (b->after + p->launches - here.now_place) % p->launches < p->ahead[here.now_place] - here.now_place;
}

/* ---- the thread ---- */

/* A span with pages behind it comes to the freed ones. 0, -ENOMEM (no pages now), -errno. [locked; releases the lock meanwhile] */
static int make(size_t bytes)
{
    struct ps_pages pages;
    int r = ps_page_supply_obtain_now(bytes, NULL, &pages);

    if (r)
        return r;
    struct ps_span *span = ps_registry_new_unowned(bytes);
    if (span) {
        here.making = bytes;
        ps_registry_unlock();
        r = ps_pages_map(span->address, pages.block);
        ps_registry_lock();
        here.making = 0;
        if (!r) {
            span->backing = PS_BACKING_DEVICE;
            span->pages = pages.block;
            span->has_pages = true;
            ps_registry_cache_unowned(span);
            here.figures.made++;
        } else {
            ps_registry_delete(span);
        }
    } else {
        r = -ENOSPC;
    }
    if (r)
        ps_page_supply_return(&pages);
    ps_registry_changed();
    return r;
}

/*
 * Two clocks: what is due is told by the host, which may be far ahead of the device; the pages come when the device has let go of them. They are
 * taken when they are nobody's any more (released, or unmapped after their last use), so what is laid with the freed spans is ordered after
 * everything already.
 */
static void make_ahead(void)
{
    ps_registry_lock();
    ps_shutdown_helper_begins();
    for (;;) {
        ps_shutdown_park_if_due();
        if (here.due_done == here.due_written) {
            ps_registry_rest(PS_HELPER_PAGES, PS_HELPER_LOOKS_NS);
            continue;
        }
        uint64_t at = here.due_done;
        if (!is_still_due(at)) {
            here.due_done++;
            continue;
        }
        struct birth *b = &here.now->birth[here.due[at % DUE_MAX].birth];
        size_t bytes = b->bytes;
        if (ps_registry_cached_count(bytes) > due_of(bytes, here.due[at % DUE_MAX].birth)) {
            here.due_done++; /* there will be one left for it */
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
        if (at == here.due_done)
            here.due_done++;
    }
}

/* The birth comes soon. */
static void falls_due(struct ps_preallocation *p, uint32_t birth)
{
    struct birth *b = &p->birth[birth];

    b->is_due = true;
    b->is_prepared = false;
    if (!b->missed || here.due_written - here.due_done == DUE_MAX ||
        !ps_registry_thread_is_there(&here.thread, "penstock-pages", make_ahead))
        return;
    here.due[here.due_written % DUE_MAX].of = p;
    here.due[here.due_written++ % DUE_MAX].birth = birth;
    ps_registry_call(PS_HELPER_PAGES);
}

void ps_preallocation_at(struct ps_preallocation *p, uint32_t place)
{
    uint32_t from = p->ahead[place ? place - 1 : p->launches - 1], to = p->ahead[place];

    if (!p->births)
        return;
    if (p != here.now)
        from = place; /* just begun: what came between is soon too */
    else if (!place)
        from -= from >= p->launches ? p->launches : from;
    here.now = p;
    here.now_place = place;
    for (uint32_t l = from; l < to; l++)
        for (uint32_t i = p->first[l % p->launches]; i < p->first[l % p->launches + 1]; i++)
            falls_due(p, i);
}

struct ps_preallocation_figures ps_preallocation_figures(void)
{
    return here.figures;
}
