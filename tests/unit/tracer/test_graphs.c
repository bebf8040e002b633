/*
 * Executable graphs: the spans that each names after it was made, and after one or all of its nodes
 * were changed. The driver has graphs of the test's own making.
 */
#include "tracer/graphs.h"

#include "cuda/driver.h"
#include "expect.h"
#include "memory/registry.h"
#include "stub_driver.h"
#include "tracer/graph_bodies.h"
#include "tracer/graph_needs.h"
#include "tracer/traced_calls.h"

#define UNIT 4096u
#define UNITS 64u
#define BASE 0x200000000000u /* of the span reservation */

/*
 * The driver's graph and node, which only the driver defines. A handle here is a pointer to one of
 * these.
 */
struct node {
    CUgraphNodeType type;
    CUdeviceptr a, b;
    const struct graph *child;
};
struct graph {
    const struct node *node;
    size_t count;
};

static struct ps_span *_Atomic map[UNITS];
static bool nodes_fail;

static CUdeviceptr unit(unsigned number)
{
    return BASE + number * UNIT + 8 * number;
}

static CUresult CUDAAPI get_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    const struct graph *g = (const struct graph *)graph;

    for (size_t i = 0; nodes && i < g->count; i++)
        nodes[i] = (CUgraphNode)&g->node[i];
    *count = g->count;
    return nodes_fail ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult CUDAAPI get_type(CUgraphNode node, CUgraphNodeType *type)
{
    *type = ((const struct node *)node)->type;
    return CUDA_SUCCESS;
}

/* A copy of one word. */
static CUDA_MEMCPY3D copy_of(CUdeviceptr to, CUdeviceptr from)
{
    return (CUDA_MEMCPY3D){.dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .WidthInBytes = 4,
                           .Height = 1,
                           .Depth = 1};
}

static CUDA_MEMSET_NODE_PARAMS fill_of(CUdeviceptr to)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = to, .elementSize = 4, .width = 1, .height = 1};
}

static CUresult CUDAAPI get_copy(CUgraphNode node, CUDA_MEMCPY3D *copy)
{
    *copy = copy_of(((const struct node *)node)->a, ((const struct node *)node)->b);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_fill(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *fill)
{
    *fill = fill_of(((const struct node *)node)->a);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_child(CUgraphNode node, CUgraph *child)
{
    *child = (CUgraph)((const struct node *)node)->child;
    return CUDA_SUCCESS;
}

/* A kernel without parameters. `a` is whether kernels may change it. */
static CUresult CUDAAPI get_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *kernel)
{
    (void)node;
    *kernel = (CUDA_KERNEL_NODE_PARAMS){.func = (CUfunction)&nodes_fail};
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_attribute(CUgraphNode node, CUkernelNodeAttrID attribute, CUkernelNodeAttrValue *value)
{
    if (attribute != CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
        return CUDA_ERROR_INVALID_VALUE;
    value->deviceUpdatableKernelNode.deviceUpdatable = ((const struct node *)node)->a != 0;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_param(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
    (void)function;
    (void)index;
    *offset = *bytes = 0;
    return CUDA_ERROR_INVALID_VALUE; /* behind the last one */
}

static CUresult CUDAAPI get_name(const char **name, CUfunction function)
{
    (void)function;
    *name = "kernel";
    return CUDA_SUCCESS;
}

/* ---- the named spans, a bit for each unit ---- */

#define BIT(number) (UINT64_C(1) << (number))
#define NOT_KNOWN UINT64_MAX

static uint64_t named;

static void note(void *ctx, CUdeviceptr address)
{
    (void)ctx;
    EXPECT_U64(0, address % UNIT);
    EXPECT(!(named & BIT((address - BASE) / UNIT))); /* none twice */
    named |= BIT((address - BASE) / UNIT);
}

static void note_bytes(CUdeviceptr start, size_t bytes)
{
    EXPECT(bytes);
    for (CUdeviceptr at = (start - BASE) / UNIT; at <= (start + bytes - 1 - BASE) / UNIT; at++)
        named |= BIT(at);
}

static uint64_t names(const void *executable)
{
    named = 0;
    return ps_graph_name((CUgraphExec)executable, note_bytes, note, NULL) ? named : NOT_KNOWN;
}

/* ---- the tests ---- */

static const struct node inner[] = {{CU_GRAPH_NODE_TYPE_MEMSET, 0, 0, NULL}, {CU_GRAPH_NODE_TYPE_MEMCPY, 0, 0, NULL}};
static struct node nodes[4], later[4], children[2];
static const struct graph whole = {nodes, 4}, other = {later, 4}, child = {children, 2}, nothing = {inner, 0};
static int one, two; /* handles of executables */
static const CUgraphExec first = (CUgraphExec)&one, second = (CUgraphExec)&two;

/*
 * Makes a fill of unit 1 and a copy of 2 from 3. A child fills 4 and copies 5 to 6; one node is
 * empty.
 */
static void make(void)
{
    children[0] = (struct node){CU_GRAPH_NODE_TYPE_MEMSET, unit(4), 0, NULL};
    children[1] = (struct node){CU_GRAPH_NODE_TYPE_MEMCPY, unit(6), unit(5), NULL};
    nodes[0] = (struct node){CU_GRAPH_NODE_TYPE_MEMSET, unit(1), 0, NULL};
    nodes[1] = (struct node){CU_GRAPH_NODE_TYPE_MEMCPY, unit(2), unit(3), NULL};
    nodes[2] = (struct node){CU_GRAPH_NODE_TYPE_GRAPH, 0, 0, &child};
    nodes[3] = (struct node){CU_GRAPH_NODE_TYPE_EMPTY, 0, 0, NULL};
    ps_graph_instantiated(first, (CUgraph)&whole, false);
}

#define MADE (BIT(1) | BIT(2) | BIT(3) | BIT(4) | BIT(5) | BIT(6))

static CUgraphNode node(unsigned number)
{
    return (CUgraphNode)&nodes[number];
}

static void change_copy(CUgraphExec executable, CUgraphNode node, CUdeviceptr to, CUdeviceptr from)
{
    const CUDA_MEMCPY3D copy = copy_of(to, from);

    ps_graph_copy_changed(executable, node, &copy);
}

static void test_made(void)
{
    EXPECT_U64(NOT_KNOWN, names(first)); /* not seen */
    make();
    EXPECT_U64(MADE, names(first));
    EXPECT_U64(MADE, names(first));
    nodes[0].a = unit(9); /* a graph's nodes are its own */
    EXPECT_U64(MADE, names(first));
    ps_graph_instantiated(first, (CUgraph)&whole, false); /* the handle is given out again */
    EXPECT_U64((MADE & ~BIT(1)) | BIT(9), names(first));
    ps_graph_destroyed(first);
    EXPECT_U64(NOT_KNOWN, names(first));
    ps_graph_instantiated(first, (CUgraph)&nothing, false);
    EXPECT_U64(0, names(first));
    ps_graph_destroyed(first);
}

static void test_one_node(void)
{
    make();
    for (unsigned number = 10; number < 20; number++) { /* its earlier addresses are dropped */
        ps_graph_fill_changed(first, node(0), unit(number), 4);
        EXPECT_U64((MADE & ~BIT(1)) | BIT(number), names(first));
    }
    change_copy(first, node(1), unit(20), unit(4));
    EXPECT_U64(BIT(19) | BIT(20) | BIT(4) | BIT(5) | BIT(6), names(first));
    children[0].a = unit(30);
    ps_graph_child_changed(first, node(2), (CUgraph)&child);
    EXPECT_U64(BIT(19) | BIT(20) | BIT(4) | BIT(30) | BIT(5) | BIT(6), names(first));
    change_copy(first, (CUgraphNode)&children[1], unit(31), unit(32)); /* a node of the child */
    EXPECT_U64(BIT(19) | BIT(20) | BIT(4) | BIT(30) | BIT(31) | BIT(32), names(first));
    ps_graph_fill_changed(first, node(2), 0, 4); /* outside of all spans */
    EXPECT_U64(BIT(19) | BIT(20) | BIT(4), names(first));
    /* Another executable of the same graph has nodes of its own. */
    ps_graph_instantiated(second, (CUgraph)&whole, false);
    ps_graph_fill_changed(second, node(1), unit(40), 4);
    EXPECT_U64(BIT(19) | BIT(20) | BIT(4), names(first));
    EXPECT_U64(BIT(1) | BIT(40) | BIT(30) | BIT(5) | BIT(6), names(second));
    /*
     * A node that did not exist when the executable was made: the other nodes' spans are still
     * named.
     */
    ps_graph_fill_changed(first, (CUgraphNode)&later[0], unit(50), 4);
    EXPECT_U64(BIT(19) | BIT(20) | BIT(4) | BIT(50), names(first));
    ps_graph_fill_changed(first, (CUgraphNode)&later[0], unit(51), 4);
    EXPECT_U64(BIT(19) | BIT(20) | BIT(4) | BIT(51), names(first));
    ps_graph_destroyed(first);
    ps_graph_destroyed(second);
    ps_graph_fill_changed(first, node(0), unit(1), 4); /* the executable is unknown */
    EXPECT_U64(NOT_KNOWN, names(first));
}

static void test_all_nodes(void)
{
    make();
    for (unsigned i = 0; i < 4; i++)
        later[i] = (struct node){CU_GRAPH_NODE_TYPE_MEMSET, unit(20 + i), 0, NULL};
    ps_graph_fill_changed(first, node(0), unit(10), 4);
    ps_graph_updated(first, (CUgraph)&other);
    EXPECT_U64(BIT(20) | BIT(21) | BIT(22) | BIT(23), names(first));
    /* It is unknown which of these a node of the first graph is now. */
    ps_graph_fill_changed(first, node(0), unit(10), 4);
    ps_graph_fill_changed(first, node(0), unit(11), 4);
    EXPECT_U64(BIT(20) | BIT(21) | BIT(22) | BIT(23) | BIT(11), names(first));
    ps_graph_updated(first, (CUgraph)&whole);
    EXPECT_U64(MADE, names(first));
    /* it took over nodes of its own, which have these handles */
    ps_graph_fill_changed(first, node(0), unit(12), 4);
    EXPECT_U64((MADE & ~BIT(1)) | BIT(12), names(first));
    ps_graph_destroyed(first);
}

static void test_unknown(void)
{
    make();
    ps_graph_node_unknown(first, node(1));
    EXPECT_U64(NOT_KNOWN, names(first));
    ps_graph_fill_changed(first, node(0), unit(10), 4);
    EXPECT_U64(NOT_KNOWN, names(first));
    ps_graph_fill_changed(first, node(1), unit(11), 4); /* the graph can be read again */
    EXPECT_U64(BIT(10) | BIT(11) | BIT(4) | BIT(5) | BIT(6), names(first));
    nodes_fail = true;
    ps_graph_child_changed(first, node(2), (CUgraph)&child);
    EXPECT_U64(NOT_KNOWN, names(first));
    ps_graph_updated(second, (CUgraph)&whole);
    EXPECT_U64(NOT_KNOWN, names(second));
    ps_graph_instantiated(second, (CUgraph)&whole, false);
    EXPECT_U64(NOT_KNOWN, names(second));
    nodes_fail = false;
    ps_graph_updated(second, (CUgraph)&whole);
    EXPECT_U64(MADE, names(second));
    ps_graph_updated(first, (CUgraph)&whole);
    EXPECT_U64(MADE, names(first));
    children[1].type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    ps_graph_instantiated(first, (CUgraph)&whole, false);
    EXPECT_U64(NOT_KNOWN, names(first));
    ps_graph_destroyed(first);
    ps_graph_destroyed(second);
}

/* If other kernels may give a kernel other parameters, its graph becomes unknown. */
static void test_kernels(void)
{
    make();
    nodes[3] = (struct node){CU_GRAPH_NODE_TYPE_KERNEL, 0, 0, NULL};
    ps_graph_instantiated(first, (CUgraph)&whole, false);
    EXPECT_U64(MADE, names(first));
    nodes[3].a = 1;
    ps_graph_instantiated(first, (CUgraph)&whole, false);
    EXPECT_U64(NOT_KNOWN, names(first));
    ps_graph_destroyed(first);
}

static unsigned gone_children, gone_others;

static void gone(CUgraph body)
{
    gone_children += body == (CUgraph)&child;
    gone_others += body == (CUgraph)&other;
    ps_graph_bodies_forget(body, gone); /* as its own nodes go, too */
}

/*
 * A conditional node touches the memory of all its bodies, if Penstock saw the call that added it.
 * Another node that gets the handle later takes its place.
 */
static void test_bodies(void)
{
    CUgraph bodies[] = {(CUgraph)&child, (CUgraph)&other}, inner_bodies[] = {(CUgraph)&child};
    CUgraphNode added = node(3), deep = (CUgraphNode)&later[0];
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
                                .conditional = {.size = 2, .phGraph_out = bodies}};
    const cuGraphAddNode_v2_params adds = {.phGraphNode = &added, .hGraph = (CUgraph)&whole, .nodeParams = &params};

    make();
    for (unsigned i = 0; i < 4; i++)
        later[i] = (struct node){CU_GRAPH_NODE_TYPE_MEMSET, unit(20 + i), 0, NULL};
    nodes[2].type = CU_GRAPH_NODE_TYPE_EMPTY; /* the child is only a body */
    nodes[3].type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    ps_graph_instantiated(first, (CUgraph)&whole, false);
    EXPECT_U64(NOT_KNOWN, names(first));
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphAddNode_v2, &adds, CUDA_ERROR_INVALID_VALUE);
    ps_graph_instantiated(first, (CUgraph)&whole, false);
    EXPECT_U64(NOT_KNOWN, names(first));
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphAddNode_v2, &adds, CUDA_SUCCESS);
    ps_graph_instantiated(first, (CUgraph)&whole, false);
    EXPECT_U64(MADE | BIT(20) | BIT(21) | BIT(22) | BIT(23), names(first));
    ps_graph_fill_changed(first, (CUgraphNode)&later[3], unit(24), 4);
    EXPECT_U64(MADE | BIT(20) | BIT(21) | BIT(22) | BIT(24), names(first));
    /* A conditional node in a body. */
    later[0].type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    ps_graph_updated(first, (CUgraph)&whole);
    EXPECT_U64(NOT_KNOWN, names(first));
    params.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){.size = 1, .phGraph_out = inner_bodies};
    ps_graph_bodies_added((CUgraph)&other, deep, &params.conditional);
    ps_graph_updated(first, (CUgraph)&whole);
    EXPECT_U64(MADE | BIT(21) | BIT(22) | BIT(23), names(first));
    ps_graph_bodies_added((CUgraph)&whole, added, &params.conditional); /* another node with its handle */
    ps_graph_updated(first, (CUgraph)&whole);
    EXPECT_U64(MADE, names(first));
    params.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){.size = 2, .phGraph_out = bodies};
    ps_graph_bodies_added((CUgraph)&whole, added, &params.conditional);
    ps_graph_bodies_forget((CUgraph)&nothing, gone);
    EXPECT_U64(0, gone_children + gone_others);
    ps_graph_bodies_forget((CUgraph)&whole, gone);
    EXPECT_U64(2, gone_children);
    EXPECT_U64(1, gone_others);
    ps_graph_updated(first, (CUgraph)&whole);
    EXPECT_U64(NOT_KNOWN, names(first));
    ps_graph_destroyed(first);
}

static void test_values(void)
{
    CUstreamBatchMemOpParams write[2] = {
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = unit(12)}},
        {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = unit(13)}}};
    const CUDA_BATCH_MEM_OP_NODE_PARAMS values = {.count = 2, .paramArray = write};

    make();
    ps_graph_values_changed(first, node(3), &values);
    EXPECT_U64(MADE | BIT(12) | BIT(13), names(first));
    ps_graph_destroyed(first);
}

/*
 * The parameters of calls that change a graph are read after the call succeeded. A failed call has
 * changed nothing.
 */
static void test_calls(void)
{
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEMSET, .memset = {.elementSize = 4, .width = 1, .height = 1}};
    CUstreamBatchMemOpParams value = {.waitValue = {.address = unit(17)}};
    CUDA_MEMCPY3D copy = copy_of(unit(14), unit(15));
    CUDA_MEMSET_NODE_PARAMS fill = fill_of(unit(13));
    const cuGraphExecMemsetNodeSetParams_params fills = {first, node(0), &fill, NULL};
    const cuGraphExecMemcpyNodeSetParams_params copies = {first, node(1), &copy, NULL};
    const cuGraphExecNodeSetParams_params changes = {first, node(0), &any}, more = {first, node(3), &any};
    const cuGraphExecChildGraphNodeSetParams_params adopts = {first, node(2), (CUgraph)&nothing};

    make();
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphExecMemsetNodeSetParams, &fills, CUDA_ERROR_INVALID_VALUE);
    EXPECT_U64(MADE, names(first));
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphExecMemsetNodeSetParams, &fills, CUDA_SUCCESS);
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphExecMemcpyNodeSetParams, &copies, CUDA_SUCCESS);
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphExecChildGraphNodeSetParams, &adopts, CUDA_SUCCESS);
    EXPECT_U64(BIT(13) | BIT(14) | BIT(15), names(first));
    any.memset.dst = unit(16);
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphExecNodeSetParams, &changes, CUDA_SUCCESS);
    EXPECT_U64(BIT(16) | BIT(14) | BIT(15), names(first));
    any = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, .memOp = {.count = 1, .paramArray = &value}};
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphExecNodeSetParams, &more, CUDA_SUCCESS);
    EXPECT_U64(BIT(16) | BIT(14) | BIT(15) | BIT(17), names(first));
    any = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy = {.copyParams = copy_of(unit(18), unit(19))}};
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphExecNodeSetParams, &more, CUDA_SUCCESS);
    EXPECT_U64(BIT(16) | BIT(14) | BIT(15) | BIT(18) | BIT(19), names(first));
    any = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = (CUgraph)&child}};
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphExecNodeSetParams, &more, CUDA_SUCCESS);
    EXPECT_U64(BIT(16) | BIT(14) | BIT(15) | BIT(4) | BIT(5) | BIT(6), names(first));
    any = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_HOST};
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphExecNodeSetParams, &more, CUDA_SUCCESS);
    EXPECT_U64(BIT(16) | BIT(14) | BIT(15) | BIT(4) | BIT(5) | BIT(6), names(first));
    any = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphExecNodeSetParams, &more, CUDA_SUCCESS);
    EXPECT_U64(NOT_KNOWN, names(first));
    ps_graph_destroyed(first);
}

/* All units from one to another. */
static uint64_t bits(unsigned from, unsigned to)
{
    return (BIT(to) - BIT(from)) | BIT(to);
}

/* Copies and fills touch more than their first byte, by rows, slices and places in them. */
static void test_extents(void)
{
    CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = BASE + 10 * UNIT, .elementSize = 2, .width = UNIT / 2, .height = 1, .pitch = 1};
    CUDA_MEMCPY3D copy = {.dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = BASE + 20 * UNIT,
                          .dstPitch = UNIT,
                          .dstHeight = 4,
                          .dstY = 1,
                          .dstZ = 1,
                          .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .srcDevice = BASE + 40 * UNIT,
                          .srcXInBytes = UNIT - 1,
                          .srcPitch = 2 * UNIT,
                          .WidthInBytes = 2,
                          .Height = 2,
                          .Depth = 2};
    const cuGraphExecMemsetNodeSetParams_params fills = {first, node(0), &fill, NULL};
    const cuGraphExecMemcpyNodeSetParams_params copies = {first, node(1), &copy, NULL};
    CUgraphNodeParams any = {
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .memset = {.dst = BASE + 12 * UNIT, .elementSize = 4, .width = 1, .height = 3, .pitch = UNIT}};
    const cuGraphExecNodeSetParams_params changes = {first, node(0), &any};
    const uint64_t rest = MADE & ~BIT(1) & ~BIT(2) & ~BIT(3);

    make();
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphExecMemsetNodeSetParams, &fills, CUDA_SUCCESS);
    EXPECT_U64((MADE & ~BIT(1)) | BIT(10), names(first));
    fill.width++; /* one element more, in the next unit */
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphExecMemsetNodeSetParams, &fills, CUDA_SUCCESS);
    EXPECT_U64((MADE & ~BIT(1)) | bits(10, 11), names(first));
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphExecNodeSetParams, &changes, CUDA_SUCCESS);
    EXPECT_U64((MADE & ~BIT(1)) | bits(12, 14), names(first));
    /*
     * To rows 5 and 6, and 9 and 10, of a unit each; from the end of row 0 to row 3, each of two
     * units.
     */
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphExecMemcpyNodeSetParams, &copies, CUDA_SUCCESS);
    EXPECT_U64(rest | bits(12, 14) | bits(25, 30) | bits(40, 47), names(first));
    copy.Depth = 0; /* nothing is copied */
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphExecMemcpyNodeSetParams, &copies, CUDA_SUCCESS);
    EXPECT_U64(rest | bits(12, 14), names(first));
    copy.Depth = 1;
    copy.srcMemoryType = CU_MEMORYTYPE_HOST; /* from elsewhere: `srcDevice` means nothing */
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuGraphExecMemcpyNodeSetParams, &copies, CUDA_SUCCESS);
    EXPECT_U64(rest | bits(12, 14) | bits(25, 26), names(first));
    ps_graph_destroyed(first);
}

/* What is pinned for graphs that kernels launch, whatever new memory they touch. */
static void test_touched(void)
{
    struct ps_graph_needs needs = {.count = 0};

    EXPECT(!ps_graph_needs_touch(&needs, 0, SIZE_MAX));
    ps_graph_needs_bytes(&needs, BASE + 10 * UNIT, 2 * UNIT);
    ps_graph_needs_bytes(&needs, BASE + 12 * UNIT, 0); /* nothing */
    EXPECT(ps_graph_needs_touch(&needs, 0, SIZE_MAX));
    EXPECT(ps_graph_needs_touch(&needs, BASE + 11 * UNIT, UNIT));
    EXPECT(ps_graph_needs_touch(&needs, BASE + 9 * UNIT, UNIT + 1));
    EXPECT(!ps_graph_needs_touch(&needs, BASE + 9 * UNIT, UNIT));
    EXPECT(!ps_graph_needs_touch(&needs, BASE + 12 * UNIT, UNIT));
    ps_graph_needs_address(&needs, unit(20));
    EXPECT(ps_graph_needs_touch(&needs, BASE + 20 * UNIT, UNIT));
    ps_graph_needs_empty(&needs);
    EXPECT(!ps_graph_needs_touch(&needs, 0, SIZE_MAX));
    needs.unknown = true;
    EXPECT(ps_graph_needs_touch(&needs, BASE, UNIT));
    ps_graph_needs_free(&needs);
}

int main(void)
{
    ps_reservation.base = BASE;
    ps_reservation.granularity = UNIT;
    ps_reservation.unit_shift = 12;
    ps_reservation.map = map;
    ps_reservation.reserved = UNITS * UNIT;
    stub_driver_with(&(struct ps_real_cuda){.cuGraphGetNodes = get_nodes,
                                            .cuGraphNodeGetType = get_type,
                                            .cuGraphMemcpyNodeGetParams = get_copy,
                                            .cuGraphMemsetNodeGetParams = get_fill,
                                            .cuGraphChildGraphNodeGetGraph = get_child,
                                            .cuGraphKernelNodeGetParams = get_kernel,
                                            .cuGraphKernelNodeGetAttribute = get_attribute,
                                            .cuFuncGetParamInfo = get_param,
                                            .cuFuncGetName = get_name});
    test_made();
    test_one_node();
    test_all_nodes();
    test_unknown();
    test_bodies();
    test_kernels();
    test_values();
    test_calls();
    test_extents();
    test_touched();
    return expect_status();
}
