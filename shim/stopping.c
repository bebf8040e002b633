#include "stopping.h"

#include "devices.h"
#include "helper_thread.h"
#include "per_device.h"
#include "registry.h"

/* How long the end of the process may wait for a copy that a helper thread waits for. */
#define STOP_WAIT_MS 1000

/* Guarded by the registry lock. */
static PS_PER_DEVICE struct {
    bool stopping;    /* no driver call by a helper thread from here on */
    unsigned working; /* helper threads that have not parked */
} of_first;
#define here PS_HERE(of_first)

static void stop_here(void)
{
    if (!ps_registry_lock_soon())
        return;
    here.stopping = true;
    ps_registry_call_all();
    ps_registry_changed();
    for (int waited = 0; here.working && waited < STOP_WAIT_MS; waited += 10)
        ps_registry_wait_changed(10000000u);
    ps_registry_unlock();
}

void ps_stopping_begin(void)
{
    const ptrdiff_t before = ps_here;

    for (unsigned i = 0; i < ps_devices_count(); i++) {
        ps_devices_enter(i);
        stop_here();
    }
    ps_here = before;
}

bool ps_stopping_has_begun(void)
{
    return here.stopping;
}

void ps_stopping_helper_begins(void)
{
    here.working++;
}

void ps_stopping_park_if_due(void)
{
    if (!here.stopping)
        return;
    here.working--;
    ps_registry_changed();
    ps_registry_unlock();
    ps_helper_thread_park();
}
