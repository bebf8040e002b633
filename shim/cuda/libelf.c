#include "cuda/libelf.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/real_dlsym.h"

static struct ps_libelf table;
static bool usable; /* written under pthread_once, read after it */
static pthread_once_t resolved_once = PTHREAD_ONCE_INIT;

static void resolve(void)
{
    void *library = dlopen("libelf.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;

    bool complete = true;
#define X(name)                                                                                                        \
    table.name = (__typeof__(table.name))ps_real_dlsym(library, #name);                                                \
    complete = complete && table.name;
    PS_REAL_LIBELF_LIST(X)
#undef X
    /* libelf refuses every other call until elf_version has set the version of the format. */
    usable = complete && table.elf_version(EV_CURRENT) != EV_NONE;
    if (!usable)
        dlclose(library);
}

const struct ps_libelf *ps_real_libelf(void)
{
    pthread_once(&resolved_once, resolve);
    return usable ? &table : NULL;
}
