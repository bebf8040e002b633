#include "cuda/driver_functions.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/real_dlsym.h"

void *_Atomic ps_driver_found[PS_DRIVER_FUNCTIONS];

static const char *const names[PS_DRIVER_FUNCTIONS] = {
#define NAME(name) [PS_DRIVER_FUNCTION_##name] = #name,
#define PS_TRACED(name, declaration, arguments, meaning) NAME(name)
#define PS_TRACED_BELOW_HOOK(name, meaning)
#define PS_TRACED_PTSZ(name, declaration, arguments, meaning) NAME(name) NAME(name##_ptsz)
#define PS_TRACED_PTDS(name, declaration, arguments, meaning) NAME(name) NAME(name##_ptds)
#define PS_HOOK_CUDA(type, name, parameters, arguments) NAME(name)
#define PS_HOOK_CUDART(type, name, parameters, arguments)
#include "cuda/hooks.def"
#include "cuda/traced_calls.def"
};

/*
 * Looks for all of them, if the driver is loaded; it is not loaded for this. Without a lock, which
 * could not be taken under the loader's: several threads find the same.
 */
void ps_driver_functions_look(void)
{
    static atomic_bool done;

    if (atomic_load_explicit(&done, memory_order_acquire))
        return;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (!library)
        return;
    for (size_t i = 0; i < PS_DRIVER_FUNCTIONS; i++)
        atomic_store_explicit(&ps_driver_found[i], ps_real_dlsym(library, names[i]), memory_order_relaxed);
    dlclose(library); /* whoever loaded it keeps it; drivers are not unloaded */
    atomic_store_explicit(&done, true, memory_order_release);
}

void *ps_driver_function(enum ps_driver_function which)
{
    void *real = atomic_load_explicit(&ps_driver_found[which], memory_order_relaxed);

    if (!real) {
        ps_driver_functions_look();
        real = atomic_load_explicit(&ps_driver_found[which], memory_order_relaxed);
    }
    return real;
}
