#include "tracer/traced_calls.h"

#include "base/observers.h"
#include "base/state.h"
#include "cuda/capture.h"
#include "cuda/capture_mode.h"
#include "cuda/driver.h"
#include "cuda/driver_functions.h"
#include "cuda/streams.h"
#include "kernels/grid.h"
#include "kernels/host_tables.h"
#include "kernels/layouts.h"
#include "kernels/module_variables.h"
#include "kernels/pointer_tables.h"
#include "memory/registry.h"
#include "memory/small_cache.h"
#include "residency/graph_memory.h"
#include "tracer/graph_bodies.h"
#include "tracer/graph_looks.h"
#include "tracer/graph_needs.h"
#include "tracer/graphs.h"
#include "tracer/table_copies.h"
#include "tracer/tracer.h"

#define CBID(name) CUPTI_DRIVER_TRACE_CBID_##name

/* cuda.h maps a plain name to its newest version; here each name means its own version. */
#undef cuGraphInstantiate
#undef cuGraphExecUpdate
#undef cuGraphAddNode
#undef cuGraphExecKernelNodeSetParams

/* Returns a handle of the stream that means the same for every entry point. */
static CUstream named(bool per_thread, CUstream stream)
{
    return !stream && per_thread ? CU_STREAM_PER_THREAD : stream;
}

/*
 * The driver refuses wrong arguments, so nothing is checked here. If the program passes no
 * structure or array, nothing is read and the call is not noted.
 */

static void launch(bool per_thread, CUstream stream, CUfunction function, struct ps_grid grid, void **parameters,
                   void **extra)
{
    ps_tracer_begin(stream, per_thread);
    ps_tracer_kernel(function, grid, parameters, extra);
    ps_tracer_ready(true);
    if (ps_verify_is_on())
        ps_observers.launch(named(per_thread, stream), function, parameters, extra);
}

static void launch_by(bool per_thread, const CUlaunchConfig *config, CUfunction function, void **parameters,
                      void **extra)
{
    if (config)
        launch(per_thread, config->hStream, function,
               (struct ps_grid){config->gridDimX, config->gridDimY, config->gridDimZ}, parameters, extra);
}

/* A launch with unknown parameters keeps every span where it is, unless the kernel has none. */
static void launch_unknown(CUstream stream, CUfunction function)
{
    launch(false, stream, function, (struct ps_grid){1, 1, 1}, NULL, NULL);
}

/*
 * A launch of one kernel on several devices. It counts as an access on the first one's stream
 * alone: evictions on the other devices do not wait for the kernel.
 */
static void launch_on_devices(const CUDA_LAUNCH_PARAMS *list, unsigned int count)
{
    if (!list || !count)
        return;
    if (count > 1)
        launch_unknown(list->hStream, list->function);
    else
        launch(false, list->hStream, list->function, (struct ps_grid){list->gridDimX, list->gridDimY, list->gridDimZ},
               list->kernelParams, NULL);
}

/* ---- copies and fills ---- */

/* Notes a call that touches `bytes` bytes from each of its addresses on. */
static void copy_bytes(bool per_thread, CUstream stream, CUdeviceptr a, CUdeviceptr b, size_t bytes)
{
    ps_tracer_begin(stream, per_thread);
    ps_tracer_bytes(a, bytes);
    ps_tracer_bytes(b, bytes);
    ps_tracer_ready(false);
}

/*
 * Returns whether the call's work runs now, in its stream's order. Work that is captured runs with
 * the graph, maybe often or never. Its launch says what the graph's copies do to pointer tables.
 */
static bool runs_now(bool per_thread, CUstream stream)
{
    return !ps_capture_has(stream, per_thread);
}

/*
 * Returns whether memory that the driver does not know counts as ordinary host memory. The driver
 * knows best: a program may name the wrong direction, which does no harm on the device. But the
 * driver does not know ordinary memory. Nor does it know a graph's own allocations before the
 * launch (cuPointerGetAttribute of libcuda 580; torch captures such copies). A read of those on the
 * host would end the program. So unknown memory counts as ordinary memory in two cases only. The
 * copy says so, or it says nothing and is not captured.
 */
static bool unknown_is_host(CUmemorytype said, bool per_thread, CUstream stream)
{
    return said == CU_MEMORYTYPE_HOST || (said == CU_MEMORYTYPE_UNIFIED && !ps_capture_has(stream, per_thread));
}

/* Notes a copy. `said`: the kind of memory that the call says its source is. */
static void copy(bool per_thread, CUstream stream, CUdeviceptr to, CUmemorytype said, CUdeviceptr from, size_t bytes)
{
    if (runs_now(per_thread, stream))
        ps_table_copy(to, from, bytes, unknown_is_host(said, per_thread, stream));
    copy_bytes(per_thread, stream, to, from, bytes);
}

/* Notes a fill, or a copy whose source has no address. */
static void overwrite(bool per_thread, CUstream stream, CUdeviceptr to, size_t bytes)
{
    if (runs_now(per_thread, stream))
        ps_pointer_tables_overwritten(to, bytes);
    copy_bytes(per_thread, stream, to, 0, bytes);
}

/* Names the memory that a copy in rows touches on both sides. */
static void name_rows(struct ps_copy_side to, struct ps_copy_side from, struct ps_copy_box box, bool runs,
                      bool unknown_is)
{
    if (!box.width || !box.height || !box.depth)
        return;
    if (to.is_wrong || from.is_wrong) { /* wrong as far as this code can tell */
        ps_tracer_address(to.start);
        ps_tracer_address(from.start);
        return;
    }
    if (to.start && runs)
        ps_table_copy_rows(to, from, box, unknown_is);
    ps_tracer_bytes(to.start, ps_copy_extent(to, box));
    ps_tracer_bytes(from.start, ps_copy_extent(from, box));
}

static void copy_rows(bool per_thread, CUstream stream, struct ps_copy_side to, struct ps_copy_side from,
                      struct ps_copy_box box)
{
    ps_tracer_begin(stream, per_thread);
    name_rows(to, from, box, runs_now(per_thread, stream), unknown_is_host(from.said, per_thread, stream));
    ps_tracer_ready(false);
}

#define COPY_IN_SLICES(name, type)                                                                                     \
    static void name(bool per_thread, CUstream stream, const type *p)                                                  \
    {                                                                                                                  \
        if (!p)                                                                                                        \
            return;                                                                                                    \
        const struct ps_copy_box box = {p->WidthInBytes, p->Height, p->Depth};                                         \
        copy_rows(per_thread, stream, PS_COPY_SIDE(p, dst, p->dstZ, p->dstHeight, box),                                \
                  PS_COPY_SIDE(p, src, p->srcZ, p->srcHeight, box), box);                                              \
    }
COPY_IN_SLICES(copy_3d, CUDA_MEMCPY3D)
COPY_IN_SLICES(copy_3d_peer, CUDA_MEMCPY3D_PEER)

static void copy_2d(bool per_thread, CUstream stream, const CUDA_MEMCPY2D *p)
{
    if (!p)
        return;
    const struct ps_copy_box box = {p->WidthInBytes, p->Height, 1};
    copy_rows(per_thread, stream, PS_COPY_SIDE(p, dst, 0, 0, box), PS_COPY_SIDE(p, src, 0, 0, box), box);
}

static void fill_2d(bool per_thread, CUstream stream, CUdeviceptr to, size_t pitch, size_t width, size_t height)
{
    const struct ps_copy_box box = {width, height, 1};
    const struct ps_copy_side filled = ps_copy_side_at(to, height == 1 ? 0 : pitch, 0, box),
                              nothing = ps_copy_side_at(0, filled.pitch, 0, box);

    copy_rows(per_thread, stream, filled, nothing, box);
}

/*
 * Notes whether a copy may read its source ahead of its stream. CUmemcpySrcAccessOrder (cuda.h) is
 * meant for host memory, and allowed for all memory.
 */
static void name_order(CUmemcpySrcAccessOrder order, CUdeviceptr source)
{
    if (order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL || order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
        ps_tracer_reads_ahead(source);
}

struct batch {
    const CUdeviceptr *to, *from;
    const size_t *bytes;
    size_t count;
    const CUmemcpyAttributes *attributes;
    const size_t *first; /* for each of `attributes`, the index of the first copy that it is for */
    size_t attribute_count;
};

/* Notes a batch of copies. They have no order among each other, so the call is one access. */
static void batch(bool per_thread, CUstream stream, struct batch batch)
{
    if (!batch.to || !batch.from || !batch.bytes || !batch.attributes || !batch.first || !batch.attribute_count)
        return;
    const bool runs = runs_now(per_thread, stream);
    const bool unknown_is = unknown_is_host(CU_MEMORYTYPE_UNIFIED, per_thread, stream);
    size_t its = 0;

    ps_tracer_begin(stream, per_thread);
    for (size_t i = 0; i < batch.count; i++) {
        while (its + 1 < batch.attribute_count && batch.first[its + 1] <= i)
            its++;
        if (runs)
            ps_table_copy(batch.to[i], batch.from[i], batch.bytes[i], unknown_is);
        ps_tracer_bytes(batch.to[i], batch.bytes[i]);
        ps_tracer_bytes(batch.from[i], batch.bytes[i]);
        name_order(batch.attributes[its].srcAccessOrder, batch.from[i]);
    }
    ps_tracer_ready(false);
}

static void copy_with_attributes(bool per_thread, CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                 const CUmemcpyAttributes *attributes)
{
    const size_t first = 0;

    batch(per_thread, stream, (struct batch){&to, &from, &bytes, 1, attributes, &first, 1});
}

static struct ps_copy_side operand(const CUmemcpy3DOperand *operand, struct ps_copy_box box)
{
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER)
        return ps_copy_side_at(0, 0, 0, box);
    return ps_copy_side_at(operand->op.ptr.ptr, operand->op.ptr.rowLength, operand->op.ptr.layerHeight, box);
}

static void batch_3d(bool per_thread, CUstream stream, const CUDA_MEMCPY3D_BATCH_OP *op, size_t count)
{
    if (!op)
        return;
    const bool runs = runs_now(per_thread, stream);
    const bool unknown_is = unknown_is_host(CU_MEMORYTYPE_UNIFIED, per_thread, stream);
    ps_tracer_begin(stream, per_thread);
    for (size_t i = 0; i < count; i++) {
        const struct ps_copy_box box = {op[i].extent.width, op[i].extent.height, op[i].extent.depth};
        const struct ps_copy_side to = operand(&op[i].dst, box), from = operand(&op[i].src, box);
        name_order(op[i].srcAccessOrder, from.start);
        if (to.start && from.start) {
            name_rows(to, from, box, runs, unknown_is);
            continue;
        }
        ps_tracer_address(to.start); /* one side is an array, whose size of elements is unknown here */
        ps_tracer_address(from.start);
    }
    ps_tracer_ready(false);
}

/* Notes a number that the stream writes, which may be an address. */
static void write_value(bool per_thread, CUstream stream, CUdeviceptr to, const void *value, size_t bytes)
{
    if (runs_now(per_thread, stream))
        ps_pointer_tables_copied(to, value, bytes);
    copy_bytes(per_thread, stream, to, 0, bytes);
}

static void name_value(const CUstreamBatchMemOpParams *op, bool runs)
{
    if (op->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES || op->operation == CU_STREAM_MEM_OP_BARRIER)
        return;
    if (runs && op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
        ps_pointer_tables_overwritten(op->writeValue.address, sizeof op->writeValue.value);
    else if (runs && op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64)
        ps_pointer_tables_copied(op->writeValue.address, &op->writeValue.value64, sizeof op->writeValue.value64);
    /* `address` is at the same place in each variant that has one. */
    ps_tracer_bytes(op->waitValue.address, 4);
}

/* Notes values that the stream waits for or writes. */
static void values(bool per_thread, CUstream stream, const CUstreamBatchMemOpParams *op, size_t count)
{
    if (!op)
        return;
    const bool runs = runs_now(per_thread, stream);
    ps_tracer_begin(stream, per_thread);
    for (size_t i = 0; i < count; i++)
        name_value(&op[i], runs);
    ps_tracer_ready(false);
}

static void decompress(bool per_thread, CUstream stream, const CUmemDecompressParams *params, size_t count)
{
    if (!params)
        return;
    const bool runs = runs_now(per_thread, stream);
    ps_tracer_begin(stream, per_thread);
    for (size_t i = 0; i < count; i++) {
        if (runs)
            ps_pointer_tables_overwritten((CUdeviceptr)params[i].dst, params[i].dstNumBytes);
        ps_tracer_bytes((CUdeviceptr)params[i].dst, params[i].dstNumBytes);
        ps_tracer_bytes((CUdeviceptr)params[i].src, params[i].srcNumBytes);
        ps_tracer_bytes((CUdeviceptr)params[i].dstActBytes, sizeof *params[i].dstActBytes);
    }
    ps_tracer_ready(false);
}

/* ---- graphs ---- */

static void change_kernel(CUgraphExec executable, CUgraphNode node, CUfunction function, CUkernel kernel,
                          void **parameters, void **extra)
{
    const CUDA_KERNEL_NODE_PARAMS now = {.func = function, .kern = kernel, .kernelParams = parameters, .extra = extra};

    ps_graph_kernel_changed(executable, node, &now);
}

static void change_values(CUgraphExec executable, CUgraphNode node, CUstreamBatchMemOpParams *values, unsigned count)
{
    const CUDA_BATCH_MEM_OP_NODE_PARAMS now = {.count = count, .paramArray = values};

    ps_graph_values_changed(executable, node, &now);
}

/* A node of any type. */
static void change_node(CUgraphExec executable, CUgraphNode node, const CUgraphNodeParams *now)
{
    switch (now->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        change_kernel(executable, node, now->kernel.func, now->kernel.kern, now->kernel.kernelParams,
                      now->kernel.extra);
        return;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        ps_graph_copy_changed(executable, node, &now->memcpy.copyParams);
        return;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        ps_graph_fill_changed(executable, node, now->memset.dst, PS_GRAPH_FILL_EXTENT(&now->memset));
        return;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        ps_graph_child_changed(executable, node, now->graph.graph);
        return;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        change_values(executable, node, now->memOp.paramArray, now->memOp.count);
        return;
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return; /* they touch no memory */
    default:
        ps_graph_node_unknown(executable, node);
        return;
    }
}

static void launch_graph(bool per_thread, CUstream stream, CUgraphExec executable)
{
    ps_tracer_begin(stream, per_thread);
    ps_tracer_graph(executable);
    ps_tracer_ready(true);
    if (ps_verify_is_on())
        ps_observers.launch(named(per_thread, stream), NULL, NULL, NULL);
}

static void node_added(CUgraph graph, CUgraphNode node, const CUgraphNodeParams *params)
{
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        ps_graph_holds(graph, params->graph.graph);
    else if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        ps_graph_bodies_added(graph, node, &params->conditional);
}

static void graph_goes(CUgraph graph)
{
    ps_graph_bodies_forget(graph, graph_goes);
    ps_graph_captured_destroyed(graph);
    ps_graph_memory_graph_goes(graph);
}

static void executable_goes(CUgraphExec executable)
{
    ps_graph_destroyed(executable);
    ps_graph_memory_executable_goes(executable);
}

/* A stream ends by the old call, which has no hook of its own. */
static void stream_goes(CUstream stream)
{
    ps_small_give_back_of(stream);
    ps_stream_retire(stream);
}

static void module_gone(const void *module)
{
    ps_layouts_module_gone();
    ps_module_variables_gone(module);
}

/* The meaning of calls of which only the end matters. */
static void nothing(const void *parameters)
{
    (void)parameters;
}

static void begins(CUpti_CallbackId id, const void *parameters)
{
#define ONE(name, twin, meaning)                                                                                       \
    case CBID(name): {                                                                                                 \
        const name##_params *p = parameters;                                                                           \
        const bool per_thread = twin;                                                                                  \
        (void)p, (void)per_thread;                                                                                     \
        meaning;                                                                                                       \
        return;                                                                                                        \
    }
#define PS_TRACED(name, declaration, arguments, meaning) ONE(name, false, meaning)
#define PS_TRACED_BELOW_HOOK(name, meaning) ONE(name, false, meaning)
#define PS_TRACED_PTSZ(name, declaration, arguments, meaning) ONE(name, false, meaning) ONE(name##_ptsz, true, meaning)
#define PS_TRACED_PTDS(name, declaration, arguments, meaning) ONE(name, false, meaning) ONE(name##_ptds, true, meaning)
    switch (id) {
#include "cuda/traced_calls.def"
    default:
        return;
    }
#undef ONE
#undef PS_TRACED
#undef PS_TRACED_BELOW_HOOK
#undef PS_TRACED_PTSZ
#undef PS_TRACED_PTDS
}

void ps_traced_call_begins(CUpti_CallbackId id, const void *parameters)
{
    ps_capture_enter();
    ps_capture_look_at_own();

    begins(id, parameters);
    ps_capture_mode_leave();
}

static void instantiated(CUgraphExec executable, CUgraph graph, unsigned long long flags)
{
    ps_graph_instantiated(executable, graph, (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0);
    ps_graph_memory_instantiated(graph, executable, (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0);
}

/* Notes a variable. A call that did not ask for its size may be asked again for that. */
static void found_in_module(const cuModuleGetGlobal_v2_params *p)
{
    __typeof__(&cuModuleGetGlobal_v2) real =
        (__typeof__(real))ps_driver_function(PS_DRIVER_FUNCTION_cuModuleGetGlobal_v2);
    size_t bytes = p->bytes ? *p->bytes : 0;

    if (!bytes)
        ps_capture_mode_relax();
    if (p->dptr && (bytes || (real && real(NULL, &bytes, p->hmod, p->name) == CUDA_SUCCESS)))
        ps_module_variables_found(PS_VARIABLE_OF_MODULE, p->hmod, *p->dptr, bytes);
}

static void found_in_library(const cuLibraryGetGlobal_params *p)
{
    __typeof__(&cuLibraryGetGlobal) real = (__typeof__(real))ps_driver_function(PS_DRIVER_FUNCTION_cuLibraryGetGlobal);
    size_t bytes = p->bytes ? *p->bytes : 0;

    if (!bytes)
        ps_capture_mode_relax();
    if (p->dptr && (bytes || (real && real(NULL, &bytes, p->library, p->name) == CUDA_SUCCESS)))
        ps_module_variables_found(PS_VARIABLE_OF_LIBRARY, p->library, *p->dptr, bytes);
}

/* Calls whose meaning shows when they are over. */
static void succeeded(CUpti_CallbackId id, const void *parameters)
{
#define INSTANTIATED(name, flags)                                                                                      \
    case CBID(name): {                                                                                                 \
        const name##_params *p = parameters;                                                                           \
        instantiated(*p->phGraphExec, p->hGraph, flags);                                                               \
        return;                                                                                                        \
    }
#define CHANGED(name, meaning)                                                                                         \
    case CBID(name): {                                                                                                 \
        const name##_params *p = parameters;                                                                           \
        meaning;                                                                                                       \
        return;                                                                                                        \
    }
    switch (id) {
        INSTANTIATED(cuGraphInstantiate, 0)
        INSTANTIATED(cuGraphInstantiate_v2, 0)
        INSTANTIATED(cuGraphInstantiateWithFlags, p->flags)
        INSTANTIATED(cuGraphInstantiateWithParams, p->instantiateParams->flags)
        INSTANTIATED(cuGraphInstantiateWithParams_ptsz, p->instantiateParams->flags)
        CHANGED(cuGraphExecUpdate, ps_graph_updated(p->hGraphExec, p->hGraph))
        CHANGED(cuGraphExecUpdate_v2, ps_graph_updated(p->hGraphExec, p->hGraph))
        CHANGED(cuGraphExecChildGraphNodeSetParams, ps_graph_child_changed(p->hGraphExec, p->hNode, p->childGraph))
        CHANGED(cuGraphExecKernelNodeSetParams, change_kernel(p->hGraphExec, p->hNode, p->nodeParams->func, NULL,
                                                              p->nodeParams->kernelParams, p->nodeParams->extra))
        CHANGED(cuGraphExecKernelNodeSetParams_v2, ps_graph_kernel_changed(p->hGraphExec, p->hNode, p->nodeParams))
        CHANGED(cuGraphExecMemcpyNodeSetParams, ps_graph_copy_changed(p->hGraphExec, p->hNode, p->copyParams))
        CHANGED(cuGraphExecMemsetNodeSetParams, ps_graph_fill_changed(p->hGraphExec, p->hNode, p->memsetParams->dst,
                                                                      PS_GRAPH_FILL_EXTENT(p->memsetParams)))
        CHANGED(cuGraphExecBatchMemOpNodeSetParams, ps_graph_values_changed(p->hGraphExec, p->hNode, p->nodeParams))
        CHANGED(cuGraphExecNodeSetParams, change_node(p->hGraphExec, p->hNode, p->nodeParams))
        CHANGED(cuGraphNodeSetEnabled, ps_graph_node_switched(p->hGraphExec, p->hNode, p->isEnabled))
        CHANGED(cuModuleGetGlobal_v2, found_in_module(p))
        CHANGED(cuLibraryGetGlobal, found_in_library(p))
        CHANGED(cuGraphClone, ps_graph_holds(*p->phGraphClone, p->originalGraph))
        CHANGED(cuGraphAddChildGraphNode, ps_graph_holds(p->hGraph, p->childGraph))
        CHANGED(cuGraphAddNode, node_added(p->hGraph, *p->phGraphNode, p->nodeParams))
        CHANGED(cuGraphAddNode_v2, node_added(p->hGraph, *p->phGraphNode, p->nodeParams))
    case CBID(cuMemHostAlloc):
    case CBID(cuMemAllocHost_v2):
    case CBID(cuMemHostRegister_v2):
    case CBID(cuMemAllocManaged):
        ps_host_tables_new_memory();
        return;
    default:
        return;
    }
#undef INSTANTIATED
#undef CHANGED
}

void ps_traced_call_ended(CUpti_CallbackId id, const void *parameters, CUresult result)
{
    ps_capture_enter();
    ps_capture_look_at_own();

    if (ps_verify_is_on())
        ps_observers.launched();
    ps_tracer_end(result == CUDA_SUCCESS);
    switch (id) {
    case CBID(cuStreamBeginCapture):
    case CBID(cuStreamBeginCapture_ptsz):
    case CBID(cuStreamBeginCapture_v2):
    case CBID(cuStreamBeginCapture_v2_ptsz):
    case CBID(cuStreamBeginCaptureToGraph):
    case CBID(cuStreamBeginCaptureToGraph_ptsz):
    case CBID(cuStreamBeginRecaptureToGraph):
    case CBID(cuStreamBeginRecaptureToGraph_ptsz):
        ps_capture_began(result == CUDA_SUCCESS);
        break;
    case CBID(cuStreamWaitEvent):
    case CBID(cuStreamWaitEvent_ptsz):
        ps_capture_was_joined();
        break;
    case CBID(cuStreamEndCapture):
        ps_capture_ended(((const cuStreamEndCapture_params *)parameters)->hStream, false, result);
        ps_graph_memory_capture_ended();
        break;
    case CBID(cuStreamEndCapture_ptsz):
        ps_capture_ended(((const cuStreamEndCapture_ptsz_params *)parameters)->hStream, true, result);
        ps_graph_memory_capture_ended();
        break;
    default:
        break;
    }
    if (result == CUDA_SUCCESS)
        succeeded(id, parameters);
    ps_capture_mode_leave();
}

#define PS_TRACED(name, declaration, arguments, meaning) CBID(name),
#define PS_TRACED_BELOW_HOOK(name, meaning) CBID(name),
#define PS_TRACED_PTSZ(name, declaration, arguments, meaning) CBID(name), CBID(name##_ptsz),
#define PS_TRACED_PTDS(name, declaration, arguments, meaning) CBID(name), CBID(name##_ptds),
const CUpti_CallbackId ps_traced_call_ids[] = {
#include "cuda/traced_calls.def"
};
#undef PS_TRACED
#undef PS_TRACED_BELOW_HOOK
#undef PS_TRACED_PTSZ
#undef PS_TRACED_PTDS

const size_t ps_traced_call_count = sizeof ps_traced_call_ids / sizeof *ps_traced_call_ids;

bool ps_traced_call_is_below_hook(CUpti_CallbackId id)
{
#define PS_TRACED(name, declaration, arguments, meaning)
#define PS_TRACED_BELOW_HOOK(name, meaning) case CBID(name):
#define PS_TRACED_PTSZ(name, declaration, arguments, meaning)
#define PS_TRACED_PTDS(name, declaration, arguments, meaning)
    switch (id) {
#include "cuda/traced_calls.def"
        return true;
    default:
        return false;
    }
#undef PS_TRACED
#undef PS_TRACED_BELOW_HOOK
#undef PS_TRACED_PTSZ
#undef PS_TRACED_PTDS
}

bool ps_traced_call_may_be_unknown(CUpti_CallbackId id)
{
    switch (id) {
    case CBID(cuMemcpyBatchAsync):
    case CBID(cuMemcpyBatchAsync_ptsz):
    case CBID(cuMemcpyBatchAsync_v2):
    case CBID(cuMemcpyBatchAsync_v2_ptsz):
    case CBID(cuMemcpy3DBatchAsync):
    case CBID(cuMemcpy3DBatchAsync_ptsz):
    case CBID(cuMemcpy3DBatchAsync_v2):
    case CBID(cuMemcpy3DBatchAsync_v2_ptsz):
    case CBID(cuMemBatchDecompressAsync):
    case CBID(cuMemBatchDecompressAsync_ptsz):
    case CBID(cuStreamBeginCaptureToGraph):
    case CBID(cuStreamBeginCaptureToGraph_ptsz):
    case CBID(cuGraphExecNodeSetParams):
    case CBID(cuGraphAddNode):
    case CBID(cuGraphAddNode_v2):
    case CBID(cuGraphNodeSetParams):
    case CBID(cuMemcpyWithAttributesAsync):
    case CBID(cuMemcpyWithAttributesAsync_ptsz):
    case CBID(cuMemcpy3DWithAttributesAsync):
    case CBID(cuMemcpy3DWithAttributesAsync_ptsz):
    case CBID(cuStreamBeginRecaptureToGraph):
    case CBID(cuStreamBeginRecaptureToGraph_ptsz):
        return true;
    default:
        return false;
    }
}
