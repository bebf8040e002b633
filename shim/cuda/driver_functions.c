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
 * Looks all functions up, if the driver is loaded. This does not load it. Takes no lock, since the
 * loader's lock may be held: several threads find the same addresses.
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
    dlclose(library); /* the driver stays loaded */
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
