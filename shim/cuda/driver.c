#include "cuda/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/log.h"
#include "base/real_dlsym.h"

struct ps_real_cuda ps_cu;

static void *library;
static int load_result;
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

/*
 * Opens the driver by its SONAME; "libcuda.so" belongs to the development package. With RTLD_LOCAL
 * this changes no other library's look-ups.
 */
static void load(void)
{
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        load_result = -ENOENT;
        return;
    }
#define STRING(name) #name
#define SYMBOL(name) STRING(name) /* after cuda.h has mapped the name to its version */
#define PS_DRIVER(name)                                                                                                \
    ps_cu.name = (__typeof__(ps_cu.name))ps_real_dlsym(library, SYMBOL(name));                                         \
    if (!ps_cu.name) {                                                                                                 \
        ps_log_info(PROCESS, "the driver has no %s", SYMBOL(name));                                                    \
        load_result = -ENOSYS;                                                                                         \
    }
#define PS_DRIVER_OPTIONAL(name) ps_cu.name = (__typeof__(ps_cu.name))ps_real_dlsym(library, SYMBOL(name));
    PS_DRIVER_TABLE
#undef PS_DRIVER
#undef PS_DRIVER_OPTIONAL
}

int ps_real_cuda_load(void)
{
    pthread_once(&loaded, load);
    return load_result;
}

void *ps_real_cuda_symbol(const char *name)
{
    pthread_once(&loaded, load);
    return library ? ps_real_dlsym(library, name) : NULL;
}

int ps_cuda_errno(CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return 0;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return -ENOMEM;
    case CUDA_ERROR_INVALID_VALUE:
        return -EINVAL;
    case CUDA_ERROR_NOT_SUPPORTED:
        return -ENOSYS;
    case CUDA_ERROR_NOT_READY:
        return -EAGAIN;
    default:
        return -EIO;
    }
}

bool ps_cuda_has_ended(CUresult result)
{
    return result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
           result == CUDA_ERROR_INVALID_CONTEXT;
}

int ps_cuda_elapsed_ns(CUevent from, CUevent to, int64_t *ns)
{
    typedef CUresult (*elapsed_fn)(float *ms, CUevent from, CUevent to);
    static _Atomic(elapsed_fn) kept;
    elapsed_fn elapsed = atomic_load_explicit(&kept, memory_order_relaxed);
    float ms = 0;

    if (!elapsed) { /* drivers before 12.8 have only the first version */
        elapsed =
            ps_cu.cuEventElapsedTime ? ps_cu.cuEventElapsedTime : (elapsed_fn)ps_real_cuda_symbol("cuEventElapsedTime");
        atomic_store_explicit(&kept, elapsed, memory_order_relaxed);
    }
    if (!elapsed)
        return -ENOSYS;
    int r = ps_cuda_errno(elapsed(&ms, from, to));
    *ns = (int64_t)((double)ms * 1e6);
    return r;
}
