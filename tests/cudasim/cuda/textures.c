/*
 * Texture objects over linear device memory. As on a GPU an object is a small number, so that nothing that a kernel is given shows the address. (Of
 * arrays there are none here.)
 */
#include <stdatomic.h>
#include <stddef.h>

#include "engine.h"
#include "entries.h"
#include "memory.h"
#include "../kernel_abi.h"

#define TEXTURES_MAX 256

static _Atomic uintptr_t behind[TEXTURES_MAX]; /* by object, less one; 0: there is none */

/* The address that the texture is to lie over, 0 if it is not in device memory. *known: whether it is of a sort that is there. */
static CUdeviceptr address_of(const CUDA_RESOURCE_DESC *resource, bool *known)
{
    CUdeviceptr address = resource->resType == CU_RESOURCE_TYPE_PITCH2D ? resource->res.pitch2D.devPtr : resource->res.linear.devPtr;

    *known = resource->resType == CU_RESOURCE_TYPE_LINEAR || resource->resType == CU_RESOURCE_TYPE_PITCH2D;
    if (!*known)
        return 0;
    cudasim_lock();
    const struct cudasim_range *range = cudasim_range_find((uintptr_t)address);
    cudasim_unlock();
    return range ? address : 0;
}

CUresult cudasim_cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc, const CUDA_TEXTURE_DESC *pTexDesc,
                                   const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
    bool known;

    if (!pTexObject || !pResDesc || !pTexDesc || pResViewDesc) /* a view is of an array */
        return CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr address = address_of(pResDesc, &known);
    if (!known)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!address)
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
