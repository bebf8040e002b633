#include "cuda/cupti.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#include "base/log.h"
#include "base/real_dlsym.h"
#include "cuda/runtime.h"

static struct ps_real_cupti table;
static bool found_by_name; /* the loader found CUPTI by its name, so the usual directories are not tried */

/*
 * Returns the release to try first or second. The older one comes first if the runtime is of that
 * release. A CUPTI that is newer than the driver refuses to work.
 */
static unsigned release_of(bool second)
{
    bool older_first = ps_real_cudart_release() == 12;

    return older_first != second ? 12 : 13;
}

static void *open_at(const char *path, unsigned place)
{
    static const char *const directories[] = {"/usr/local/cuda/extras/CUPTI/lib64/", "/usr/local/cuda/lib64/"};
    char file[96];
    void *library;

    if (!place) {
        if (!path || !*path)
            return NULL;
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            ps_log_warn(TRACER,
                        "PENSTOCK_CUPTI=%s can't be opened: %s; expected libcupti.so; "
                        "Penstock looks for it elsewhere; correct or unset the variable",
                        path, dlerror());
        return library;
    }
    unsigned release = release_of((place - 1) % 2), where = (place - 1) / 2;
    if (!where) {
        snprintf(file, sizeof file, "libcupti.so.%u", release);
        library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
        if (!library)
            library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        found_by_name |= library != NULL;
        return library;
    }
    if (found_by_name)
        return NULL;
    snprintf(file, sizeof file, "%slibcupti.so.%u", directories[where - 1], release);
    return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

const struct ps_real_cupti *ps_real_cupti_open(const char *path, unsigned place)
{
    void *library = place < PS_CUPTI_PLACES ? open_at(path, place) : NULL;

    if (!library)
        return NULL;
    table.cuptiSubscribe = (__typeof__(table.cuptiSubscribe))ps_real_dlsym(library, "cuptiSubscribe");
    table.cuptiUnsubscribe = (__typeof__(table.cuptiUnsubscribe))ps_real_dlsym(library, "cuptiUnsubscribe");
    table.cuptiEnableCallback = (__typeof__(table.cuptiEnableCallback))ps_real_dlsym(library, "cuptiEnableCallback");
    table.cuptiGetResultString = (__typeof__(table.cuptiGetResultString))ps_real_dlsym(library, "cuptiGetResultString");
    return table.cuptiSubscribe && table.cuptiUnsubscribe && table.cuptiEnableCallback && table.cuptiGetResultString
               ? &table
               : NULL;
}
