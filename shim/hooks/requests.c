#include "hooks/requests.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/bytes_text.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/policies.h"
#include "base/settings.h"
#include "core/allocation.h"
#include "cuda/capture.h"
#include "cuda/capture_mode.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "cuda/helper_thread.h"
#include "cuda/managed_context.h"
#include "cuda/streams.h"
#include "kernels/made_tables.h"
#include "kernels/pointer_tables.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "process.h"
#include "residency/residency.h"
#include "tracer/graphs.h"
#include "tracer/start.h"

bool ps_request_may_be_span(size_t bytes)
{
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
    if (ps_policies_leave_to_cuda(bytes)) {
        ps_count_passthrough(plain);
        return false;
    }
    if (ps_capture_anywhere()) {
        ps_count_passthrough(capture);
        /* Only a named budget asks for less memory than the device has. */
        if (ps_amount_is_named(ps_settings.budget))
            ps_log_warn_once(TRACER,
                             "memory that is allocated while a CUDA graph is captured (now %s) is "
                             "the graph's: it stays on the device, outside the budget",
                             ps_bytes_text(bytes).text);
        return false;
    }
    if (!ps_process_enter_device()) {
        ps_count_passthrough(other_device);
        return false;
    }
    return true;
}

CUcontext ps_request_context(void)
{
    CUcontext context = NULL;

    return !ps_real_cuda_load() && ps_cu.cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : NULL;
}

bool ps_request_may_be_span_here(size_t bytes)
{
    CUcontext context = ps_inside ? NULL : ps_request_context();

    return context && ps_request_may_be_span(bytes);
}

/* The free bytes that the program was told last, until an allocation succeeds; 0: none. */
static __thread size_t told_free __attribute__((tls_model("initial-exec")));

void ps_request_told_free(size_t bytes)
{
    told_free = bytes;
}

static enum ps_request request(size_t bytes, struct ps_stream *stream, enum ps_allocation what, CUdeviceptr *address)
{
    ps_process_bind_thread();
    ps_inside++;
    ps_capture_enter();
    if (what == PS_ALLOCATION_TO_USE && stream && told_free && bytes >= told_free / 2)
        what = PS_ALLOCATION_TO_ASK;
    if (what != PS_ALLOCATION_TO_ASK)
        ps_tracing_start_if_due(bytes);
    int r = ps_allocation_make(bytes, stream, what, address);
    if (!r) {
        told_free = 0;
        ps_pointer_tables_overwritten(*address, bytes);
        if (atomic_load_explicit(&ps_graphs_launched_by_kernels, memory_order_relaxed))
            ps_graph_span_was_made(*address, bytes);
    }
    ps_capture_mode_leave();
    ps_inside--;
    if (!r)
        return PS_REQUEST_SPAN;
    if (r == -ENOMEM)
        return PS_REQUEST_OUT_OF_MEMORY;
    ps_count_passthrough(no_addresses);
    return PS_REQUEST_REAL;
}

enum ps_request ps_request_span(size_t bytes, struct ps_stream *stream, CUdeviceptr *address)
{
    return request(bytes, stream, PS_ALLOCATION_TO_USE, address);
}

enum ps_request ps_request_span_to_map(size_t bytes, CUdeviceptr *address)
{
    return request(bytes, NULL, PS_ALLOCATION_TO_MAP, address);
}

bool ps_request_free(CUdeviceptr address, struct ps_stream *stream)
{
    struct ps_managed_context context = ps_managed_context_enter_for(address);
    int r = ps_allocation_free(address, stream);
    ps_managed_context_leave(context);
    if (r)
        ps_log_debug(HOOKS, "the program frees %#llx, where no live allocation begins", (unsigned long long)address);
    return r == 0;
}

/*
 * The first bytes of a freed block, which are searched for a pointer table. Only if one is near is
 * the driver asked for the block's size: tables are small.
 */
#define TABLES_WITHIN (2u << 20)

bool ps_request_enter_pool(CUmemoryPool pool)
{
    const ptrdiff_t before = ps_here;

    if (!ps_process_has_begun())
        return false;
    for (unsigned i = ps_devices_count(); i-- > 0;) {
        if (ps_devices_several)
            ps_devices_enter(i);
        if (ps_device_has_default_pool(pool))
            return true;
    }
    ps_here = before;
    return false;
}

static atomic_bool pool_was_chosen; /* by the program, for any device */

void ps_request_chooses_pool(void)
{
    if (!atomic_exchange(&pool_was_chosen, true) && ps_process_has_begun() && !ps_inside && !ps_capture_anywhere())
        ps_small_give_back(); /* a captured stream takes no free of memory allocated before */
}

/*
 * Returns the stream if freed small blocks are kept for it, or NULL. Only the thread of a
 * per-thread stream could give its blocks back. An allocation under capture is a node of the graph.
 * While memory suffices, blocks are kept only where the device's pool would keep them too.
 * Elsewhere a kept block holds pages, also those of its neighbours, that others could use.
 */
static struct ps_stream *keeps_on(CUstream stream, bool per_thread_default)
{
    if (atomic_load_explicit(&pool_was_chosen, memory_order_relaxed) || ps_capture_anywhere() ||
        !ps_process_enter_device() || !(ps_budget_is_tight() || ps_device_pool_keeps_all()))
        return NULL;
    struct ps_stream *s = ps_stream_find(stream, per_thread_default);
    return s->per_thread || s->index >= PS_STREAMS_MAX || s->context != ps_device.context || atomic_load(&s->gone)
               ? NULL
               : s;
}

struct ps_stream *ps_request_small_on(size_t bytes, bool current, CUstream stream, bool per_thread_default)
{
    if (!current || !bytes || bytes >= ps_settings.min_span || ps_inside || !ps_process_has_begun() ||
        !ps_process_is_managing())
        return NULL;
    return keeps_on(stream, per_thread_default);
}

enum ps_small ps_request_free_small_at_once(CUdeviceptr address)
{
    return ps_inside || !ps_small_are_known() || !ps_process_is_managing() ? PS_SMALL_UNKNOWN
                                                                           : ps_small_free(address, NULL);
}

enum ps_small ps_request_free_small(CUdeviceptr address, CUstream stream, bool per_thread_default,
                                    struct ps_stream **on)
{
    if (ps_inside || !ps_small_are_known() || !ps_process_is_managing())
        return PS_SMALL_UNKNOWN;
    *on = keeps_on(stream, per_thread_default);
    return ps_small_free(address, *on);
}

/* Frees the memory if a look under way reads it elsewhere. `s`: the stream; NULL: in no order. */
static bool free_behind_looks(CUdeviceptr address, CUstream stream, struct ps_stream *s)
{
    if (!ps_process_is_managing() || !ps_process_enter_device() || !ps_made_tables_are_read(address, stream))
        return false;
    return ps_small_free(address, NULL) != PS_SMALL_TWICE && ps_made_tables_free(address, s);
}

static bool are_looks(void)
{
    return !ps_inside && atomic_load_explicit(&ps_made_looks, memory_order_relaxed);
}

bool ps_request_free_behind_looks(CUdeviceptr address, CUstream stream, bool per_thread_default)
{
    if (!are_looks() || ps_capture_has(stream, per_thread_default))
        return false;
    if (!stream && per_thread_default)
        stream = CU_STREAM_PER_THREAD;
    ps_inside++;
    const bool is_freed = free_behind_looks(address, stream, ps_stream_find(stream, per_thread_default));
    ps_inside--;
    return is_freed;
}

bool ps_request_free_at_once_behind_looks(CUdeviceptr address)
{
    CUmemoryPool pool = NULL;

    if (!are_looks())
        return false;
    ps_inside++;
    const bool is_freed =
        ps_cu.cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address) == CUDA_SUCCESS && pool &&
        free_behind_looks(address, NULL, NULL);
    ps_inside--;
    return is_freed;
}

bool ps_request_is_captured_unseen(CUstream stream, bool per_thread_default)
{
    if (ps_inside || ps_process_has_begun() || ps_real_cuda_load())
        return false;
    return ps_capture_is_on(!stream && per_thread_default ? CU_STREAM_PER_THREAD : stream);
}

bool ps_request_may_be_pooled(bool current, CUmemoryPool pool, const struct ps_stream *stream)
{
    if (stream && ps_stream_is_foreign(stream)) { /* the memory comes from the stream's device, whichever is current */
        ps_count_passthrough(other_device);
        return false;
    }
    if (current && (!atomic_load_explicit(&pool_was_chosen, memory_order_relaxed) || !ps_cu.cuDeviceGetMemPool ||
                    ps_cu.cuDeviceGetMemPool(&pool, ps_device.ordinal) != CUDA_SUCCESS))
        return true;
    if (ps_device_has_default_pool(pool))
        return true;
    ps_count_passthrough(own_pool);
    return false;
}

void ps_request_forget_tables(CUdeviceptr address)
{
    CUdeviceptr start = 0;
    size_t bytes = 0;

    if (ps_inside || !ps_process_has_begun() || !ps_pointer_tables_near(address, TABLES_WITHIN))
        return;
    ps_inside++;
    if (!ps_residency_look_up(address, &start, &bytes) ||
        ps_cu.cuMemGetAddressRange(&start, &bytes, address) == CUDA_SUCCESS)
        if (start == address)
            ps_pointer_tables_overwritten(start, bytes);
    ps_inside--;
}

void ps_request_allocated(CUdeviceptr address, size_t bytes)
{
    if (!ps_inside && ps_process_has_begun())
        ps_pointer_tables_overwritten(address, bytes);
}
