/*
 * The driver's calls by which programs make, place and share device memory themselves. Calls on
 * memory that Penstock can manage go to program_mappings.c, all others to the driver.
 */
#include "base/settings.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "cuda/driver_functions.h"
#include "hooks/hooks.h"
#include "hooks/peer_access.h"
#include "hooks/program_mappings.h"
#include "hooks/reclaim.h"
#include "hooks/requests.h"
#include "memory/registry.h"
#include "process.h"

/*
 * Declares `real`, the driver's own function of that name. Without a driver, or with one that is
 * too old, returns the error from the hook.
 */
#define REAL(name)                                                                                                     \
    __typeof__(&(name)) real =                                                                                         \
        ps_real_cuda_load() ? NULL : (__typeof__(real))ps_driver_function(PS_DRIVER_FUNCTION_##name);                  \
    if (!real)                                                                                                         \
    return ps_real_cuda_load() ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_NOT_SUPPORTED

/*
 * Returns whether spans can serve this request. Handle types only say what the program may do with
 * a handle later; spans allow all of it (program_mappings.h).
 */
static bool can_be_spans(const CUmemAllocationProp *properties)
{
    return properties->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !properties->allocFlags.compressionType &&
           !properties->allocFlags.usage;
}

PS_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                               const CUmemAllocationProp *properties, unsigned long long flags)
{
    REAL(cuMemCreate);
    if (handle && properties && !flags && bytes && can_be_spans(properties) && ps_request_may_be_span_here(bytes) &&
        properties->location.id == ps_device.ordinal) {
        CUresult result = ps_program_mappings_create(handle, bytes, properties);
        if (result != PS_NOT_OURS)
            return result;
    }
    CUresult result = real(handle, bytes, properties, flags);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && !ps_inside && ps_reclaim_for_others(bytes))
        result = real(handle, bytes, properties, flags);
    return result;
}

PS_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    REAL(cuMemRelease);
    CUresult result = ps_inside ? PS_NOT_OURS : ps_program_mappings_release(handle);

    return result == PS_NOT_OURS ? real(handle) : result;
}

PS_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    REAL(cuMemRetainAllocationHandle);
    CUresult result = ps_inside || !handle ? PS_NOT_OURS : ps_program_mappings_retain(handle, (CUdeviceptr)address);

    return result == PS_NOT_OURS ? real(handle, address) : result;
}

PS_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                          CUmemGenericAllocationHandle handle)
{
    REAL(cuMemGetAllocationPropertiesFromHandle);
    CUresult result = ps_inside || !properties ? PS_NOT_OURS : ps_program_mappings_properties(properties, handle);

    return result == PS_NOT_OURS ? real(properties, handle) : result;
}

PS_EXPORT CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                                CUmemAllocationHandleType type, unsigned long long flags)
{
    REAL(cuMemExportToShareableHandle);
    CUresult result = ps_inside ? CUDA_SUCCESS : ps_program_mappings_real(handle, &handle);

    return result == CUDA_SUCCESS ? real(shareable, handle, type, flags) : result;
}

/*
 * Returns whether the addresses could be meant for spans. The conditions are those of an
 * allocation; reserving is the half of one that takes no memory.
 */
static bool may_be_for_spans(size_t bytes)
{
    return !ps_inside && ps_request_context() && ps_process_is_managing() && bytes >= ps_settings.min_span &&
           ps_process_enter_device() && ps_request_context() == ps_device.context;
}

PS_EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint,
                                       unsigned long long flags)
{
    REAL(cuMemAddressReserve);
    bool is_plain = address && bytes && !(alignment & (alignment - 1)) && !hint && !flags;
    CUresult result =
        is_plain && may_be_for_spans(bytes) ? ps_program_mappings_reserve(address, bytes, alignment) : PS_NOT_OURS;

    return result == PS_NOT_OURS ? real(address, bytes, alignment, hint, flags) : result;
}

PS_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    REAL(cuMemAddressFree);
    CUresult result = ps_inside ? PS_NOT_OURS : ps_program_mappings_free_addresses(address, bytes);

    return result == PS_NOT_OURS ? real(address, bytes) : result;
}

PS_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                            unsigned long long flags)
{
    REAL(cuMemMap);
    CUresult result = ps_inside ? PS_NOT_OURS : ps_program_mappings_map(address, bytes, offset, handle, flags);

    return result == PS_NOT_OURS ? real(address, bytes, offset, handle, flags) : result;
}

PS_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    REAL(cuMemUnmap);
    if (!ps_inside)
        ps_request_forget_tables(address);
    CUresult result = ps_inside ? PS_NOT_OURS : ps_program_mappings_unmap(address, bytes);

    return result == PS_NOT_OURS ? real(address, bytes) : result;
}

/*
 * Gives access to managed memory. Its own device reads and writes it once it is mapped, whatever
 * access it is given. Peers are let in at all spans of the device.
 */
static CUresult let_in(CUdeviceptr address, const CUmemAccessDesc *access, size_t count)
{
    ps_devices_enter_address(address);
    const int ordinal = ps_device.ordinal;
    for (size_t i = 0; i < count; i++)
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < count; i++) {
        if (access[i].location.id == ordinal)
            ps_program_mappings_set_access(address, access[i].flags);
        else if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            ps_sharing_let_in(ordinal, access[i].location.id);
    }
    return CUDA_SUCCESS;
}

PS_EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    REAL(cuMemSetAccess);
    CUdeviceptr behind = address + bytes, end = behind;
    bool is_ours = !ps_inside && access && ps_program_mappings_is_ours(address, &end);
    CUresult result = CUDA_SUCCESS;
    bool hidden;

    if (!is_ours && end == behind)
        return ps_inside || !ps_program_mappings_knows(address, &hidden) ? real(address, bytes, access, count)
                                                                         : CUDA_ERROR_INVALID_VALUE;
    for (CUdeviceptr at = address; at < behind && result == CUDA_SUCCESS; at = end) {
        end = behind;
        result = ps_program_mappings_is_ours(at, &end) ? let_in(at, access, count) : real(at, end - at, access, count);
    }
    return result;
}

/*
 * The driver can't be asked: an evicted span is mapped to its slot, with other access, or to
 * nothing.
 */
PS_EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    REAL(cuMemGetAccess);
    CUdeviceptr end = address + 1;
    bool hidden;

    if (ps_inside || !flags || !location)
        return real(flags, location, address);
    if (!ps_program_mappings_is_ours(address, &end))
        return real(flags, location, ps_program_mappings_knows(address, &hidden) && hidden ? 0 : address);
    ps_devices_enter_address(address);
    *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == ps_device.ordinal)
        *flags = ps_program_mappings_access(address);
    else if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && ps_device_lets_in(location->id))
        *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}

/* ---- memory bound to an object by which others reach it: it becomes CUDA's own ---- */

#define BINDS_MEMORY(name, parameters, arguments)                                                                      \
    PS_EXPORT CUresult name parameters                                                                                 \
    {                                                                                                                  \
        REAL(name);                                                                                                    \
        CUresult result = ps_inside ? CUDA_SUCCESS : ps_program_mappings_real(handle, &handle);                        \
                                                                                                                       \
        return result == CUDA_SUCCESS ? real arguments : result;                                                       \
    }
#define BINDS_ADDRESS(name, parameters, arguments)                                                                     \
    PS_EXPORT CUresult name parameters                                                                                 \
    {                                                                                                                  \
        REAL(name);                                                                                                    \
        CUresult result = ps_inside ? CUDA_SUCCESS : ps_program_mappings_make_real((CUdeviceptr)address, bytes);       \
                                                                                                                       \
        return result == CUDA_SUCCESS ? real arguments : result;                                                       \
    }

BINDS_MEMORY(cuMulticastBindMem,
             (CUmemGenericAllocationHandle multicast, size_t at, CUmemGenericAllocationHandle handle, size_t offset,
              size_t bytes, unsigned long long flags),
             (multicast, at, handle, offset, bytes, flags))
BINDS_ADDRESS(cuMulticastBindAddr,
              (CUmemGenericAllocationHandle multicast, size_t at, CUdeviceptr address, size_t bytes,
               unsigned long long flags),
              (multicast, at, address, bytes, flags))
BINDS_MEMORY(cuMulticastBindMem_v2,
             (CUmemGenericAllocationHandle multicast, CUdevice device, size_t at, CUmemGenericAllocationHandle handle,
              size_t offset, size_t bytes, unsigned long long flags),
             (multicast, device, at, handle, offset, bytes, flags))
BINDS_ADDRESS(cuMulticastBindAddr_v2,
              (CUmemGenericAllocationHandle multicast, CUdevice device, size_t at, CUdeviceptr address, size_t bytes,
               unsigned long long flags),
              (multicast, device, at, address, bytes, flags))
BINDS_MEMORY(cuLogicalEndpointBindMem,
             (CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t at, CUmemGenericAllocationHandle handle,
              cuuint64_t offset, cuuint64_t bytes, unsigned long long flags),
             (endpoint, device, at, handle, offset, bytes, flags))
BINDS_ADDRESS(cuLogicalEndpointBindAddr,
              (CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t at, void *address, cuuint64_t bytes,
               unsigned long long flags),
              (endpoint, device, at, address, bytes, flags))
