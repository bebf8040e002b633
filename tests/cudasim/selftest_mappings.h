/* Checks of selftest.cu about memory that a program maps itself, by the driver's calls. */
#ifndef CUDASIM_SELFTEST_MAPPINGS_H
#define CUDASIM_SELFTEST_MAPPINGS_H

#include <cuda.h>

#include "processor_access.h"
#include "selftest.h"

/* Returns the driver's function, as a program without libcuda finds it. */
template <typename Function> static Function *driver_function(const char *name, Function *)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult status;

    CHECK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &status));
    return reinterpret_cast<Function *>(function);
}
#define DRIVER(name) driver_function(#name, static_cast<decltype(&name)>(NULL))

/* Host memory that is mapped for the device is closed to the processor until it gets access. */
static void host_memory_may_be_the_devices_alone(void)
{
    CUmemAllocationProp properties = {};
    CUmemAccessDesc access[2] = {};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    float first = 0;

    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    if (DRIVER(cuMemGetAllocationGranularity)(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ||
        DRIVER(cuMemCreate)(&handle, bytes, &properties, 0))
        return; /* this device has no such memory */
    EXPECT(!DRIVER(cuMemAddressReserve)(&address, bytes, 0, 0, 0));
    EXPECT(!DRIVER(cuMemMap)(address, bytes, 0, handle, 0));
    access[0].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access[1].location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    access[0].flags = access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT(!DRIVER(cuMemSetAccess)(address, bytes, access, 1));
    LAUNCH(0, ITEMS, fill, reinterpret_cast<float *>(address), 3.0f, 16);
    CHECK(cudaMemcpy(&first, reinterpret_cast<void *>(address), sizeof(first), cudaMemcpyDeviceToHost));
    EXPECT(first == 3.0f && !processor_may_read(address));
    EXPECT(!DRIVER(cuMemSetAccess)(address, bytes, access + 1, 1));
    EXPECT(processor_may_read(address));
    EXPECT(!DRIVER(cuMemUnmap)(address, bytes));
    EXPECT(!DRIVER(cuMemAddressFree)(address, bytes));
    EXPECT(!DRIVER(cuMemRelease)(handle));
}

#endif
