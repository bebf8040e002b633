#include "stopping.h"

#include "helper_thread.h"
#include "registry.h"

/* How long the end of the process may wait for a copy that a helper thread waits for. */
#define STOP_WAIT_MS 1000

/* Guarded by the registry lock. */
static bool stopping;    /* no driver call by a helper thread from here on */
static unsigned working; /* helper threads that have not parked */

void ps_stopping_begin(void)
{
    if (!ps_registry_lock_soon())
        return;
    stopping = true;
    ps_registry_changed();
    for (int waited = 0; working && waited < STOP_WAIT_MS; waited += 10)
        ps_registry_wait_changed(10000000u);
    ps_registry_unlock();
}

bool ps_stopping_has_begun(void)
{
    return stopping;
}

void ps_stopping_helper_begins(void)
{
    working++;
}

void ps_stopping_park_if_due(void)
{
    if (!stopping)
        return;
    working--;
    ps_registry_changed();
    ps_registry_unlock();
    ps_helper_thread_park();
}
