#include "cuda/runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

#include "base/log.h"
#include "base/real_dlsym.h"

static struct ps_real_cudart table;
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

/*
 * Replaces a function that the loaded runtime doesn't have. Each hook has one, because of the
 * types.
 */
#define PS_HOOK_CUDART(type, name, parameters, arguments)                                                              \
    static type no_##name parameters                                                                                   \
    {                                                                                                                  \
        return cudaErrorNotSupported;                                                                                  \
    }
#define PS_HOOK_CUDA(type, name, parameters, arguments)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "cuda/hooks.def"
static cudaError_t no_cudaGetLastError(void)
{
    return cudaErrorNotSupported;
}

static cudaError_t no_cudaGetDevice(int *device)
{
    return cudaErrorNotSupported;
}
#pragma GCC diagnostic pop
#undef PS_HOOK_CUDART
#undef PS_HOOK_CUDA

/*
 * Returns the loaded shared runtime and its release; NULL: none. The SONAME finds it, however it
 * was loaded.
 */
static void *library(unsigned *release)
{
    static const struct {
        const char *name;
        unsigned release;
    } runtimes[] = {{"libcudart.so.13", 13}, {"libcudart.so.12", 12}};

    for (size_t i = 0; i < sizeof runtimes / sizeof *runtimes; i++) {
        void *found = dlopen(runtimes[i].name, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
        if (found) {
            *release = runtimes[i].release;
            return found;
        }
    }
    *release = 0;
    return NULL;
}

unsigned ps_real_cudart_release(void)
{
    unsigned release;

    library(&release);
    return release;
}

/*
 * Finds a function of the runtime. Python loads extension modules with RTLD_LOCAL, and RTLD_NEXT
 * does not see their runtime. Our own export is never found. RTLD_NEXT begins after us, and a
 * look-up in a library's handle does not reach us.
 */
static void *find(const char *name)
{
    unsigned release;
    void *found = ps_real_dlsym(RTLD_NEXT, name), *runtime = found ? NULL : library(&release);

    return runtime ? ps_real_dlsym(runtime, name) : found;
}

static void load(void)
{
#define RESOLVE(name, instead)                                                                                         \
    table.name = (__typeof__(table.name))find(#name);                                                                  \
    if (!table.name) {                                                                                                 \
        ps_log_debug(HOOKS, "the runtime has no %s", #name);                                                           \
        table.name = (instead);                                                                                        \
    }
#define PS_HOOK_CUDART(type, name, parameters, arguments) RESOLVE(name, no_##name)
#define PS_HOOK_CUDA(type, name, parameters, arguments)
#include "cuda/hooks.def"
#undef PS_HOOK_CUDART
#undef PS_HOOK_CUDA
    RESOLVE(cudaGetDevice, no_cudaGetDevice)
    RESOLVE(cudaGetLastError, no_cudaGetLastError)
}

const struct ps_real_cudart *ps_real_cudart(void)
{
    pthread_once(&loaded, load);
    return &table;
}
