/*
 * The exported driver functions. Each is made from the list and does the same things in the same
 * order:
 * - counts the call and tells the subscriber that it starts;
 * - answers an unmet need, a capture's refusal or an injected fault;
 * - lets the scheduler run, if the call needs a context;
 * - does the work;
 * - traces the call and tells the subscriber that it ends.
 */
#include <stdatomic.h>

#include <cupti_driver_cbid.h>
#include "call_params.h"

#include "../callbacks.h"
#include "capture.h"
#include "costs.h"
#include "engine.h"
#include "entries.h"
#include "faults.h"
#include "kernels.h"
#include "ledger.h"
#include "notify.h"
#include "trace.h"

#define EXPORTED __attribute__((visibility("default")))

static const char *const entry_names[] = {
#define CUDASIM_ENTRY(needs, name, parameters, arguments) #name,
#define CUDASIM_ENTRY_PTSZ(needs, name, parameters, arguments) #name, #name "_ptsz",
#define CUDASIM_ENTRY_PTDS(needs, name, parameters, arguments) #name, #name "_ptds",
#define CUDASIM_ENTRY_BARE(needs, name) #name,
#include "entry_points.def"
};

static const uint32_t entry_cbids[] = {
#define CUDASIM_ENTRY(needs, name, parameters, arguments) CUPTI_DRIVER_TRACE_CBID_##name,
#define CUDASIM_ENTRY_PTSZ(needs, name, parameters, arguments)                                                         \
    CUPTI_DRIVER_TRACE_CBID_##name, CUPTI_DRIVER_TRACE_CBID_##name##_ptsz,
#define CUDASIM_ENTRY_PTDS(needs, name, parameters, arguments)                                                         \
    CUPTI_DRIVER_TRACE_CBID_##name, CUPTI_DRIVER_TRACE_CBID_##name##_ptds,
#define CUDASIM_ENTRY_BARE(needs, name) CUPTI_DRIVER_TRACE_CBID_##name,
#include "entry_points.def"
};

const char *cudasim_entry_name(unsigned int entry)
{
    return entry_names[entry];
}

/* One call in progress on this thread. Calls nest when a subscriber's callback calls the driver. */
struct call {
    enum cudasim_entry entry;
    enum cudasim_needs needs;
    bool per_thread_default;
    bool met_dead_context;
    const void *params;
    uint32_t correlation_id;
    uint64_t correlation_data;
    struct call *outer;
};

static __thread struct call *current_call;
static _Atomic uint32_t next_correlation_id = 1;

const char *cudasim_call_name(void)
{
    return current_call ? entry_names[current_call->entry] : "";
}

bool cudasim_call_per_thread_default(void)
{
    return current_call && current_call->per_thread_default;
}

void cudasim_call_met_dead_context(void)
{
    if (current_call)
        current_call->met_dead_context = true;
}

static const char *launch_symbol(const struct call *call)
{
    CUfunction function = NULL;
    switch (call->entry) {
    case CUDASIM_CALL_cuLaunchKernel:
    case CUDASIM_CALL_cuLaunchKernel_ptsz:
        function = ((const cuLaunchKernel_params *)call->params)->f;
        break;
    case CUDASIM_CALL_cuLaunchKernelEx:
    case CUDASIM_CALL_cuLaunchKernelEx_ptsz:
        function = ((const cuLaunchKernelEx_params *)call->params)->f;
        break;
    case CUDASIM_CALL_cuLaunchCooperativeKernel:
    case CUDASIM_CALL_cuLaunchCooperativeKernel_ptsz:
        function = ((const cuLaunchCooperativeKernel_params *)call->params)->f;
        break;
    default:
        return NULL;
    }
    const struct cudasim_kernel_entry *kernel = cudasim_kernel_of_function(function);
    return kernel ? kernel->name : NULL;
}

static void tell(struct call *call, bool at_exit, CUresult *result)
{
    if (!cudasim_notify_wanted())
        return;
    CUcontext context = cudasim_context_current();
    struct cudasim_api_event event = {
        .cbid = entry_cbids[call->entry],
        .at_exit = at_exit,
        .name = entry_names[call->entry],
        .params = call->params,
        .result = result,
        .symbol = launch_symbol(call),
        .context = context,
        .context_id = context ? context->id : 0,
        .correlation_id = call->correlation_id,
        .correlation_data = &call->correlation_data,
    };
    cudasim_notify_api(&event);
}

static CUresult begin_call(struct call *call)
{
    call->correlation_id = atomic_fetch_add(&next_correlation_id, 1);
    call->outer = current_call;
    current_call = call;
    cudasim_ledger_call(call->entry);
    CUresult result = CUDA_SUCCESS;
    tell(call, false, &result);
    result = cudasim_check_needs(call->needs);
    if (result == CUDA_SUCCESS)
        result = cudasim_capture_allows(call->entry);
    if (result == CUDA_SUCCESS)
        result = cudasim_fault_for(call->entry, call->params);
    if (result == CUDA_SUCCESS)
        cudasim_call_takes_time(call->entry);
    if (result == CUDA_SUCCESS && call->needs == CUDASIM_NEEDS_CONTEXT) {
        cudasim_lock();
        cudasim_scheduler()->poll(false);
        cudasim_unlock();
    }
    return result;
}

static CUresult end_call(struct call *call, CUresult result)
{
    if (call->met_dead_context && (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_VALUE))
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    cudasim_trace_call(entry_names[call->entry], result, call->outer ? entry_names[call->outer->entry] : NULL);
    tell(call, true, &result);
    current_call = call->outer;
    return result;
}

#define UNWRAP(...) __VA_ARGS__

#define DEFINE_CALL(needs_word, exported, name, per_thread, parameters, arguments)                                     \
    EXPORTED CUresult exported parameters;                                                                             \
    EXPORTED CUresult exported parameters                                                                              \
    {                                                                                                                  \
        exported##_params params = {UNWRAP arguments};                                                                 \
        struct call call = {.entry = CUDASIM_CALL_##exported,                                                          \
                            .needs = CUDASIM_NEEDS_##needs_word,                                                       \
                            .per_thread_default = per_thread,                                                          \
                            .params = &params};                                                                        \
        CUresult result = begin_call(&call);                                                                           \
        if (result == CUDA_SUCCESS)                                                                                    \
            result = cudasim_##name arguments;                                                                         \
        return end_call(&call, result);                                                                                \
    }

#define CUDASIM_ENTRY(needs, name, parameters, arguments) DEFINE_CALL(needs, name, name, false, parameters, arguments)
#define CUDASIM_ENTRY_PTSZ(needs, name, parameters, arguments)                                                         \
    DEFINE_CALL(needs, name, name, false, parameters, arguments)                                                       \
    DEFINE_CALL(needs, name##_ptsz, name, true, parameters, arguments)
#define CUDASIM_ENTRY_PTDS(needs, name, parameters, arguments)                                                         \
    DEFINE_CALL(needs, name, name, false, parameters, arguments)                                                       \
    DEFINE_CALL(needs, name##_ptds, name, true, parameters, arguments)
#define CUDASIM_ENTRY_BARE(needs_word, name)                                                                           \
    EXPORTED CUresult name(void);                                                                                      \
    EXPORTED CUresult name(void)                                                                                       \
    {                                                                                                                  \
        struct call call = {.entry = CUDASIM_CALL_##name, .needs = CUDASIM_NEEDS_##needs_word};                        \
        CUresult result = begin_call(&call);                                                                           \
        if (result == CUDA_SUCCESS)                                                                                    \
            result = cudasim_##name();                                                                                 \
        return end_call(&call, result);                                                                                \
    }
#include "entry_points.def"
