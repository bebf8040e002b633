#include "base/state.h"

#include "base/log.h"
#include "base/observers.h"

_Atomic enum ps_process_state ps_process_state = PS_PROCESS_NOT_BEGUN;
atomic_bool ps_tracing_has_begun, ps_tracing_is_complete;
bool ps_verify_on;

void ps_process_stand_aside(const char *why)
{
    if (atomic_exchange(&ps_process_state, PS_PROCESS_ASIDE) == PS_PROCESS_ASIDE)
        return;
    if (why)
        ps_log_warn(PROCESS, "standing aside from now on: %s; later allocations do not move", why);
    ps_observers.trace_ends();
    if (why)
        ps_observers.aside(why);
}
