#include "driver_calls.h"

#include "capture.h"
#include "graphs.h"
#include "host_tables.h"
#include "layouts.h"
#include "pointer_tables.h"
#include "real_cuda.h"
#include "registry.h"
#include "streams.h"
#include "tracer.h"
#include "verify.h"

#define CBID(name) CUPTI_DRIVER_TRACE_CBID_##name

/* cuda.h maps a plain name to its newest version; here every version is meant by its own name. */
#undef cuGraphInstantiate

/* The stream by a handle that means the same whatever the entry point. */
static CUstream named(bool per_thread, CUstream stream)
{
    return !stream && per_thread ? CU_STREAM_PER_THREAD : stream;
}

static void launch(bool per_thread, CUstream stream, CUfunction function, uint64_t blocks, void **parameters, void **extra)
{
    ps_trace_begin(stream, per_thread);
    ps_trace_kernel(function, blocks, parameters, extra);
    ps_trace_ready(true);
    if (ps_verify_is_on())
        ps_verify_launch(named(per_thread, stream), function, parameters, extra);
}

static void copy(bool per_thread, CUstream stream, CUdeviceptr a, CUdeviceptr b)
{
    ps_trace_begin(stream, per_thread);
    ps_trace_address(a);
    ps_trace_address(b);
    ps_trace_ready(false);
}

/* One that says how many bytes it touches from each of its addresses on. */
static void copy_bytes(bool per_thread, CUstream stream, CUdeviceptr a, CUdeviceptr b, size_t bytes)
{
    ps_trace_begin(stream, per_thread);
    ps_trace_bytes(a, bytes);
    ps_trace_bytes(b, bytes);
    ps_trace_ready(false);
}

/*
 * Whether the processor may read there. The driver says it: a program may name the wrong direction, which does no harm on the device. What the driver
 * doesn't know is ordinary memory, which it would read itself.
 */
static bool is_on_the_host(const void *address)
{
    unsigned int type = CU_MEMORYTYPE_HOST;

    if (ps_registry_owns((CUdeviceptr)address))
        return false;
    return ps_cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)address) != CUDA_SUCCESS ||
           type == CU_MEMORYTYPE_HOST;
}

/* One that may bring pointer tables from the host. */
static void upload(bool per_thread, CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    if (bytes >= 8 && is_on_the_host((const void *)from))
        ps_pointer_tables_copied(to, (const void *)from, bytes);
    else
        ps_pointer_tables_overwritten(to, bytes);
    copy_bytes(per_thread, stream, to, from, bytes);
}

/* One that does not, or a fill. */
static void overwrite(bool per_thread, CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    ps_pointer_tables_overwritten(to, bytes);
    copy_bytes(per_thread, stream, to, from, bytes);
}

/* A batch of copies; unordered inside, so every address is one access of the call. */
static void batch(bool per_thread, CUstream stream, const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *bytes, size_t count)
{
    ps_trace_begin(stream, per_thread);
    for (size_t i = 0; i < count; i++) {
        ps_trace_bytes(dsts[i], bytes[i]);
        ps_trace_bytes(srcs[i], bytes[i]);
    }
    ps_trace_ready(false);
}

static void launch_graph(bool per_thread, CUstream stream, CUgraphExec executable)
{
    ps_trace_begin(stream, per_thread);
    ps_trace_graph(executable);
    ps_trace_ready(true);
    if (ps_verify_is_on())
        ps_verify_launch(named(per_thread, stream), NULL, NULL, NULL);
}

/* For calls of which only the end matters. */
static void nothing(const void *parameters)
{
    (void)parameters;
}

static void begins(CUpti_CallbackId id, const void *parameters)
{
#define ONE(name, twin, meaning)                                                                                                           \
    case CBID(name): {                                                                                                                     \
        const name##_params *p = parameters;                                                                                               \
        const bool per_thread = twin;                                                                                                      \
        (void)p, (void)per_thread;                                                                                                         \
        meaning;                                                                                                                           \
        return;                                                                                                                            \
    }
#define PS_TRACED(name, declaration, arguments, meaning) ONE(name, false, meaning)
#define PS_TRACED_BELOW_HOOK(name, meaning) ONE(name, false, meaning)
#define PS_TRACED_PTSZ(name, declaration, arguments, meaning) ONE(name, false, meaning) ONE(name##_ptsz, true, meaning)
#define PS_TRACED_PTDS(name, declaration, arguments, meaning) ONE(name, false, meaning) ONE(name##_ptds, true, meaning)
    switch (id) {
#include "traced_calls.def"
    default:
        return;
    }
#undef ONE
#undef PS_TRACED
#undef PS_TRACED_BELOW_HOOK
#undef PS_TRACED_PTSZ
#undef PS_TRACED_PTDS
}

void ps_driver_call_begins(CUpti_CallbackId id, const void *parameters)
{
    struct ps_capture_mode mode = ps_capture_relax();

    begins(id, parameters);
    ps_capture_restore(mode);
}

/* Calls whose meaning shows when they are over. */
static void succeeded(CUpti_CallbackId id, const void *parameters)
{
#define INSTANTIATED(name, launched_by_kernels)                                                                                            \
    case CBID(name): {                                                                                                                     \
        const name##_params *p = parameters;                                                                                               \
        ps_graph_instantiated(*p->phGraphExec, p->hGraph, launched_by_kernels);                                                            \
        return;                                                                                                                            \
    }
    switch (id) {
    case CBID(cuMemHostAlloc):
    case CBID(cuMemAllocHost_v2):
    case CBID(cuMemHostRegister_v2):
    case CBID(cuMemAllocManaged):
        ps_host_tables_new_memory();
        return;
        INSTANTIATED(cuGraphInstantiate, false)
        INSTANTIATED(cuGraphInstantiate_v2, false)
        INSTANTIATED(cuGraphInstantiateWithFlags, (p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0)
        INSTANTIATED(cuGraphInstantiateWithParams, (p->instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0)
        INSTANTIATED(cuGraphInstantiateWithParams_ptsz, (p->instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0)
    default:
        return;
    }
#undef INSTANTIATED
}

void ps_driver_call_ended(CUpti_CallbackId id, const void *parameters, CUresult result)
{
    struct ps_capture_mode mode = ps_capture_relax();

    if (ps_verify_is_on())
        ps_verify_launched();
    ps_trace_end();
    switch (id) {
    case CBID(cuStreamBeginCapture):
    case CBID(cuStreamBeginCapture_ptsz):
    case CBID(cuStreamBeginCapture_v2):
    case CBID(cuStreamBeginCapture_v2_ptsz):
    case CBID(cuStreamBeginCaptureToGraph):
    case CBID(cuStreamBeginCaptureToGraph_ptsz):
        ps_capture_began(result == CUDA_SUCCESS);
        break;
    case CBID(cuStreamWaitEvent):
    case CBID(cuStreamWaitEvent_ptsz):
        ps_capture_was_joined();
        break;
    case CBID(cuStreamEndCapture):
    case CBID(cuStreamEndCapture_ptsz):
        /* These end with an error; after others (a stream that is not the capture's, or none at all) it goes on. */
        if (result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED || result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
            ps_capture_ended();
        break;
    default:
        break;
    }
    if (result == CUDA_SUCCESS)
        succeeded(id, parameters);
    ps_capture_restore(mode);
}

#define PS_TRACED(name, declaration, arguments, meaning) CBID(name),
#define PS_TRACED_BELOW_HOOK(name, meaning) CBID(name),
#define PS_TRACED_PTSZ(name, declaration, arguments, meaning) CBID(name), CBID(name##_ptsz),
#define PS_TRACED_PTDS(name, declaration, arguments, meaning) CBID(name), CBID(name##_ptds),
const CUpti_CallbackId ps_driver_call_ids[] = {
#include "traced_calls.def"
};
#undef PS_TRACED
#undef PS_TRACED_BELOW_HOOK
#undef PS_TRACED_PTSZ
#undef PS_TRACED_PTDS

const size_t ps_driver_call_count = sizeof ps_driver_call_ids / sizeof *ps_driver_call_ids;

bool ps_driver_call_is_below_hook(CUpti_CallbackId id)
{
#define PS_TRACED(name, declaration, arguments, meaning)
#define PS_TRACED_BELOW_HOOK(name, meaning) case CBID(name):
#define PS_TRACED_PTSZ(name, declaration, arguments, meaning)
#define PS_TRACED_PTDS(name, declaration, arguments, meaning)
    switch (id) {
#include "traced_calls.def"
        return true;
    default:
        return false;
    }
#undef PS_TRACED
#undef PS_TRACED_BELOW_HOOK
#undef PS_TRACED_PTSZ
#undef PS_TRACED_PTDS
}

bool ps_driver_call_may_be_unknown(CUpti_CallbackId id)
{
    switch (id) {
    case CBID(cuMemcpyBatchAsync):
    case CBID(cuMemcpyBatchAsync_ptsz):
    case CBID(cuMemcpyBatchAsync_v2):
    case CBID(cuMemcpyBatchAsync_v2_ptsz):
    case CBID(cuStreamBeginCaptureToGraph):
    case CBID(cuStreamBeginCaptureToGraph_ptsz):
    case CBID(cuGraphExecNodeSetParams):
        return true;
    default:
        return false;
    }
}
