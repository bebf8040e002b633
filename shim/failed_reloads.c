#include "failed_reloads.h"

#include <errno.h>

#include "counters.h"
#include "guard.h"
#include "log.h"
#include "process.h"
#include "registry.h"

/*
 * Two clocks: the H2D may write to the pages and read the slot at any time to come. So the span stays on the pages, which `readers` keeps mapped, and the slot is
 * never given back.
 */
static void leave_alone(struct ps_span *span, const struct ps_pages *pages)
{
    span->pages = pages->block;
    span->has_pages = true;
    span->residency = PS_RESIDENT;
    span->readers++;
    span->slot = NULL;
    span->pinned = true;
    TAILQ_INSERT_TAIL(&ps_registry.idle_order, span, order);
    span->last_access = ps_registry.launch_number;
    ps_count(reload_errors);
    ps_registry_changed();
}

int ps_reload_failed(struct ps_span *span, struct ps_pages *pages, int error)
{
    if (error == -EINPROGRESS) {
        leave_alone(span, pages);
        return error;
    }
    if (error != -ETIMEDOUT && span->backing == PS_BACKING_NONE && ps_guard_is_for(ps_settings.guard, false))
        ps_guard_soon(span); /* its slot could not be mapped again */
    /* Nothing has been done: launches on the slot go on (-ETIMEDOUT), or what is to be waited for is on a stream that is being captured (-EBUSY). */
    if (error != -ETIMEDOUT && error != -EBUSY) {
        ps_count(reload_errors);
        ps_log_warn_once(
            RESIDENCY,
            "the driver refused a reload (error %d); the span stays on the host, and is read there, slowly; a smaller PENSTOCK_BUDGET leaves the driver more room",
            -error);
    }
    ps_budget_return(pages);
    return error == -EBUSY ? -ECANCELED : error;
}
