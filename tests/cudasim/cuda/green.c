/*
 * Green contexts: a part of a device's multiprocessors, with streams of its own, on the memory of
 * the primary context. Kernels here run one grid at a time anyway. So a part is a number, and makes
 * no kernel slower.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "entries.h"
#include "ledger.h"
#include "notify.h"

#define GREEN_TAG 0x6772656eu
#define DESCRIPTOR_TAG 0x64657363u
#define RESOURCE_TAG 0x72657372u

/* A part is a multiple of this on a device of capability 9.0; of the second without clusters. */
#define SM_ALIGNMENT 8u
#define SM_ALIGNMENT_ALONE 2u

struct CUdevResourceDesc_st {
    uint32_t tag;
    int device;
    unsigned int sm_count;
    LIST_ENTRY(CUdevResourceDesc_st) link; /* no call destroys one */
};

static LIST_HEAD(, CUgreenCtx_st) green_contexts = LIST_HEAD_INITIALIZER(green_contexts);
static LIST_HEAD(, CUdevResourceDesc_st) descriptors = LIST_HEAD_INITIALIZER(descriptors);
static uint64_t next_split = 1; /* under the device lock */

/* ---- resources ---- */

/* What the driver keeps in the padding of a resource. */
struct origin {
    uint32_t tag;
    int device;
    uint64_t split; /* the split that made it; 0: it is a context's or the device's, and may be split */
};
_Static_assert(sizeof(struct origin) <= sizeof((CUdevResource *)0)->_internal_padding, "no room in a resource");

static CUdevResource resource_of(int device, unsigned int sm_count, uint64_t split, unsigned int alignment)
{
    const struct origin origin = {RESOURCE_TAG, device, split};
    CUdevResource resource;

    memset(&resource, 0, sizeof resource);
    if (!sm_count)
        return resource; /* invalid, and empty */
    resource.type = CU_DEV_RESOURCE_TYPE_SM;
    resource.sm = (CUdevSmResource){sm_count, alignment, alignment};
    memcpy(resource._internal_padding, &origin, sizeof origin);
    return resource;
}

static CUresult origin_of(const CUdevResource *resource, struct origin *origin)
{
    if (resource->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    memcpy(origin, resource->_internal_padding, sizeof *origin);
    return origin->tag == RESOURCE_TAG && resource->sm.smCount ? CUDA_SUCCESS
                                                               : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

static unsigned int multiprocessors(int device)
{
    int count = 0;
    cudasim_cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    return (unsigned int)count;
}

static CUresult get_resource(CUdevResource *resource, CUdevResourceType type, int device, unsigned int sm_count)
{
    if (!resource)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *resource = resource_of(device, sm_count, 0, SM_ALIGNMENT);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    if (!cudasim_valid_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    return get_resource(resource, type, device, multiprocessors(device));
}

static bool is_green(CUgreenCtx green)
{
    return green && green->tag == GREEN_TAG;
}

CUresult cudasim_cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource *resource, CUdevResourceType type)
{
    if (!is_green(hCtx) || !hCtx->alive)
        return is_green(hCtx) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
    return get_resource(resource, type, hCtx->context.device, hCtx->sm_count);
}

CUresult cudasim_cuCtxGetDevResource(CUcontext hCtx, CUdevResource *resource, CUdevResourceType type)
{
    if (!hCtx || !hCtx->legacy)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (hCtx->green)
        return cudasim_cuGreenCtxGetDevResource(hCtx->green, resource, type);
    return get_resource(resource, type, hCtx->device, multiprocessors(hCtx->device));
}

CUresult cudasim_cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups, const CUdevResource *input,
                                             CUdevResource *remaining, unsigned int useFlags, unsigned int minCount)
{
    const unsigned int known =
        CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    const unsigned int alignment =
        useFlags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING ? SM_ALIGNMENT_ALONE : SM_ALIGNMENT;
    struct origin origin;

    if (!nbGroups || !input || (result && !*nbGroups) || (useFlags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult error = origin_of(input, &origin);
    if (error == CUDA_SUCCESS && minCount > input->sm.smCount)
        error = CUDA_ERROR_INVALID_VALUE;
    if (error == CUDA_SUCCESS && origin.split)
        error = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (error != CUDA_SUCCESS)
        return error;

    const unsigned int each = minCount ? (minCount + alignment - 1) / alignment * alignment : alignment;
    unsigned int groups = input->sm.smCount / each;
    if (result && groups > *nbGroups)
        groups = *nbGroups;
    if (result) {
        cudasim_lock();
        const uint64_t split = next_split++;
        cudasim_unlock();
        const unsigned int rest = input->sm.smCount - groups * each;
        for (unsigned int i = 0; i < groups; i++)
            result[i] = resource_of(origin.device, each, split, alignment);
        if (remaining)
            *remaining = resource_of(origin.device, rest, split, alignment);
    }
    *nbGroups = groups;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
                                           unsigned int nbResources)
{
    struct origin first, other;
    unsigned int sm_count = 0;

    if (!phDesc || !resources || !nbResources)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult error = origin_of(&resources[0], &first);
    for (unsigned int i = 0; error == CUDA_SUCCESS && i < nbResources; i++) {
        error = origin_of(&resources[i], &other);
        if (error == CUDA_SUCCESS &&
            (other.device != first.device || other.split != first.split || (i && !first.split)))
            error = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        sm_count += resources[i].sm.smCount;
    }
    if (error == CUDA_SUCCESS && sm_count > multiprocessors(first.device)) /* one part is named twice */
        error = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (error != CUDA_SUCCESS)
        return error;
    CUdevResourceDesc made = malloc(sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (struct CUdevResourceDesc_st){.tag = DESCRIPTOR_TAG, .device = first.device, .sm_count = sm_count};
    cudasim_lock();
    LIST_INSERT_HEAD(&descriptors, made, link);
    cudasim_unlock();
    *phDesc = made;
    return CUDA_SUCCESS;
}

/* ---- contexts ---- */

CUresult cudasim_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
    CUcontext primary;

    if (!phCtx || !desc || desc->tag != DESCRIPTOR_TAG || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (desc->device != dev)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cudasim_cuDevicePrimaryCtxRetain(&primary, dev);
    if (result != CUDA_SUCCESS)
        return result;
    CUgreenCtx green = calloc(1, sizeof *green);
    if (!green) {
        cudasim_cuDevicePrimaryCtxRelease_v2(dev);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    green->tag = GREEN_TAG;
    green->sm_count = desc->sm_count;
    green->context.green = green;
    green->context.green_of = primary;
    green->context.flags = primary->flags;
    cudasim_lock();
    result = cudasim_context_open(&green->context, dev);
    green->alive = result == CUDA_SUCCESS;
    LIST_INSERT_HEAD(&green_contexts, green, link); /* it stays: positions in its streams may be read for ever */
    cudasim_unlock();
    if (result == CUDA_SUCCESS)
        *phCtx = green;
    else
        cudasim_cuDevicePrimaryCtxRelease_v2(dev);
    return result;
}

/* Ends the context and its default stream. The program's streams stay, and are refused. [locked] */
static void end(CUgreenCtx green)
{
    CUstream stream;

    green->alive = false;
    if (green->context.records)
        green->context.records->alive = false;
    if (green->context.waits)
        green->context.waits->alive = false;
    if (green->context.legacy)
        green->context.legacy->alive = false;
    green->context.records = green->context.waits = green->context.legacy = NULL;
    LIST_FOREACH (stream, &cudasim_streams, link)
        if (stream->context == &green->context)
            cudasim_stream_drop_branches(stream);
}

void cudasim_green_contexts_end(CUcontext primary)
{
    CUgreenCtx green;

    LIST_FOREACH (green, &green_contexts, link)
        if (green->context.green_of == primary && green->alive)
            end(green);
}

CUresult cudasim_cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    if (!is_green(hCtx))
        return CUDA_ERROR_INVALID_CONTEXT;
    cudasim_lock();
    const bool was_alive = hCtx->alive;
    if (was_alive)
        end(hCtx);
    cudasim_unlock();
    return was_alive ? cudasim_cuDevicePrimaryCtxRelease_v2(hCtx->context.device) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult cudasim_cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
    if (!pContext)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_green(hCtx) || !hCtx->alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    *pContext = &hCtx->context;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long *greenCtxId)
{
    CUcontext current = cudasim_context_current();

    if (!greenCtxId)
        return CUDA_ERROR_INVALID_VALUE;
    if (!greenCtx && current)
        greenCtx = current->green;
    if (!is_green(greenCtx))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!greenCtx->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *greenCtxId = greenCtx->context.id;
    return CUDA_SUCCESS;
}

/* ---- streams and events ---- */

CUresult cudasim_cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority)
{
    if (!phStream || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_green(greenCtx) || !greenCtx->alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    return cudasim_stream_create(phStream, &greenCtx->context, flags, priority);
}

CUresult cudasim_cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx *phCtx)
{
    if (!phCtx)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(hStream);
    if (stream)
        *phCtx = stream->context->green;
    cudasim_unlock();
    return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cudasim_cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    return is_green(hCtx) ? cudasim_cuCtxRecordEvent(&hCtx->context, hEvent) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cudasim_cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    return is_green(hCtx) ? cudasim_cuCtxWaitEvent(&hCtx->context, hEvent) : CUDA_ERROR_INVALID_CONTEXT;
}
