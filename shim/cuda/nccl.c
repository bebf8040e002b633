#include "cuda/nccl.h"

#include <dlfcn.h>
#include <stdatomic.h>

#include "base/real_dlsym.h"

static struct {
    const char *name;
    void *_Atomic real; /* NULL: not looked up yet, or not there */
} functions[PS_NCCL_FUNCTIONS] = {
#define ENTRY(name) [PS_NCCL_FUNCTION_##name] = {#name, NULL},
#define PS_NCCL_TRANSFER(name, parameters, arguments, sent, of_sent, received, of_received) ENTRY(name)
#define PS_NCCL_CALL(name, parameters, arguments) ENTRY(name)
#include "cuda/nccl.def"
#undef PS_NCCL_TRANSFER
#undef PS_NCCL_CALL
};

/*
 * Finds NCCL's function. RTLD_NEXT does not see libraries that were loaded with RTLD_LOCAL, as
 * Python loads extension modules; the SONAME finds them. Our own function is never found. RTLD_NEXT
 * begins after us, and a look-up in a library's handle does not reach us.
 */
static void *find(const char *name)
{
    void *found = ps_real_dlsym(RTLD_NEXT, name);
    void *library = found ? NULL : dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);

    if (library) {
        found = ps_real_dlsym(library, name);
        dlclose(library); /* the program keeps it loaded */
    }
    return found;
}

/* Several threads may look a function up at once; they find the same address. */
void *ps_real_nccl_or(enum ps_nccl_function which, void *instead)
{
    void *real = atomic_load_explicit(&functions[which].real, memory_order_relaxed);

    if (real)
        return real;
    real = find(functions[which].name);
    if (!real)
        real = instead;
    if (real)
        atomic_store_explicit(&functions[which].real, real, memory_order_relaxed);
    return real;
}

void *ps_real_nccl(enum ps_nccl_function which)
{
    return ps_real_nccl_or(which, NULL);
}

const char *ps_nccl_name(enum ps_nccl_function which)
{
    return functions[which].name;
}
