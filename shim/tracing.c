#include "tracing.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#include "budget.h"
#include "devices.h"
#include "driver_lookup.h"
#include "log.h"
#include "managed_context.h"
#include "process.h"
#include "real_cuda.h"
#include "registry.h"
#include "tracer.h"

static atomic_bool on, failed;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static const struct ps_settings *chosen;
static const char *_Atomic source = "none";

/*
 * Under `auto` both are started, where both can be had: CUPTI sees what by whatever way comes to the driver, and what comes by functions of ours needs
 * no CUPTI, which can be left to a tool that asks for it, without a launch unseen in between.
 */
static int start_source(const char **why)
{
    bool is_auto = chosen->tracer == PS_TRACER_AUTO;
    bool tries_cupti = chosen->tracer == PS_TRACER_CUPTI || (is_auto && !ps_driver_lookup_tool_is_announced());
    const char *why_not = NULL;
    int cupti = tries_cupti ? ps_tracer_cupti_start(chosen->cupti, why) : -ENOTSUP;
    int hooks = chosen->tracer == PS_TRACER_CUPTI ? -ENOTSUP : ps_tracer_hooks_start(tries_cupti ? &why_not : why);

    if (!cupti) {
        *why = NULL;
        atomic_store(&source, "cupti");
        return 0;
    }
    if (hooks)
        return tries_cupti ? cupti : hooks;
    if (tries_cupti)
        ps_log_info(TRACER, "launches are seen by functions in front of the driver's, since %s", *why);
    *why = NULL;
    atomic_store(&source, "hook");
    return 0;
}

bool ps_tracing_leave_cupti(void)
{
    pthread_mutex_lock(&one_at_a_time);
    bool left = ps_tracer_cupti_give_way();
    if (left) {
        atomic_store(&source, "hook");
        ps_log_info(TRACER, "CUPTI is left to another tool that asks for it: launches are seen by functions in front of the driver's");
    }
    pthread_mutex_unlock(&one_at_a_time);
    return left;
}

int ps_tracing_open(bool at_once, const struct ps_settings *settings, const char **why)
{
    chosen = settings;
    if (!at_once)
        return 0;
    int r = start_source(why);
    atomic_store(&on, r == 0);
    return r;
}

const char *ps_tracing_source(void)
{
    return atomic_load(&source);
}

void ps_tracing_assume(void)
{
    atomic_store(&on, true);
}

bool ps_tracing_is_on(void)
{
    return atomic_load_explicit(&on, memory_order_acquire);
}

static void wait_for_devices(void)
{
    const ptrdiff_t before = ps_here;

    for (unsigned i = 0; i < ps_devices_count(); i++) {
        ps_devices_enter(i);
        struct ps_managed_context context = ps_managed_context_enter();
        ps_cu.cuCtxSynchronize();
        ps_managed_context_leave(context);
    }
    ps_here = before;
}

/*
 * Everything launched so far is over when this returns. A launch that another thread had begun before the subscriber was there, and queues only
 * now, is met by the second wait.
 */
static void settle(void)
{
    static const struct timespec a_moment = {.tv_nsec = 1000000};

    wait_for_devices();
    nanosleep(&a_moment, NULL);
    wait_for_devices();
}

bool ps_tracing_start(const char *reason)
{
    const char *why = NULL;

    if (ps_tracing_is_on())
        return true;
    pthread_mutex_lock(&one_at_a_time);
    if (!atomic_load(&on) && !atomic_load(&failed)) {
        if (start_source(&why)) {
            atomic_store(&failed, true);
            ps_process_stand_aside(why);
        } else {
            settle();
            atomic_store_explicit(&on, true, memory_order_release);
            ps_log_info(TRACER, "launches are traced from now on: %s", reason);
        }
    }
    pthread_mutex_unlock(&one_at_a_time);
    return ps_tracing_is_on();
}

void ps_tracing_start_if_due(uint64_t bytes)
{
    if (ps_tracing_is_on() || ps_budget.limit == UINT64_MAX)
        return;
    ps_registry_lock();
    bool due = ps_budget.held - ps_registry.cached_bytes + bytes > ps_budget.limit / 4 * 3;
    ps_registry_unlock();
    if (due)
        ps_tracing_start("three quarters of the budget are in use");
}
