/*
 * The simulated device: graphs that are made node by node, of each kind of node; their edges, and
 * their clones.
 */
#include "unit_graph.h"
#include "unit_mappings.h"

/* The kernel of fill_words. It reads its parameters when it becomes or changes a node. */
struct fill_kernel {
    CUdeviceptr to;
    uint32_t count, value;
    void *params[3];
};

static CUDA_KERNEL_NODE_PARAMS fill_kernel(struct fill_kernel *fill, unsigned word_at, uint32_t value)
{
    *fill = (struct fill_kernel){words + 4 * word_at, 1, value, {&fill->to, &fill->count, &fill->value}};
    return (CUDA_KERNEL_NODE_PARAMS){.kern = device.fill_words,
                                     .gridDimX = 1,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 1,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = fill->params};
}

static CUgraphNode add_fill(CUgraph to, unsigned word_at, uint32_t value, const CUgraphNode *after, size_t count)
{
    struct fill_kernel fill;
    CUgraphNode node = NULL;
    CUDA_KERNEL_NODE_PARAMS params = fill_kernel(&fill, word_at, value);
    EXPECT_OK(cuGraphAddKernelNode(&node, to, after, count, &params));
    return node;
}

static void kernels_are_added_and_changed(void)
{
    struct fill_kernel fill;
    CUDA_KERNEL_NODE_PARAMS read = {.gridDimX = 0};
    CUgraphNodeType type;
    open_words();
    CUgraphNode node = add_fill(graph, 0, 5, NULL, 0);
    EXPECT_OK(cuGraphNodeGetType(node, &type));
    EXPECT_INT(CU_GRAPH_NODE_TYPE_KERNEL, type);
    CUgraphExec executable = instantiate(graph);
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_U64(5, word(0));
    CUDA_KERNEL_NODE_PARAMS params = fill_kernel(&fill, 1, 6);
    params.gridDimX = 3;
    EXPECT_OK(cuGraphExecKernelNodeSetParams(executable, node, &params));
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_U64(6, word(1));
    EXPECT_OK(cuGraphKernelNodeGetParams(node, &read)); /* the graph itself is as it was */
    EXPECT_INT(1, read.gridDimX);
    EXPECT_OK(cuGraphKernelNodeSetParams(node, &params));
    EXPECT_OK(cuGraphKernelNodeGetParams(node, &read));
    EXPECT_INT(3, read.gridDimX);
    params.gridDimX = 0;
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeSetParams(node, &params));
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    any.kernel.kern = device.fill_words;
    any.kernel.gridDimX = any.kernel.gridDimY = any.kernel.gridDimZ = 1;
    any.kernel.blockDimX = any.kernel.blockDimY = any.kernel.blockDimZ = 1;
    fill_kernel(&fill, 2, 7);
    any.kernel.kernelParams = fill.params;
    EXPECT_OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &any));
    EXPECT_OK(cuGraphLaunch(instantiate(graph), stream));
    EXPECT_U64(7, word(2));
}

static unsigned calls;

static void count_call(void *by)
{
    calls += *(unsigned *)by;
}

static void host_functions_and_empty_nodes_run(void)
{
    unsigned one = 1, ten = 10;
    CUDA_HOST_NODE_PARAMS host = {count_call, &one}, read = {NULL, NULL};
    CUgraphNode node, empty;
    CUgraphNodeType type;
    open_words();
    EXPECT_OK(cuGraphAddHostNode(&node, graph, NULL, 0, &host));
    EXPECT_OK(cuGraphAddEmptyNode(&empty, graph, &node, 1));
    EXPECT_OK(cuGraphNodeGetType(empty, &type));
    EXPECT_INT(CU_GRAPH_NODE_TYPE_EMPTY, type);
    CUgraphExec executable = instantiate(graph);
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_OK(cuGraphHostNodeGetParams(node, &read));
    EXPECT(read.fn == count_call && read.userData == &one);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphHostNodeGetParams(empty, &read));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_U64(1, calls);
    host.userData = &ten;
    EXPECT_OK(cuGraphExecHostNodeSetParams(executable, node, &host));
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_U64(11, calls);
}

/* A graph's record orders work outside it, and a graph's wait obeys the record of the moment. */
static void events_order_graphs(void)
{
    CUevent done, awaited, read;
    CUgraph waits;
    CUgraphNode node, wait;
    open_words();
    EXPECT_OK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuEventCreate(&awaited, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuGraphCreate(&waits, 0));
    CUgraphNode fill = add_fill(graph, 0, 3, NULL, 0);
    EXPECT_OK(cuGraphAddEventRecordNode(&node, graph, &fill, 1, done));
    EXPECT_OK(cuGraphEventRecordNodeGetEvent(node, &read));
    EXPECT(read == done);
    EXPECT_OK(cuGraphAddEventWaitNode(&wait, waits, NULL, 0, awaited));
    CUDA_MEMCPY3D copy = {.dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = words + 4,
                          .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = words,
                          .WidthInBytes = 4,
                          .Height = 1,
                          .Depth = 1};
    EXPECT_OK(cuGraphAddMemcpyNode(&node, waits, &wait, 1, &copy, device.context));
    CUgraphExec executable = instantiate(graph), waiting = instantiate(waits);
    EXPECT_OK(cuGraphExecEventWaitNodeSetEvent(waiting, wait, done));
    for (unsigned i = 0; i < 32; i++) {
        EXPECT_OK(cuMemsetD32Async(words, 0, 2, stream));
        EXPECT_OK(cuStreamSynchronize(stream));
        EXPECT_OK(cuGraphLaunch(executable, side));
        EXPECT_OK(cuGraphLaunch(waiting, stream));
        EXPECT_U64(3, word(1));
        EXPECT_OK(cuMemsetD32Async(words, 0, 2, stream));
        EXPECT_OK(cuStreamSynchronize(stream));
        EXPECT_OK(cuGraphLaunch(executable, side));
        EXPECT_OK(cuStreamWaitEvent(stream, done, 0));
        EXPECT_OK(cuMemcpyDtoDAsync(words + 4, words, 4, stream));
        EXPECT_U64(3, word(1));
    }
}

/* An external record or wait becomes a node of the capture, and is refused outside captures. */
static void external_events_become_nodes(void)
{
    CUevent in, out;
    CUgraph captured;
    CUgraphNode nodes[4];
    CUgraphNodeType type;
    size_t count = 4;
    open_words();
    EXPECT_OK(cuEventCreate(&in, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuEventCreate(&out, CU_EVENT_DISABLE_TIMING));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuEventRecordWithFlags(out, stream, CU_EVENT_RECORD_EXTERNAL));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(stream, out, CU_EVENT_WAIT_EXTERNAL));
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_OK(cuStreamWaitEvent(stream, in, CU_EVENT_WAIT_EXTERNAL));
    EXPECT_OK(cuMemcpyDtoDAsync(words + 4, words, 4, stream));
    EXPECT_OK(cuEventRecordWithFlags(out, stream, CU_EVENT_RECORD_EXTERNAL));
    EXPECT_OK(cuStreamEndCapture(stream, &captured));
    EXPECT_OK(cuGraphGetNodes(captured, nodes, &count));
    EXPECT_U64(3, count);
    EXPECT_OK(cuGraphNodeGetType(nodes[0], &type));
    EXPECT_INT(CU_GRAPH_NODE_TYPE_WAIT_EVENT, type);
    EXPECT_OK(cuGraphNodeGetType(nodes[2], &type));
    EXPECT_INT(CU_GRAPH_NODE_TYPE_EVENT_RECORD, type);
    CUgraphExec executable = instantiate(captured);
    for (uint32_t i = 1; i < 32; i++) {
        EXPECT_OK(launch_fill(&device, words, 1, i, side));
        EXPECT_OK(cuEventRecord(in, side));
        EXPECT_OK(cuGraphLaunch(executable, stream));
        EXPECT_OK(cuStreamWaitEvent(side, out, 0));
        EXPECT_U64(i, word(1));
    }
}

static void called_back(CUstream on, CUresult status, void *unused)
{
    (void)on;
    (void)status;
    (void)unused;
}

/* Callbacks are older than captures, and make them invalid. */
static void no_callback_is_captured(void)
{
    CUgraph captured;
    open_words();
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamAddCallback(stream, called_back, NULL, 0));
    EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &captured));
}

/* Memory of alloc nodes is there from a launch to the launch of the node that frees it. */
static void memory_nodes_come_and_go(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS memory = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = 4096};
    CUgraphNode alloc, node, nodes[3];
    CUgraphNodeType type;
    CUgraph clone, child;
    CUdeviceptr freed;
    open_words();
    EXPECT_OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &memory));
    EXPECT_OK(cuGraphNodeGetType(alloc, &type));
    EXPECT_INT(CU_GRAPH_NODE_TYPE_MEM_ALLOC, type);
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = memory.dptr, .value = 9, .elementSize = 4, .width = 4, .height = 1};
    EXPECT_OK(cuGraphAddMemsetNode(&nodes[0], graph, &alloc, 1, &fill, device.context));
    CUDA_MEMCPY3D copy = {.dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = words,
                          .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = memory.dptr,
                          .WidthInBytes = 16,
                          .Height = 1,
                          .Depth = 1};
    EXPECT_OK(cuGraphAddMemcpyNode(&nodes[1], graph, nodes, 1, &copy, device.context));
    EXPECT_OK(cuGraphAddMemFreeNode(&node, graph, &nodes[1], 1, memory.dptr));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&nodes[2], graph, &nodes[1], 1, memory.dptr));
    EXPECT_OK(cuGraphMemFreeNodeGetParams(node, &freed));
    EXPECT(freed == memory.dptr);
    CUgraphExec executable = instantiate(graph);
    for (unsigned i = 0; i < 8; i++) {
        EXPECT_OK(cuMemsetD32Async(words, 0, 4, stream));
        EXPECT_OK(cuGraphLaunch(executable, stream));
        EXPECT_U64(9, word(3));
    }
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&clone, graph));
    EXPECT_OK(cuGraphCreate(&child, 0));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddChildGraphNode(&node, child, NULL, 0, graph));
}

static void edges_are_told_added_and_removed(void)
{
    CUgraphNode from[4], to[4];
    size_t count = 4;
    open_words();
    CUgraphNode late = add_fill(graph, 0, 1, NULL, 0), early = add_fill(graph, 0, 2, NULL, 0);
    CUgraphNode last = add_fill(graph, 1, 3, &early, 1);
    CUgraphNode same = last; /* the place of the dependency may take the new node */
    EXPECT_OK(cuGraphAddEmptyNode(&same, graph, &same, 1));
    EXPECT_OK(cuGraphNodeGetDependencies(same, from, NULL, &count));
    EXPECT(count == 1 && from[0] == last);
    EXPECT_OK(cuGraphRemoveDependencies(graph, &last, &same, NULL, 1));
    EXPECT_OK(cuGraphAddDependencies(graph, &early, &same, NULL, 1));
    EXPECT_OK(cuGraphAddDependencies(graph, &early, &late, NULL, 1)); /* the later one comes first */
    count = 4;
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &early, &late, NULL, 1));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &late, &early, NULL, 1)); /* a circle */
    EXPECT_OK(cuGraphGetRootNodes(graph, from, &count));
    EXPECT(count == 1 && from[0] == early && !from[1]);
    count = 4;
    EXPECT_OK(cuGraphGetEdges(graph, from, to, NULL, &count));
    EXPECT_U64(3, count);
    EXPECT(from[0] == early && from[1] == early && to[0] != to[1]);
    count = 0;
    EXPECT_OK(cuGraphNodeGetDependentNodes(early, NULL, NULL, &count));
    EXPECT_U64(3, count);
    count = 4;
    EXPECT_OK(cuGraphNodeGetDependencies(late, from, NULL, &count));
    EXPECT(count == 1 && from[0] == early);
    CUgraphExec executable = instantiate(graph);
    for (unsigned i = 0; i < 32; i++) {
        EXPECT_OK(cuGraphLaunch(executable, stream));
        EXPECT_U64(1, word(0));
    }
    EXPECT_OK(cuGraphRemoveDependencies(graph, &early, &last, NULL, 1));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &early, &last, NULL, 1));
    count = 4;
    EXPECT_OK(cuGraphGetRootNodes(graph, from, &count));
    EXPECT_U64(2, count);
    const CUgraphEdgeData programmatic = {.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddDependencies(graph, &early, &last, &programmatic, 1));
}

/* A clone has its own nodes, with the same edges. Changes of one graph leave the other alone. */
static void clones_are_graphs_of_their_own(void)
{
    struct fill_kernel fill;
    CUgraph clone;
    CUgraphNode found;
    size_t count = 0;
    open_words();
    CUgraphNode first = add_fill(graph, 0, 4, NULL, 0), second = add_fill(graph, 0, 5, &first, 1);
    EXPECT_OK(cuGraphClone(&clone, graph));
    EXPECT_OK(cuGraphNodeFindInClone(&found, second, clone));
    EXPECT(found && found != second);
    EXPECT_OK(cuGraphNodeGetDependencies(found, NULL, NULL, &count));
    EXPECT_U64(1, count);
    CUDA_KERNEL_NODE_PARAMS params = fill_kernel(&fill, 0, 6);
    EXPECT_OK(cuGraphKernelNodeSetParams(second, &params));
    CUgraphExec own = instantiate(graph), cloned = instantiate(clone);
    EXPECT_OK(cuGraphDestroy(graph));
    for (unsigned i = 0; i < 32; i++) {
        EXPECT_OK(cuGraphLaunch(own, stream));
        EXPECT_U64(6, word(0));
        EXPECT_OK(cuGraphLaunch(cloned, stream));
        EXPECT_U64(5, word(0));
    }
    params = fill_kernel(&fill, 0, 7);
    EXPECT_OK(cuGraphExecKernelNodeSetParams(cloned, found, &params));
    EXPECT_OK(cuGraphLaunch(cloned, stream));
    EXPECT_U64(7, word(0));
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH};
    cuuint64_t flags = 0;
    EXPECT_OK(cuGraphInstantiateWithParams(&own, clone, &how));
    EXPECT_INT(CUDA_GRAPH_INSTANTIATE_SUCCESS, how.result_out);
    EXPECT_OK(cuGraphExecGetFlags(own, &flags));
    EXPECT_U64(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, flags);
}

/* A node may be made while its memory is not mapped. What it may use counts at the launch. */
static void access_counts_at_the_launch(void)
{
    struct fill_kernel fill;
    CUgraphNode node = NULL;
    uint32_t got = 0;
    open_words();
    const CUdeviceptr space = reserve(GRANULE);
    CUmemGenericAllocationHandle memory = create(&device_properties, GRANULE);
    EXPECT_OK(cuMemMap(space, GRANULE, 0, memory, 0));
    CUDA_KERNEL_NODE_PARAMS params = fill_kernel(&fill, 0, 9);
    fill.to = space;
    EXPECT_OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    CUgraphExec executable = instantiate(graph);
    EXPECT_OK(set_access(space, GRANULE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuMemcpyDtoH(&got, space, sizeof got));
    EXPECT_U64(9, got);
    EXPECT_OK(set_access(space, GRANULE, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
}

/* A disabled node runs nothing, but what comes after it still waits for what comes before it. */
static void nodes_are_disabled_and_enabled(void)
{
    unsigned one = 1, enabled = 0;
    CUDA_HOST_NODE_PARAMS host = {count_call, &one};
    CUgraphNode empty;
    open_words();
    CUgraphNode first = add_fill(graph, 0, 4, NULL, 0), second = add_fill(graph, 0, 5, &first, 1);
    CUgraphNode third = add_fill(graph, 1, 6, &second, 1);
    EXPECT_OK(cuGraphAddHostNode(&empty, graph, &third, 1, &host));
    CUgraphExec executable = instantiate(graph), other = instantiate(graph);
    EXPECT_OK(cuGraphNodeGetEnabled(executable, second, &enabled));
    EXPECT_U64(1, enabled);
    EXPECT_OK(cuGraphNodeSetEnabled(executable, second, 0));
    EXPECT_OK(cuGraphNodeGetEnabled(executable, second, &enabled));
    EXPECT_U64(0, enabled);
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_U64(4, word(0));
    EXPECT_U64(6, word(1));
    EXPECT_OK(cuGraphLaunch(other, stream));
    EXPECT_U64(5, word(0));
    EXPECT_OK(cuGraphNodeSetEnabled(executable, second, 1));
    EXPECT_OK(cuMemsetD32Async(words, 0, 1, stream));
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_U64(5, word(0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(executable, empty, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetEnabled(executable, empty, &enabled));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(NULL, second, 0));
}

/* CUDA names no order for them. */
static void nodes_are_listed_as_they_were_made(void)
{
    CUgraphNode listed[2] = {NULL, NULL};
    size_t count = 2;
    open_words();
    CUgraphNode first = add_fill(graph, 0, 4, NULL, 0), second = add_fill(graph, 0, 5, NULL, 0);
    EXPECT_OK(cuGraphAddDependencies(graph, &second, &first, NULL, 1));
    EXPECT_OK(cuGraphGetNodes(graph, listed, &count));
    EXPECT(listed[0] == first && listed[1] == second);
    EXPECT_OK(cuGraphLaunch(instantiate(graph), stream));
    EXPECT_U64(4, word(0));
}

int main(void)
{
    RUN_CASE(access_counts_at_the_launch, "CUDASIM_GRANULARITY", "64K", "CUDASIM_DEVICES", "2");
    RUN_CASE(access_counts_at_the_launch, "CUDASIM_GRANULARITY", "64K");
    RUN_CASE(nodes_are_disabled_and_enabled);
    RUN_CASE(nodes_are_listed_as_they_were_made);
    RUN_CASE(kernels_are_added_and_changed);
    RUN_CASE(host_functions_and_empty_nodes_run);
    RUN_CASE(events_order_graphs);
    RUN_CASE(external_events_become_nodes);
    RUN_CASE(no_callback_is_captured);
    RUN_CASE(memory_nodes_come_and_go);
    RUN_CASE(edges_are_told_added_and_removed);
    RUN_CASE(clones_are_graphs_of_their_own);
    return expect_status();
}
