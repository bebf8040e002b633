/*
 * Sharing memory, with other processes or with other devices of this one. CUDA's older interface for the first refuses mapped pages, which a span's are
 * (FACTS); and they are mapped for one device. The program gets CUDA's answer, and the user the setting that helps.
 */
#include <stdint.h>

#include "device.h"
#include "driver_lookup.h"
#include "hooks.h"
#include "log.h"
#include "process.h"
#include "real_cuda.h"
#include "real_cudart.h"
#include "registry.h"
#include "residency.h"

/* The driver's own function, NULL without a driver. */
#define REAL(name) (ps_real_cuda_load() ? NULL : (__typeof__(&(name)))ps_driver_function(PS_DRIVER_FUNCTION_##name))

static void say_what_helps(const char *call, CUdeviceptr address)
{
    CUdeviceptr start;
    size_t bytes;

    if (ps_inside || !ps_process_has_begun() || ps_residency_look_up(address, &start, &bytes))
        return;
    ps_log_warn_once(
        HOOKS,
        "%s: an allocation of %zu bytes can't be given to another process while Penstock manages it; PENSTOCK_RULES='plain size>=%zu "
        "size<=%zu' leaves those of its size to CUDA",
        call, bytes, bytes, bytes);
}

PS_EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *address)
{
    say_what_helps("cudaIpcGetMemHandle", (CUdeviceptr)address);
    return ps_real_cudart()->cudaIpcGetMemHandle(handle, address);
}

PS_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    __typeof__(&cuIpcGetMemHandle) real =
        ps_real_cuda_load() ? NULL : (__typeof__(real))ps_driver_function(PS_DRIVER_FUNCTION_cuIpcGetMemHandle);

    say_what_helps("cuIpcGetMemHandle", address);
    return real ? real(handle, address) : CUDA_ERROR_NOT_INITIALIZED;
}

/* Another device is to reach what is allocated on `device`. */
static void say_what_peers_get(const char *call, int device)
{
    if (ps_inside || !ps_process_has_begun() || device != ps_device.ordinal)
        return;
    ps_log_warn_once(HOOKS,
                     "%s: other devices can't reach allocations that Penstock manages, and a kernel of theirs that tries fails; "
                     "PENSTOCK_RULES='plain size>=0' leaves all allocations to CUDA",
                     call);
}

PS_EXPORT cudaError_t cudaDeviceEnablePeerAccess(int device, unsigned int flags)
{
    say_what_peers_get("cudaDeviceEnablePeerAccess", device);
    return ps_real_cudart()->cudaDeviceEnablePeerAccess(device, flags);
}

static void say_what_pool_gives(const char *call, CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    for (size_t i = 0; map && i < count; i++)
        if (map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && map[i].location.id != ps_device.ordinal &&
            map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && ps_process_has_begun() && ps_device_has_default_pool(pool))
            say_what_peers_get(call, ps_device.ordinal);
}

PS_EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *map, size_t count)
{
    say_what_pool_gives("cudaMemPoolSetAccess", pool, (const CUmemAccessDesc *)(const void *)map, count); /* the same fields and values */
    return ps_real_cudart()->cudaMemPoolSetAccess(pool, map, count);
}

PS_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext context, unsigned int flags)
{
    __typeof__(&cuCtxEnablePeerAccess) real = REAL(cuCtxEnablePeerAccess);

    if (ps_process_has_begun() && context == ps_device.context)
        say_what_peers_get("cuCtxEnablePeerAccess", ps_device.ordinal);
    return real ? real(context, flags) : CUDA_ERROR_NOT_INITIALIZED;
}

PS_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    __typeof__(&cuMemPoolSetAccess) real = REAL(cuMemPoolSetAccess);

    say_what_pool_gives("cuMemPoolSetAccess", pool, map, count);
    return real ? real(pool, map, count) : CUDA_ERROR_NOT_INITIALIZED;
}
