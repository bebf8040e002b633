#include "cuda/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/log.h"
#include "base/real_dlsym.h"
#include "cuda/capture_mode.h"

struct ps_real_cuda ps_cu, ps_cu_as_is;

static void *library;
static int load_result;
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

/* In front of each call that a capture may forbid: the calling thread is relaxed in time. */
#define PS_UNSAFE(name, parameters, arguments)                                                                         \
    static CUresult CUDAAPI relaxed_##name parameters                                                                  \
    {                                                                                                                  \
        ps_capture_mode_enter();                                                                                       \
        ps_capture_mode_relax();                                                                                       \
        const CUresult result = ps_cu_as_is.name arguments;                                                            \
        ps_capture_mode_leave();                                                                                       \
        return result;                                                                                                 \
    }
#include "cuda/unsafe_calls.def"
#undef PS_UNSAFE

static void relax_unsafe_calls(void)
{
    ps_cu_as_is = ps_cu;
#define PS_UNSAFE(name, parameters, arguments)                                                                         \
    if (ps_cu.name)                                                                                                    \
        ps_cu.name = relaxed_##name;
#include "cuda/unsafe_calls.def"
#undef PS_UNSAFE
}

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
    relax_unsafe_calls();
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

bool ps_cuda_is_fault(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
        return true;
    default:
        return false;
    }
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
    ps_capture_mode_enter();
    ps_capture_mode_relax(); /* the first version is not in ps_cu */
    int r = ps_cuda_errno(elapsed(&ms, from, to));
    ps_capture_mode_leave();
    *ns = (int64_t)((double)ms * 1e6);
    return r;
}
