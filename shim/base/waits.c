#include "base/waits.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/counters.h"
#include "base/per_device.h"

/*
 * Held only as long as an addition takes: nothing else is locked or called meanwhile. It guards all
 * data below, and writes to the counter.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t over_ns;  /* ns of waits that are over */
static uint64_t open;     /* number of waits under way */
static uint64_t began_ns; /* the sum of their start times */

static PS_PER_DEVICE _Atomic uint64_t kept_on_first; /* ns */
#define kept_ns PS_HERE(kept_on_first)

static void tell(uint64_t now)
{
    atomic_store_explicit(&ps_counters.host_wait_ns, over_ns + open * now - began_ns, memory_order_relaxed);
}

uint64_t ps_waits_begin(void)
{
    pthread_mutex_lock(&lock);
    uint64_t now = ps_now_ns();
    open++;
    began_ns += now;
    pthread_mutex_unlock(&lock);
    return now;
}

uint64_t ps_waits_end(uint64_t began)
{
    pthread_mutex_lock(&lock);
    uint64_t now = ps_now_ns();
    open--;
    began_ns -= began;
    over_ns += now - began;
    tell(now);
    pthread_mutex_unlock(&lock);
    return now;
}

uint64_t ps_waits_ns(void)
{
    if (!pthread_mutex_trylock(&lock)) {
        tell(ps_now_ns());
        pthread_mutex_unlock(&lock);
    }
    return ps_counted(host_wait_ns);
}

void ps_waits_kept_since(uint64_t began)
{
    atomic_fetch_add_explicit(&kept_ns, ps_now_ns() - began, memory_order_relaxed);
}

uint64_t ps_waits_kept_ns(void)
{
    return atomic_load_explicit(&kept_ns, memory_order_relaxed);
}
