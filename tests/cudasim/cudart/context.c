/*
 * Device selection, and the context that a thread's runtime calls go to.
 *
 * A thread gets its context at its first call that needs one. Its context is remembered with the
 * number of resets until then. After cudaDeviceReset every thread gets its context again.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "runtime.h"

/* The primary context of one device, if this library holds a reference to it. */
struct primary {
    CUcontext context; /* NULL: not retained */
};

static pthread_mutex_t primaries_lock = PTHREAD_MUTEX_INITIALIZER;
static struct primary *primaries; /* guarded by primaries_lock; one per device, made once */
static int primaries_count;       /* guarded by primaries_lock */

static atomic_bool driver_ready;
static atomic_bool unloaded;
static atomic_uint reset_count = 1;

/* The reset_count under which this thread got its context; 0: it has none yet. */
static _Thread_local unsigned bound_under;
static _Thread_local int chosen_device; /* ordinal from cudaSetDevice */

/*
 * The real runtime has its handler from its first use on, too. So it runs before the program's
 * kernels are unregistered. Every call then answers cudaErrorCudartUnloading (CUDA 13.0, both
 * libraries).
 */
static void unload(void)
{
    atomic_store(&unloaded, true);
}

static void unload_at_exit(void)
{
    atexit(unload);
}

bool cudasim_runtime_unloaded(void)
{
    return atomic_load_explicit(&unloaded, memory_order_relaxed);
}

CUresult cudasim_driver_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (cudasim_runtime_unloaded())
        return CUDA_ERROR_DEINITIALIZED;
    if (atomic_load_explicit(&driver_ready, memory_order_acquire))
        return CUDA_SUCCESS;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS) {
        pthread_once(&once, unload_at_exit);
        atomic_store_explicit(&driver_ready, true, memory_order_release);
    }
    return result;
}

CUresult cudasim_device_from_ordinal(int ordinal, CUdevice *device)
{
    CUresult result = cudasim_driver_init();
    return result == CUDA_SUCCESS ? cuDeviceGet(device, ordinal) : result;
}

/* Makes the table of primary contexts. Holds primaries_lock. */
static CUresult make_primaries(void)
{
    if (primaries != NULL)
        return CUDA_SUCCESS;
    int count = 0;
    CUresult result = cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS)
        return result;
    if (count <= 0)
        return CUDA_ERROR_NO_DEVICE;
    primaries = calloc((size_t)count, sizeof *primaries);
    if (primaries == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    primaries_count = count;
    return CUDA_SUCCESS;
}

/*
 * The driver is called without the lock, because a CUPTI subscriber may call the runtime from
 * inside.
 */
CUresult cudasim_primary_context(int ordinal, CUcontext *context)
{
    CUdevice device;
    CUresult result = cudasim_device_from_ordinal(ordinal, &device);
    if (result != CUDA_SUCCESS)
        return result;

    pthread_mutex_lock(&primaries_lock);
    result = make_primaries();
    if (result == CUDA_SUCCESS && (ordinal < 0 || ordinal >= primaries_count))
        result = CUDA_ERROR_INVALID_DEVICE;
    CUcontext retained = result == CUDA_SUCCESS ? primaries[ordinal].context : NULL;
    pthread_mutex_unlock(&primaries_lock);
    if (result != CUDA_SUCCESS || retained != NULL) {
        *context = retained;
        return result;
    }

    result = cuDevicePrimaryCtxRetain(context, device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&primaries_lock);
    bool first = primaries[ordinal].context == NULL;
    primaries[ordinal].context = *context;
    pthread_mutex_unlock(&primaries_lock);
    return first ? CUDA_SUCCESS : cuDevicePrimaryCtxRelease(device);
}

/*
 * Returns whether `context` is one of ours. After a reset such a context must be retained again
 * before use.
 */
static bool is_primary(CUcontext context)
{
    bool found = false;
    pthread_mutex_lock(&primaries_lock);
    for (int i = 0; i < primaries_count; i++)
        found = found || primaries[i].context == context;
    pthread_mutex_unlock(&primaries_lock);
    return found;
}

/* Makes the primary context of the device `ordinal` current in the calling thread. */
static CUresult bind_primary(int ordinal)
{
    unsigned resets = atomic_load(&reset_count);
    CUcontext context = NULL;
    CUresult result = cudasim_primary_context(ordinal, &context);
    if (result == CUDA_SUCCESS)
        result = cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS)
        bound_under = resets;
    return result;
}

static CUresult bind_thread(void)
{
    CUresult result = cudasim_driver_init();
    if (result != CUDA_SUCCESS)
        return result;
    /*
     * A context that the program itself made current stays. A context of ours can only be here from
     * before a reset.
     */
    CUcontext current = NULL;
    unsigned resets = atomic_load(&reset_count);
    if (bound_under == 0 && cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != NULL && !is_primary(current)) {
        bound_under = resets;
        return CUDA_SUCCESS;
    }
    return bind_primary(chosen_device);
}

CUresult cudasim_runtime_begin(const char *entry_point)
{
    cudasim_count_runtime_call(entry_point, 1);
    if (cudasim_runtime_unloaded())
        return CUDA_ERROR_DEINITIALIZED;
    if (bound_under == atomic_load_explicit(&reset_count, memory_order_relaxed))
        return CUDA_SUCCESS;
    return bind_thread();
}

cudaError_t cudaSetDevice(int device)
{
    cudasim_count_runtime_call(__func__, 1);
    CUresult result = bind_primary(device);
    if (result == CUDA_SUCCESS)
        chosen_device = device;
    return cudasim_runtime_end(result);
}

CUresult cudasim_current_device(int *ordinal)
{
    CUdevice current;
    CUresult result = cudasim_driver_init();
    if (result == CUDA_SUCCESS && bound_under != 0 && cuCtxGetDevice(&current) == CUDA_SUCCESS)
        *ordinal = (int)current;
    else if (result == CUDA_SUCCESS)
        *ordinal = chosen_device;
    return result;
}

cudaError_t cudaGetDevice(int *device)
{
    cudasim_count_runtime_call(__func__, 1);
    if (device == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    return cudasim_runtime_end(cudasim_current_device(device));
}

cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags)
{
    cudasim_count_runtime_call(__func__, 1);
    /*
     * The only flag says that device_flags are valid. Scheduling hints mean nothing to the
     * simulator.
     */
    (void)device_flags;
    if ((flags & ~(unsigned)cudaInitDeviceFlagsAreValid) != 0)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    CUcontext context;
    return cudasim_runtime_end(cudasim_primary_context(device, &context));
}

cudaError_t cudaDeviceReset(void)
{
    CUresult result = cudasim_runtime_begin(__func__);
    CUdevice device;
    if (result == CUDA_SUCCESS)
        result = cuCtxGetDevice(&device);
    if (result == CUDA_SUCCESS) {
        result = cuDevicePrimaryCtxReset(device);
        pthread_mutex_lock(&primaries_lock);
        if (primaries != NULL && device >= 0 && device < primaries_count)
            primaries[device].context = NULL;
        pthread_mutex_unlock(&primaries_lock);
        atomic_fetch_add(&reset_count, 1);
    }
    return cudasim_runtime_end(result);
}

/*
 * Waits for the current context; for the primary one, and all green ones with it, if a green one is
 * current. (An H100 with CUDA 13.0 does so; cuCtxSynchronize waits for the green one alone.)
 */
static CUresult synchronize(void)
{
    CUcontext context = NULL, popped;
    CUgreenCtx green = NULL;
    CUdevice device;
    CUresult result = cuCtxGetCurrent(&context);
    if (result != CUDA_SUCCESS || is_primary(context) || cuStreamGetGreenCtx(NULL, &green) != CUDA_SUCCESS || !green)
        return cuCtxSynchronize();
    result = cuCtxGetDevice(&device);
    if (result == CUDA_SUCCESS)
        result = cudasim_primary_context(device, &context);
    if (result == CUDA_SUCCESS)
        result = cuCtxPushCurrent(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuCtxSynchronize();
    cuCtxPopCurrent(&popped);
    return result;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return RUNTIME_RUN(synchronize());
}
