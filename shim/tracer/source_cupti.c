#include "tracer/source_cupti.h"

/*
 * The tracer's first source: a CUPTI subscriber. It subscribes to the driver domain for launches,
 * copies and memsets, and to the resource domain for modules. It also sees calls of libraries with
 * a static runtime of their own (shim/README.md#tracing).
 *
 * Callbacks run on the thread that makes the call, before (ENTER) and after (EXIT) the driver
 * queues it. Their data is valid only inside the callback.
 */
#include <cupti.h>
#include <errno.h>
#include <stdatomic.h>

#include "base/log.h"
#include "base/state.h"
#include "cuda/cupti.h"
#include "cuda/helper_thread.h"
#include "kernels/layouts.h"
#include "tracer/source_hooks.h"
#include "tracer/traced_calls.h"
#include "tracer/tracer.h"

static const struct ps_real_cupti *cupti; /* the CUPTI of `subscriber` */
static CUpti_SubscriberHandle subscriber;
static atomic_bool subscribed;
/*
 * A call came through CUPTI alone, though our functions in front of the driver's are on. CUPTI
 * can't be left to another tool then.
 */
static atomic_bool saw_alone;

static void on_driver_call(CUpti_CallbackId id, const CUpti_CallbackData *data)
{
    if (data->callbackSite == CUPTI_API_ENTER && ps_source_hooks_are_on() && ps_tracing_is_on() &&
        !ps_traced_call_is_below_hook(id))
        atomic_store_explicit(&saw_alone, true, memory_order_relaxed);
    if (data->callbackSite == CUPTI_API_ENTER)
        ps_traced_call_begins(id, data->functionParams);
    else
        ps_traced_call_ended(id, data->functionParams,
                             data->functionReturnValue ? *(const CUresult *)data->functionReturnValue
                                                       : CUDA_ERROR_UNKNOWN);
}

static void on_resource(CUpti_CallbackId id, const CUpti_ResourceData *data)
{
    switch (id) {
    case CUPTI_CBID_RESOURCE_MODULE_LOADED: {
        const CUpti_ModuleResourceData *module = data->resourceDescriptor;
        ps_layouts_add_cubin(module ? module->pCubin : NULL, module ? module->cubinSize : 0);
        break;
    }
    case CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING:
        ps_layouts_module_gone();
        break;
    default:
        break;
    }
}

static void CUPTIAPI on_callback(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
    (void)user;
    /* Modules are the program's, also those that a call of Penstock's loads. */
    const bool is_resource = domain == CUPTI_CB_DOMAIN_RESOURCE;
    if (ps_inside && !is_resource)
        return;
    ps_inside++;
    if (is_resource)
        on_resource(id, data);
    else if (domain == CUPTI_CB_DOMAIN_DRIVER_API && !ps_in_front)
        on_driver_call(id, data);
    ps_inside--;
}

int ps_source_cupti_start(const char *cupti_path, const char **why)
{
    static const CUpti_CallbackId resource_calls[] = {CUPTI_CBID_RESOURCE_MODULE_LOADED,
                                                      CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING};
    CUptiResult r = CUPTI_ERROR_UNKNOWN;
    bool found = false;

    *why = "CUPTI (libcupti.so.13 or .12) was not found; PENSTOCK_CUPTI names the file";
    /*
     * A CUPTI that is newer than the driver, or left over from another release, refuses. The next
     * place may have one that works.
     */
    for (unsigned place = 0;
         r != CUPTI_SUCCESS && r != CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED && place < PS_CUPTI_PLACES;
         place++) {
        cupti = ps_real_cupti_open(cupti_path, place);
        if (!cupti)
            continue;
        found = true;
        *why = "CUPTI refused the subscription";
        r = cupti->cuptiSubscribe(&subscriber, on_callback, NULL);
    }
    if (r == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
        *why = "another tool (a profiler, a sanitizer) has subscribed to CUPTI, which "
               "serves one tool at a time; PENSTOCK_TRACER=hook works without CUPTI";
        return -EBUSY;
    }
    if (r != CUPTI_SUCCESS)
        return found ? -EIO : -ENOENT;
    for (size_t i = 0; i < ps_traced_call_count && r == CUPTI_SUCCESS; i++) {
        r = cupti->cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, ps_traced_call_ids[i]);
        if (r != CUPTI_SUCCESS && ps_traced_call_may_be_unknown(ps_traced_call_ids[i]))
            r = CUPTI_SUCCESS;
    }
    for (size_t i = 0; i < sizeof resource_calls / sizeof *resource_calls && r == CUPTI_SUCCESS; i++)
        r = cupti->cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, resource_calls[i]);
    if (r != CUPTI_SUCCESS) {
        cupti->cuptiUnsubscribe(subscriber);
        *why = "CUPTI does not offer the callbacks that are needed";
        return -EIO;
    }
    *why = NULL;
    atomic_store(&subscribed, true);
    return 0;
}

bool ps_source_cupti_give_way(void)
{
    if (!atomic_load(&subscribed) || !ps_source_hooks_are_on())
        return false;
    if (atomic_load(&saw_alone)) {
        ps_log_warn_once(TRACER,
                         "another tool (a profiler) asked for CUPTI and was refused, because Penstock sees some "
                         "launches through CUPTI alone; PENSTOCK_TRACER=hook leaves CUPTI to the tool");
        return false;
    }
    atomic_store(&subscribed, false);
    ps_layouts_missed_cubins();
    return cupti->cuptiUnsubscribe(subscriber) == CUPTI_SUCCESS;
}
