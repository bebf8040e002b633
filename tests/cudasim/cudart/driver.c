/*
 * The driver's functions as this library calls them. As in the real runtime, each is looked up by
 * name when the first of them is called. cuGetProcAddress_v2 comes from dlsym, and all others from
 * cuGetProcAddress_v2. So a preloaded library sees of this runtime the same as of the real one.
 *
 * The functions below have the driver's names and are hidden. The rest of this library calls them
 * as if it were linked with the driver.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cuda/entries.h"
#include "../registry.h"
#include "runtime.h"

static const char *const names[] = {
#define CUDASIM_ENTRY(needs, name, parameters, arguments) #name,
#define CUDASIM_ENTRY_PTSZ(needs, name, parameters, arguments) #name, #name "_ptsz",
#define CUDASIM_ENTRY_PTDS(needs, name, parameters, arguments) #name, #name "_ptds",
#define CUDASIM_ENTRY_BARE(needs, name) #name,
#include "../cuda/entry_points.def"
};

static void *functions[CUDASIM_CALL_COUNT];
static pthread_once_t looked_up = PTHREAD_ONCE_INIT;

/*
 * Copies the name without its version and the twin's suffix, which cuGetProcAddress does not take.
 * Returns whether it is the twin's name.
 */
static bool split(const char *name, char *base, size_t room)
{
    snprintf(base, room, "%s", name);
    size_t length = strlen(base);
    bool twin = length > 5 && (!strcmp(base + length - 5, "_ptsz") || !strcmp(base + length - 5, "_ptds"));

    if (twin)
        base[length -= 5] = '\0';
    if (length > 3 && base[length - 3] == '_' && base[length - 2] == 'v')
        base[length - 3] = '\0';
    return twin;
}

/* Functions that the simulated driver has beside the real driver's (registry.h). */
static __typeof__(&cudasim_register_kernel) register_kernel;
static __typeof__(&cudasim_register_image) register_image;
static __typeof__(&cudasim_count_runtime_call) count_runtime_call;

static void look_up(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library) {
        register_kernel = (__typeof__(register_kernel))dlsym(library, "cudasim_register_kernel");
        register_image = (__typeof__(register_image))dlsym(library, "cudasim_register_image");
        count_runtime_call = (__typeof__(count_runtime_call))dlsym(library, "cudasim_count_runtime_call");
    }
    __typeof__(&cuGetProcAddress_v2) get = library ? (__typeof__(get))dlsym(library, "cuGetProcAddress_v2") : NULL;

    for (size_t i = 0; get && i < CUDASIM_CALL_COUNT; i++) {
        CUdriverProcAddressQueryResult status;
        char base[128];
        bool twin = split(names[i], base, sizeof base);
        cuuint64_t flags = twin ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
        if (get(base, &functions[i], CUDA_VERSION, flags, &status) != CUDA_SUCCESS)
            functions[i] = NULL;
    }
}

static void *find(enum cudasim_entry entry)
{
    pthread_once(&looked_up, look_up);
    if (!functions[entry]) {
        fprintf(stderr, "cudasim: the runtime finds no %s in the driver\n", names[entry]);
        abort(); /* the simulator is broken */
    }
    return functions[entry];
}

#define FORWARD(name, parameters, arguments)                                                                           \
    CUresult name parameters;                                                                                          \
    CUresult name parameters                                                                                           \
    {                                                                                                                  \
        return ((CUresult(*) parameters)find(CUDASIM_CALL_##name))arguments;                                           \
    }
#define CUDASIM_ENTRY(needs, name, parameters, arguments) FORWARD(name, parameters, arguments)
#define CUDASIM_ENTRY_PTSZ(needs, name, parameters, arguments)                                                         \
    FORWARD(name, parameters, arguments)                                                                               \
    FORWARD(name##_ptsz, parameters, arguments)
#define CUDASIM_ENTRY_PTDS(needs, name, parameters, arguments)                                                         \
    FORWARD(name, parameters, arguments)                                                                               \
    FORWARD(name##_ptds, parameters, arguments)
#define CUDASIM_ENTRY_BARE(needs, name) FORWARD(name, (void), ())
#include "../cuda/entry_points.def"

CUkernel cudasim_register_kernel(const char *name, const struct cudasim_kernel *kernel, const void *cubin,
                                 size_t cubin_bytes)
{
    pthread_once(&looked_up, look_up);
    return register_kernel ? register_kernel(name, kernel, cubin, cubin_bytes) : NULL;
}

CUlibrary cudasim_register_image(const void *cubin, size_t cubin_bytes)
{
    pthread_once(&looked_up, look_up);
    return register_image ? register_image(cubin, cubin_bytes) : NULL;
}

void cudasim_count_runtime_call(const char *name, int supported)
{
    pthread_once(&looked_up, look_up);
    if (count_runtime_call)
        count_runtime_call(name, supported);
}
