#include "residency/prefetch.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/counters.h"
#include "base/per_device.h"
#include "base/state.h"
#include "cuda/helper_thread.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/shutdown.h"
#include "residency/copies.h"
#include "residency/eviction.h"
#include "residency/page_supply.h"
#include "residency/plan_table.h"
#include "residency/residency.h"

/*
 * The number of evictions that are remembered, the latest ones. A step of ResNet-50 moves some
 * hundred spans, one of a 70-layer Llama a thousand.
 */
#define LEFT_MAX 4096u

/* All guarded by the registry lock. */
static PS_PER_DEVICE struct {
    struct {
        struct ps_span *span;
        uint64_t number; /* the number of the span that left */
    } left[LEFT_MAX];
    uint64_t written; /* left[(written - 1) % LEFT_MAX] left last */
    uint32_t count;
    struct ps_lazy_thread thread;
} first_dev;
#define dev (&PS_HERE(first_dev))

/* Returns the span that left last and is still away, or NULL. [locked] */
static struct ps_span *last_that_left(void)
{
    for (; dev->count; dev->count--, dev->written--) {
        struct ps_span *span = dev->left[(dev->written - 1) % LEFT_MAX].span;
        if (span->number == dev->left[(dev->written - 1) % LEFT_MAX].number && span->life == PS_LIFE_LIVE &&
            span->residency == PS_EVICTED)
            return span;
    }
    return NULL;
}

/* Returns the span to bring back now, or NULL. [locked] */
static struct ps_span *wanted(void)
{
    struct ps_span *span = dev->count && !ps_plan.is_on() && !ps_eviction_is_held() ? last_that_left() : NULL;

    return span && ps_budget_has_plenty(span->bytes) ? span : NULL;
}

/*
 * Brings spans back while memory is free.
 *
 * Two clocks: a span is freed where the host is; its pages may still be in use on the device. The
 * H2D waits for that use by an event, or the pages are released once it is over. Early reloads are
 * queued on the H2D stream ahead of reloads that a launch may yet need. So only a few of them are
 * under way at a time (ps_copies_wait_for_reloads).
 */
static void bring_back(void)
{
    ps_registry_lock();
    ps_shutdown_helper_begins();
    for (;;) {
        ps_shutdown_park_if_due();
        if (!wanted()) {
            ps_registry_rest(PS_HELPER_PREFETCH, PS_HELPER_LOOKS_NS);
            continue;
        }
        ps_registry_unlock();
        ps_copies_wait_for_reloads();
        ps_registry_lock();
        struct ps_span *span = wanted(); /* the lock was released */
        if (!span)
            continue;
        const uint64_t number = span->number;
        int r = ps_residency_bring(span);
        if (!r && span->number == number) {
            span->returns.is_early = true;
            ps_count(early_reloads);
        }
        if (r == -EAGAIN && ps_page_supply_make_some_room(span->bytes))
            continue;
        if (r == -EAGAIN || r == -EBUSY)
            ps_registry_wait_changed(1000000u);
        else if (r && last_that_left() == span)
            dev->count--, dev->written--; /* it stays away; other spans may have left meanwhile */
    }
}

void ps_prefetch_left(struct ps_span *span)
{
    span->returns.is_unwanted |= span->returns.is_early;
    span->returns.is_early = false;
    if (span->returns.is_unwanted || ps_verify_is_on())
        return;
    ps_registry_thread_is_there(&dev->thread, "penstock-fetch", bring_back);
    dev->left[dev->written % LEFT_MAX].span = span;
    dev->left[dev->written++ % LEFT_MAX].number = span->number;
    dev->count += dev->count < LEFT_MAX;
}

void ps_prefetch_freed(void)
{
    if (dev->count && dev->thread.started && wanted())
        ps_registry_call(PS_HELPER_PREFETCH);
}
