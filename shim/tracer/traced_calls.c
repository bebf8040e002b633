#include "tracer/traced_calls.h"

#include "base/observers.h"
#include "base/state.h"
#include "cuda/capture.h"
#include "cuda/copy_gate.h"
#include "cuda/driver.h"
#include "cuda/driver_functions.h"
#include "cuda/streams.h"
#include "kernels/grid.h"
#include "kernels/host_tables.h"
#include "kernels/layouts.h"
#include "kernels/module_variables.h"
#include "kernels/pointer_tables.h"
#include "memory/registry.h"
#include "residency/graph_memory.h"
#include "tracer/graph_bodies.h"
#include "tracer/graph_looks.h"
#include "tracer/graphs.h"
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

/* Returns whether the processor may read there. */
static bool is_on_the_host(CUdeviceptr address, bool unknown_is)
{
    unsigned int type;

    if (!address || ps_address_is_a_spans(address))
        return false;
    if (ps_cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS)
        return unknown_is;
    return type == CU_MEMORYTYPE_HOST;
}

/*
 * Returns whether a copy may bring pointers from the host. Its rows must have room for a pointer,
 * and the host must be able to read its source. Such a copy needs the copy engine for all of its
 * bytes, so the copy gate notes it.
 */
static bool begins_upload(CUdeviceptr from, size_t row, size_t bytes, bool unknown_is)
{
    if (row < sizeof(void *) || !is_on_the_host(from, unknown_is))
        return false;
    ps_copy_gate_program_copies_in(bytes);
    return true;
}

/*
 * Bytes are about to be copied. Notes the pointer tables that they bring from the host or take
 * along on the device.
 */
static void bring(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool is_upload, bool unknown_is)
{
    if (is_upload)
        ps_pointer_tables_copied(to, (const void *)from, bytes);
    else if (ps_pointer_tables_near(from, bytes) && !is_on_the_host(to, unknown_is))
        ps_pointer_tables_moved(to, from, bytes);
    else
        ps_pointer_tables_overwritten(to, bytes);
}

static void bring_all(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool unknown_is)
{
    bring(to, from, bytes, begins_upload(from, bytes, bytes, unknown_is), unknown_is);
}

/* Notes a copy. `said`: the kind of memory that the call says its source is. */
static void copy(bool per_thread, CUstream stream, CUdeviceptr to, CUmemorytype said, CUdeviceptr from, size_t bytes)
{
    bring_all(to, from, bytes, unknown_is_host(said, per_thread, stream));
    copy_bytes(per_thread, stream, to, from, bytes);
}

/* Notes a fill, or a copy whose source has no address. */
static void overwrite(bool per_thread, CUstream stream, CUdeviceptr to, size_t bytes)
{
    ps_pointer_tables_overwritten(to, bytes);
    copy_bytes(per_thread, stream, to, 0, bytes);
}

struct box {
    size_t width, height, depth; /* bytes, rows, slices */
};

/* One side of a copy in rows. */
struct side {
    CUdeviceptr start;   /* the first byte; 0: an array, or a fill's source */
    size_t pitch, slice; /* bytes from row to row and from slice to slice */
    bool is_wrong;       /* rows overlap, so the driver will refuse the copy */
    CUmemorytype said;
};

static struct side side_at(CUdeviceptr start, size_t pitch, size_t rows, struct box box)
{
    struct side side = {.start = start, .pitch = pitch ? pitch : box.width, .said = CU_MEMORYTYPE_UNIFIED};

    side.slice = side.pitch * (rows ? rows : box.height);
    side.is_wrong = (box.height > 1 || box.depth > 1) && (side.pitch < box.width || (rows && rows < box.height));
    return side;
}

static struct side side_of(CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t y, size_t z,
                           size_t pitch, size_t rows, struct box box)
{
    if (type == CU_MEMORYTYPE_ARRAY)
        return side_at(0, 0, 0, box);
    struct side side = side_at(type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)host : device, pitch, rows, box);

    side.said = type;
    side.is_wrong |= (box.height > 1 || box.depth > 1) && x > side.pitch - box.width;
    side.start += z * side.slice + y * side.pitch + x;
    return side;
}

/* Returns the bytes from the first byte to the end of the last one. */
static size_t extent_of(struct side side, struct box box)
{
    return (box.depth - 1) * side.slice + (box.height - 1) * side.pitch + box.width;
}

/* Joins rows without gaps to one row, if neither side has gaps. Slices then become rows. */
static void join_rows(struct side *to, struct side *from, struct box *box)
{
    if (box->height != 1 && (to->pitch != box->width || from->pitch != box->width))
        return;
    *box = (struct box){box->width * box->height, box->depth, 1};
    to->pitch = to->slice;
    from->pitch = from->slice;
}

/*
 * Notes the tables of each row as if it were a copy of its own. Stops after PS_POINTER_TABLE_ROWS
 * rows. Of rows from the host only the first PS_POINTER_TABLE_LOOKED bytes are searched.
 */
static void bring_rows(struct side to, struct side from, struct box box, bool unknown_is)
{
    join_rows(&to, &from, &box);
    join_rows(&to, &from, &box);
    const bool is_upload = begins_upload(from.start, box.width, box.width * box.height * box.depth, unknown_is);
    size_t rows = 0;

    for (size_t z = 0; z < box.depth; z++)
        for (size_t y = 0; y < box.height; y++, rows++) {
            const CUdeviceptr row = to.start + z * to.slice + y * to.pitch,
                              source = from.start + z * from.slice + y * from.pitch;
            if (rows == PS_POINTER_TABLE_ROWS)
                return;
            if (!from.start || (is_upload && rows * box.width >= PS_POINTER_TABLE_LOOKED))
                ps_pointer_tables_overwritten(row, box.width);
            else
                bring(row, source, box.width, is_upload, unknown_is);
        }
}

/* Names the memory that a copy in rows touches on both sides. */
static void name_rows(struct side to, struct side from, struct box box, bool unknown_is)
{
    if (!box.width || !box.height || !box.depth)
        return;
    if (to.is_wrong || from.is_wrong) { /* wrong as far as this code can tell */
        ps_tracer_address(to.start);
        ps_tracer_address(from.start);
        return;
    }
    if (to.start)
        bring_rows(to, from, box, unknown_is);
    ps_tracer_bytes(to.start, extent_of(to, box));
    ps_tracer_bytes(from.start, extent_of(from, box));
}

static void copy_rows(bool per_thread, CUstream stream, struct side to, struct side from, struct box box)
{
    ps_tracer_begin(stream, per_thread);
    name_rows(to, from, box, unknown_is_host(from.said, per_thread, stream));
    ps_tracer_ready(false);
}

/* The structures of cuda.h have these fields by the same names. */
#define SIDE(p, side, z, rows, box)                                                                                    \
    side_of((p)->side##MemoryType, (p)->side##Host, (p)->side##Device, (p)->side##XInBytes, (p)->side##Y, z,           \
            (p)->side##Pitch, rows, box)
#define COPY_IN_SLICES(name, type)                                                                                     \
    static void name(bool per_thread, CUstream stream, const type *p)                                                  \
    {                                                                                                                  \
        if (!p)                                                                                                        \
            return;                                                                                                    \
        const struct box box = {p->WidthInBytes, p->Height, p->Depth};                                                 \
        copy_rows(per_thread, stream, SIDE(p, dst, p->dstZ, p->dstHeight, box),                                        \
                  SIDE(p, src, p->srcZ, p->srcHeight, box), box);                                                      \
    }
COPY_IN_SLICES(copy_3d, CUDA_MEMCPY3D)
COPY_IN_SLICES(copy_3d_peer, CUDA_MEMCPY3D_PEER)

static void copy_2d(bool per_thread, CUstream stream, const CUDA_MEMCPY2D *p)
{
    if (!p)
        return;
    const struct box box = {p->WidthInBytes, p->Height, 1};
    copy_rows(per_thread, stream, SIDE(p, dst, 0, 0, box), SIDE(p, src, 0, 0, box), box);
}

static void fill_2d(bool per_thread, CUstream stream, CUdeviceptr to, size_t pitch, size_t width, size_t height)
{
    const struct box box = {width, height, 1};
    const struct side filled = side_at(to, height == 1 ? 0 : pitch, 0, box), nothing = side_at(0, filled.pitch, 0, box);

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
    const bool unknown_is = unknown_is_host(CU_MEMORYTYPE_UNIFIED, per_thread, stream);
    size_t its = 0;

    ps_tracer_begin(stream, per_thread);
    for (size_t i = 0; i < batch.count; i++) {
        while (its + 1 < batch.attribute_count && batch.first[its + 1] <= i)
            its++;
        bring_all(batch.to[i], batch.from[i], batch.bytes[i], unknown_is);
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

static struct side operand(const CUmemcpy3DOperand *operand, struct box box)
{
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER)
        return side_at(0, 0, 0, box);
    return side_at(operand->op.ptr.ptr, operand->op.ptr.rowLength, operand->op.ptr.layerHeight, box);
}

static void batch_3d(bool per_thread, CUstream stream, const CUDA_MEMCPY3D_BATCH_OP *op, size_t count)
{
    if (!op)
        return;
    const bool unknown_is = unknown_is_host(CU_MEMORYTYPE_UNIFIED, per_thread, stream);
    ps_tracer_begin(stream, per_thread);
    for (size_t i = 0; i < count; i++) {
        const struct box box = {op[i].extent.width, op[i].extent.height, op[i].extent.depth};
        const struct side to = operand(&op[i].dst, box), from = operand(&op[i].src, box);
        name_order(op[i].srcAccessOrder, from.start);
        if (to.start && from.start) {
            name_rows(to, from, box, unknown_is);
            continue;
        }
        ps_tracer_address(to.start); /* one side is an array, whose size of elements is unknown here */
        ps_tracer_address(from.start);
    }
    ps_tracer_ready(false);
}

/*
 * Notes values that the stream waits for or writes. `address` is at the same place in each variant
 * that has one.
 */
static void values(bool per_thread, CUstream stream, const CUstreamBatchMemOpParams *op, size_t count)
{
    if (!op)
        return;
    ps_tracer_begin(stream, per_thread);
    for (size_t i = 0; i < count; i++)
        if (op[i].operation != CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES && op[i].operation != CU_STREAM_MEM_OP_BARRIER)
            ps_tracer_bytes(op[i].waitValue.address, 4);
    ps_tracer_ready(false);
}

static void decompress(bool per_thread, CUstream stream, const CUmemDecompressParams *params, size_t count)
{
    if (!params)
        return;
    ps_tracer_begin(stream, per_thread);
    for (size_t i = 0; i < count; i++) {
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
        ps_graph_addresses_changed(executable, node, now->memcpy.copyParams.dstDevice,
                                   now->memcpy.copyParams.srcDevice);
        return;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        ps_graph_addresses_changed(executable, node, now->memset.dst, 0);
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
    struct ps_capture_mode mode = ps_capture_relax();

    begins(id, parameters);
    ps_capture_restore(mode);
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

    if (p->dptr && (bytes || (real && real(NULL, &bytes, p->hmod, p->name) == CUDA_SUCCESS)))
        ps_module_variables_found(p->hmod, *p->dptr, bytes);
}

static void found_in_library(const cuLibraryGetGlobal_params *p)
{
    __typeof__(&cuLibraryGetGlobal) real = (__typeof__(real))ps_driver_function(PS_DRIVER_FUNCTION_cuLibraryGetGlobal);
    size_t bytes = p->bytes ? *p->bytes : 0;

    if (p->dptr && (bytes || (real && real(NULL, &bytes, p->library, p->name) == CUDA_SUCCESS)))
        ps_module_variables_found(p->library, *p->dptr, bytes);
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
        CHANGED(cuGraphExecMemcpyNodeSetParams,
                ps_graph_addresses_changed(p->hGraphExec, p->hNode, p->copyParams->dstDevice, p->copyParams->srcDevice))
        CHANGED(cuGraphExecMemsetNodeSetParams,
                ps_graph_addresses_changed(p->hGraphExec, p->hNode, p->memsetParams->dst, 0))
        CHANGED(cuGraphExecBatchMemOpNodeSetParams, ps_graph_values_changed(p->hGraphExec, p->hNode, p->nodeParams))
        CHANGED(cuGraphExecNodeSetParams, change_node(p->hGraphExec, p->hNode, p->nodeParams))
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
    struct ps_capture_mode mode = ps_capture_relax();

    if (ps_verify_is_on())
        ps_observers.launched();
    ps_tracer_end();
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
    ps_capture_restore(mode);
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
