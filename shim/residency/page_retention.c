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

/*
 * Between two such requests a program computes for less than this: the trials of one convolution.
 */
#define ASKS_WITHIN_NS 2000000000u

/* No trim waits longer, whatever the program asks. The program may want half of the free memory. */
#define TRIM_WITHIN_NS 60000000000u

/* All guarded by the registry lock. */
static PS_PER_DEVICE struct {
    uint64_t made;     /* bytes of new spans, made because no freed one served */
    uint64_t asked_at; /* ns, the last time; 0: not recently */
    bool trim_waits;   /* a trim waits until the program asks no more; since `trim_since` */
    uint64_t trim_since;
    size_t keep; /* the bytes that stay after that trim */
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
 * Returns the held bytes above which pages should go back to the driver. Freed spans may keep pages
 * while they are reused. More than an eighth above the peak of live bytes is too much. It is not if
 * each span is wanted again, or a larger one serves. A step whose sizes peak at different times
 * needs more. (ResNet-50: 19 % above. Making and unmaking 48 spans a step there took a tenth of the
 * step on an H200.)
 */
static uint64_t enough(void)
{
    return ps_registry.peak_live_bytes + ps_registry.peak_live_bytes / 8 + 256 * MIB;
}

/*
 * Returns whether the program's sizes hardly come again. A program that repeats makes 1.2 times its
 * peak in all. One that makes a model first and then its shards makes 1.5 times its peak. Spans
 * that last are made by then, at their own size. (Under FSDP2, 30 shards lay for good in spans of
 * twice their size: 2.1 GiB of 40 at the peak.)
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
 * Returns the held bytes above which pages are useless: a quarter above the peak. Steps that repeat
 * hold at most 1.20 of their peak, and make nothing from the second step on.
 * (tests/recordings/freed-spans plays recorded ones.) Sizes that hardly come again are served by
 * larger freed spans. Such pages filled 75 of an H100's 79 GiB for 30 GiB in use, and other
 * programs may want them. With a limit of a half above, a ViT held 31.5 GiB for 22.4.
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
    /* While memory is tight, pages stay with Penstock, within the budget. */
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

/*
 * Runs on a helper thread, and trims once the program asks no more. The program may never call here
 * again, and other programs may want the memory.
 */
static void end_of_asking(void)
{
    ps_registry_lock();
    ps_shutdown_helper_begins();
    for (;;) {
        ps_shutdown_park_if_due();
        if (!dev->asked_at || still_asks()) {
            ps_registry_rest(PS_HELPER_RETENTION, PS_HELPER_LOOKS_NS);
            continue;
        }
        /* While the lock is released, the program may ask again, and want another trim. */
        const bool trims = dev->trim_waits;
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
    dev->asked_at = ps_registry_thread_is_there(&dev->thread, "penstock-retain", end_of_asking) ? ps_now_ns() : 0;
}
