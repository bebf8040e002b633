/*
 * Texture objects over linear device memory. As on a GPU an object is a small number, so no kernel
 * parameter shows the address. Arrays do not exist here.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine.h"
#include "entries.h"
#include "memory.h"
#include "../kernel_abi.h"

#define TEXTURES_MAX 256

static _Atomic uintptr_t behind[TEXTURES_MAX]; /* indexed by object - 1; 0: unused */

static bool is_memory(CUdeviceptr address)
{
    cudasim_lock();
    bool found = cudasim_range_find((uintptr_t)address) != NULL;
    cudasim_unlock();
    return found;
}

CUresult cudasim_cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                                   const CUDA_TEXTURE_DESC *pTexDesc, const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
    if (!pTexObject || !pResDesc || !pTexDesc || pResViewDesc) /* a view is of an array */
        return CUDA_ERROR_INVALID_VALUE;
    if (pResDesc->resType != CU_RESOURCE_TYPE_LINEAR && pResDesc->resType != CU_RESOURCE_TYPE_PITCH2D)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUdeviceptr address =
        pResDesc->resType == CU_RESOURCE_TYPE_LINEAR ? pResDesc->res.linear.devPtr : pResDesc->res.pitch2D.devPtr;
    if (!is_memory(address))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < TEXTURES_MAX; i++) {
        uintptr_t none = 0;
        if (!atomic_compare_exchange_strong(&behind[i], &none, (uintptr_t)address))
            continue;
        *pTexObject = i + 1;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cudasim_cuTexObjectDestroy(CUtexObject texObject)
{
    if (!texObject || texObject > TEXTURES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    return atomic_exchange(&behind[texObject - 1], 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

const void *cudasim_texture(unsigned long long object)
{
    return object && object <= TEXTURES_MAX ? (const void *)atomic_load(&behind[object - 1]) : NULL;
}
