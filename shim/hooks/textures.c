/*
 * Textures over linear memory. A kernel is given the texture object, a small number like any other.
 * Through it the kernel fetches memory that no launch names. So the spans under a texture stay in
 * place until it is destroyed, on their pages if there are enough. Spans that are hidden like this
 * are pinned (shim/README.md#accesses-that-parameters-dont-show).
 *
 * Two clocks: host order alone. The bytes are there when the object is made (external_holds.h),
 * before any kernel that gets it can be queued. A program destroys the object when the last of
 * these kernels is over. Spans may be freed before that: their lives are remembered, not their
 * addresses.
 *
 * The runtimes call the driver's functions too. The shared runtime's functions are hooked as well,
 * because it may get the driver's own functions (symbol_lookup.h).
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/ordering_rules.h"
#include "cuda/driver.h"
#include "cuda/runtime.h"
#include "hooks/external_holds.h"
#include "hooks/hooks.h"

/* A texture over spans. */
struct texture {
    struct texture *next;
    unsigned long long object;
    struct ps_external_hold on_slot; /* not all spans got pages: they are held as they were found */
    unsigned device;
    size_t count;
    uint64_t number[]; /* the spans' lives */
};

/* Guards `textures`. A leaf: a thread that holds it makes no call of ours or of the driver's. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct texture *textures;

/*
 * The thread is in a runtime function, whose hook handles the texture: the driver's hook must not.
 */
static _Thread_local bool in_runtime;

static void add(struct texture *texture)
{
    pthread_mutex_lock(&lock);
    texture->next = textures;
    textures = texture;
    pthread_mutex_unlock(&lock);
}

/* Takes the texture of that object off the list and returns it, or NULL. The caller owns it. */
static struct texture *take(unsigned long long object)
{
    struct texture *texture = NULL;

    pthread_mutex_lock(&lock);
    for (struct texture **at = &textures; *at && !texture; at = texture ? at : &(*at)->next)
        if ((*at)->object == object) {
            texture = *at;
            *at = texture->next;
        }
    pthread_mutex_unlock(&lock);
    return texture;
}

static struct ps_external_hold begin(CUdeviceptr first, size_t bytes)
{
    if (in_runtime || !ps_ordering_rule(TEXTURED_STAYS))
        return (struct ps_external_hold){.is_on_pages = true};
    return ps_external_holds_begin(first, bytes);
}

/* Ends the call that was to make the object. If it succeeded, the spans stay where they are. */
static void made(struct ps_external_hold *staying, bool succeeded, unsigned long long object)
{
    struct texture *texture =
        succeeded && staying->count ? malloc(sizeof *texture + staying->count * sizeof *texture->number) : NULL;

    if (texture)
        *texture = (struct texture){.object = object, .device = staying->device, .count = staying->count};
    if (succeeded && staying->count) {
        /* Without memory for the note, the spans stay until they are freed. */
        ps_external_holds_stays(staying, texture ? texture->number : NULL);
        ps_log_debug(HOOKS, "a texture was created: %zu spans stay where they are", staying->count);
    }
    if (texture && !staying->is_on_pages)
        texture->on_slot = *staying;
    else
        ps_external_holds_end(staying);
    if (texture)
        add(texture);
}

/* Lets the spans of a destroyed texture go and frees it; NULL: does nothing. */
static void destroyed(struct texture *texture)
{
    if (!texture)
        return;
    ps_external_holds_no_more(texture->device, texture->number, texture->count);
    ps_external_holds_end(&texture->on_slot);
    free(texture);
}

/* ---- the driver ---- */

static struct ps_external_hold begin_driver(const CUDA_RESOURCE_DESC *resource)
{
    if (resource && resource->resType == CU_RESOURCE_TYPE_LINEAR)
        return begin(resource->res.linear.devPtr, resource->res.linear.sizeInBytes);
    if (resource && resource->resType == CU_RESOURCE_TYPE_PITCH2D)
        return begin(resource->res.pitch2D.devPtr, resource->res.pitch2D.height * resource->res.pitch2D.pitchInBytes);
    return begin(0, 0); /* an array is CUDA's own memory */
}

PS_EXPORT CUresult cuTexObjectCreate(CUtexObject *object, const CUDA_RESOURCE_DESC *resource,
                                     const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
    __typeof__(&cuTexObjectCreate) real = PS_REAL_CUDA(cuTexObjectCreate);

    if (!real)
        return CUDA_ERROR_NOT_INITIALIZED;
    struct ps_external_hold staying = begin_driver(resource);
    CUresult result = real(object, resource, texture, view);
    made(&staying, result == CUDA_SUCCESS, result == CUDA_SUCCESS ? *object : 0);
    return result;
}

PS_EXPORT CUresult cuTexObjectDestroy(CUtexObject object)
{
    __typeof__(&cuTexObjectDestroy) real = PS_REAL_CUDA(cuTexObjectDestroy);

    if (!real)
        return CUDA_ERROR_NOT_INITIALIZED;
    /* Taken before the call: after it, another thread may be given the same object. */
    struct texture *texture = in_runtime ? NULL : take(object);
    CUresult result = real(object);
    if (texture && result != CUDA_SUCCESS)
        add(texture);
    else
        destroyed(texture);
    return result;
}

/* ---- the shared runtime ---- */

static struct ps_external_hold begin_runtime(const struct cudaResourceDesc *resource)
{
    if (resource && resource->resType == cudaResourceTypeLinear)
        return begin((CUdeviceptr)resource->res.linear.devPtr, resource->res.linear.sizeInBytes);
    if (resource && resource->resType == cudaResourceTypePitch2D)
        return begin((CUdeviceptr)resource->res.pitch2D.devPtr,
                     resource->res.pitch2D.height * resource->res.pitch2D.pitchInBytes);
    return begin(0, 0);
}

PS_EXPORT cudaError_t cudaCreateTextureObject(cudaTextureObject_t *object, const struct cudaResourceDesc *resource,
                                              const struct cudaTextureDesc *texture,
                                              const struct cudaResourceViewDesc *view)
{
    struct ps_external_hold staying = begin_runtime(resource);

    in_runtime = true;
    cudaError_t result = ps_real_cudart()->cudaCreateTextureObject(object, resource, texture, view);
    in_runtime = false;
    made(&staying, result == cudaSuccess, result == cudaSuccess ? *object : 0);
    return result;
}

PS_EXPORT cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object)
{
    struct texture *texture = take(object);

    in_runtime = true;
    cudaError_t result = ps_real_cudart()->cudaDestroyTextureObject(object);
    in_runtime = false;
    if (texture && result != cudaSuccess)
        add(texture);
    else
        destroyed(texture);
    return result;
}
