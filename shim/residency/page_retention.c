#include "residency/page_retention.h"

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/per_device.h"
#include "cuda/helper_thread.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/shutdown.h"
#include "memory/spare_pages.h"
#include "residency/freed_spans.h"
#include "residency/page_supply.h"

#define MIB (1ull << 20)

/* Longer than a program computes between two times that it asks: one convolution's trials. */
#define ASKS_WITHIN_NS 2000000000u

/*
 * No trim waits for longer, whatever the program asks: half of what is free may be what it wants.
 */
#define TRIM_WITHIN_NS 60000000000u

/* All guarded by the registry lock. */
static PS_PER_DEVICE struct {
    uint64_t made;     /* bytes, of spans that no freed one served */
    uint64_t asked_at; /* ns, the last time; 0: not lately */
    bool trim_waits;   /* until it asks no more; since then */
    uint64_t trim_since;
    size_t keep; /* and then so much stays */
    struct ps_lazy_thread thread;
} first_dev;
#define dev (&PS_HERE(first_dev))

static bool still_asks(void)
{
    const uint64_t now = dev->asked_at ? ps_now_ns() : 0;

    return dev->asked_at && now - dev->asked_at < ASKS_WITHIN_NS &&
           !(dev->trim_waits && now - dev->trim_since > TRIM_WITHIN_NS);
}

/*
 * Freed spans that keep pages are worth it while they are reused. More than an eighth above the
 * most that was ever in use is hoarding, unless each is wanted again, or a larger one serves: a
 * step whose sizes have their peaks at different times needs more (ResNet-50 19 % above, where 48
 * spans a step, made and unmade, took a tenth of the step on an H200).
 */
static uint64_t enough(void)
{
    return ps_registry.peak_live_bytes + ps_registry.peak_live_bytes / 8 + 256 * MIB;
}

/*
 * A program that repeats has 1.2 times the most that was in use made in all, and one that first
 * makes a model and then the shards of it 1.5 times. What lasts is made by then, and is as large as
 * was asked for: under FSDP2 30 shards lay in spans twice as large for good, 2.1 GiB of 40 at the
 * peak.
 */
static bool sizes_hardly_come_again(void)
{
    return dev->made > 2 * ps_registry.peak_live_bytes;
}

bool ps_page_retention_prefers_larger(size_t bytes)
{
    return ps_budget.held + bytes > enough() && sizes_hardly_come_again();
}

/*
 * And more than a quarter above is of no use: steps that repeat come to hold 1.20 of their peak at
 * the most and make nothing from the second on (tests/recordings/freed-spans plays the recorded
 * ones), and sizes that hardly come again are served by larger freed spans. Those filled 75 of an
 * H100's 79 GiB for 30 in use, which others may want; at half above, a ViT held 31.5 GiB for 22.4.
 */
static uint64_t most(void)
{
    return ps_registry.peak_live_bytes + ps_registry.peak_live_bytes / 4 + 256 * MIB;
}

/* [locked; releases the lock meanwhile] */
static void trim(void)
{
    if (ps_budget.held <= enough() || still_asks())
        return;
    ps_page_supply_trim_unwanted(ps_budget.held - enough());
    /* While memory is tight pages stay with Penstock, and the budget is what bounds them. */
    if (ps_budget.held > most() && !ps_budget_is_tight())
        ps_freed_release(ps_budget.held - most(), 0, PS_FREED_NOT_DUE);
}

void ps_page_retention_made(size_t bytes)
{
    dev->made += bytes;
    trim();
}

void ps_page_retention_trim_to(size_t keep)
{
    if (still_asks()) {
        dev->keep = dev->trim_waits && dev->keep < keep ? dev->keep : keep;
        dev->trim_since = dev->trim_waits ? dev->trim_since : ps_now_ns();
        dev->trim_waits = true;
    } else if (ps_registry.cached_bytes + ps_spare_bytes() > keep) {
        ps_page_supply_trim(ps_registry.cached_bytes > keep ? ps_registry.cached_bytes - keep : 0);
    }
}

/* The program may never come here again, and others may want the memory. */
static void end_of_asking(void)
{
    ps_registry_lock();
    ps_shutdown_helper_begins();
    for (;;) {
        ps_shutdown_park_if_due();
        if (!dev->asked_at || still_asks()) {
            ps_registry_rest(PS_HELPER_HOARD, PS_HELPER_LOOKS_NS);
            continue;
        }
        const bool trims = dev->trim_waits; /* it may ask, and want another one, while the lock is released */
        dev->asked_at = 0;
        dev->trim_waits = false;
        if (trims)
            ps_page_retention_trim_to(dev->keep);
        else
            trim();
    }
}

void ps_page_retention_asked(void)
{
    dev->asked_at = ps_registry_thread_is_there(&dev->thread, "penstock-hoard", end_of_asking) ? ps_now_ns() : 0;
}
