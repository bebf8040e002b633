#include "plan/live_values.h"

#include "base/counters.h"
#include "base/state.h"
#include "base/waits.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/slab.h"
#include "plan/following.h"
#include "plan/learning.h"
#include "plan/step_log.h"

static enum ps_live_state live_state(void)
{
    if (ps_following_is_on())
        return PS_LIVE_PLANNED;
    if (!ps_tracing_is_on())
        return PS_LIVE_IDLE;
    return ps_learning_is_on() && !ps_learning_cost().ns ? PS_LIVE_LEARNING : PS_LIVE_REACTING;
}

void ps_live_values_process(struct ps_live_process_figures *out)
{
#define PS_LIVE_PROCESS(name, kind, unit, metric, source, help) out->name = (source);
#include "base/live.def"
}

void ps_live_values_device(struct ps_live_device_figures *out)
{
    const struct ps_slab_figures slab = ps_slab_figures();

#define PS_LIVE_DEVICE(name, kind, unit, metric, source, help) out->name = (source);
#include "base/live.def"
}
