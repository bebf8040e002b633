#include "memory/draining_spans.h"

#include <errno.h>

#include "base/ordering_rules.h"
#include "base/per_device.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/slab.h"

/* A thread walks the list now. Guarded by the registry lock. */
static PS_PER_DEVICE bool first_reaping;
#define reaping PS_HERE(first_reaping)

bool ps_draining_spans_reap(void)
{
    struct ps_span *span, *after;
    bool some_left = false;

    if (reaping)
        return false;
    reaping = true;
    for (span = TAILQ_FIRST(&ps_registry.draining); span; span = after) {
        /* When its wait ends, this thread is called. */
        bool awaited = ps_registry_is_awaited(span);
        if (awaited || span->busy || (span->order.readers && ps_ordering_rule(FREE_WAITS_FOR_COPY))) {
            after = TAILQ_NEXT(span, listed);
            some_left |= !awaited;
            continue;
        }
        span->busy = true;
        ps_registry_unlock();
        /*
         * If the query fails, the host waits. If the wait fails too, it is not known whether the
         * uses have ended.
         */
        int over = ps_uses_query(&span->order.uses);
        if (over < 0 && !ps_uses_host_wait(&span->order.uses))
            over = 1;
        CUresult filled = over == 1 && span->order.fence_set ? ps_cu.cuEventQuery(span->order.fence) : CUDA_SUCCESS;
        if (filled == CUDA_ERROR_NOT_READY)
            over = 0;
        else if (filled != CUDA_SUCCESS && ps_event_host_wait(span->order.fence))
            over = -EIO;
        int r = over == 1 && span->backing != PS_BACKING_NONE ? ps_pages_unmap(span->address, span->bytes) : 0;
        ps_registry_lock();
        /* Only this function takes draining spans out of the list, so the walk can go on. */
        after = TAILQ_NEXT(span, listed);
        span->busy = false;
        if (over != 1 || r) {
            if ((r || over < 0) && span->pages)
                ps_budget_give_up(span->pages); /* once a kernel has faulted, the driver refuses every such call */
            some_left = true;
            continue;
        }
        TAILQ_REMOVE(&ps_registry.draining, span, listed);
        struct ps_pages *pages = span->pages;
        span->pages = NULL;
        span->backing = PS_BACKING_NONE;
        if (span->slot)
            ps_slab_give(span->slot);
        span->slot = NULL;
        ps_registry_delete(span);
        ps_registry_changed();
        if (pages) {
            ps_budget_let_go(pages, false);
            after = TAILQ_FIRST(&ps_registry.draining); /* the lock was released: begin again */
        }
    }
    reaping = false;
    return some_left;
}
