#include "memory/shutdown.h"

#include "base/clock.h"
#include "base/per_device.h"
#include "cuda/devices.h"
#include "cuda/helper_thread.h"
#include "memory/registry.h"

/* How long the end of the process waits for copies that helper threads wait for. */
#define STOP_WAIT_NS 1000000000u

/* Guarded by the registry lock. */
static PS_PER_DEVICE struct {
    bool stopping;    /* helper threads make no driver call from here on */
    unsigned working; /* helper threads that have not parked */
} first_dev;
#define dev (&PS_HERE(first_dev))

static void stop_here(void)
{
    if (!ps_registry_lock_soon())
        return;
    dev->stopping = true;
    ps_registry_call_all();
    ps_registry_changed();
    ps_registry_unlock();
}

static void wait_here(uint64_t until)
{
    if (!ps_registry_lock_soon())
        return;
    /*
     * Each piece of a helper thread's work wakes this thread, so the limit is a time, not a count.
     */
    while (dev->stopping && dev->working && ps_now_ns() < until)
        ps_registry_wait_changed(10000000u);
    ps_registry_unlock();
}

void ps_shutdown_begin(void)
{
    const ptrdiff_t before = ps_here;
    const uint64_t until = ps_now_ns() + STOP_WAIT_NS;

    for (unsigned i = 0; i < ps_devices_count(); i++) {
        ps_devices_enter(i);
        stop_here();
    }
    for (unsigned i = 0; i < ps_devices_count(); i++) {
        ps_devices_enter(i);
        wait_here(until);
    }
    ps_here = before;
}

bool ps_shutdown_has_begun(void)
{
    return dev->stopping;
}

bool ps_shutdown_asked(void)
{
    ps_registry_lock();
    const bool begun = dev->stopping;
    ps_registry_unlock();
    return begun;
}

void ps_shutdown_helper_begins(void)
{
    dev->working++;
}

void ps_shutdown_helper_ends(void)
{
    dev->working--;
    ps_registry_changed();
}

void ps_shutdown_park_if_due(void)
{
    if (!dev->stopping)
        return;
    ps_shutdown_helper_ends();
    ps_registry_unlock();
    ps_helper_thread_park();
}
