/* The devices and their attributes. */
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "engine.h"
#include "entries.h"

#define DRIVER_VERSION CUDASIM_CUDA_VERSION

bool cudasim_valid_device(CUdevice device)
{
    return device >= 0 && device < cudasim_config()->devices;
}

CUresult cudasim_cuDriverGetVersion(int *driverVersion)
{
    if (!driverVersion)
        return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = cudasim_config()->driver_version ? cudasim_config()->driver_version : DRIVER_VERSION;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceGetCount(int *count)
{
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = cudasim_config()->devices;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceGet(CUdevice *device, int ordinal)
{
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_valid_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceGetName(char *name, int len, CUdevice dev)
{
    if (!name || len < 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)len, "Simulated CUDA device");
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid->bytes, "cudasim-device-", 15);
    uuid->bytes[15] = (char)('0' + dev);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = cudasim_config()->device_bytes;
    return CUDA_SUCCESS;
}

/*
 * Returns an H200's value where a program may base decisions on it, and 0 for features that the
 * simulator lacks.
 */
static int attribute_value(CUdevice_attribute attribute, CUdevice device)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
        return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
        return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
        return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        return 49152;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return 232448;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        return 233472;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
        return 65536;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
        return 65536;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        return 1980000;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
        return 512;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
        return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return 132;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return 2048;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        return 2;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return device + 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return 0;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        return cudasim_config()->vmm;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        return cudasim_config()->vmm && cudasim_config()->host_vmm;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
        return 1;
    default:
        return 0;
    }
}

CUresult cudasim_cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    if (!pi || attrib < 1 || attrib >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *pi = attribute_value(attrib, dev);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
    if (!prop)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *prop = (CUdevprop){
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {2147483647, 65535, 65535},
        .sharedMemPerBlock = 49152,
        .totalConstantMemory = 65536,
        .SIMDWidth = 32,
        .memPitch = 2147483647,
        .regsPerBlock = 65536,
        .clockRate = 1980000,
        .textureAlign = 512,
    };
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *major = 9;
    *minor = 0;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    if (!pciBusId || len < 13)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", (unsigned int)dev + 1);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    unsigned int domain, bus, slot, function;
    if (!dev || !pciBusId || sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (domain || slot || function || !bus || !cudasim_valid_device((CUdevice)bus - 1))
        return CUDA_ERROR_INVALID_DEVICE;
    *dev = (CUdevice)bus - 1;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    if (!canAccessPeer)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_valid_device(dev) || !cudasim_valid_device(peerDev))
        return CUDA_ERROR_INVALID_DEVICE;
    *canAccessPeer = cudasim_config()->peers && dev != peerDev;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                         CUdevice dstDevice)
{
    (void)attrib;
    return cudasim_cuDeviceCanAccessPeer(value, srcDevice, dstDevice);
}
