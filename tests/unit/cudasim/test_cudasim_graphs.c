/*
 * The simulated device: graphs by their nodes, and the addresses that the driver checks in them.
 * Also graphs that kernels launch, and the ends of captures.
 */
#include "unit_mappings.h"

static struct unit_device device;

static int launched_with; /* the result of the last launch by a kernel */

static void run_launch_graph(const struct cudasim_launch *launch, void *const *params)
{
    (void)launch;
    launched_with = cudasim_graph_launch(*(void *const *)params[0]);
}

static const struct cudasim_param launch_graph_params[] = {{0, 8}};
static const struct cudasim_kernel launch_graph_code = {CUDASIM_KERNEL_ABI, 1, launch_graph_params, run_launch_graph};

static CUstream new_stream(unsigned int flags)
{
    CUstream stream = NULL;
    EXPECT_OK(cuStreamCreate(&stream, flags));
    return stream;
}

/* Maps two granules of addresses: the first to device pages, the second to host pages. */
static CUdeviceptr map_both(void)
{
    const CUmemAllocationProp host = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
    CUdeviceptr both = reserve(4 * GRANULE);
    map(both, create(&device_properties, GRANULE), GRANULE);
    map(both + GRANULE, create(&host, GRANULE), GRANULE);
    return both;
}

static CUDA_MEMCPY3D copy_of(CUdeviceptr to, CUdeviceptr from, CUmemorytype type)
{
    return (CUDA_MEMCPY3D){.dstMemoryType = type,
                           .dstDevice = to,
                           .srcMemoryType = type,
                           .srcDevice = from,
                           .WidthInBytes = GRANULE,
                           .Height = 1,
                           .Depth = 1};
}

static uint32_t first_word(CUdeviceptr address)
{
    uint32_t word = 0;
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuMemcpyDtoH(&word, address, sizeof word));
    return word;
}

/*
 * A copy of device memory stays one, whether its node is added, changed, instantiated or taken
 * over.
 */
static void copies_keep_their_kind(void)
{
    open_device(&device);
    CUdeviceptr both = map_both(), host = both + GRANULE, nowhere = both + 2 * GRANULE, other;
    CUgraph graph, later;
    CUgraphExec executable;
    CUgraphNode node, more;
    CUgraphExecUpdateResultInfo info;
    EXPECT_OK(cuMemAlloc(&other, GRANULE));
    EXPECT_OK(cuMemsetD32(both, 5, GRANULE_WORDS));
    EXPECT_OK(cuGraphCreate(&graph, 0));
    CUDA_MEMCPY3D copy = copy_of(other, host, CU_MEMORYTYPE_DEVICE);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, NULL));
    copy = copy_of(other, nowhere, CU_MEMORYTYPE_UNIFIED);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, NULL));
    copy = copy_of(other, both, CU_MEMORYTYPE_DEVICE);
    EXPECT_OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, NULL));
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = host, .elementSize = 4, .width = 1, .height = 1};
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemsetNode(&more, graph, &node, 1, &fill, NULL));
    fill.dst = both;
    EXPECT_OK(cuGraphAddMemsetNode(&more, graph, &node, 1, &fill, NULL));
    EXPECT_OK(cuGraphInstantiate(&executable, graph, 0));
    copy = copy_of(other, host, CU_MEMORYTYPE_UNIFIED);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(executable, node, &copy, device.context));
    fill.dst = host;
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemsetNodeSetParams(executable, more, &fill, device.context));
    EXPECT_OK(cuGraphLaunch(executable, NULL));
    EXPECT_U64(5, first_word(other));
    EXPECT_U64(0, first_word(both));
    /* The same with the mapping changed under the graph. */
    EXPECT_OK(cuMemUnmap(both, GRANULE));
    EXPECT_CUDA(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(executable, graph, &info));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&executable, graph, 0));
    map(both, create(&device_properties, GRANULE), GRANULE);
    EXPECT_OK(cuGraphExecUpdate(executable, graph, &info));
    EXPECT_OK(cuGraphCreate(&later, 0));
    copy = copy_of(other, host, CU_MEMORYTYPE_UNIFIED);
    EXPECT_OK(cuGraphAddMemcpyNode(&more, later, NULL, 0, &copy, NULL));
    fill.dst = both;
    EXPECT_OK(cuGraphAddMemsetNode(&more, later, NULL, 0, &fill, NULL));
    EXPECT_CUDA(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(executable, later, &info));
}

/* Two planes of three rows of 16 bytes, from the middle of one box to the middle of another. */
static void copies_have_rows_and_planes(void)
{
    enum { PITCH = 64, ROWS = 8, PLANES = 4 };
    open_device(&device);
    CUdeviceptr from, to;
    CUgraph graph;
    CUgraphExec executable;
    CUgraphNode node;
    unsigned char host[PLANES][ROWS][PITCH];
    unsigned wrong = 0;
    EXPECT_OK(cuMemAlloc(&from, sizeof host));
    EXPECT_OK(cuMemAlloc(&to, sizeof host));
    for (unsigned i = 0; i < sizeof host; i++)
        (&host[0][0][0])[i] = (unsigned char)(i * 7 / 3);
    EXPECT_OK(cuMemcpyHtoD(from, host, sizeof host));
    EXPECT_OK(cuMemsetD8(to, 0, sizeof host));
    EXPECT_OK(cuGraphCreate(&graph, 0));
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = from,
                          .srcXInBytes = 8,
                          .srcY = 2,
                          .srcZ = 1,
                          .srcPitch = PITCH,
                          .srcHeight = ROWS,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = to,
                          .dstXInBytes = 4,
                          .dstY = 1,
                          .dstZ = 2,
                          .dstPitch = PITCH,
                          .dstHeight = ROWS,
                          .WidthInBytes = 16,
                          .Height = 3,
                          .Depth = 2};
    copy.dstHeight = 2;
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, NULL));
    copy.dstHeight = ROWS;
    copy.srcPitch = 15;
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, NULL));
    copy.srcPitch = PITCH;
    EXPECT_OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, NULL));
    CUDA_MEMCPY3D read;
    EXPECT_OK(cuGraphMemcpyNodeGetParams(node, &read));
    EXPECT_U64(from + ((1 * ROWS + 2) * PITCH + 8), read.srcDevice);
    EXPECT_U64(ROWS, read.dstHeight);
    EXPECT_OK(cuGraphInstantiate(&executable, graph, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(executable, node, &copy, device.context));
    EXPECT_OK(cuGraphMemcpyNodeSetParams(node, &read)); /* what was returned says the same */
    EXPECT_OK(cuGraphInstantiate(&executable, graph, 0));
    EXPECT_OK(cuGraphLaunch(executable, NULL));
    EXPECT_OK(cuCtxSynchronize());
    unsigned char copied[PLANES][ROWS][PITCH];
    EXPECT_OK(cuMemcpyDtoH(copied, to, sizeof copied));
    for (unsigned z = 0; z < PLANES; z++)
        for (unsigned y = 0; y < ROWS; y++)
            for (unsigned x = 0; x < PITCH; x++) {
                const bool inside = z >= 2 && y >= 1 && y < 4 && x >= 4 && x < 20;
                wrong += copied[z][y][x] != (inside ? host[z - 1][y + 1][x + 4] : 0);
            }
    EXPECT_U64(0, wrong);
}

static void children_run_and_change(void)
{
    open_device(&device);
    CUdeviceptr both = map_both(), a, b;
    CUgraph graph, child, embedded, late;
    CUgraphExec executable;
    CUgraphNode node, inner;
    CUgraphNodeType type;
    EXPECT_OK(cuMemAlloc(&a, GRANULE));
    EXPECT_OK(cuMemAlloc(&b, GRANULE));
    EXPECT_OK(cuMemsetD32(both, 7, GRANULE_WORDS));
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphCreate(&child, 0));
    CUDA_MEMCPY3D copy = copy_of(a, both, CU_MEMORYTYPE_DEVICE);
    EXPECT_OK(cuGraphAddMemcpyNode(&inner, child, NULL, 0, &copy, NULL));
    EXPECT_OK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    EXPECT_OK(cuGraphNodeGetType(node, &type));
    EXPECT_INT(CU_GRAPH_NODE_TYPE_GRAPH, type);
    EXPECT_OK(cuGraphChildGraphNodeGetGraph(node, &embedded));
    EXPECT(embedded != child);
    EXPECT_OK(cuGraphInstantiate(&executable, graph, 0));
    EXPECT_OK(cuGraphLaunch(executable, NULL));
    EXPECT_U64(7, first_word(a));
    copy = copy_of(b, both, CU_MEMORYTYPE_DEVICE);
    EXPECT_OK(cuGraphMemcpyNodeSetParams(inner, &copy));
    EXPECT_OK(cuGraphExecChildGraphNodeSetParams(executable, node, child));
    EXPECT_OK(cuGraphLaunch(executable, NULL));
    EXPECT_U64(7, first_word(b));
    EXPECT_OK(cuGraphCreate(&late, 0));
    copy = copy_of(b, both + GRANULE, CU_MEMORYTYPE_UNIFIED);
    EXPECT_OK(cuGraphAddMemcpyNode(&inner, late, NULL, 0, &copy, NULL));
    EXPECT_CUDA(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecChildGraphNodeSetParams(executable, node, late));
}

/* The child is the program's graph itself. Its nodes are those of the executable graph. */
static void a_child_is_moved(void)
{
    open_device(&device);
    CUdeviceptr both = map_both(), a, b;
    CUgraph graph, child, embedded, other;
    CUgraphExec executable, alone;
    CUgraphNode node, inner;
    CUgraphExecUpdateResultInfo info;
    EXPECT_OK(cuMemAlloc(&a, GRANULE));
    EXPECT_OK(cuMemAlloc(&b, GRANULE));
    EXPECT_OK(cuMemsetD32(both, 7, GRANULE_WORDS));
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphCreate(&other, 0));
    EXPECT_OK(cuGraphCreate(&child, 0));
    CUDA_MEMCPY3D copy = copy_of(a, both, CU_MEMORYTYPE_DEVICE);
    EXPECT_OK(cuGraphAddMemcpyNode(&inner, child, NULL, 0, &copy, NULL));
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    params.graph.graph = child;
    params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, child, NULL, NULL, 0, &params));
    EXPECT_OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    EXPECT_OK(cuGraphChildGraphNodeGetGraph(node, &embedded));
    EXPECT(embedded == child);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, other, NULL, NULL, 0, &params));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphAddChildGraphNode(&node, other, NULL, 0, child));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&alone, child, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(child));
    EXPECT_OK(cuGraphInstantiate(&executable, graph, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphExecUpdate(executable, child, &info));
    EXPECT_OK(cuGraphLaunch(executable, NULL));
    EXPECT_U64(7, first_word(a));
    copy = copy_of(b, both, CU_MEMORYTYPE_DEVICE);
    EXPECT_OK(cuGraphExecMemcpyNodeSetParams(executable, inner, &copy, NULL));
    EXPECT_OK(cuGraphLaunch(executable, NULL));
    EXPECT_U64(7, first_word(b));
    EXPECT_OK(cuGraphDestroy(graph));
}

static CUgraphExec capture(CUdeviceptr memory, uint32_t value, CUgraphExec launched, unsigned long long flags)
{
    static CUkernel launcher;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph;
    CUgraphExec executable = NULL;
    void *params[] = {&launched};
    if (!launcher)
        launcher = cudasim_register_kernel("launch_graph", &launch_graph_code, NULL, 0);
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (launched)
        EXPECT_OK(cuLaunchKernel((CUfunction)launcher, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    else
        EXPECT_OK(launch_fill(&device, memory, GRANULE_WORDS, value, stream));
    EXPECT_OK(cuStreamEndCapture(stream, &graph));
    EXPECT_OK(cuGraphInstantiate(&executable, graph, flags));
    EXPECT_OK(cuGraphDestroy(graph));
    return executable;
}

static int launch_by_kernel(CUgraphExec launcher)
{
    launched_with = 1;
    EXPECT_OK(cuGraphLaunch(launcher, NULL));
    EXPECT_OK(cuCtxSynchronize());
    return launched_with;
}

/*
 * A kernel launches a graph that was made for this and uploaded. The kernel is part of a graph
 * itself.
 */
static void a_kernel_launches_a_graph(void)
{
    open_device(&device);
    CUdeviceptr memory;
    EXPECT_OK(cuMemAlloc(&memory, GRANULE));
    CUgraphExec plain = capture(memory, 3, NULL, 0);
    CUgraphExec made_for_it = capture(memory, 4, NULL, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
    CUgraphExec launches_plain = capture(0, 0, plain, 0), launches = capture(0, 0, made_for_it, 0);
    EXPECT_OK(cuGraphUpload(plain, NULL));
    EXPECT_INT(-1, launch_by_kernel(launches_plain));
    EXPECT_INT(-1, launch_by_kernel(launches));
    EXPECT_OK(cuGraphUpload(made_for_it, NULL));
    EXPECT_INT(0, launch_by_kernel(launches));
    EXPECT_U64(4, first_word(memory));
    EXPECT_INT(-1, cudasim_graph_launch(made_for_it));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&plain, NULL, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
}

static int legacy_status(void)
{
    CUstreamCaptureStatus status;
    return (int)cuStreamIsCapturing(CU_STREAM_LEGACY, &status);
}

static void nothing(void *unused)
{
    (void)unused;
}

/* The calls that use the legacy stream, and what they may use. */
#define LEGACY_CALLS 16
struct legacy_things {
    CUdeviceptr memory, pooled;
    CUevent event;
    CUgraphExec executable;
};

static CUresult use_legacy(int call, const struct legacy_things *with)
{
    CUdeviceptr made;
    uint32_t word;
    unsigned flags;
    int priority;
    CUcontext context;
    unsigned long long id;
    CUdevice number;
    switch (call) {
    case 0:
        return cuEventRecord(with->event, CU_STREAM_LEGACY);
    case 1:
        return launch_fill(&device, with->memory, 4, 2, CU_STREAM_LEGACY);
    case 2:
        return cuStreamWaitEvent(CU_STREAM_LEGACY, with->event, 0);
    case 3:
        return cuMemsetD32(with->memory, 0, 4);
    case 4:
        return cuMemcpyDtoH(&word, with->memory, sizeof word);
    case 5:
        return cuMemAllocAsync(&made, 64, CU_STREAM_LEGACY);
    case 6:
        return cuMemFreeAsync(with->pooled, CU_STREAM_LEGACY);
    case 7:
        return cuLaunchHostFunc(CU_STREAM_LEGACY, nothing, NULL);
    case 8:
        return cuGraphLaunch(with->executable, CU_STREAM_LEGACY);
    case 9:
        return cuStreamSynchronize(CU_STREAM_LEGACY);
    case 10:
        return cuStreamGetFlags(CU_STREAM_LEGACY, &flags);
    case 11:
        return cuStreamGetPriority(CU_STREAM_LEGACY, &priority);
    case 12:
        return cuStreamGetCtx(CU_STREAM_LEGACY, &context);
    case 13:
        return cuStreamGetId(CU_STREAM_LEGACY, &id);
    case 14:
        return cuStreamGetDevice(CU_STREAM_LEGACY, &number);
    default:
        return cuStreamQuery(CU_STREAM_LEGACY);
    }
}

/*
 * While a blocking stream is captured, it can be asked whether the legacy stream is captured, and
 * nothing else (measured: H100 and H200). A use fails, changes nothing and makes the capture
 * invalid.
 */
static void the_legacy_stream_is_barred(void)
{
    open_device(&device);
    CUstream blocking = new_stream(CU_STREAM_DEFAULT), other = new_stream(CU_STREAM_NON_BLOCKING);
    CUstreamCaptureStatus status;
    CUgraph graph;
    struct legacy_things things;
    EXPECT_OK(cuMemAlloc(&things.memory, GRANULE));
    EXPECT_OK(cuMemAllocAsync(&things.pooled, 64, other));
    EXPECT_OK(cuEventCreate(&things.event, CU_EVENT_DISABLE_TIMING));
    things.executable = capture(things.memory, 3, NULL, 0);
    for (int call = -1; call < LEGACY_CALLS; call++) {
        EXPECT_OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
        EXPECT_INT(CUDA_SUCCESS, legacy_status());
        EXPECT_OK(cuEventRecord(things.event, CU_STREAM_LEGACY));
        EXPECT_OK(cuStreamEndCapture(other, &graph));
        EXPECT_OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
        EXPECT_OK(launch_fill(&device, things.memory, 4, 1, blocking));
        EXPECT_INT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, legacy_status());
        EXPECT_OK(cuStreamIsCapturing(blocking, &status));
        EXPECT_INT(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
        if (call >= 0) {
            if (!EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, use_legacy(call, &things)))
                fprintf(stderr, "  call %d\n", call);
            EXPECT_OK(cuStreamIsCapturing(blocking, &status));
            EXPECT_INT(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status);
        }
        EXPECT_CUDA(call < 0 ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                    cuStreamEndCapture(blocking, &graph));
        EXPECT_INT(CUDA_SUCCESS, legacy_status());
    }
    EXPECT_OK(cuMemFreeAsync(things.pooled, CU_STREAM_LEGACY)); /* its free was refused */
}

/*
 * What a captured stream is asked or given, or an event recorded there. `refusal`: what an H200
 * answers.
 */
#define QUESTIONS 10
static CUresult ask(int question, CUstream stream, CUevent event, CUgraphExec executable, CUresult *refusal)
{
    unsigned flags;
    int priority;
    CUcontext context;
    unsigned long long id;
    CUdevice number;
    *refusal = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    switch (question) {
    case 0:
        return cuStreamGetFlags(stream, &flags);
    case 1:
        return cuStreamGetId(stream, &id);
    case 2:
        return cuStreamGetDevice(stream, &number);
    case 3:
        return cuStreamQuery(stream);
    case 4:
        return cuStreamSynchronize(stream);
    case 5:
        *refusal = CUDA_ERROR_CAPTURED_EVENT;
        return cuEventQuery(event);
    case 6:
        *refusal = CUDA_ERROR_CAPTURED_EVENT;
        return cuEventSynchronize(event);
    case 7:
        return cuGraphLaunch(executable, stream);
    case 8:
        *refusal = CUDA_SUCCESS;
        return cuStreamGetPriority(stream, &priority);
    default:
        *refusal = CUDA_SUCCESS;
        return cuStreamGetCtx(stream, &context);
    }
}

/* Some questions make a capture invalid in every mode (asked on an H200). */
static void questions_break_a_capture(void)
{
    open_device(&device);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph;
    CUevent event;
    CUresult refusal;
    CUdeviceptr memory;
    EXPECT_OK(cuMemAlloc(&memory, GRANULE));
    CUgraphExec executable = capture(memory, 3, NULL, 0);
    EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuThreadExchangeStreamCaptureMode(&mode));
    for (int question = 0; question < QUESTIONS; question++) {
        EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        EXPECT_OK(cuEventRecord(event, stream));
        const CUresult answer = ask(question, stream, event, executable, &refusal);
        if (!EXPECT_CUDA(refusal, answer))
            fprintf(stderr, "  question %d\n", question);
        EXPECT_CUDA(refusal ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS, cuStreamEndCapture(stream, &graph));
        EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuEventQuery(event));
        EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuEventSynchronize(event));
        EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(stream, event, 0));
    }
    EXPECT_OK(cuEventRecord(event, stream));
    EXPECT_OK(cuEventSynchronize(event));
    EXPECT_OK(cuThreadExchangeStreamCaptureMode(&mode));
}

/* A capture ends with the stream where it began. Its other streams go on without it. */
static void a_capture_ends_with_its_stream(void)
{
    open_device(&device);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING), side = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr memory;
    CUevent event;
    EXPECT_OK(cuMemAlloc(&memory, GRANULE));
    EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_OK(launch_fill(&device, memory, 4, 1, stream));
    EXPECT_OK(cuEventRecord(event, stream));
    EXPECT_OK(cuStreamWaitEvent(side, event, 0));
    EXPECT_OK(cuStreamDestroy(stream));
    EXPECT_OK(launch_fill(&device, memory, 4, 9, side));
    EXPECT_OK(cuStreamSynchronize(side));
    EXPECT_U64(9, first_word(memory));
    EXPECT_OK(cuMemFree(memory)); /* which a capture would forbid */
}

int main(void)
{
    RUN_CASE(copies_keep_their_kind, "CUDASIM_GRANULARITY", "65536");
    RUN_CASE(copies_have_rows_and_planes);
    RUN_CASE(children_run_and_change, "CUDASIM_GRANULARITY", "65536");
    RUN_CASE(a_child_is_moved, "CUDASIM_GRANULARITY", "65536");
    RUN_CASE(a_kernel_launches_a_graph);
    RUN_CASE(the_legacy_stream_is_barred);
    RUN_CASE(questions_break_a_capture);
    RUN_CASE(a_capture_ends_with_its_stream);
    return expect_status();
}
