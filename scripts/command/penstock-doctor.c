/*
 * penstock-doctor: checks that driver, device, CUPTI and libelf meet Penstock's needs. Prints one
 * line for each finding:
 *     ok|note|problem: finding - remedy
 * Exit status 0 if Penstock can work here, 1 if not. `penstock-doctor --cupti` prints the CUPTI
 * library that the loader finds by name. scripts/command/penstock runs it and adds checks of its
 * own. It is linked with libc only: a missing library is a finding and must not keep it from
 * starting.
 */
#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/real_dlsym.h"
#include "cuda/newer_cuda.h"

#define MIB (1024.0 * 1024.0)

/* The symbol that a name of cuda.h stands for, with its version. */
#define STRING_OF(name) #name
#define SYMBOL(name) STRING_OF(name)

#define DRIVER_CALLS                                                                                                   \
    CALL(cuInit)                                                                                                       \
    CALL(cuGetErrorName)                                                                                               \
    CALL(cuDriverGetVersion)                                                                                           \
    CALL(cuDeviceGetCount)                                                                                             \
    CALL(cuDeviceGet)                                                                                                  \
    CALL(cuDeviceGetName)                                                                                              \
    CALL(cuDeviceTotalMem)                                                                                             \
    CALL(cuDeviceGetAttribute)                                                                                         \
    CALL(cuDevicePrimaryCtxRetain)                                                                                     \
    CALL(cuDevicePrimaryCtxRelease)                                                                                    \
    CALL(cuCtxSetCurrent)                                                                                              \
    CALL(cuMemGetInfo)                                                                                                 \
    CALL(cuMemGetAllocationGranularity)                                                                                \
    CALL(cuMemAddressReserve)                                                                                          \
    CALL(cuMemAddressFree)                                                                                             \
    CALL(cuMemCreate)                                                                                                  \
    CALL(cuMemRelease)                                                                                                 \
    CALL(cuMemMap)                                                                                                     \
    CALL(cuMemUnmap)                                                                                                   \
    CALL(cuMemSetAccess)

static struct {
#define CALL(name) __typeof__(&(name)) name;
    DRIVER_CALLS
#undef CALL
} driver;

static int problems;

#define FINDING(kind, ...)                                                                                             \
    do {                                                                                                               \
        printf(kind ": " __VA_ARGS__);                                                                                 \
        putchar('\n');                                                                                                 \
    } while (0)
#define OK(...) FINDING("ok", __VA_ARGS__)
#define NOTE(...) FINDING("note", __VA_ARGS__)
#define PROBLEM(...)                                                                                                   \
    do {                                                                                                               \
        FINDING("problem", __VA_ARGS__);                                                                               \
        problems++;                                                                                                    \
    } while (0)

static const char *error_name(CUresult result)
{
    const char *name = NULL;

    return driver.cuGetErrorName(result, &name) == CUDA_SUCCESS && name ? name : "unknown error";
}

/* Returns the file that a loaded library came from, or `name` if the loader does not know it. */
static const char *library_path(void *library, const char *name)
{
    struct link_map *map = NULL;

    return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && *map->l_name ? map->l_name : name;
}

static bool load_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const char *missing = NULL;

    if (!library) {
        PROBLEM(
            "driver: %s - install NVIDIA's driver, or give the container access to it; without one no CUDA program runs",
            dlerror());
        return false;
    }
#define CALL(name)                                                                                                     \
    driver.name = (__typeof__(driver.name))ps_real_dlsym(library, SYMBOL(name)); /* past Penstock's own dlsym */       \
    if (!driver.name)                                                                                                  \
        missing = SYMBOL(name);
    DRIVER_CALLS
#undef CALL
    if (missing) {
        PROBLEM("driver: %s has no %s - install a newer driver (12.4 or later)", library_path(library, "libcuda.so.1"),
                missing);
        return false;
    }
    OK("driver: %s", library_path(library, "libcuda.so.1"));
    return true;
}

static bool start_driver(int *devices)
{
    CUresult result = driver.cuInit(0);
    int version = 0;

    if (result != CUDA_SUCCESS) {
        PROBLEM("driver: cuInit returns %s - check that there is a device and that this user may open it (nvidia-smi)",
                error_name(result));
        return false;
    }
    driver.cuDriverGetVersion(&version);
    if (version < 12020)
        NOTE("driver: its CUDA version is %d.%d - host-backed addresses need 12.2; install a newer driver",
             version / 1000, version % 100 / 10);
    else if (version > PS_NEWEST_CUDA)
        NOTE(
            "driver: its CUDA version is %d.%d, and this Penstock knows functions up to %d.%d - it can't see copies by newer functions; "
            "get a newer Penstock, or compare losses with a run without it",
            version / 1000, version % 100 / 10, PS_NEWEST_CUDA / 1000, PS_NEWEST_CUDA % 100 / 10);
    else
        OK("driver: CUDA version %d.%d", version / 1000, version % 100 / 10);
    result = driver.cuDeviceGetCount(devices);
    if (result != CUDA_SUCCESS || *devices == 0) {
        PROBLEM("device: none is visible - check CUDA_VISIBLE_DEVICES and nvidia-smi");
        return false;
    }
    return true;
}

/*
 * Creates one page at `location`, maps it at a reserved address and gives the device access, as an
 * eviction or a reload does. Releases all of it again. Returns NULL, or the name of the call that
 * failed; *result holds what that call returned.
 */
static const char *try_pages(CUdevice device, CUmemLocation location, CUresult *result)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = 0;
    const char *failed = NULL;
    size_t size = 0;

    *result = driver.cuMemGetAllocationGranularity(&size, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (*result != CUDA_SUCCESS)
        return "cuMemGetAllocationGranularity";
    *result = driver.cuMemAddressReserve(&address, size, 0, 0, 0);
    if (*result != CUDA_SUCCESS)
        return "cuMemAddressReserve";
    *result = driver.cuMemCreate(&handle, size, &properties, 0);
    if (*result != CUDA_SUCCESS) {
        failed = "cuMemCreate";
        goto free_address;
    }
    *result = driver.cuMemMap(address, size, 0, handle, 0);
    if (*result != CUDA_SUCCESS) {
        failed = "cuMemMap";
        goto release;
    }
    *result = driver.cuMemSetAccess(address, size, &access, 1);
    if (*result != CUDA_SUCCESS)
        failed = "cuMemSetAccess";
    driver.cuMemUnmap(address, size);
release:
    driver.cuMemRelease(handle);
free_address:
    driver.cuMemAddressFree(address, size);
    return failed;
}

static void examine_memory(int ordinal, CUdevice device)
{
    CUmemLocation on_device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    CUmemLocation on_host = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0};
    int supported = 0, node = -1;
    const char *failed;
    CUresult result;

    driver.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
    if (!supported) {
        PROBLEM("device %d: no virtual memory management - Penstock can't work on this device; use another one",
                ordinal);
        return;
    }
    failed = try_pages(device, on_device, &result);
    if (failed) {
        PROBLEM(
            "device %d: virtual memory management: %s returns %s - free memory on the device, or install a newer driver",
            ordinal, failed, error_name(result));
        return;
    }
    OK("device %d: virtual memory management works", ordinal);

    driver.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device);
    if (node >= 0)
        on_host.id = node;
    failed = try_pages(device, on_host, &result);
    if (failed)
        PROBLEM(
            "device %d: host-backed addresses: %s returns %s - Penstock can't work without them; install a newer driver, "
            "or allow this container more host memory",
            ordinal, failed, error_name(result));
    else
        OK("device %d: host-backed addresses work (NUMA node %d)", ordinal, on_host.id);
}

static void examine_device(int ordinal)
{
    size_t total = 0, available = 0, all = 0;
    CUdevice device;
    CUcontext context;
    char name[128] = "";
    CUresult result = driver.cuDeviceGet(&device, ordinal);

    if (result == CUDA_SUCCESS)
        result = driver.cuDeviceGetName(name, sizeof name, device);
    if (result == CUDA_SUCCESS)
        result = driver.cuDeviceTotalMem(&total, device);
    if (result == CUDA_SUCCESS)
        result = driver.cuDevicePrimaryCtxRetain(&context, device);
    if (result != CUDA_SUCCESS) {
        PROBLEM("device %d: %s - check that no other process holds it (nvidia-smi)", ordinal, error_name(result));
        return;
    }
    driver.cuCtxSetCurrent(context);
    driver.cuMemGetInfo(&available, &all);
    OK("device %d: %s%s, %.0f MiB, %.0f MiB of it free", ordinal, name,
       strstr(name, " MIG ") ? " (a slice: its own memory counts)" : "", (double)total / MIB, (double)available / MIB);
    if (all < total)
        NOTE("device %d: this process may use %.0f MiB of it - budgets in per cent are shares of that", ordinal,
             (double)all / MIB);
    if (available < all - all / 16)
        NOTE(
            "device %d: %.0f MiB are in use, mostly by others - the budget auto uses what is free; any other should be below %.0f MiB",
            ordinal, (double)(all - available) / MIB, (double)available / MIB);
    examine_memory(ordinal, device);
    driver.cuCtxSetCurrent(NULL);
    driver.cuDevicePrimaryCtxRelease(device);
}

/*
 * Opens the CUPTI that the user chose, otherwise the one that the loader finds by name. Sets *name;
 * returns NULL if it can't be loaded.
 */
static void *open_cupti(const char **name)
{
    static const char *const names[] = {"libcupti.so.13", "libcupti.so.12"};
    const char *chosen = getenv("PENSTOCK_CUPTI");
    void *library = NULL;

    if (chosen && *chosen) {
        *name = chosen;
        return *chosen == '/' || !strchr(chosen, '/') ? dlopen(chosen, RTLD_NOW | RTLD_LOCAL) : NULL;
    }
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++) {
        *name = names[i];
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

static void CUPTIAPI ignore_callback(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
    (void)user, (void)domain, (void)id, (void)data;
}

static void examine_cupti(void)
{
    const char *name = NULL, *why = "?", *tracer = getenv("PENSTOCK_TRACER");

    if (tracer && !strcmp(tracer, "hook")) {
        OK("CUPTI: not used (PENSTOCK_TRACER=hook)");
        return;
    }
    void *library = open_cupti(&name);
    __typeof__(&cuptiSubscribe) subscribe;
    __typeof__(&cuptiUnsubscribe) unsubscribe;
    __typeof__(&cuptiGetResultString) result_string;
    CUpti_SubscriberHandle subscriber;
    CUptiResult result;

    bool must = tracer && !strcmp(tracer, "cupti"); /* otherwise hooks of the driver's functions can replace it */

    if (!library && must) {
        PROBLEM(
            "CUPTI: %s can't be loaded - install nvidia-cuda-cupti, name the file in PENSTOCK_CUPTI, or unset PENSTOCK_TRACER",
            name);
        return;
    }
    if (!library) {
        NOTE("CUPTI: %s can't be loaded - Penstock hooks the driver's functions instead", name);
        return;
    }
    subscribe = (__typeof__(subscribe))dlsym(library, "cuptiSubscribe");
    unsubscribe = (__typeof__(unsubscribe))dlsym(library, "cuptiUnsubscribe");
    result_string = (__typeof__(result_string))dlsym(library, "cuptiGetResultString");
    if (!subscribe || !unsubscribe || !result_string) {
        PROBLEM("CUPTI: %s lacks the callback interface - use the CUPTI of the program's CUDA release",
                library_path(library, name));
        return;
    }
    result = subscribe(&subscriber, ignore_callback, NULL);
    if (result == CUPTI_SUCCESS) {
        unsubscribe(subscriber);
        OK("CUPTI: %s", library_path(library, name));
        return;
    }
    result_string(result, &why);
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED && must)
        PROBLEM("CUPTI: another subscriber holds it (%s) - unset PENSTOCK_TRACER: Penstock can work without CUPTI",
                why);
    else if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
        NOTE("CUPTI: another subscriber holds it (%s) - Penstock hooks the driver's functions instead", why);
    else
        PROBLEM("CUPTI: cuptiSubscribe returns %s - check that its release fits the driver", why);
}

static void examine_libelf(void)
{
    void *library = dlopen("libelf.so.1", RTLD_NOW | RTLD_LOCAL);

    if (library)
        OK("libelf: %s", library_path(library, "libelf.so.1"));
    else
        NOTE(
            "libelf: libelf.so.1 can't be loaded - install libelf1; without it only the driver tells where kernels have their parameters");
}

int main(int argc, char **argv)
{
    const char *name = NULL;
    void *library;
    int devices = 0;

    if (argc == 2 && !strcmp(argv[1], "--cupti")) {
        library = open_cupti(&name);
        if (library)
            puts(library_path(library, name));
        return library ? 0 : 1;
    }
    if (argc != 1) {
        fprintf(stderr, "usage: penstock-doctor [--cupti]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (load_driver() && start_driver(&devices)) {
        for (int i = 0; i < devices; i++)
            examine_device(i);
        examine_cupti();
    }
    examine_libelf();
    return problems ? 1 : 0;
}
