#include "hooks/reclaim.h"

#include "base/log.h"
#include "cuda/capture.h"
#include "cuda/devices.h"
#include "cuda/helper_thread.h"
#include "cuda/managed_context.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/small_cache.h"
#include "process.h"
#include "residency/page_retention.h"
#include "residency/page_supply.h"

/*
 * Gives small kept blocks back, unless a stream is captured. Returns whether any went back. A
 * captured stream takes no free of memory that was allocated before. In the graph that free would
 * be a node without sense, and the block would be lost.
 */
static bool give_small_back(void)
{
    return !ps_capture_anywhere() && ps_small_give_back();
}

bool ps_reclaim_for_others(size_t bytes)
{
    if (ps_inside || !ps_process_has_begun() || !ps_process_is_managing())
        return false;
    /* With one device, another context's memory comes from it too. */
    if (ps_devices_several && ps_devices_enter_current() != PS_DEVICES_MANAGED)
        return false;
    bool some = give_small_back();
    struct ps_managed_context context = ps_managed_context_enter();
    ps_registry_lock();
    /*
     * Obtains pages for the wanted bytes as for a span, and gives them back at once. That trims,
     * evicts and waits by the budget rules, with the device's free memory as the bound. Penstock
     * can't give more than it holds.
     */
    uint64_t before = ps_budget.held, refused_before = ps_budget.refused_at;
    uint64_t wanted = ps_address_rounded(bytes) + ps_reservation.granularity;
    if (wanted > before)
        wanted = before;
    if (!refused_before || refused_before > before)
        ps_budget.refused_at = before;
    struct ps_supply supply;
    if (wanted && !ps_page_supply_obtain(wanted, NULL, &supply)) {
        ps_page_supply_return(&supply);
        ps_budget_give_back_spare(wanted);
        some = true;
    }
    some |= ps_budget.held < before;
    if (!some && ps_budget.refused_at == before)
        /* The driver refused another allocator: there may still be pages for smaller requests. */
        ps_budget.refused_at = refused_before;
    ps_registry_unlock();
    ps_managed_context_leave(context);
    ps_log_debug(BUDGET, "CUDA's allocator was out of memory for %zu bytes: %s", bytes,
                 some ? "Penstock freed some" : "Penstock could free none");
    return some;
}

void ps_reclaim_cached(size_t keep)
{
    give_small_back();
    ps_inside++;
    ps_registry_lock();
    ps_page_retention_trim_to(keep);
    ps_registry_unlock();
    ps_inside--;
}
