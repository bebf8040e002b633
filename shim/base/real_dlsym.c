#include "base/real_dlsym.h"

#include <dlfcn.h>
#include <stddef.h>

/*
 * Set at the first call, on any thread: all threads find the same function. The start-up code of
 * sanitizers calls dlsym before instrumented code can run. So code that runs for every name is not
 * instrumented, and calls no function that they intercept.
 */
ps_dlsym_fn *ps_dlsym_behind __attribute__((visibility("hidden")));

static void *find_nothing(void *handle, const char *name)
{
    (void)handle;
    (void)name;
    return NULL;
}

__attribute__((no_sanitize("address", "thread", "undefined"))) ps_dlsym_fn *ps_dlsym_find(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    ps_dlsym_fn *found = __atomic_load_n(&ps_dlsym_behind, __ATOMIC_RELAXED);

    for (size_t i = 0; !found && i < sizeof versions / sizeof *versions; i++)
        found = (ps_dlsym_fn *)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (!found)
        found = find_nothing;
    __atomic_store_n(&ps_dlsym_behind, found, __ATOMIC_RELAXED);
    return found;
}

void *ps_real_dlsym(void *handle, const char *name)
{
    return ps_dlsym_find()(handle, name);
}
