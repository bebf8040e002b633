/*
 * Sharing memory between processes, which CUDA's older interface does with its own allocations alone: a span's pages are mapped ones, and are refused
 * (FACTS). The program gets the error, and the user the setting that helps.
 */
#include <stdint.h>

#include "driver_lookup.h"
#include "hooks.h"
#include "log.h"
#include "process.h"
#include "real_cuda.h"
#include "real_cudart.h"
#include "registry.h"
#include "residency.h"

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
