/*
 * Device memory that a program maps by CUDA's virtual memory management: the driver's functions as
 * programs find them, and the steps of a mapping. Handles have the properties that XLA asks for.
 * They can be exported as file descriptors, and network cards can reach them where the device
 * allows it.
 */
#ifndef PENSTOCK_SAMPLES_MAPPINGS_H
#define PENSTOCK_SAMPLES_MAPPINGS_H

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#include <cuda.h>

#include "check.h"

/*
 * Finds a driver function by dlsym, or by the runtime's look-up, which expects the name without a
 * version.
 */
static inline void *driver_function(const char *name, bool by_entry_point)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *function = nullptr;
    enum cudaDriverEntryPointQueryResult status;
    char base[64];

    if (by_entry_point) {
        snprintf(base, sizeof(base), "%.*s", static_cast<int>(strlen(name) - (strstr(name, "_v2") != nullptr ? 3 : 0)),
                 name);
        CHECK(cudaGetDriverEntryPointByVersion(base, &function, CUDA_VERSION, cudaEnableDefault, &status));
    } else if (library != nullptr) {
        function = dlsym(library, name);
    }
    REQUIRE(function != nullptr, "%s: not found", name);
    return function;
}

template <typename Function> static Function driver(const char *name)
{
    return reinterpret_cast<Function>(driver_function(name, false));
}

#define MAPPING_FUNCTIONS(X)                                                                                           \
    X(cuCtxSynchronize)                                                                                                \
    X(cuDeviceGetAttribute)                                                                                            \
    X(cuGetErrorName)                                                                                                  \
    X(cuMemAddressFree)                                                                                                \
    X(cuMemAddressReserve)                                                                                             \
    X(cuMemCreate)                                                                                                     \
    X(cuMemExportToShareableHandle)                                                                                    \
    X(cuMemGetAccess)                                                                                                  \
    X(cuMemGetAddressRange_v2)                                                                                         \
    X(cuMemGetAllocationGranularity)                                                                                   \
    X(cuMemGetAllocationPropertiesFromHandle)                                                                          \
    X(cuMemImportFromShareableHandle)                                                                                  \
    X(cuMemMap)                                                                                                        \
    X(cuMemRelease)                                                                                                    \
    X(cuMemRetainAllocationHandle)                                                                                     \
    X(cuMemSetAccess)                                                                                                  \
    X(cuMemUnmap)                                                                                                      \
    X(cuPointerGetAttribute)

static struct {
#define MEMBER(name) decltype(&name) its_##name;
    MAPPING_FUNCTIONS(MEMBER)
#undef MEMBER
    CUmemAllocationProp properties;
    size_t granularity;
} mappings;

static inline const char *name_of(CUresult result)
{
    const char *name = "an unknown error";

    mappings.its_cuGetErrorName(result, &name);
    return name;
}

static inline void check_driver(CUresult result, const char *call, const char *file, int line)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, name_of(result));
    exit(1);
}

/*
 * MUST calls one of the functions above and requires success. DRIVER calls it and gives the result.
 */
#define DRIVER(name, ...) mappings.its_##name(__VA_ARGS__)
#define MUST(name, ...) check_driver(DRIVER(name, __VA_ARGS__), #name, __FILE__, __LINE__)

/* The program calls this before any other function of this file. */
static inline void find_mapping_functions(bool by_entry_point)
{
    int by_cards = 0;

    CHECK(cudaFree(nullptr)); /* makes the context */
#define FIND(name) mappings.its_##name = reinterpret_cast<decltype(&name)>(driver_function(#name, by_entry_point));
    MAPPING_FUNCTIONS(FIND)
#undef FIND
    MUST(cuDeviceGetAttribute, &by_cards, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0);
    mappings.properties = {};
    mappings.properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    mappings.properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    mappings.properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    mappings.properties.allocFlags.gpuDirectRDMACapable = by_cards != 0;
    MUST(cuMemGetAllocationGranularity, &mappings.granularity, &mappings.properties,
         CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
}

static inline size_t whole_granules(size_t bytes)
{
    return (bytes + mappings.granularity - 1) / mappings.granularity * mappings.granularity;
}

static inline CUmemGenericAllocationHandle new_handle(size_t bytes)
{
    CUmemGenericAllocationHandle handle = 0;

    MUST(cuMemCreate, &handle, bytes, &mappings.properties, 0);
    return handle;
}

static inline CUdeviceptr new_range(size_t bytes)
{
    CUdeviceptr range = 0;

    MUST(cuMemAddressReserve, &range, bytes, 0, 0, 0);
    return range;
}

static inline CUresult set_access(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {};

    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = flags;
    return DRIVER(cuMemSetAccess, address, bytes, &access, 1);
}

static inline void let_access(CUdeviceptr address, size_t bytes)
{
    const CUresult result = set_access(address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

    REQUIRE(result == CUDA_SUCCESS, "cuMemSetAccess: %s", name_of(result));
}

static inline void map_handle(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle)
{
    MUST(cuMemMap, address, bytes, 0, handle, 0);
    let_access(address, bytes);
}

static inline uint32_t *words_at(CUdeviceptr address)
{
    return reinterpret_cast<uint32_t *>(address);
}

#endif
