/*
 * The tracer's usual source of events: a CUPTI subscriber on the driver domain, for launches, copies and memsets, and on the resource domain,
 * for modules and streams. It sees calls by libraries with a static runtime of their own too (FACTS).
 *
 * Callbacks run on the thread that makes the call, before (ENTER) and after (EXIT) the driver queues it; their data is valid only inside.
 */
#include <cupti.h>
#include <errno.h>

#include "driver_calls.h"
#include "helper_thread.h"
#include "layouts.h"
#include "real_cupti.h"
#include "tracer.h"

static void on_driver_call(CUpti_CallbackId id, const CUpti_CallbackData *data)
{
    if (data->callbackSite == CUPTI_API_ENTER)
        ps_driver_call_begins(id, data->functionParams);
    else
        ps_driver_call_ended(id, data->functionParams,
                             data->functionReturnValue ? *(const CUresult *)data->functionReturnValue : CUDA_ERROR_UNKNOWN);
}

static void on_resource(CUpti_CallbackId id, const CUpti_ResourceData *data)
{
    switch (id) {
    case CUPTI_CBID_RESOURCE_MODULE_LOADED: {
        const CUpti_ModuleResourceData *module = data->resourceDescriptor;
        if (module)
            ps_layouts_add_cubin(module->pCubin, module->cubinSize);
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
    if (ps_inside)
        return;
    ps_inside++;
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API)
        on_driver_call(id, data);
    else if (domain == CUPTI_CB_DOMAIN_RESOURCE)
        on_resource(id, data);
    ps_inside--;
}

int ps_tracer_cupti_start(const char *cupti_path, const char **why)
{
    static const CUpti_CallbackId resource_calls[] = {CUPTI_CBID_RESOURCE_MODULE_LOADED, CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING};
    const struct ps_real_cupti *cupti = NULL;
    CUpti_SubscriberHandle subscriber;
    CUptiResult r = CUPTI_ERROR_UNKNOWN;
    bool found = false;

    *why = "CUPTI (libcupti.so.13 or .12) was not found; PENSTOCK_CUPTI names the file";
    /* One that is newer than the driver, or a rest of another release, refuses: there may be another. */
    for (unsigned place = 0; r != CUPTI_SUCCESS && r != CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED && place < PS_CUPTI_PLACES;
         place++) {
        cupti = ps_real_cupti_open(cupti_path, place);
        if (!cupti)
            continue;
        found = true;
        *why = "CUPTI refused to be subscribed to";
        r = cupti->cuptiSubscribe(&subscriber, on_callback, NULL);
    }
    if (r == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
        *why =
            "another tool (a profiler, a sanitizer) has subscribed to CUPTI, which serves one at a time; PENSTOCK_TRACER=hook does without";
        return -EBUSY;
    }
    if (r != CUPTI_SUCCESS)
        return found ? -EIO : -ENOENT;
    for (size_t i = 0; i < ps_driver_call_count && r == CUPTI_SUCCESS; i++) {
        r = cupti->cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, ps_driver_call_ids[i]);
        if (r != CUPTI_SUCCESS && ps_driver_call_may_be_unknown(ps_driver_call_ids[i]))
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
    return 0;
}
