/*
 * Allocation and free, driver API. Programs call these functions by symbol or by a pointer that
 * they looked up. All allocations of a statically linked runtime come here. The shared runtime and
 * NVIDIA's libraries do not come here (symbol_lookup.h).
 */
#include "base/state.h"
#include "cuda/capture.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "cuda/driver_functions.h"
#include "cuda/green_contexts.h"
#include "cuda/streams.h"
#include "hooks/hooks.h"
#include "hooks/reclaim.h"
#include "hooks/requests.h"
#include "kernels/context_ends.h"
#include "memory/registry.h"
#include "process.h"

/*
 * The driver's own function of that name. Loads the driver if the program has not: it may call a
 * hook by symbol first.
 */
#define REAL(name) ((__typeof__(&(name)))real(PS_DRIVER_FUNCTION_##name))

static void *real(enum ps_driver_function which)
{
    ps_real_cuda_load();
    return ps_driver_function(which);
}

/*
 * Gives the result of `call`, a real function that sets the program's `*address`. If it is out of
 * memory and Penstock can free some, calls it again.
 */
#define ASK(call, address, bytes)                                                                                      \
    ({                                                                                                                 \
        CUresult result_ = (call);                                                                                     \
        if (result_ == CUDA_ERROR_OUT_OF_MEMORY && !ps_inside && ps_reclaim_for_others(bytes))                         \
            result_ = (call);                                                                                          \
        if (result_ == CUDA_SUCCESS && (address))                                                                      \
            ps_request_allocated(*(address), bytes);                                                                   \
        result_;                                                                                                       \
    })

/* Returns CUDA_ERROR_NOT_SUPPORTED if the caller must ask the real function. */
static CUresult allocate(size_t bytes, struct ps_stream *stream, CUdeviceptr *address)
{
    switch (ps_request_span(bytes, stream, address)) {
    case PS_REQUEST_SPAN:
        return CUDA_SUCCESS;
    case PS_REQUEST_OUT_OF_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

PS_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    __typeof__(&cuMemAlloc_v2) real_function = REAL(cuMemAlloc_v2);

    if (!real_function)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (address && ps_request_may_be_span_here(bytes)) {
        CUresult result = allocate(bytes, NULL, address);
        if (result != CUDA_ERROR_NOT_SUPPORTED)
            return result;
    }
    return ASK(real_function(address, bytes), address, bytes);
}

PS_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                                      unsigned int element)
{
    __typeof__(&cuMemAllocPitch_v2) real_function = REAL(cuMemAllocPitch_v2);
    size_t row = ps_pitch(width), bytes = 0;
    bool is_valid = address && pitch && row >= width && (element == 4 || element == 8 || element == 16) &&
                    !__builtin_mul_overflow(row, height, &bytes);

    if (!real_function)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (is_valid && ps_request_may_be_span_here(bytes)) {
        CUresult result = allocate(bytes, NULL, address);
        if (result == CUDA_SUCCESS)
            *pitch = row;
        if (result != CUDA_ERROR_NOT_SUPPORTED)
            return result;
    }
    return ASK(real_function(address, pitch, width, height, element), address, bytes);
}

/*
 * A request in stream order, with its real function. `current` takes from the current pool, `named`
 * from the one that the program names; the other is NULL.
 */
struct pooled {
    bool per_thread_default;
    CUresult (*current)(CUdeviceptr *, size_t, CUstream);
    CUresult (*named)(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
    CUmemoryPool pool;
    CUstream stream;
};

static CUresult ask_pool(const struct pooled *from, CUdeviceptr *address, size_t bytes)
{
    return from->current ? from->current(address, bytes, from->stream)
                         : from->named(address, bytes, from->pool, from->stream);
}

static CUresult alloc_async(struct pooled from, CUdeviceptr *address, size_t bytes)
{
    if (!from.current && !from.named)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (address && !ps_request_is_captured_unseen(from.stream, from.per_thread_default) &&
        ps_request_may_be_span_here(bytes)) {
        struct ps_stream *ordered_on = ps_stream_find(from.stream, from.per_thread_default);
        CUresult result = ps_request_may_be_pooled(from.current != NULL, from.pool, ordered_on)
                              ? allocate(bytes, ordered_on, address)
                              : CUDA_ERROR_NOT_SUPPORTED;
        if (result != CUDA_ERROR_NOT_SUPPORTED)
            return result;
    }
    struct ps_stream *keeps = address && from.current && ps_request_context()
                                  ? ps_request_small_on(bytes, true, from.stream, from.per_thread_default)
                                  : NULL;
    if (!keeps)
        return ASK(ask_pool(&from, address, bytes), address, bytes);
    bytes = ps_small_bytes(bytes);
    CUdeviceptr kept = ps_small_take(keeps, bytes);
    if (kept) {
        *address = kept;
        ps_request_allocated(kept, bytes);
        return CUDA_SUCCESS;
    }
    CUresult result = ASK(ask_pool(&from, address, bytes), address, bytes);
    if (result == CUDA_SUCCESS)
        ps_small_note(*address, bytes);
    return result;
}

PS_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return alloc_async((struct pooled){.current = REAL(cuMemAllocAsync), .stream = stream}, address, bytes);
}

PS_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return alloc_async(
        (struct pooled){.per_thread_default = true, .current = REAL(cuMemAllocAsync_ptsz), .stream = stream}, address,
        bytes);
}

PS_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return alloc_async((struct pooled){.named = REAL(cuMemAllocFromPoolAsync), .pool = pool, .stream = stream}, address,
                       bytes);
}

PS_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return alloc_async(
        (struct pooled){
            .per_thread_default = true, .named = REAL(cuMemAllocFromPoolAsync_ptsz), .pool = pool, .stream = stream},
        address, bytes);
}

PS_EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    __typeof__(&cuDeviceSetMemPool) real_function = REAL(cuDeviceSetMemPool);

    ps_request_chooses_pool();
    return real_function ? real_function(device, pool) : CUDA_ERROR_NOT_INITIALIZED;
}

PS_EXPORT CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    __typeof__(&cuMemSetMemPool) real_function = REAL(cuMemSetMemPool);

    ps_request_chooses_pool();
    return real_function ? real_function(location, type, pool) : CUDA_ERROR_NOT_SUPPORTED;
}

/*
 * Returns whether the address may be a span's and a context is current. Without a context the real
 * function gives the error.
 */
static bool is_span_to_free(CUdeviceptr address)
{
    return ps_address_is_a_spans(address) && ps_request_context();
}

/*
 * The same for a free in stream order. A stream that the program made has its own context, which
 * need not be current. Only a default stream wants a current context (cuda.h).
 */
static bool is_span_to_free_on(CUdeviceptr address, CUstream stream)
{
    const bool is_default = !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;

    return is_default ? is_span_to_free(address) : ps_address_is_a_spans(address) && !ps_real_cuda_load();
}

PS_EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    __typeof__(&cuMemFree_v2) real_function = REAL(cuMemFree_v2);

    ps_request_forget_tables(address);
    if (is_span_to_free(address) && ps_request_free(address, NULL))
        return CUDA_SUCCESS;
    if (ps_request_free_at_once_behind_looks(address))
        return CUDA_SUCCESS;
    if (ps_request_free_small_at_once(address) == PS_SMALL_TWICE)
        return CUDA_ERROR_INVALID_VALUE;
    return real_function ? real_function(address) : CUDA_ERROR_NOT_INITIALIZED;
}

typedef CUresult (*free_async_fn)(CUdeviceptr, CUstream);

static CUresult free_async(free_async_fn real_function, bool per_thread_default, CUdeviceptr address, CUstream stream)
{
    struct ps_stream *keeps = NULL;

    if (is_span_to_free_on(address, stream) && ps_request_free(address, ps_stream_find(stream, per_thread_default)))
        return CUDA_SUCCESS;
    if (ps_request_free_behind_looks(address, stream, per_thread_default))
        return CUDA_SUCCESS;
    switch (ps_request_context() ? ps_request_free_small(address, stream, per_thread_default, &keeps)
                                 : PS_SMALL_UNKNOWN) {
    case PS_SMALL_KEPT:
        for (CUdeviceptr excess; real_function && (excess = ps_small_excess(keeps));)
            real_function(excess, stream);
        return CUDA_SUCCESS;
    case PS_SMALL_TWICE:
        return CUDA_ERROR_INVALID_VALUE;
    case PS_SMALL_UNKNOWN:
        break;
    }
    if (!ps_inside)
        ps_capture_freed_on(stream, per_thread_default);
    return real_function ? real_function(address, stream) : CUDA_ERROR_NOT_INITIALIZED;
}

PS_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    return free_async(REAL(cuMemFreeAsync), false, address, stream);
}

PS_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    return free_async(REAL(cuMemFreeAsync_ptsz), true, address, stream);
}

/* ---- the context and its end ---- */

static void context_ends(CUcontext context)
{
    ps_inside++;
    ps_kernels_context_ends(context);
    ps_inside--;
}

PS_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    __typeof__(&cuCtxDestroy_v2) real_function = REAL(cuCtxDestroy_v2);

    const bool is_seen = ps_process_has_begun() && !ps_inside && context;

    if (is_seen && ps_devices_has_context(context)) {
        ps_process_stand_aside("the program destroys its context");
    } else if (is_seen) {
        ps_inside++;
        ps_streams_end_context(context);
        ps_inside--;
    }
    if (!ps_inside)
        context_ends(context);
    return real_function ? real_function(context) : CUDA_ERROR_NOT_INITIALIZED;
}

/*
 * Returns the primary context of `device`, or NULL. `*is_ours`: Penstock manages spans there. It is
 * not asked for before the process has begun, nor inside Penstock.
 */
static CUcontext primary_of(CUdevice device, bool *is_ours)
{
    CUcontext primary = NULL;

    *is_ours = false;
    if (ps_inside || !ps_process_has_begun())
        return NULL;
    ps_inside++;
    primary = ps_devices_primary(device);
    *is_ours = primary && ps_devices_has_context(primary);
    ps_inside--;
    return primary;
}

PS_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    __typeof__(&cuDevicePrimaryCtxReset_v2) real_function = REAL(cuDevicePrimaryCtxReset_v2);

    bool is_ours;
    const CUcontext primary = primary_of(device, &is_ours);

    if (is_ours)
        ps_process_stand_aside("the program resets the device");
    context_ends(primary);
    return real_function ? real_function(device) : CUDA_ERROR_NOT_INITIALIZED;
}

/* The context ends when the last of its retains is released. */
PS_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    __typeof__(&cuDevicePrimaryCtxRelease_v2) real_function = REAL(cuDevicePrimaryCtxRelease_v2);
    bool was_ours;
    const CUcontext primary = primary_of(device, &was_ours);

    if (!ps_process_has_begun())
        ps_capture_uncounted_goes(NULL); /* this may be the last release */
    CUresult result = real_function ? real_function(device) : CUDA_ERROR_NOT_INITIALIZED;

    if (primary && result == CUDA_SUCCESS && !ps_devices_primary_is_there(device)) {
        if (was_ours)
            ps_process_stand_aside(NULL);
        context_ends(primary);
    }
    return result;
}

PS_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resource, CUdevice device, unsigned int flags)
{
    __typeof__(&cuGreenCtxCreate) real_function = REAL(cuGreenCtxCreate);
    CUresult result = real_function ? real_function(green, resource, device, flags) : CUDA_ERROR_NOT_SUPPORTED;

    if (result == CUDA_SUCCESS && !ps_inside) {
        ps_inside++;
        ps_green_contexts_made(*green, device);
        ps_inside--;
    }
    return result;
}

/*
 * The green context's default stream goes away, and streams of it that the program left. It may
 * hold the last retain of the primary context.
 */
PS_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    __typeof__(&cuGreenCtxDestroy) real_function = REAL(cuGreenCtxDestroy);
    CUdevice device = 0;
    const bool is_known = !ps_inside && ps_green_contexts_device(green, &device);
    bool was_ours = false;
    const CUcontext primary = is_known ? primary_of(device, &was_ours) : NULL;

    if (was_ours) {
        ps_inside++;
        ps_streams_end_context(ps_green_contexts_context(green));
        ps_inside--;
    }
    if (is_known)
        context_ends(ps_green_contexts_context(green));
    CUresult result = real_function ? real_function(green) : CUDA_ERROR_NOT_SUPPORTED;
    if (is_known && result == CUDA_SUCCESS)
        ps_green_contexts_gone(green);
    if (primary && result == CUDA_SUCCESS && !ps_devices_primary_is_there(device)) {
        if (was_ours)
            ps_process_stand_aside(NULL);
        context_ends(primary);
    }
    return result;
}
