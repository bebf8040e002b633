#include "device.h"

#include <errno.h>

#include "log.h"
#include "real_cuda.h"

struct ps_device ps_device;

static CUmemAllocationProp device_pages, host_pages;
static CUmemAccessDesc access_by_device;

static int attribute(CUdevice_attribute which, CUdevice device)
{
    int value = 0;

    return ps_cu.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

int ps_device_open(const char **why)
{
    struct ps_device *d = &ps_device;
    CUdevice device;
    size_t total = 0, left = 0, device_unit = 0, host_unit = 0;
    int count = 0;

    *why = "there is no current CUDA context";
    if (ps_cu.cuCtxGetCurrent(&d->context) != CUDA_SUCCESS || !d->context)
        return -ENODEV;
    if (ps_cu.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return -ENODEV;
    *why = "the device has no virtual memory management";
    if (!attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device))
        return -ENOSYS;
    *why = "the device can't map host memory at device addresses (HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT)";
    if (!attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device))
        return -ENOSYS;

    d->ordinal = (int)device;
    if (ps_cu.cuDeviceGetName(d->name, sizeof d->name, device) != CUDA_SUCCESS)
        d->name[0] = 0;
    if (ps_cu.cuDeviceTotalMem(&total, device) == CUDA_SUCCESS)
        d->total_bytes = total;
    /* The context may be allowed less (MPS limits). */
    if (ps_cu.cuMemGetInfo(&left, &total) == CUDA_SUCCESS && total && total < d->total_bytes)
        d->total_bytes = total;
    if (ps_cu.cuDeviceGetCount(&count) == CUDA_SUCCESS)
        d->several = count > 1;
    d->numa_node = attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device);
    if (d->numa_node < 0)
        d->numa_node = 0;

    device_pages.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    device_pages.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    device_pages.location.id = d->ordinal;
    host_pages.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    host_pages.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    host_pages.location.id = d->numa_node;
    access_by_device.location = device_pages.location;
    access_by_device.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

    *why = "the driver does not tell its page sizes";
    if (ps_cu.cuMemGetAllocationGranularity(&device_unit, &device_pages, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS)
        return -ENOSYS;
    if (ps_cu.cuMemGetAllocationGranularity(&host_unit, &host_pages, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS)
        return -ENOSYS;
    d->granularity = device_unit > host_unit ? device_unit : host_unit;
    if (!d->granularity || d->granularity & (d->granularity - 1))
        return -ENOSYS;
    *why = NULL;
    return 0;
}

uint64_t ps_device_free_bytes(void)
{
    size_t free_bytes = 0, total = 0;

    return ps_cu.cuMemGetInfo(&free_bytes, &total) == CUDA_SUCCESS ? free_bytes : 0;
}

bool ps_device_has_default_pool(CUmemoryPool pool)
{
    CUmemoryPool of_device = NULL;

    return ps_cu.cuDeviceGetDefaultMemPool && ps_cu.cuDeviceGetDefaultMemPool(&of_device, ps_device.ordinal) == CUDA_SUCCESS &&
           pool == of_device;
}

int ps_device_pages_create(size_t bytes, CUmemGenericAllocationHandle *pages)
{
    return ps_cuda_errno(ps_cu.cuMemCreate(pages, bytes, &device_pages, 0));
}

int ps_host_pages_create(size_t bytes, CUmemGenericAllocationHandle *pages)
{
    return ps_cuda_errno(ps_cu.cuMemCreate(pages, bytes, &host_pages, 0));
}

void ps_pages_release(CUmemGenericAllocationHandle pages)
{
    if (ps_cu.cuMemRelease(pages) != CUDA_SUCCESS)
        ps_log_warn_once(RESIDENCY, "pages could not be released");
}

int ps_pages_map(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle pages)
{
    int r = ps_cuda_errno(ps_cu.cuMemMap(address, bytes, 0, pages, 0)); /* whole handles only: an offset is refused (FACTS) */

    if (r)
        return r;
    r = ps_cuda_errno(ps_cu.cuMemSetAccess(address, bytes, &access_by_device, 1));
    if (r)
        ps_cu.cuMemUnmap(address, bytes);
    return r;
}

int ps_pages_unmap(CUdeviceptr address, size_t bytes)
{
    return ps_cuda_errno(ps_cu.cuMemUnmap(address, bytes));
}
