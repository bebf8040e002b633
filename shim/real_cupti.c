#include "real_cupti.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

#include "log.h"

static struct ps_real_cupti table;
static const struct ps_real_cupti *result;
static const char *wanted_path;
static pthread_once_t loaded = PTHREAD_ONCE_INIT;
static pthread_mutex_t path_lock = PTHREAD_MUTEX_INITIALIZER;

static const char *const names[] = {"libcupti.so.13", "libcupti.so.12"};
static const char *const places[] = {"/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13", "/usr/local/cuda/lib64/libcupti.so.13",
                                     "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.12", "/usr/local/cuda/lib64/libcupti.so.12"};

static void *open_library(void)
{
    void *library = NULL;

    if (wanted_path && *wanted_path) {
        library = dlopen(wanted_path, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            ps_log_warn(TRACER, "PENSTOCK_CUPTI=%s can't be opened: %s; looking elsewhere", wanted_path, dlerror());
    }
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; !library && i < sizeof places / sizeof *places; i++)
        library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static void load(void)
{
    void *library = open_library();

    if (!library)
        return;
    table.cuptiSubscribe = (__typeof__(table.cuptiSubscribe))dlsym(library, "cuptiSubscribe");
    table.cuptiUnsubscribe = (__typeof__(table.cuptiUnsubscribe))dlsym(library, "cuptiUnsubscribe");
    table.cuptiEnableCallback = (__typeof__(table.cuptiEnableCallback))dlsym(library, "cuptiEnableCallback");
    table.cuptiGetResultString = (__typeof__(table.cuptiGetResultString))dlsym(library, "cuptiGetResultString");
    if (table.cuptiSubscribe && table.cuptiUnsubscribe && table.cuptiEnableCallback && table.cuptiGetResultString)
        result = &table;
}

const struct ps_real_cupti *ps_real_cupti_load(const char *path)
{
    pthread_mutex_lock(&path_lock);
    wanted_path = path;
    pthread_once(&loaded, load);
    pthread_mutex_unlock(&path_lock);
    return result;
}
