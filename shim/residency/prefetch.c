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
 * Spans that have left, of which the latest are remembered: a step of ResNet-50's moves some
 * hundred, one of a 70-layer Llama's a thousand.
 */
#define LEFT_MAX 4096u

/* All guarded by the registry lock. */
static PS_PER_DEVICE struct {
    struct {
        struct ps_span *span;
        uint64_t number; /* of the life that left */
    } left[LEFT_MAX];
    uint64_t written; /* left[(written - 1) % LEFT_MAX] left last */
    uint32_t count;
    struct ps_lazy_thread thread;
} first_dev;
#define dev (&PS_HERE(first_dev))

/* The span that left last and is still away, or NULL. [locked] */
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

/* What is to come back now, or NULL. [locked] */
static struct ps_span *wanted(void)
{
    struct ps_span *span = dev->count && !ps_plan.is_on() && !ps_eviction_is_held() ? last_that_left() : NULL;

    return span && ps_budget_has_plenty(span->bytes) ? span : NULL;
}

/*
 * Two clocks: a span is freed where the host is, and its pages may still be in use on the device:
 * the H2D waits for that by an event, or they are released when it is over. What is brought early
 * is queued on the H2D stream ahead of what a launch may yet name: no more than the copies under
 * way.
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
            dev->count--, dev->written--; /* it stays where it is; others may have left meanwhile */
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
