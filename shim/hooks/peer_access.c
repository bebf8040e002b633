/*
 * Sharing memory with other processes, or with other devices of this process. CUDA's older
 * interface for processes refuses mapped pages, and spans have those
 * (shim/README.md#nccl-ipc-graphs). So the program gets CUDA's answer, and the user the setting
 * that helps. For other devices, spans are mapped as the program asks for its memory.
 */
#include <pthread.h>
#include <stdint.h>

#include "base/log.h"
#include "cuda/context_stack.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "cuda/managed_context.h"
#include "cuda/runtime.h"
#include "hooks/hooks.h"
#include "hooks/peer_access.h"
#include "memory/registry.h"
#include "process.h"
#include "residency/residency.h"

static void say_what_helps(const char *call, CUdeviceptr address)
{
    CUdeviceptr start;
    size_t bytes;

    if (ps_inside || !ps_process_has_begun() || ps_residency_look_up(address, &start, &bytes))
        return;
    ps_log_warn_once(HOOKS,
                     "%s: an allocation of %zu bytes can't be given to another process while Penstock manages it; "
                     "PENSTOCK_RULES='plain size>=%zu size<=%zu' leaves allocations of this size to CUDA",
                     call, bytes, bytes, bytes);
}

PS_EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *address)
{
    say_what_helps("cudaIpcGetMemHandle", (CUdeviceptr)address);
    return ps_real_cudart()->cudaIpcGetMemHandle(handle, address);
}

PS_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    __typeof__(&cuIpcGetMemHandle) real = PS_REAL_CUDA(cuIpcGetMemHandle);

    say_what_helps("cuIpcGetMemHandle", address);
    return real ? real(handle, address) : CUDA_ERROR_NOT_INITIALIZED;
}

/*
 * ---- peers ----
 *
 * Two clocks: from the call on, kernels of the peer may use the device's spans. All mappings let
 * the peer in before the call returns, so before any such kernel is queued.
 */

void ps_sharing_let_in(int ordinal, int peer)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    unsigned number;

    if (ps_inside || !ps_device_note_peer(ordinal, peer) || !ps_process_has_begun() ||
        !ps_devices_find(ordinal, &number))
        return;
    pthread_mutex_lock(&one_at_a_time);
    if (ps_devices_several)
        ps_devices_enter(number);
    struct ps_managed_context context = ps_managed_context_enter();
    ps_device_let_peer_in(peer);
    ps_residency_let_peers_in();
    ps_managed_context_leave(context);
    pthread_mutex_unlock(&one_at_a_time);
}

PS_EXPORT cudaError_t cudaDeviceEnablePeerAccess(int device, unsigned int flags)
{
    int current = -1;
    cudaError_t result = ps_real_cudart()->cudaDeviceEnablePeerAccess(device, flags);

    if (result == cudaSuccess && ps_real_cudart()->cudaGetDevice(&current) == cudaSuccess)
        ps_sharing_let_in(device, current);
    return result;
}

PS_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext context, unsigned int flags)
{
    __typeof__(&cuCtxEnablePeerAccess) real = PS_REAL_CUDA(cuCtxEnablePeerAccess);
    CUresult result = real ? real(context, flags) : CUDA_ERROR_NOT_INITIALIZED;
    CUdevice current = -1, device = -1;
    CUcontext pushed;

    if (result != CUDA_SUCCESS || ps_inside)
        return result;
    if (ps_cu.cuCtxGetDevice(&current) == CUDA_SUCCESS && !ps_context_enter(context, &pushed)) {
        if (ps_cu.cuCtxGetDevice(&device) != CUDA_SUCCESS)
            device = -1;
        ps_context_leave(pushed);
        ps_sharing_let_in(device, current);
    }
    return result;
}

/* To the program, spans are allocations from the default pool: access to it is access to spans. */
static void let_pool_in(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    CUmemoryPool of_device = NULL;
    int devices = 0, ordinal = 0;

    if (ps_inside || ps_real_cuda_load() || !ps_cu.cuDeviceGetDefaultMemPool ||
        ps_cu.cuDeviceGetCount(&devices) != CUDA_SUCCESS)
        return;
    while (ordinal < devices &&
           (ps_cu.cuDeviceGetDefaultMemPool(&of_device, ordinal) != CUDA_SUCCESS || of_device != pool))
        ordinal++;
    for (size_t i = 0; ordinal < devices && i < count; i++)
        if (map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            ps_sharing_let_in(ordinal, map[i].location.id);
}

PS_EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *map, size_t count)
{
    cudaError_t result = ps_real_cudart()->cudaMemPoolSetAccess(pool, map, count);

    if (result == cudaSuccess)
        /* both types have the same fields and values */
        let_pool_in(pool, (const CUmemAccessDesc *)(const void *)map, count);
    return result;
}

PS_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    __typeof__(&cuMemPoolSetAccess) real = PS_REAL_CUDA(cuMemPoolSetAccess);
    CUresult result = real ? real(pool, map, count) : CUDA_ERROR_NOT_INITIALIZED;

    if (result == CUDA_SUCCESS)
        let_pool_in(pool, map, count);
    return result;
}
