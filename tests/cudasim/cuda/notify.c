#include "notify.h"

#include <cupti_callbacks.h>
#include <pthread.h>
#include <stdatomic.h>

#include "engine.h"

static const struct cudasim_callback_sink *_Atomic sink;

__attribute__((visibility("default"))) void cudasim_set_callback_sink(const struct cudasim_callback_sink *new_sink)
{
    atomic_store(&sink, new_sink);
}

bool cudasim_notify_wanted(void)
{
    return atomic_load(&sink) != NULL;
}

void cudasim_notify_api(const struct cudasim_api_event *event)
{
    const struct cudasim_callback_sink *to = atomic_load(&sink);
    if (to)
        to->api(event);
}

/*
 * The real driver holds a lock of its own during resource callbacks, and other calls take it too.
 * On an H200 a subscriber waited for ever in such a callback for a thread inside cuEventCreate or
 * cuEventRecord. Recursive: the subscriber may call the driver.
 */
static pthread_mutex_t driver_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

void cudasim_driver_lock(void)
{
    pthread_mutex_lock(&driver_lock);
}

void cudasim_driver_unlock(void)
{
    pthread_mutex_unlock(&driver_lock);
}

static void tell_resource(const struct cudasim_resource_event *event)
{
    const struct cudasim_callback_sink *to = atomic_load(&sink);
    if (!to)
        return;
    cudasim_driver_lock();
    to->resource(event);
    cudasim_driver_unlock();
}

void cudasim_notify_stream(enum cudasim_notify_stream_kind kind, CUstream stream)
{
    struct cudasim_resource_event event = {
        .kind = kind == CUDASIM_NOTIFY_STREAM_CREATED ? CUPTI_CBID_RESOURCE_STREAM_CREATED
                                                      : CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING,
        .context = cudasim_context_current(),
        .stream = stream,
    };
    tell_resource(&event);
}

void cudasim_notify_context(enum cudasim_notify_context_kind kind, CUcontext context)
{
    struct cudasim_resource_event event = {
        .kind = kind == CUDASIM_NOTIFY_CONTEXT_CREATED ? CUPTI_CBID_RESOURCE_CONTEXT_CREATED
                                                       : CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
        .context = context,
    };
    tell_resource(&event);
}

void cudasim_notify_module_loaded(uint32_t module_id, const void *cubin, size_t cubin_bytes)
{
    struct cudasim_resource_event event = {
        .kind = CUPTI_CBID_RESOURCE_MODULE_LOADED,
        .context = cudasim_context_current(),
        .module_id = module_id,
        .cubin = cubin,
        .cubin_bytes = cubin_bytes,
    };
    tell_resource(&event);
}
