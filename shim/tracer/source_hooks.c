#include "tracer/source_hooks.h"

/*
 * The tracer's other source: our functions in front of the driver's. A program reaches them by
 * symbol (exported here), or because its look-ups are answered with them (symbol_lookup.h). This
 * source needs no CUPTI, so profilers and sanitizers can have it.
 *
 * Unlike CUPTI, this source does not see the cubins of modules. Parameter layouts then come from
 * the driver alone (12.4 and newer).
 */
#include <errno.h>
#include <stdatomic.h>

#include "cuda/capture.h"
#include "cuda/driver_functions.h"
#include "cuda/helper_thread.h"
#include "cuda/runtime.h"
#include "tracer/look_ups.h"
#include "tracer/traced_calls.h"
#include "tracer/tracer.h"

static atomic_bool on;

__thread unsigned ps_in_front __attribute__((tls_model("initial-exec")));

static void begins(CUpti_CallbackId id, const void *parameters)
{
    ps_inside++;
    ps_traced_call_begins(id, parameters);
    ps_inside--;
    ps_in_front++;
}

static CUresult ended(CUpti_CallbackId id, const void *parameters, CUresult result)
{
    ps_in_front--;
    ps_inside++;
    ps_traced_call_ended(id, parameters, result);
    ps_inside--;
    return result;
}

/* The call was not traced. It may have ended a capture that nothing counts. */
static CUresult untraced(CUresult result)
{
    if (ps_inside || ps_in_front)
        return result;
    ps_inside++;
    ps_capture_look_at_own();
    ps_inside--;
    return result;
}

#define UNWRAP(...) __VA_ARGS__

/*
 * Defines a function in front of the driver's. It is exported under the driver's name. Its hidden
 * name ps_traced_... makes look-ups find it, even beside other preloaded libraries. While this
 * source is off, and inside Penstock, it goes on to the driver's function: the program pays a
 * branch.
 */
#define STAND_IN(name, parameters, arguments)                                                                          \
    __attribute__((noinline)) static CUresult seen_##name parameters                                                   \
    {                                                                                                                  \
        CUresult(*real) parameters = (CUresult(*) parameters)ps_driver_function(PS_DRIVER_FUNCTION_##name);            \
                                                                                                                       \
        if (!real)                                                                                                     \
            return CUDA_ERROR_NOT_SUPPORTED;                                                                           \
        if (ps_inside || !atomic_load_explicit(&on, memory_order_relaxed))                                             \
            return untraced(real arguments);                                                                           \
        const name##_params made = {UNWRAP arguments};                                                                 \
        begins(CUPTI_DRIVER_TRACE_CBID_##name, &made);                                                                 \
        return ended(CUPTI_DRIVER_TRACE_CBID_##name, &made, real arguments);                                           \
    }                                                                                                                  \
    CUresult ps_traced_##name parameters;                                                                              \
    CUresult ps_traced_##name parameters                                                                               \
    {                                                                                                                  \
        CUresult(*real) parameters = (CUresult(*) parameters)atomic_load_explicit(                                     \
            &ps_driver_found[PS_DRIVER_FUNCTION_##name], memory_order_relaxed);                                        \
                                                                                                                       \
        if (!real || atomic_load_explicit(&on, memory_order_relaxed) || ps_capture_own_are_uncounted())                \
            real = seen_##name;                                                                                        \
        return real arguments;                                                                                         \
    }                                                                                                                  \
    extern CUresult name parameters __attribute__((alias("ps_traced_" #name), visibility("default")));

#define PS_TRACED(name, parameters, arguments, meaning) STAND_IN(name, parameters, arguments)
#define PS_TRACED_BELOW_HOOK(name, meaning)
#define PS_TRACED_PTSZ(name, parameters, arguments, meaning)                                                           \
    STAND_IN(name, parameters, arguments)                                                                              \
    STAND_IN(name##_ptsz, parameters, arguments)
#define PS_TRACED_PTDS(name, parameters, arguments, meaning)                                                           \
    STAND_IN(name, parameters, arguments)                                                                              \
    STAND_IN(name##_ptds, parameters, arguments)
#include "cuda/traced_calls.def"

int ps_source_hooks_start(const char **why)
{
    *why = NULL;
    if (!ps_look_ups_is_ours())
        *why = "launches can be intercepted only from the start; set PENSTOCK_TRACER=hook";
    /* A program without the runtime is linked with the driver, and so with our functions. */
    else if (!ps_look_ups_gave_launch() && ps_real_cudart_release())
        *why = "launches can't be intercepted: the CUDA runtime did not look the driver's functions up by name";
    if (*why)
        return -ENOTSUP;
    atomic_store(&on, true);
    return 0;
}

bool ps_source_hooks_are_on(void)
{
    return atomic_load_explicit(&on, memory_order_relaxed);
}
