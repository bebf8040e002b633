/*
 * Calls for unit programs that map memory themselves on the simulated device. All but set_access
 * expect that the call succeeds.
 */
#ifndef CUDASIM_UNIT_MAPPINGS_H
#define CUDASIM_UNIT_MAPPINGS_H

#include "unit_device.h"

#define GRANULE ((size_t)64 << 10)
#define GRANULE_WORDS (uint32_t)(GRANULE / sizeof(uint32_t))

static const CUmemAllocationProp device_properties = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
};

static inline CUdeviceptr reserve(size_t size)
{
    CUdeviceptr address = 0;
    EXPECT_OK(cuMemAddressReserve(&address, size, 0, 0, 0));
    return address;
}

static inline CUmemGenericAllocationHandle create(const CUmemAllocationProp *properties, size_t size)
{
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_OK(cuMemCreate(&handle, size, properties, 0));
    return handle;
}

static inline CUresult set_access(CUdeviceptr address, size_t size, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, .flags = flags};
    return cuMemSetAccess(address, size, &access, 1);
}

static inline void map(CUdeviceptr address, CUmemGenericAllocationHandle handle, size_t size)
{
    EXPECT_OK(cuMemMap(address, size, 0, handle, 0));
    EXPECT_OK(set_access(address, size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

#endif
