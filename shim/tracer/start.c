#include "tracer/start.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/state.h"
#include "cuda/capture.h"
#include "cuda/capture_mode.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "cuda/helper_thread.h"
#include "cuda/managed_context.h"
#include "kernels/layouts.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/shutdown.h"
#include "memory/spare_pages.h"
#include "residency/eviction.h"
#include "residency/page_supply.h"
#include "tracer/look_ups.h"
#include "tracer/source_cupti.h"
#include "tracer/source_hooks.h"
#include "tracer/tracer.h"

static atomic_bool failed;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static const struct ps_settings *chosen;

/*
 * The longest time from the first wait in which threads of the program wait for unseen launches.
 * There is a limit because such a launch may itself wait for something that one of them does later.
 */
#define PATIENCE_NS 10000000000u
static const char *_Atomic source = "none";

/*
 * Under `auto` both sources are started, if both are available. CUPTI sees every call that reaches
 * the driver. Calls through our functions need no CUPTI. So CUPTI can be left to a tool that asks
 * for it, and no launch is missed meanwhile.
 */
static int start_source(const char **why)
{
    bool is_auto = chosen->tracer == PS_TRACER_AUTO;
    bool tries_cupti = chosen->tracer == PS_TRACER_CUPTI || (is_auto && !ps_look_ups_tool_is_announced());
    const char *why_not = NULL;
    ps_capture_mode_enter();
    ps_capture_mode_relax(); /* CUPTI makes driver calls of its own */
    int cupti = tries_cupti ? ps_source_cupti_start(chosen->cupti, why) : -ENOTSUP;
    ps_capture_mode_leave();
    int hooks = chosen->tracer == PS_TRACER_CUPTI ? -ENOTSUP : ps_source_hooks_start(tries_cupti ? &why_not : why);

    if (!cupti || !hooks)
        ps_capture_count();
    if (!cupti) {
        *why = NULL;
        atomic_store(&source, "cupti");
        return 0;
    }
    if (hooks)
        return tries_cupti ? cupti : hooks;
    if (tries_cupti)
        ps_log_info(TRACER, "Penstock sees launches by functions in front of the driver's, because %s", *why);
    *why = NULL;
    atomic_store(&source, "hook");
    return 0;
}

bool ps_tracing_leave_cupti(void)
{
    pthread_mutex_lock(&one_at_a_time);
    bool left = ps_source_cupti_give_way();
    if (left) {
        atomic_store(&source, "hook");
        ps_log_info(
            TRACER,
            "CUPTI is left to another tool that asks for it: Penstock sees launches by functions in front of the driver's");
    }
    pthread_mutex_unlock(&one_at_a_time);
    return left;
}

static void trace_now(void)
{
    ps_tracing_start("the device has no more pages");
    ps_tracing_wait();
}

int ps_tracing_open(bool at_once, const struct ps_settings *settings, const char **why)
{
    chosen = settings;
    ps_page_supply_when_untraced(trace_now);
    if (!at_once)
        return 0;
    int r = start_source(why);
    atomic_store(&ps_tracing_has_begun, r == 0);
    atomic_store(&ps_tracing_is_complete, r == 0);
    return r;
}

const char *ps_tracing_source(void)
{
    return atomic_load(&source);
}

void ps_tracing_assume(void)
{
    atomic_store(&ps_tracing_has_begun, true);
    atomic_store(&ps_tracing_is_complete, true);
}

/* Waits for all work that is queued in the managed contexts now. Returns 0 or -errno. */
static int wait_for_devices(void)
{
    const ptrdiff_t before = ps_here;
    int r = 0;

    for (unsigned i = 0; !r && i < ps_devices_count(); i++) {
        ps_devices_enter(i);
        r = ps_managed_context_wait();
    }
    ps_here = before;
    return r;
}

/* Starts the helper threads that evictions need, at each device. */
static int prepare_evictions(const char **why)
{
    const ptrdiff_t before = ps_here;
    int r = 0;

    for (unsigned i = 0; !r && i < ps_devices_count(); i++) {
        ps_devices_enter(i);
        r = ps_eviction_prepare(why);
    }
    ps_here = before;
    return r;
}

/* The settling thread can't use its context. */
static void settling_is_gone(void *unused)
{
    (void)unused;
    atomic_store(&failed, true);
    ps_process_stand_aside("the thread that waits for the device can't use the device's context");
}

static void rest(void)
{
    static const struct timespec a_moment = {.tv_nsec = 1000000};

    nanosleep(&a_moment, NULL);
    ps_registry_lock();
    ps_shutdown_park_if_due();
    ps_registry_unlock();
}

/*
 * Waits until all unseen launches are over. Another thread may have begun a launch before the
 * source was on, and queue it only now. The second wait covers it. During a capture no wait is
 * possible, so it is tried again later.
 */
static void settle(void)
{
    int r;

    ps_registry_lock();
    ps_shutdown_helper_begins();
    ps_registry_unlock();
    const char *why = NULL;
    do {
        rest();
        r = wait_for_devices();
        if (!r) {
            rest();
            r = wait_for_devices();
        }
    } while (r == -EBUSY);
    if (!r && prepare_evictions(&why)) {
        atomic_store(&failed, true);
        ps_process_stand_aside(why);
    } else if (!r) {
        atomic_store_explicit(&ps_tracing_is_complete, true, memory_order_release);
        ps_log_debug(TRACER, "all launches from before tracing have ended: spans may be evicted");
    } else {
        atomic_store(&failed, true);
        ps_log_info(TRACER, "waiting for the device failed (error %d): nothing is evicted", -r);
    }
    ps_registry_lock();
    ps_shutdown_helper_ends();
    ps_registry_unlock();
    ps_helper_thread_park();
}

void ps_tracing_start(const char *reason)
{
    const char *why = NULL;

    if (ps_tracing_notes())
        return;
    pthread_mutex_lock(&one_at_a_time);
    if (!atomic_load(&ps_tracing_has_begun) && !atomic_load(&failed)) {
        int r = start_source(&why);
        ps_layouts_missed_cubins(); /* those from before */
        if (!r) {
            atomic_store_explicit(&ps_tracing_has_begun, true, memory_order_release);
            ps_log_info(TRACER, "launches are traced from now on: %s", reason);
            why = "the thread that waits for the device can't be started";
            r = ps_helper_thread_start("penstock-settle", settle, settling_is_gone, NULL);
        }
        if (r) {
            atomic_store(&failed, true);
            ps_process_stand_aside(why);
        }
    }
    pthread_mutex_unlock(&one_at_a_time);
}

void ps_tracing_wait(void)
{
    static const struct timespec a_moment = {.tv_nsec = 200000};
    static _Atomic uint64_t since;
    uint64_t first = 0;

    if (!ps_tracing_notes() || ps_tracing_is_on())
        return;
    atomic_compare_exchange_strong(&since, &first, ps_now_ns());
    while (!ps_tracing_is_on() && !atomic_load(&failed) && ps_now_ns() - atomic_load(&since) < PATIENCE_NS)
        nanosleep(&a_moment, NULL);
}

void ps_tracing_start_if_due(uint64_t bytes)
{
    if (ps_tracing_notes() || ps_budget.limit == UINT64_MAX)
        return;
    ps_registry_lock();
    bool due = ps_budget.held - ps_registry.cached_bytes - ps_spare_bytes() + bytes > ps_budget.limit / 4 * 3;
    ps_registry_unlock();
    if (due)
        ps_tracing_start("three quarters of the budget are in use");
}
