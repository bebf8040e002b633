/*
 * Allocation and free, runtime API. An allocation that is large enough and can be managed becomes a
 * span; the real function serves all others.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/state.h"
#include "cuda/capture.h"
#include "cuda/capture_mode.h"
#include "cuda/devices.h"
#include "cuda/runtime.h"
#include "cuda/streams.h"
#include "hooks/frameworks.h"
#include "hooks/hooks.h"
#include "hooks/reclaim.h"
#include "hooks/requests.h"
#include "kernels/context_ends.h"
#include "memory/registry.h"
#include "process.h"
#include "residency/graph_memory.h"

/*
 * Returns the runtime's own out-of-memory error and sets its last error. Asks the real function for
 * more bytes than any device has.
 */
static cudaError_t out_of_memory(void)
{
    void *nowhere;

    ps_capture_mode_enter();
    ps_capture_mode_relax(); /* the program's own call may be one that captures allow */
    const cudaError_t error = ps_real_cudart()->cudaMalloc(&nowhere, (size_t)1 << 60);
    ps_capture_mode_leave();
    return error;
}

static enum ps_request allocate(size_t bytes, struct ps_stream *stream, void **address)
{
    CUdeviceptr at = 0;
    enum ps_request outcome = ps_request_span(bytes, stream, &at);

    if (outcome == PS_REQUEST_SPAN)
        *address = (void *)at;
    return outcome;
}

/*
 * Frees pages for the real allocator, which may lack those that Penstock holds. Returns whether the
 * caller should ask it again. The first refusal is no error then, so the runtime's last error is
 * cleared.
 */
static bool give_way(size_t bytes)
{
    if (!ps_reclaim_for_others(bytes))
        return false;
    ps_real_cudart()->cudaGetLastError();
    return true;
}

/*
 * Gives the result of `call`, a real function that sets the program's `*address`. If it is out of
 * memory and Penstock can free some, calls it again.
 */
#define ASK(call, address, bytes)                                                                                      \
    ({                                                                                                                 \
        cudaError_t result_ = (call);                                                                                  \
        if (result_ == cudaErrorMemoryAllocation && give_way(bytes))                                                   \
            result_ = (call);                                                                                          \
        if (result_ == cudaSuccess && (address))                                                                       \
            ps_request_allocated((CUdeviceptr)(*(address)), bytes);                                                    \
        result_;                                                                                                       \
    })

PS_EXPORT cudaError_t cudaMalloc(void **address, size_t bytes)
{
    if (address && ps_request_may_be_span(bytes)) {
        enum ps_request o = allocate(bytes, NULL, address);
        if (o == PS_REQUEST_SPAN)
            return cudaSuccess;
        if (o == PS_REQUEST_OUT_OF_MEMORY)
            return out_of_memory();
    }
    return ASK(ps_real_cudart()->cudaMalloc(address, bytes), address, bytes);
}

PS_EXPORT cudaError_t cudaMallocPitch(void **address, size_t *pitch, size_t width, size_t height)
{
    size_t row = ps_pitch(width);

    if (address && pitch && row >= width && (!height || row <= SIZE_MAX / height) &&
        ps_request_may_be_span(row * height)) {
        enum ps_request o = allocate(row * height, NULL, address);
        if (o == PS_REQUEST_SPAN) {
            *pitch = row;
            return cudaSuccess;
        }
        if (o == PS_REQUEST_OUT_OF_MEMORY)
            return out_of_memory();
    }
    return ASK(ps_real_cudart()->cudaMallocPitch(address, pitch, width, height), address, row * height);
}

PS_EXPORT cudaError_t cudaMalloc3D(struct cudaPitchedPtr *pitched, struct cudaExtent extent)
{
    size_t row = ps_pitch(extent.width);
    size_t rows = 0;

    if (pitched && row >= extent.width && !__builtin_mul_overflow(extent.height, extent.depth, &rows) &&
        (!rows || row <= SIZE_MAX / rows) && ps_request_may_be_span(row * rows)) {
        void *address;
        enum ps_request o = allocate(row * rows, NULL, &address);
        if (o == PS_REQUEST_SPAN) {
            *pitched =
                (struct cudaPitchedPtr){.ptr = address, .pitch = row, .xsize = extent.width, .ysize = extent.height};
            return cudaSuccess;
        }
        if (o == PS_REQUEST_OUT_OF_MEMORY)
            return out_of_memory();
    }
    return ASK(ps_real_cudart()->cudaMalloc3D(pitched, extent), pitched ? &pitched->ptr : NULL, row * rows);
}

/* A request in stream order, from the current pool or from the one that the program names. */
struct pooled {
    bool per_thread_default, current;
    cudaMemPool_t pool;
    cudaStream_t stream;
};

static cudaError_t ask_pool(const struct pooled *from, void **address, size_t bytes)
{
    const struct ps_real_cudart *real = ps_real_cudart();

    if (from->current)
        return (from->per_thread_default ? real->cudaMallocAsync_ptsz : real->cudaMallocAsync)(address, bytes,
                                                                                               from->stream);
    return (from->per_thread_default ? real->cudaMallocFromPoolAsync_ptsz
                                     : real->cudaMallocFromPoolAsync)(address, bytes, from->pool, from->stream);
}

static cudaError_t take_from_pool(const struct pooled *from, void **address, size_t bytes)
{
    cudaError_t result = ASK(ask_pool(from, address, bytes), address, bytes);

    if (result == cudaSuccess && address)
        ps_graph_memory_allocated((CUdeviceptr)*address, bytes, from->stream, from->per_thread_default,
                                  ps_frameworks_torch_shows_tensors);
    return result;
}

static cudaError_t malloc_async(struct pooled from, void **address, size_t bytes)
{
    if (address && !ps_request_is_captured_unseen(from.stream, from.per_thread_default) &&
        ps_request_may_be_span(bytes)) {
        struct ps_stream *ordered_on = ps_stream_find(from.stream, from.per_thread_default);
        enum ps_request o = ps_request_may_be_pooled(from.current, from.pool, ordered_on)
                                ? allocate(bytes, ordered_on, address)
                                : PS_REQUEST_REAL;
        if (o == PS_REQUEST_SPAN)
            return cudaSuccess;
        if (o == PS_REQUEST_OUT_OF_MEMORY)
            return out_of_memory();
    }
    struct ps_stream *keeps =
        address ? ps_request_small_on(bytes, from.current, from.stream, from.per_thread_default) : NULL;
    if (!keeps)
        return take_from_pool(&from, address, bytes);
    bytes = ps_small_bytes(bytes);
    CUdeviceptr kept = ps_small_take(keeps, bytes);
    if (kept) {
        *address = (void *)kept;
        ps_request_allocated(kept, bytes);
        return cudaSuccess;
    }
    cudaError_t result = take_from_pool(&from, address, bytes);
    if (result == cudaSuccess)
        ps_small_note((CUdeviceptr)*address, bytes);
    return result;
}

PS_EXPORT cudaError_t cudaMallocAsync(void **address, size_t bytes, cudaStream_t stream)
{
    return malloc_async((struct pooled){.current = true, .stream = stream}, address, bytes);
}

PS_EXPORT cudaError_t cudaMallocAsync_ptsz(void **address, size_t bytes, cudaStream_t stream)
{
    return malloc_async((struct pooled){.per_thread_default = true, .current = true, .stream = stream}, address, bytes);
}

PS_EXPORT cudaError_t cudaMallocFromPoolAsync(void **address, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)
{
    return malloc_async((struct pooled){.pool = pool, .stream = stream}, address, bytes);
}

PS_EXPORT cudaError_t cudaMallocFromPoolAsync_ptsz(void **address, size_t bytes, cudaMemPool_t pool,
                                                   cudaStream_t stream)
{
    return malloc_async((struct pooled){.per_thread_default = true, .pool = pool, .stream = stream}, address, bytes);
}

PS_EXPORT cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool)
{
    ps_request_chooses_pool();
    return ps_real_cudart()->cudaDeviceSetMemPool(device, pool);
}

PS_EXPORT cudaError_t cudaMemSetMemPool(struct cudaMemLocation *location, enum cudaMemAllocationType type,
                                        cudaMemPool_t pool)
{
    ps_request_chooses_pool();
    return ps_real_cudart()->cudaMemSetMemPool(location, type, pool);
}

/* No allocation begins at this address, so the real function gives the program its error. */
#define NOWHERE ((void *)1)

/*
 * Frees the span that begins there. Returns false if none does. The calling thread gets a context,
 * as from the real function.
 */
static bool free_span(void *address, struct ps_stream *stream)
{
    ps_process_bind_thread();
    return ps_request_free((CUdeviceptr)address, stream);
}

PS_EXPORT cudaError_t cudaFree(void *address)
{
    ps_request_forget_tables((CUdeviceptr)address);
    if (ps_address_is_a_spans((CUdeviceptr)address) && free_span(address, NULL))
        return cudaSuccess;
    if (ps_request_free_at_once_behind_looks((CUdeviceptr)address))
        return cudaSuccess;
    return ps_real_cudart()->cudaFree(ps_request_free_small_at_once((CUdeviceptr)address) == PS_SMALL_TWICE ? NOWHERE
                                                                                                            : address);
}

static cudaError_t free_async(cudaError_t (*real)(void *, cudaStream_t), void *address, cudaStream_t stream,
                              bool per_thread_default)
{
    struct ps_stream *keeps = NULL;

    if (ps_address_is_a_spans((CUdeviceptr)address) && free_span(address, ps_stream_find(stream, per_thread_default)))
        return cudaSuccess;
    if (ps_graph_memory_freed((CUdeviceptr)address, stream, per_thread_default) ||
        ps_request_free_behind_looks((CUdeviceptr)address, stream, per_thread_default))
        return cudaSuccess;
    switch (ps_request_free_small((CUdeviceptr)address, stream, per_thread_default, &keeps)) {
    case PS_SMALL_KEPT:
        for (CUdeviceptr excess; (excess = ps_small_excess(keeps));)
            real((void *)excess, stream);
        return cudaSuccess;
    case PS_SMALL_TWICE:
        return real(NOWHERE, stream);
    case PS_SMALL_UNKNOWN:
        break;
    }
    ps_capture_freed_on(stream, per_thread_default);
    return real(address, stream);
}

PS_EXPORT cudaError_t cudaFreeAsync(void *address, cudaStream_t stream)
{
    return free_async(ps_real_cudart()->cudaFreeAsync, address, stream, false);
}

PS_EXPORT cudaError_t cudaFreeAsync_ptsz(void *address, cudaStream_t stream)
{
    return free_async(ps_real_cudart()->cudaFreeAsync_ptsz, address, stream, true);
}

PS_EXPORT cudaError_t cudaDeviceReset(void)
{
    int device = 0;

    ps_capture_uncounted_goes(NULL);
    if (ps_process_has_begun() && ps_real_cudart()->cudaGetDevice(&device) == cudaSuccess) {
        ps_inside++;
        const CUcontext primary = ps_devices_primary(device);
        const bool is_ours = primary && ps_devices_has_context(primary);
        ps_inside--;
        if (is_ours)
            ps_process_stand_aside("the program resets the device");
        ps_inside++;
        ps_kernels_context_ends(primary);
        ps_inside--;
    }
    return ps_real_cudart()->cudaDeviceReset();
}
