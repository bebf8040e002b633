#include "cuda/green_contexts.h"

#include <pthread.h>

#include "base/log.h"
#include "cuda/driver.h"

/* An entry is unused while its context is NULL. The context is written last, and cleared first. */
struct green {
    _Atomic CUcontext context;
    _Atomic CUcontext primary;
    CUgreenCtx green; /* the green context and its device: under the lock */
    CUdevice device;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct green known[PS_GREEN_CONTEXTS_MAX];
atomic_uint ps_green_contexts_known;

/* Returns the entry of a green context; NULL: an unused entry, or NULL without one. [locked] */
static struct green *find(CUgreenCtx green)
{
    for (unsigned i = 0; i < PS_GREEN_CONTEXTS_MAX; i++)
        if (green ? known[i].green == green : !atomic_load(&known[i].context))
            return &known[i];
    return NULL;
}

void ps_green_contexts_made(CUgreenCtx green, CUdevice device)
{
    CUcontext context = NULL, primary = NULL;

    if (!ps_cu.cuCtxFromGreenCtx || !ps_cu.cuDevicePrimaryCtxRetain || !ps_cu.cuDevicePrimaryCtxRelease ||
        ps_cu.cuCtxFromGreenCtx(&context, green) != CUDA_SUCCESS ||
        ps_cu.cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS)
        return;
    ps_cu.cuDevicePrimaryCtxRelease(device); /* the green context keeps it alive */
    if (context == primary)
        return;
    pthread_mutex_lock(&lock);
    struct green *entry = find(NULL);
    if (entry) {
        entry->green = green;
        entry->device = device;
        atomic_store(&entry->primary, primary);
        atomic_store(&entry->context, context);
        atomic_fetch_add(&ps_green_contexts_known, 1);
    }
    pthread_mutex_unlock(&lock);
    if (!entry)
        ps_log_warn_once(PROCESS,
                         "more than %u green contexts at a time: what the streams of the others use stays where it is; "
                         "destroy green contexts that are not used",
                         PS_GREEN_CONTEXTS_MAX);
}

CUcontext ps_green_contexts_context(CUgreenCtx green)
{
    pthread_mutex_lock(&lock);
    const struct green *entry = green ? find(green) : NULL;
    CUcontext context = entry ? atomic_load(&entry->context) : NULL;
    pthread_mutex_unlock(&lock);
    return context;
}

bool ps_green_contexts_device(CUgreenCtx green, CUdevice *device)
{
    pthread_mutex_lock(&lock);
    const struct green *entry = green ? find(green) : NULL;
    if (entry)
        *device = entry->device;
    pthread_mutex_unlock(&lock);
    return entry != NULL;
}

void ps_green_contexts_gone(CUgreenCtx green)
{
    pthread_mutex_lock(&lock);
    struct green *entry = green ? find(green) : NULL;
    if (entry) {
        atomic_store(&entry->context, NULL);
        entry->green = NULL;
        atomic_fetch_sub(&ps_green_contexts_known, 1);
    }
    pthread_mutex_unlock(&lock);
}

CUcontext ps_green_contexts_primary_of(CUcontext context)
{
    for (unsigned i = 0; context && i < PS_GREEN_CONTEXTS_MAX; i++)
        if (atomic_load_explicit(&known[i].context, memory_order_acquire) == context)
            return atomic_load_explicit(&known[i].primary, memory_order_relaxed);
    return context;
}

bool ps_green_contexts_is_current(void)
{
    CUcontext context = NULL;

    return ps_green_contexts_exist() && ps_cu.cuCtxGetCurrent(&context) == CUDA_SUCCESS && context &&
           ps_green_contexts_primary_of(context) != context;
}
