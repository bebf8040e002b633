/*
 * Allocation and free, runtime API: a span for what is large enough and can be managed, the real function for everything else.
 */
#include <errno.h>
#include <stdint.h>

#include "capture.h"
#include "counters.h"
#include "device.h"
#include "hooks.h"
#include "log.h"
#include "pointer_tables.h"
#include "process.h"
#include "real_cuda.h"
#include "real_cudart.h"
#include "registry.h"
#include "residency.h"
#include "reclaim.h"
#include "tracer.h"
#include "tracing.h"

/* cudaMallocPitch and cudaMalloc3D align rows to this on every device of compute capability 2.0 and later (measured: 512 on an H200). */
#define PITCH_UNIT 512

/* Whether an allocation of `bytes` is to become a span; counts why not. */
static bool is_ours(size_t bytes)
{
    int device;

    if (ps_inside)
        return false;
    if (!ps_process_is_managing()) {
        ps_count_passthrough(disabled);
        return false;
    }
    if (bytes < ps_settings.min_span) {
        ps_count_passthrough(small);
        return false;
    }
    if (ps_device.several && (ps_real_cudart()->cudaGetDevice(&device) != cudaSuccess || device != ps_device.ordinal)) {
        ps_count_passthrough(other_device);
        return false;
    }
    if (ps_capture_anywhere()) {
        ps_count_passthrough(capture);
        return false;
    }
    return true;
}

/*
 * The out-of-memory error as the program would have had it, with the runtime's own last-error state: the real function is asked for more than
 * any device has.
 */
static cudaError_t out_of_memory(void)
{
    void *nowhere;

    return ps_real_cudart()->cudaMalloc(&nowhere, (size_t)1 << 60);
}

enum outcome {
    OUTCOME_SPAN,          /* *address is set */
    OUTCOME_OUT_OF_MEMORY, /* the program gets the error */
    OUTCOME_REAL,          /* the real allocator is to be asked */
};

static enum outcome allocate(size_t bytes, struct ps_stream *stream, void **address)
{
    CUdeviceptr at = 0;

    ps_process_bind_thread();
    ps_inside++;
    struct ps_capture_mode mode = ps_capture_relax(); /* one may have begun meanwhile, on another thread */
    ps_tracing_start_if_due(bytes);
    int r = ps_residency_allocate(bytes, stream, &at);
    ps_capture_restore(mode);
    ps_inside--;
    if (!r) {
        *address = (void *)at;
        return OUTCOME_SPAN;
    }
    if (r == -ENOMEM)
        return OUTCOME_OUT_OF_MEMORY;
    ps_count_passthrough(no_addresses);
    return OUTCOME_REAL;
}

PS_EXPORT cudaError_t cudaMalloc(void **address, size_t bytes)
{
    if (address && is_ours(bytes)) {
        enum outcome o = allocate(bytes, NULL, address);
        if (o == OUTCOME_SPAN)
            return cudaSuccess;
        if (o == OUTCOME_OUT_OF_MEMORY)
            return out_of_memory();
    }
    cudaError_t r = ps_real_cudart()->cudaMalloc(address, bytes);
    /* The pages that the real allocator lacks may be ours: give way and ask once more. */
    if (r == cudaErrorMemoryAllocation && ps_reclaim_for_others(bytes))
        r = ps_real_cudart()->cudaMalloc(address, bytes);
    return r;
}

PS_EXPORT cudaError_t cudaMallocPitch(void **address, size_t *pitch, size_t width, size_t height)
{
    size_t row = (width + PITCH_UNIT - 1) & ~(size_t)(PITCH_UNIT - 1);

    if (address && pitch && row >= width && (!height || row <= SIZE_MAX / height) && is_ours(row * height)) {
        enum outcome o = allocate(row * height, NULL, address);
        if (o == OUTCOME_SPAN) {
            *pitch = row;
            return cudaSuccess;
        }
        if (o == OUTCOME_OUT_OF_MEMORY)
            return out_of_memory();
    }
    return ps_real_cudart()->cudaMallocPitch(address, pitch, width, height);
}

PS_EXPORT cudaError_t cudaMalloc3D(struct cudaPitchedPtr *pitched, struct cudaExtent extent)
{
    size_t row = (extent.width + PITCH_UNIT - 1) & ~(size_t)(PITCH_UNIT - 1);
    size_t rows = 0;

    if (pitched && row >= extent.width && !__builtin_mul_overflow(extent.height, extent.depth, &rows) &&
        (!rows || row <= SIZE_MAX / rows) && is_ours(row * rows)) {
        void *address;
        enum outcome o = allocate(row * rows, NULL, &address);
        if (o == OUTCOME_SPAN) {
            *pitched = (struct cudaPitchedPtr){.ptr = address, .pitch = row, .xsize = extent.width, .ysize = extent.height};
            return cudaSuccess;
        }
        if (o == OUTCOME_OUT_OF_MEMORY)
            return out_of_memory();
    }
    return ps_real_cudart()->cudaMalloc3D(pitched, extent);
}

/* The real function behind each stream-ordered hook. */
typedef cudaError_t (*malloc_async_fn)(void **, size_t, cudaStream_t);

static cudaError_t malloc_async(malloc_async_fn real, bool per_thread_default, void **address, size_t bytes, cudaStream_t stream)
{
    if (address && is_ours(bytes)) {
        struct ps_stream *ordered_on = ps_stream_find(stream, per_thread_default);
        enum outcome o = allocate(bytes, ordered_on, address);
        if (o == OUTCOME_SPAN)
            return cudaSuccess;
        if (o == OUTCOME_OUT_OF_MEMORY)
            return out_of_memory();
    }
    cudaError_t r = real(address, bytes, stream);
    if (r == cudaErrorMemoryAllocation && ps_reclaim_for_others(bytes))
        r = real(address, bytes, stream);
    return r;
}

PS_EXPORT cudaError_t cudaMallocAsync(void **address, size_t bytes, cudaStream_t stream)
{
    return malloc_async(ps_real_cudart()->cudaMallocAsync, false, address, bytes, stream);
}

PS_EXPORT cudaError_t cudaMallocAsync_ptsz(void **address, size_t bytes, cudaStream_t stream)
{
    return malloc_async(ps_real_cudart()->cudaMallocAsync_ptsz, true, address, bytes, stream);
}

/* A pool that the program made has properties (sharing, location) that a span does not have. */
static bool is_default_pool(cudaMemPool_t pool)
{
    cudaMemPool_t of_device = NULL;

    return ps_real_cudart()->cudaDeviceGetDefaultMemPool(&of_device, ps_device.ordinal) == cudaSuccess && pool == of_device;
}

PS_EXPORT cudaError_t cudaMallocFromPoolAsync(void **address, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)
{
    if (ps_process_has_begun() && is_default_pool(pool))
        return malloc_async(ps_real_cudart()->cudaMallocAsync, false, address, bytes, stream);
    ps_count_passthrough(own_pool);
    return ps_real_cudart()->cudaMallocFromPoolAsync(address, bytes, pool, stream);
}

PS_EXPORT cudaError_t cudaMallocFromPoolAsync_ptsz(void **address, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)
{
    if (ps_process_has_begun() && is_default_pool(pool))
        return malloc_async(ps_real_cudart()->cudaMallocAsync_ptsz, true, address, bytes, stream);
    ps_count_passthrough(own_pool);
    return ps_real_cudart()->cudaMallocFromPoolAsync_ptsz(address, bytes, pool, stream);
}

/* Frees the span that begins at `address`. False: it is none of ours, or no live one begins there; the real function has the error for that. */
static bool free_span(void *address, struct ps_stream *stream)
{
    ps_process_bind_thread();
    ps_inside++;
    struct ps_capture_mode mode = ps_capture_relax();
    int r = ps_residency_free((CUdeviceptr)address, stream);
    ps_capture_restore(mode);
    ps_inside--;
    if (r)
        ps_log_debug(HOOKS, "a free of %p, where no live allocation begins", address);
    return r == 0;
}

/* How far into a block that is freed a pointer table is looked for, before the driver is asked how large the block is: tables are small. */
#define TABLES_WITHIN (2u << 20)

/* Pointer tables in memory that goes are no tables any more. */
static void forget_tables(void *address)
{
    CUdeviceptr start = 0;
    size_t bytes = 0;

    if (ps_inside || !ps_process_has_begun() || !ps_pointer_tables_near((CUdeviceptr)address, TABLES_WITHIN))
        return;
    ps_inside++;
    if (!ps_residency_look_up((CUdeviceptr)address, &start, &bytes) ||
        ps_cu.cuMemGetAddressRange(&start, &bytes, (CUdeviceptr)address) == CUDA_SUCCESS)
        if (start == (CUdeviceptr)address)
            ps_pointer_tables_overwritten(start, bytes);
    ps_inside--;
}

PS_EXPORT cudaError_t cudaFree(void *address)
{
    forget_tables(address);
    if (ps_registry_owns((CUdeviceptr)address) && free_span(address, NULL))
        return cudaSuccess;
    return ps_real_cudart()->cudaFree(address);
}

PS_EXPORT cudaError_t cudaFreeAsync(void *address, cudaStream_t stream)
{
    forget_tables(address);
    if (ps_registry_owns((CUdeviceptr)address) && free_span(address, ps_stream_find(stream, false)))
        return cudaSuccess;
    return ps_real_cudart()->cudaFreeAsync(address, stream);
}

PS_EXPORT cudaError_t cudaFreeAsync_ptsz(void *address, cudaStream_t stream)
{
    forget_tables(address);
    if (ps_registry_owns((CUdeviceptr)address) && free_span(address, ps_stream_find(stream, true)))
        return cudaSuccess;
    return ps_real_cudart()->cudaFreeAsync_ptsz(address, stream);
}

PS_EXPORT cudaError_t cudaDeviceReset(void)
{
    if (ps_process_has_begun())
        ps_process_stand_aside("the program resets the device");
    return ps_real_cudart()->cudaDeviceReset();
}
