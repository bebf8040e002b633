/*
 * The simulated CUPTI: one subscriber a process, callbacks for driver calls and for resources. It
 * holds no lock while a callback runs, so a callback may call the driver or this library. The other
 * domains can be enabled and stay silent.
 */
#include "../callbacks.h"

#include <cupti.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

struct CUpti_Subscriber_st {
    CUpti_CallbackFunc function;
    void *userdata;
    bool subscribed;
};

/*
 * There is never more than one. It is never freed, because callbacks under way may still read it
 * after it unsubscribed.
 */
static struct CUpti_Subscriber_st subscriber;
static pthread_mutex_t subscriber_lock = PTHREAD_MUTEX_INITIALIZER;
static CUpti_CallbackFunc _Atomic active_function;
static void *_Atomic active_userdata;

/* CUPTI 12.4 ends with 753, 13.5 with 876 (cupti_driver_cbid.h of these releases). */
#define NEWEST_CBIDS (CUPTI_DRIVER_TRACE_CBID_SIZE > 877 ? CUPTI_DRIVER_TRACE_CBID_SIZE : 877)
#define DRIVER_CBIDS (CUDASIM_CUDA_VERSION < 13000 ? 754 : NEWEST_CBIDS)
#define RESOURCE_CBIDS CUPTI_CBID_RESOURCE_SIZE
static atomic_bool driver_enabled[NEWEST_CBIDS];
static atomic_bool resource_enabled[RESOURCE_CBIDS];
/*
 * Switches of domains that make no callbacks here. They are kept so that they read back as written.
 */
#define SILENT_CBIDS 1024
static atomic_bool silent_enabled[CUPTI_CB_DOMAIN_SIZE][SILENT_CBIDS];

/* ---- events from the driver ---- */

static void on_api(const struct cudasim_api_event *event)
{
    CUpti_CallbackFunc function = atomic_load(&active_function);
    if (!function || event->cbid >= DRIVER_CBIDS ||
        !atomic_load_explicit(&driver_enabled[event->cbid], memory_order_relaxed))
        return;
    CUpti_CallbackData data = {
        .callbackSite = event->at_exit ? CUPTI_API_EXIT : CUPTI_API_ENTER,
        .functionName = event->name,
        .functionParams = event->params,
        .functionReturnValue = event->result,
        .symbolName = event->symbol,
        .context = event->context,
        .contextUid = event->context_id,
        .correlationData = event->correlation_data,
        .correlationId = event->correlation_id,
    };
    function(atomic_load(&active_userdata), CUPTI_CB_DOMAIN_DRIVER_API, event->cbid, &data);
}

static void on_resource(const struct cudasim_resource_event *event)
{
    CUpti_CallbackFunc function = atomic_load(&active_function);
    if (!function || !atomic_load_explicit(&resource_enabled[event->kind], memory_order_relaxed))
        return;
    CUpti_ModuleResourceData module = {
        .moduleId = event->module_id,
        .cubinSize = event->cubin_bytes,
        .pCubin = event->cubin,
    };
    CUpti_ResourceData data = {.context = event->context};
    data.resourceHandle.stream = event->stream;
    if (event->cubin)
        data.resourceDescriptor = &module;
    function(atomic_load(&active_userdata), CUPTI_CB_DOMAIN_RESOURCE, (CUpti_CallbackId)event->kind, &data);
}

static const struct cudasim_callback_sink sink = {.api = on_api, .resource = on_resource};

/* ---- subscribing ---- */

/* With CUDASIM_CUPTI_TAKEN=1 it is as if a profiler had subscribed before. */
static bool taken_by_environment(void)
{
    const char *value = getenv("CUDASIM_CUPTI_TAKEN");
    return value && !strcmp(value, "1");
}

EXPORTED CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc callback,
                                             void *userdata)
{
    if (!handle || !callback)
        return CUPTI_ERROR_INVALID_PARAMETER;
    CUptiResult result = CUPTI_SUCCESS;
    pthread_mutex_lock(&subscriber_lock);
    if (subscriber.subscribed || taken_by_environment()) {
        result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    } else {
        subscriber = (struct CUpti_Subscriber_st){callback, userdata, true};
        atomic_store(&active_userdata, userdata);
        atomic_store(&active_function, callback);
        cudasim_set_callback_sink(&sink);
        *handle = &subscriber;
    }
    pthread_mutex_unlock(&subscriber_lock);
    return result;
}

EXPORTED CUptiResult CUPTIAPI cuptiSubscribe_v2(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc callback,
                                                void *userdata, CUpti_SubscriberParams *params)
{
    if (params && params->structSize != CUpti_SubscriberParams_STRUCT_SIZE)
        return CUPTI_ERROR_INVALID_PARAMETER;
    return cuptiSubscribe(handle, callback, userdata);
}

static bool is_subscriber(CUpti_SubscriberHandle handle)
{
    return handle == &subscriber && subscriber.subscribed;
}

static void set_all(atomic_bool *switches, size_t count, bool on)
{
    for (size_t i = 0; i < count; i++)
        atomic_store_explicit(&switches[i], on, memory_order_relaxed);
}

/* Returns the switches of a domain; NULL for an unknown domain. */
static atomic_bool *switches_of(CUpti_CallbackDomain domain, size_t *count)
{
    switch (domain) {
    case CUPTI_CB_DOMAIN_DRIVER_API:
        *count = DRIVER_CBIDS;
        return driver_enabled;
    case CUPTI_CB_DOMAIN_RESOURCE:
        *count = RESOURCE_CBIDS;
        return resource_enabled;
    case CUPTI_CB_DOMAIN_RUNTIME_API:
    case CUPTI_CB_DOMAIN_SYNCHRONIZE:
    case CUPTI_CB_DOMAIN_NVTX:
    case CUPTI_CB_DOMAIN_STATE:
        *count = SILENT_CBIDS;
        return silent_enabled[domain];
    default:
        return NULL;
    }
}

EXPORTED CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle handle)
{
    CUptiResult result = CUPTI_ERROR_INVALID_PARAMETER;
    pthread_mutex_lock(&subscriber_lock);
    if (is_subscriber(handle)) {
        cudasim_set_callback_sink(NULL);
        atomic_store(&active_function, NULL);
        subscriber.subscribed = false;
        set_all(driver_enabled, DRIVER_CBIDS, false);
        set_all(resource_enabled, RESOURCE_CBIDS, false);
        set_all(&silent_enabled[0][0], sizeof silent_enabled / sizeof **silent_enabled, false);
        result = CUPTI_SUCCESS;
    }
    pthread_mutex_unlock(&subscriber_lock);
    return result;
}

EXPORTED CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle handle,
                                                  CUpti_CallbackDomain domain, CUpti_CallbackId cbid)
{
    CUptiResult result = CUPTI_ERROR_INVALID_PARAMETER;
    size_t count = 0;
    pthread_mutex_lock(&subscriber_lock);
    atomic_bool *switches = is_subscriber(handle) ? switches_of(domain, &count) : NULL;
    if (switches && cbid && cbid < count) {
        atomic_store(&switches[cbid], enable != 0);
        result = CUPTI_SUCCESS;
    }
    pthread_mutex_unlock(&subscriber_lock);
    return result;
}

EXPORTED CUptiResult CUPTIAPI cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle handle,
                                                CUpti_CallbackDomain domain)
{
    CUptiResult result = CUPTI_ERROR_INVALID_PARAMETER;
    size_t count = 0;
    pthread_mutex_lock(&subscriber_lock);
    atomic_bool *switches = is_subscriber(handle) ? switches_of(domain, &count) : NULL;
    if (switches) {
        set_all(switches, count, enable != 0);
        result = CUPTI_SUCCESS;
    }
    pthread_mutex_unlock(&subscriber_lock);
    return result;
}

EXPORTED CUptiResult CUPTIAPI cuptiEnableAllDomains(uint32_t enable, CUpti_SubscriberHandle handle)
{
    CUptiResult result = CUPTI_SUCCESS;
    for (int domain = CUPTI_CB_DOMAIN_DRIVER_API; domain < CUPTI_CB_DOMAIN_SIZE && result == CUPTI_SUCCESS; domain++)
        result = cuptiEnableDomain(enable, handle, (CUpti_CallbackDomain)domain);
    return result;
}

EXPORTED CUptiResult CUPTIAPI cuptiGetCallbackState(uint32_t *enable, CUpti_SubscriberHandle handle,
                                                    CUpti_CallbackDomain domain, CUpti_CallbackId cbid)
{
    CUptiResult result = CUPTI_ERROR_INVALID_PARAMETER;
    size_t count = 0;
    pthread_mutex_lock(&subscriber_lock);
    const atomic_bool *switches = enable && is_subscriber(handle) ? switches_of(domain, &count) : NULL;
    if (switches && cbid < count) {
        *enable = atomic_load(&switches[cbid]);
        result = CUPTI_SUCCESS;
    }
    pthread_mutex_unlock(&subscriber_lock);
    return result;
}
