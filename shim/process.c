#include "process.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes_text.h"
#include "base/log.h"
#include "base/observers.h"
#include "base/policies.h"
#include "base/rank_exchange.h"
#include "base/ranks.h"
#include "base/secure_execution.h"
#include "base/state.h"
#include "cuda/capture.h"
#include "cuda/context_stack.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "cuda/green_contexts.h"
#include "cuda/helper_thread.h"
#include "cuda/runtime.h"
#include "memory/budget.h"
#include "memory/mapping_time.h"
#include "memory/registry.h"
#include "memory/slab.h"
#include "observe/live.h"
#include "observe/report.h"
#include "observe/report_signal.h"
#include "observe/event_trace.h"
#include "plan/answers.h"
#include "plan/following.h"
#include "plan/layer_markers.h"
#include "plan/learning.h"
#include "residency/copies.h"
#include "residency/demand_eviction.h"
#include "residency/eviction.h"
#include "residency/grace.h"
#include "residency/nvtx_emit.h"
#include "residency/prefetch.h"
#include "residency/residency.h"
#include "tracer/nvtx_layers.h"
#include "tracer/start.h"
#include "verify/verify.h"

static struct ps_ranks ranks;
static struct {
    void (*device_is_set_up)(void);
    void (*forked)(void);
} hooks;
static atomic_bool has_managed; /* spans may exist, even if Penstock stands aside by now */
static pthread_mutex_t set_up_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- set-up ---- */

void ps_process_when_device_is_set_up(void (*call)(void))
{
    hooks.device_is_set_up = call;
}

void ps_process_when_forked(void (*call)(void))
{
    hooks.forked = call;
}

static void say_problem(const char *variable, const char *value, const char *accepted, void *ctx)
{
    char text[PS_LOG_LINE_MAX];

    (void)ctx;
    ps_settings_problem_text(text, sizeof text, variable, value, accepted);
    ps_log_warn(SETTINGS, "%s; going on without it", text);
    if (value == ps_settings.trace) /* opening the file would report the same problem again */
        ps_settings.trace[0] = '\0';
}

/*
 * In a forked child CUDA does not work, and our threads are gone. Every hook calls the real
 * function, and the parent writes the report.
 */
static void in_forked_child(void)
{
    atomic_store(&ps_process_state, PS_PROCESS_ASIDE);
    atomic_store(&has_managed, false);
    if (hooks.forked)
        hooks.forked();
    ps_registry_disown(); /* a thread that the child does not have may hold a lock */
    ps_event_trace_forget();
    ps_report_forget();
    ps_live_disown();
    ps_rank_exchange_disown();
}

/*
 * Makes sure that the thread has a context. The runtime makes one at its first call, and ours may
 * come before that.
 */
static void make_sure_of_a_context(void)
{
    CUcontext context = NULL;

    if (ps_cu.cuCtxGetCurrent(&context) == CUDA_SUCCESS && context)
        return;
    ps_real_cudart()->cudaFree(NULL);
}

void ps_process_bind_thread(void)
{
    static __thread bool bound __attribute__((tls_model("initial-exec")));

    if (bound)
        return;
    ps_inside++;
    make_sure_of_a_context();
    ps_inside--;
    bound = true;
}

static bool captures_go_on; /* at the beginning */

/*
 * Returns whether tracing starts at once. Under `auto` it starts when memory becomes short. But a
 * recording is wanted with enough memory, too, and `penstock verify` examines each launch. Captures
 * that go on already must be known.
 */
static bool traces_at_once(void)
{
    return ps_amount_is_named(ps_settings.budget) ||
           (ps_settings.budget.kind == PS_AMOUNT_AUTO && *ps_settings.recording) || ps_verify_is_on() || captures_go_on;
}

/* Sets up the thread's current device, in its current context. Returns 0 or -errno. */
static int set_up_device_here(const char **why)
{
    int r = ps_device_open(why);

    if (r)
        return r;
    *why = "the address space for spans can't be reserved";
    r = ps_registry_open(ps_device.granularity, ps_device.visible < PS_DEVICES_MAX ? ps_device.visible : PS_DEVICES_MAX,
                         ps_devices_count());
    if (r)
        return r;
    ps_registry.counts_births = ps_policies_want_nth() || ps_verify_is_on();
    *why = "copy streams can't be made";
    r = ps_copies_open();
    if (r)
        return r;
    ps_budget_open(ps_settings.budget, ps_settings.reserve, ps_device.total_bytes, ps_device_free_bytes());
    if (ps_amount_is_named(ps_settings.budget))
        ps_mapping_time_find(); /* the budget is named: memory will be short */
    ps_slab_open(ps_settings.host_budget, ranks.local_processes, ps_device.granularity);
    ps_eviction_open(ps_settings.guard);
    ps_eviction_when_left(ps_prefetch_left);
    ps_demand_eviction_open(ps_settings.grace);
    ps_grace_open(ps_settings.grace);
    ps_residency_open(ps_settings.guard);
    ps_following_open(ps_settings.grace, ps_learning_named);
    ps_learning_open(ps_policies_current(), ps_policies_options());
    ps_plan_answers_open();
    if ((traces_at_once() || ps_tracing_notes()) && ps_budget.limit != UINT64_MAX && (r = ps_eviction_prepare(why))) {
        ps_copies_close();
        return r;
    }
    ps_event_trace_add_device();
    ps_live_open_device();
    ps_devices_add(ps_device.context);
    if (hooks.device_is_set_up)
        hooks.device_is_set_up();
    ps_log_info(PROCESS, "managing %s: budget %s of %s, spans from %s in pages of %s", ps_device.name,
                ps_budget.limit == UINT64_MAX ? "unlimited" : ps_bytes_text(ps_budget.limit).text,
                ps_bytes_text(ps_device.total_bytes).text, ps_bytes_text(ps_settings.min_span).text,
                ps_bytes_text(ps_device.granularity).text);
    return 0;
}

/* The same, in the primary context if a green context is current. The green one may go first. */
static int set_up_device(const char **why)
{
    CUcontext now = NULL, pushed = NULL;

    if (ps_green_contexts_exist() && ps_cu.cuCtxGetCurrent(&now) == CUDA_SUCCESS && now)
        ps_context_enter(ps_green_contexts_primary(now), &pushed);
    int r = set_up_device_here(why);
    ps_context_leave(pushed);
    return r;
}

static int set_up(const char **why)
{
    int r = ps_real_cuda_load(), visible = 0;

    *why = r == -ENOENT ? "there is no CUDA driver (libcuda.so.1)"
                        : "the CUDA driver is too old (it lacks functions that Penstock needs)";
    if (r)
        return r;
    make_sure_of_a_context();
    captures_go_on = ps_capture_some_uncounted();
    ps_rank_exchange_open(&ranks, getenv);
    ps_devices_open(ps_cu.cuDeviceGetCount(&visible) == CUDA_SUCCESS && visible > 0 ? (unsigned)visible : 1);
    r = set_up_device(why);
    if (r)
        return r;
    return ps_tracing_open(traces_at_once(), &ps_settings, why);
}

/* Gives each process of a job files of its own, and puts its rank into its lines. */
static void name_what_is_written(void)
{
    char *const files[] = {ps_settings.report, ps_settings.recording, ps_settings.trace, ps_settings.metrics,
                           ps_settings.prometheus};

    ranks = ps_ranks_read(getenv);
    ps_report_set_ranks(&ranks);
    if (ranks.several)
        ps_log_set_rank(ranks.rank);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ps_report_make_absolute(files[i], PS_SETTINGS_PATH_BYTES);
        if (ranks.several)
            ps_ranks_name_file(files[i], PS_SETTINGS_PATH_BYTES, ranks.rank);
    }
}

static void begin(void)
{
    const char *why = NULL;

    if (ps_is_secure_execution()) {
        ps_settings_default(&ps_settings);
        atomic_store(&ps_process_state, PS_PROCESS_ASIDE);
        return;
    }
    ps_settings_read(&ps_settings, environ, say_problem, NULL);
    name_what_is_written();
    ps_settings_check_paths(&ps_settings, say_problem, NULL);
    ps_log_configure(&ps_settings.log);
    ps_layer_markers_open(&ps_settings.layers);
    if (ps_settings.disable) {
        ps_log_info(PROCESS, "PENSTOCK_DISABLE=1: every call passes through");
        atomic_store(&ps_process_state, PS_PROCESS_ASIDE);
        return;
    }
    ps_verify_open(&ps_settings, &ranks);
    ps_policies_open(&ps_settings);
    ps_nvtx_layers_check();
    ps_nvtx_emit_open(ps_nvtx_layers_is_others());
    int r = set_up(&why);
    if (r) {
        ps_log_warn(PROCESS,
                    "standing aside, the program runs as without Penstock: %s; `penstock doctor` tells what to do",
                    why);
        ps_observers.aside(why);
        atomic_store(&ps_process_state, PS_PROCESS_ASIDE);
    } else {
        ps_event_trace_open(ps_settings.trace);
        pthread_atfork(NULL, NULL, in_forked_child);
        atomic_store(&has_managed, true);
        atomic_store(&ps_process_state, PS_PROCESS_MANAGING);
    }
    ps_report_signal_open();
    ps_report_open(r ? why : NULL);
    ps_live_open(&ranks, r ? why : NULL);
}

bool ps_process_is_managing(void)
{
    enum ps_process_state now = atomic_load_explicit(&ps_process_state, memory_order_acquire);

    if (now != PS_PROCESS_NOT_BEGUN)
        return now == PS_PROCESS_MANAGING;
    if (ps_inside)
        return false; /* calls by the set-up itself */
    pthread_mutex_lock(&set_up_lock);
    if (atomic_load(&ps_process_state) == PS_PROCESS_NOT_BEGUN) {
        ps_inside++;
        begin();
        ps_inside--;
    }
    pthread_mutex_unlock(&set_up_lock);
    return atomic_load(&ps_process_state) == PS_PROCESS_MANAGING;
}

/*
 * Sets up a further device, whose current context asks for memory for the first time. [set_up_lock
 * held]
 */
static void begin_further_device(void)
{
    const char *why = "there is no memory for its bookkeeping";
    CUcontext context = NULL;
    CUdevice device;
    unsigned number;

    if (ps_cu.cuCtxGetCurrent(&context) != CUDA_SUCCESS || ps_cu.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return;
    context = ps_green_contexts_primary(context);
    if (ps_devices_find((int)device, &number)) {
        ps_devices_refuse(context);
        ps_log_info(
            PROCESS,
            "device %d is managed in another context: allocations in this one are left to CUDA, and do not move",
            (int)device);
        return;
    }
    if (!ps_devices_new() && !set_up_device(&why))
        return;
    ps_devices_refuse(context);
    ps_log_warn(
        PROCESS,
        "device %d is not managed, unlike the first one: %s; its allocations are left to CUDA; see `penstock doctor`",
        (int)device, why);
}

bool ps_process_enter_device(void)
{
    ps_process_bind_thread();
    enum ps_devices_current current = ps_devices_enter_current();
    if (current == PS_DEVICES_UNKNOWN && !ps_inside && !ps_capture_anywhere()) {
        pthread_mutex_lock(&set_up_lock);
        if (ps_devices_enter_current() == PS_DEVICES_UNKNOWN) {
            ps_inside++;
            begin_further_device();
            ps_inside--;
        }
        pthread_mutex_unlock(&set_up_lock);
        current = ps_devices_enter_current();
    }
    return current == PS_DEVICES_MANAGED;
}

bool ps_process_has_begun(void)
{
    return atomic_load_explicit(&has_managed, memory_order_relaxed);
}
