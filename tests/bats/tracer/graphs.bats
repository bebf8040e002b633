#!/usr/bin/env bats
# CUDA graphs: the memory that a graph touches is known from its nodes and is there at each launch.
# No action of Penstock's breaks a capture.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; }

@test "kernels, fills and copies of graphs find their bytes, changed or not, under every budget, guard and tracer" {
    local case budget guard tracer
    while IFS=: read -r case budget guard tracer; do
        hostile $case PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard PENSTOCK_TRACER=$tracer
        goes_on || { echo "$case under $budget, $guard, $tracer" >&2 && return 1; }
        sound untouched
        said_with_room
        counted graph_launches
        equal 0 "$(report graph_launches_unknown)" "graphs that could not be read"
        equal 0 "$(report eviction_errors)" "evictions that failed"
    done < <(some_of 3 {graph,graph-nodes,graph-changes,graph-children,graph-conditions}:{0,10MiB,24MiB,100MiB}:{host,unmap}:{cupti,hook})
}

@test "memory of a graph that kernels launch is on the device and stays there, even if it was away before" {
    requires sim
    local budget guard tracer fits='a CUDA graph that kernels launch uses more than a budget of [0-9.]+ [a-zA-Z]+ has room for'
    while IFS=: read -r budget guard tracer; do
        hostile graph-by-kernel PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard PENSTOCK_TRACER=$tracer
        goes_on || { echo "under $budget, $guard, $tracer" >&2 && return 1; }
        sound untouched
        [[ $budget == [01]* && $budget != 100MiB ]] || fits=
        said ${fits:+"$fits"}
        equal 0 "$(report graph_launches_unknown)" "graphs that could not be read"
    done < <(some_of 3 {0,10MiB,24MiB,100MiB}:{host,unmap,auto}:{cupti,hook})
    # With just enough room the memory is brought, and the rest takes turns. Once the graph is
    # destroyed its memory leaves like any other.
    hostile graph-by-kernel PENSTOCK_BUDGET=20MiB PENSTOCK_GUARD=unmap
    goes_on
    equal 0 "$(report accesses_on_slot)" "accesses to what there was no room for"
}

@test "an unreadable graph that a kernel launches keeps all spans in place, and one line reports it" {
    requires sim
    local budget call=cuGraphKernelNodeGetParams_v2 # asked once more when it is refused
    for budget in 10MiB 24MiB; do
        hostile graph-by-kernel CUDASIM_FAULT=$call:error@1,$call:error@2 PENSTOCK_BUDGET=$budget PENSTOCK_LOG=info
        goes_on
        struck
        contains "$output" "the nodes of a CUDA graph that kernels launch can't be read"
    done
}

@test "a graph's own memory may be used by copies before Penstock knows it, and stays where it is" {
    local budget guard tracer
    while IFS=: read -r budget guard tracer; do
        hostile graph-memory PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard PENSTOCK_TRACER=$tracer
        goes_on || { echo "under $budget, $guard, $tracer" >&2 && return 1; }
        sound untouched
        said_with_room "memory that is allocated while a CUDA graph is captured \(now 4\.00 MiB\) is the graph's"
        equal 3 "$(report graph_launches)" "launches of the graph"
        equal 0 "$(report graph_launches_unknown)" "graphs that could not be read"
    done < <(some_of 3 {0,10MiB,24MiB,100MiB}:{host,unmap}:{cupti,hook})
}

@test "the driver finds device pages where it looks at a graph's copies and fills, under every budget and guard" {
    requires sim
    local case budget guard tracer
    for case in graph-children graph-changes graph-conditions; do
        for budget in 0 4MiB 10MiB 24MiB; do
            for guard in host unmap auto; do
                hostile $case PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard
                goes_on || { echo "$case under $budget, $guard" >&2 && return 1; }
                sound untouched
                said_with_room
                counted stand_ins
            done
        done
    done
    # With enough memory no stand-in is needed.
    hostile graph-children PENSTOCK_BUDGET=100MiB
    goes_on
    equal 0 "$(report stand_ins)" "pages that stood in for a slot"
    # No pages for a stand-in, and then no mapping of them. The driver may refuse addresses that
    # stay on their slots, or they are shown the next time.
    hostile graph-children PENSTOCK_BUDGET=0 CUDASIM_FAULT=cuMemCreate@device:oom@1+
    ended_with 1
    contains "$output" "penstock: .*the driver may refuse"
    struck
}

@test "the driver finds device pages beside other streams' work, even if a capture forbids queries" {
    requires sim
    local case guard scheduler
    for case in graph-copies-{streams,legacy}; do
        for guard in host unmap; do
            for scheduler in threads seeded; do
                run_penstock CUDASIM_GRANULARITY=2MiB PENSTOCK_BUDGET=24MiB PENSTOCK_GRACE=64 PENSTOCK_GUARD=$guard CUDASIM_SCHED=$scheduler CUDASIM_SEED=3 \
                    "$SAMPLES/hostile" $case 8 4
                goes_on || { echo "$case, $guard, $scheduler" >&2 && return 1; }
                sound untouched
                counted stand_ins
            done
        done
    done
}

@test "each call in which the driver looks at nodes finds device pages, in graphs, executables and captures" {
    requires sim cc
    build_probe looks "-L$SIM" -l:libcuda.so.1 <<'END'
#define SPANS 24
static void *span[SPANS];
static cudaStream_t stream;
#define ACCEPTED(call) EXPECT(away() && (call) == CUDA_SUCCESS)
/* The first four spans, which the calls name, leave for the others. */
static int away(void)
{
    for (int i = 4; i < SPANS; i++) CHECK(cudaMemsetAsync(span[i], i, span_size(), stream));
    CHECK(cudaStreamSynchronize(stream));
    return 1;
}
static CUDA_MEMCPY3D copy(int to, int from)
{
    return (CUDA_MEMCPY3D){.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = (CUdeviceptr)span[to], .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = (CUdeviceptr)span[from], .WidthInBytes = span_size(), .Height = 1, .Depth = 1};
}
static CUDA_MEMSET_NODE_PARAMS fill(int to, unsigned value)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = (CUdeviceptr)span[to], .value = value, .elementSize = 1, .width = span_size(), .height = 1};
}
int main(void)
{
    CUgraph graph, other, child;
    CUgraphExec executable, second;
    CUgraphNode copied, filled, any, node;
    CUgraphExecUpdateResultInfo info;
    CUcontext context;
    CUDA_MEMCPY3D c;
    CUDA_MEMSET_NODE_PARAMS f;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < SPANS; i++) span[i] = new_span(i, stream);
    EXPECT(!cuCtxGetCurrent(&context) && !cuGraphCreate(&graph, 0) && !cuGraphCreate(&other, 0) && !cuGraphCreate(&child, 0));
    c = copy(0, 1), f = fill(2, 50);
    ACCEPTED(cuGraphAddMemcpyNode(&copied, graph, NULL, 0, &c, context));
    ACCEPTED(cuGraphAddMemsetNode(&filled, graph, &copied, 1, &f, context));
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy = {.copyParams = copy(3, 2), .copyCtx = context}};
    ACCEPTED(cuGraphAddNode(&any, graph, &filled, NULL, 1, &params));
    ACCEPTED(cuGraphInstantiate(&executable, graph, 0));
    EXPECT(away() && !cuGraphLaunch(executable, stream));
    EXPECT(holds(span[0], 1, stream) && holds(span[2], 50, stream) && holds(span[3], 50, stream));
    c = copy(1, 0), f = fill(3, 51);
    ACCEPTED(cuGraphExecMemcpyNodeSetParams(executable, copied, &c, context));
    ACCEPTED(cuGraphExecMemsetNodeSetParams(executable, filled, &f, context));
    params.memcpy.copyParams = copy(0, 3);
    ACCEPTED(cuGraphExecNodeSetParams(executable, any, &params));
    EXPECT(away() && !cuGraphLaunch(executable, stream));
    EXPECT(holds(span[1], 1, stream) && holds(span[3], 51, stream) && holds(span[0], 51, stream) && holds(span[2], 50, stream));
    c = copy(2, 1), f = fill(0, 52);
    ACCEPTED(cuGraphMemcpyNodeSetParams(copied, &c));
    ACCEPTED(cuGraphMemsetNodeSetParams(filled, &f));
    params.memcpy.copyParams = copy(3, 0);
    ACCEPTED(cuGraphNodeSetParams(any, &params));
    ACCEPTED(cuGraphExecUpdate(executable, graph, &info));
    EXPECT(away() && !cuGraphLaunch(executable, stream));
    EXPECT(holds(span[2], 1, stream) && holds(span[0], 52, stream) && holds(span[3], 52, stream));
    c = copy(1, 3);
    ACCEPTED(cuGraphAddMemcpyNode(&node, child, NULL, 0, &c, context));
    ACCEPTED(cuGraphAddChildGraphNode(&node, other, NULL, 0, child));
    ACCEPTED(cuGraphInstantiate(&second, other, 0));
    EXPECT(away() && !cuGraphLaunch(second, stream));
    EXPECT(holds(span[1], 52, stream));
    /* A captured graph, handed to an executable that was made node by node. */
    EXPECT(away());
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemcpyAsync(span[2], span[3], span_size(), cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaStreamEndCapture(stream, &child));
    ACCEPTED(cuGraphExecChildGraphNodeSetParams(second, node, child));
    EXPECT(away() && !cuGraphLaunch(second, stream));
    EXPECT(holds(span[2], 52, stream));
    for (int i = 4; i < SPANS; i++) EXPECT(holds(span[i], i, stream));
    puts("ok");
    return 0;
}
END
    local tracer budget
    for tracer in cupti hook; do
        for budget in 0 1 3 8; do
            run_probe looks PENSTOCK_TRACER=$tracer PENSTOCK_BUDGET=$((budget * PROBE_SPAN))
            goes_on || { echo "$budget spans, $tracer" >&2 && return 1; }
            sound untouched
            at_least 10 "$(report stand_ins)" "pages that stood in for a slot, $budget spans, $tracer"
        done
    done
}

@test "a graph's spans leave between its launches and are back for each" {
    hostile graph-nodes PENSTOCK_GUARD=unmap PENSTOCK_BUDGET=16MiB
    goes_on
    sound untouched
    at_least 20 "$(report evictions)" evictions
    at_least 20 "$(report reloads)" reloads
}

@test "with room for one launch's memory, a graph's launch finds the spans of its present nodes on the device" {
    local tracer try
    for tracer in cupti hook; do
        # Beside busy neighbours a launch may give up waiting for room after a time limit. So one of
        # three runs must have no such launch.
        for try in 1 2 3; do
            run_penstock PENSTOCK_MIN_SPAN="$SPAN_FROM" PENSTOCK_BUDGET=24MiB PENSTOCK_GUARD=unmap PENSTOCK_TRACER=$tracer "$SAMPLES/hostile" graph-changes 16 4
            goes_on
            sound untouched
            equal 8 "$(report graph_launches)" "launches of the graph"
            equal 0 "$(report graph_launches_unknown)" "launches of which it is not known"
            [ "$(report accesses_on_slot)" -ne 0 ] || break
        done
        said
        equal 0 "$(report accesses_on_slot)" "accesses to what there was no room for"
        at_least 50 "$(report reloads)" reloads
    done
}

@test "a graph that uses more at once than there is room for is reported once" {
    hostile graph PENSTOCK_BUDGET=10MiB
    goes_on
    said 'a CUDA graph uses more at once than a budget of 10\.00 MiB has room for.*XLA_FLAGS='
    at_least 2 "$(report accesses_on_slot)" "accesses to what there was no room for"
    hostile graph-nodes
    goes_on
    said
    counted evictions
}

@test "a graph's fills and copies find all pieces that they reach over, changed or not" {
    requires sim
    local budget guard tracer
    while IFS=: read -r budget guard tracer; do
        hostile graph-pieces PENSTOCK_RULES='pieces size>=6MiB' PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard PENSTOCK_TRACER=$tracer
        goes_on || { echo "under $budget, $guard, $tracer" >&2 && return 1; }
        sound untouched
        counted evictions graph_launches
    done < <(some_of 3 {20MiB,24MiB,32MiB}:{host,unmap}:{cupti,hook})
    # With room for all that a graph uses, nothing of it is found in the slots. On a busy machine a
    # launch may give up its wait for pages, so it has a few tries.
    for _ in 1 2 3 4; do
        hostile graph-pieces PENSTOCK_RULES='pieces size>=6MiB' PENSTOCK_BUDGET=24MiB PENSTOCK_GUARD=unmap
        goes_on
        [ "$(report accesses_on_slot)" != 0 ] || break
    done
    equal 0 "$(report accesses_on_slot)" "accesses to what there was no room for"
}

@test "a capture that begins while another thread waits for memory stays valid" {
    requires sim
    local budget guard tracer
    while IFS=: read -r budget guard tracer; do
        hostile graph-beside PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard PENSTOCK_TRACER=$tracer
        goes_on || { echo "under $budget, $guard, $tracer" >&2 && return 1; }
        sound untouched
        counted evictions graph_launches
    done < <(some_of 3 {20MiB,32MiB}:{host,unmap}:{cupti,hook})
}

@test "a capture that begins before the first allocation stays valid, and memory named in it is right" {
    local case budget guard tracer
    while IFS=: read -r case budget guard tracer; do
        hostile graph-early$case PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard PENSTOCK_TRACER=$tracer
        goes_on || { echo "graph-early$case under $budget, $guard, $tracer" >&2 && return 1; }
        sound untouched
        counted graph_launches
    done < <(some_of 6 {,-own,-thread}:{0,10MiB,100MiB,auto}:{host,unmap}:{cupti,hook})
}

# The thread's capture counted until its next call, so all memory was left to CUDA as a graph's.
@test "a thread's own capture that is over before the first allocation leaves nothing to CUDA" {
    local tracer
    for tracer in auto cupti hook; do
        hostile graph-early-over PENSTOCK_BUDGET=10MiB PENSTOCK_TRACER=$tracer
        goes_on || { echo "with $tracer" >&2 && return 1; }
        sound untouched
        counted evictions
        equal 0 "$(report passthrough.capture)" "allocations left to CUDA with $tracer"
    done
}

@test "a call before cuInit says nothing about captures" {
    requires sim cc
    build_probe early "-L$SIM" -l:libcuda.so.1 <<'END_OF_C'
int main(void)
{
    CUdeviceptr address;
    size_t left, total;

    EXPECT(cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuMemGetInfo(&left, &total) == CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuMemAlloc(&address, 4 << 20) == CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuMemAllocAsync(&address, 4 << 20, CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuStreamSynchronize(CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_INITIALIZED);
    return 0;
}
END_OF_C
    run_probe early
    [ "$status" -eq 0 ]
    lacks "$output" "capture"
}

@test "a capture with hardly any memory waits for nothing" {
    local began=$SECONDS
    hostile graph PENSTOCK_BUDGET=5MiB
    goes_on
    sound untouched
    at_most 20 $((SECONDS - began)) "seconds"
    at_most 5 "$(report host_wait_ns | awk '{ printf "%d", $1 / 1e9 }')" "seconds of waiting for pages"
}

@test "a graph that can't be read holds all spans in place, and lines report it" {
    requires sim
    # Its copies and fills have been searched by then: eight nodes, one call for their number and
    # one for all of them.
    # A question that is refused is asked once more.
    for fault in cuGraphNodeGetType:error@9+ cuGraphGetNodes:error@3+ cuGraphKernelNodeGetParams_v2:error@1+; do
        hostile graph CUDASIM_FAULT=$fault
        goes_on
        struck
        said "the nodes of a CUDA graph can't be read" "the driver does not tell what an address or a graph is"
        equal "$(report graph_launches)" "$(report graph_launches_unknown)" "launches of a graph that could not be read"
    done
    # A graph that changes into an unreadable one is unknown from then on.
    hostile graph-nodes CUDASIM_FAULT=cuGraphNodeGetType:error@10+
    goes_on
    struck
    said "the nodes of a CUDA graph can't be read" "the driver does not tell what an address or a graph is"
    at_least 1 "$(report graph_launches_unknown)" "launches of the graph after it was changed"
    at_most "$(($(report graph_launches) - 3))" "$(report graph_launches_unknown)" "launches of the graph after it was changed"
}

@test "tracing that starts with a capture sees the graph" {
    requires sim
    hostile graph PENSTOCK_BUDGET=auto PENSTOCK_LOG=info
    goes_on
    contains "$output" 'launches are traced from now on: the program captures a graph'
    equal 3 "$(report graph_launches)" "launches of the graph"
    equal 0 "$(report graph_launches_unknown)" "graphs that could not be read"
}

@test "a free on an allocator's own stream leaves no unjoined work in the capture" {
    requires sim cc
    build_probe frees <<'END'
/*
 * As torch's allocator on cudaMallocAsync: memory that two streams have used is freed on a third
 * one, which comes after both. It is joined after the end of the capture, which is too late. OTHERS
 * is the number of further such streams, of which some are destroyed by then.
 */
int main(void)
{
    cudaStream_t first, second, freeing[8];
    cudaEvent_t forked, joined;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable;
    void *span = new_span(7, NULL), *small, *memory[8];
    int others = atoi(getenv("OTHERS"));

    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    for (int i = 0; i < 8; i++) CHECK(cudaStreamCreateWithFlags(&freeing[i], cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    CHECK(cudaDeviceSynchronize());
    for (int turn = 0; turn < 3; turn++) {
        /* Frees of other captures, and outside captures, must not affect this one. */
        CHECK(cudaMallocAsync(&small, 64, freeing[7]));
        CHECK(cudaFreeAsync(small, freeing[7]));
        CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i <= others; i++) CHECK(cudaMallocAsync(&memory[i], span_size(), first));
        CHECK(cudaMemsetAsync(memory[0], 3, span_size(), first));
        CHECK(cudaEventRecord(forked, first));
        CHECK(cudaStreamWaitEvent(second, forked, 0));
        CHECK(cudaMemcpyAsync(span, memory[0], span_size(), cudaMemcpyDeviceToDevice, second));
        CHECK(cudaEventRecord(joined, second));
        CHECK(cudaStreamWaitEvent(first, joined, 0));
        for (int i = 0; i <= others; i++) {
            CHECK(cudaStreamWaitEvent(freeing[i], joined, 0));
            CHECK(cudaFreeAsync(memory[i], freeing[i]));
        }
        cudaError_t ended = cudaStreamEndCapture(first, &graph);
        printf("capture: %s\n", cudaGetErrorName(ended));
        if (ended != cudaSuccess) continue;
        CHECK(cudaGraphInstantiate(&executable, graph, 0));
        CHECK(cudaMemsetAsync(span, 9, span_size(), first));
        CHECK(cudaGraphLaunch(executable, first));
        EXPECT(holds(span, 3, first));
        CHECK(cudaGraphExecDestroy(executable));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaStreamDestroy(freeing[0])); /* another stream takes its place, maybe with the same handle */
        CHECK(cudaStreamCreateWithFlags(&freeing[0], cudaStreamNonBlocking));
    }
    /* A stream that the program itself doesn't join is its own error. */
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(forked, first));
    CHECK(cudaStreamWaitEvent(second, forked, 0));
    CHECK(cudaMemsetAsync(span, 1, span_size(), second));
    printf("own: %s\n", cudaGetErrorName(cudaStreamEndCapture(first, &graph)));
    cudaGetLastError();
    CHECK(cudaFree(span));
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
    local others tracer
    for others in 0 5; do
        run_sim OTHERS=$others PROBE_SPAN=$PROBE_SPAN ./frees
        contains "$output" '^capture: cudaErrorStreamCaptureUnjoined$'
        for tracer in cupti hook auto; do
            run_probe frees OTHERS=$others PENSTOCK_TRACER=$tracer
            goes_on
            equal 3 "$(grep -c '^capture: cudaSuccess$' <<<"$output")" "captures that ended well, $tracer"
            contains "$output" '^own: cudaErrorStreamCaptureUnjoined$'
            # The capture's allocation is outside the budget, and a line reports it to a user who
            # named one.
            said 'memory that is allocated while a CUDA graph is captured'
        done
        run_probe frees OTHERS=$others PENSTOCK_BUDGET=auto
        goes_on
        said
    done
}

@test "with many streams, memory freed during a capture goes to its next owner in order, and the capture goes on" {
    requires sim cc
    build_probe many <<'END'
static void CUDART_CB take_long(void *nothing)
{
    (void)nothing;
    usleep(300000);
}
int main(int count, char **ways)
{
    cudaStream_t stream[20];
    void *freed, *next, *used;
    unsigned char *seen;
    cudaGraph_t graph;
    size_t bytes = span_size();

    (void)count;
    CHECK(cudaMallocHost((void **)&seen, bytes));
    for (int i = 0; i < 20; i++) CHECK(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
    used = new_span(1, NULL);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 20; i++) CHECK(cudaMemsetAsync(used, i, bytes, stream[i]));
    freed = new_span(7, NULL);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaLaunchHostFunc(stream[1], take_long, NULL));
    CHECK(cudaMemcpyAsync(seen, freed, bytes, cudaMemcpyDeviceToHost, stream[1]));
    CHECK(cudaStreamBeginCapture(stream[2], cudaStreamCaptureModeRelaxed));
    CHECK(cudaMemsetAsync(used, 3, bytes, stream[2]));
    CHECK(cudaFree(freed));
    printf("capture: %s\n", cudaGetErrorName(cudaStreamEndCapture(stream[2], &graph)));
    if (*ways[1] == 'a')
        CHECK(cudaMalloc(&next, bytes));
    else
        CHECK(cudaMallocAsync(&next, bytes, stream[3]));
    CHECK(cudaMemsetAsync(next, 9, bytes, stream[3]));
    CHECK(cudaStreamSynchronize(stream[3]));
    EXPECT(holds(next, 9, stream[3]));
    CHECK(cudaDeviceSynchronize());
    EXPECT(seen[0] == 7 && seen[bytes - 1] == 7);
    printf("%s\nok\n", next == freed ? "again" : "elsewhere");
    return 0;
}
END
    local budget way tracer
    for tracer in cupti hook; do
        for way in at-once in-order; do
            for budget in 10MiB auto unlimited; do
                run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_TRACER=$tracer PENSTOCK_BUDGET=$budget "PROBE_SPAN=$PROBE_SPAN" ./many $way
                goes_on
                contains "$output" '^capture: cudaSuccess$'
                # No request waits for the other stream's copy, nor for all work that is queued.
                contains "$output" '^elsewhere$'
                said
            done
        done
    done
}

@test "a capture begun by any entry point is seen before tracing starts, and stays valid" {
    requires sim cc
    # The wheels' toolkit has no stub of the driver, so the simulated driver itself is linked.
    build_probe begins "-I$ROOT" -include shim/cuda/newer_cuda.h "-L$SIM" -l:libcuda.so.1 <<'END'
/* Under `auto` tracing has not started when the capture begins. */
#undef cuStreamBeginCapture
CUresult cuStreamBeginCapture(CUstream stream);
CUresult cuStreamBeginCapture_ptsz(CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                                          size_t count, CUstreamCaptureMode mode);
cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamBeginCaptureToGraph_ptsz(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                               const cudaGraphEdgeData *edges, size_t count, enum cudaStreamCaptureMode mode);
CUresult cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback, void *data);
CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback, void *data);
static int begin(int way, cudaStream_t s)
{
    switch (way) {
    case 0: return cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    case 1: return cuStreamBeginCapture_v2_ptsz(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    case 2: return cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
    case 3: return cudaStreamBeginCapture_ptsz(s, cudaStreamCaptureModeGlobal);
    /* The simulated device lacks these. */
    case 4: return cuStreamBeginCapture(s);
    case 5: return cuStreamBeginCapture_ptsz(s);
    case 6: return cuStreamBeginCaptureToGraph(s, NULL, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL);
    case 7: return cuStreamBeginCaptureToGraph_ptsz(s, NULL, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL);
    case 10: return cuStreamBeginRecaptureToGraph(s, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, NULL);
    case 11: return cuStreamBeginRecaptureToGraph_ptsz(s, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, NULL);
    case 8: return cudaStreamBeginCaptureToGraph(s, NULL, NULL, NULL, 0, cudaStreamCaptureModeGlobal);
    default: return cudaStreamBeginCaptureToGraph_ptsz(s, NULL, NULL, NULL, 0, cudaStreamCaptureModeGlobal);
    }
}
int main(int count, char **ways)
{
    void *span = new_span(1, NULL), *memory;
    int way = count > 1 ? atoi(ways[1]) : 0;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    EXPECT((begin(way, stream) == 0) == (way < 4));
    cudaGetLastError();
    if (way < 4) {
        CHECK(cudaMallocAsync(&memory, span_size(), stream));
        CHECK(cudaMemsetAsync(memory, 3, span_size(), stream));
        CHECK(cudaMemcpyAsync(span, memory, span_size(), cudaMemcpyDeviceToDevice, stream));
        CHECK(cudaFreeAsync(memory, stream));
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&executable, graph, 0));
        CHECK(cudaGraphLaunch(executable, stream));
        EXPECT(holds(span, 3, stream));
    }
    puts("ok");
    return 0;
}
END
    local way tracer
    for tracer in cupti hook; do
        for way in {0..11}; do
            run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_TRACER=$tracer PENSTOCK_BUDGET=auto PENSTOCK_LOG=info "PROBE_SPAN=$PROBE_SPAN" \
                ./begins $way
            goes_on || { echo "way $way, $tracer" >&2 && return 1; }
            contains "$output" 'launches are traced from now on: the program captures a graph'
            [ $way -ge 4 ] || equal 0 "$(report graph_launches_unknown)" "graphs that could not be read"
        done
    done
}

@test "after a capture ends with its stream or thread, allocations are spans again and earlier work is waited for" {
    requires sim cc
    build_probe ends <<'END'
#include <pthread.h>
static void *capture_here(void *nothing)
{
    void *small;
    (void)nothing;
    CHECK(cudaMallocHost(&small, 4096));
    CHECK(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMemsetAsync(small, 1, 4096, cudaStreamPerThread));
    return NULL;
}
int main(int count, char **ways)
{
    void *first = new_span(1, NULL), *span[40];
    cudaStream_t stream, side, other;
    cudaEvent_t forked;
    pthread_t thread;
    cudaGraph_t graph;

    (void)count;
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemsetAsync(first, 7, span_size(), stream));
    if (*ways[1] == 't') {
        EXPECT(!pthread_create(&thread, NULL, capture_here, NULL));
        EXPECT(!pthread_join(thread, NULL));
    } else {
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
        CHECK(cudaMemsetAsync(first, 9, span_size(), stream));
    }
    if (*ways[1] == 'j') { /* a stream that has joined goes first: its work can't be joined any more */
        CHECK(cudaEventRecord(forked, stream));
        CHECK(cudaStreamWaitEvent(side, forked, 0));
        CHECK(cudaStreamDestroy(side));
        EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
        cudaGetLastError();
    }
    if (*ways[1] == 'f') { /* an end that fails ends nothing */
        EXPECT(cudaStreamEndCapture(other, &graph) != cudaSuccess);
        cudaGetLastError();
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphDestroy(graph));
    }
    CHECK(cudaStreamDestroy(stream));
    for (int i = 0; i < 40; i++) {
        CHECK(cudaMalloc(&span[i], span_size()));
        CHECK(cudaMemsetAsync(span[i], i, span_size(), other));
    }
    EXPECT(holds(first, 7, other));
    for (int i = 0; i < 40; i++) EXPECT(holds(span[i], i, other));
    puts("ok");
    return 0;
}
END
    local way tracer
    for tracer in cupti hook; do
        for way in stream thread joined failing; do
            run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_TRACER=$tracer PENSTOCK_BUDGET=$((16 * PROBE_SPAN)) "PROBE_SPAN=$PROBE_SPAN" ./ends $way
            goes_on || { echo "$way, $tracer" >&2 && return 1; }
            equal 0 "$(report passthrough.capture)" "allocations that were left to CUDA, $way, $tracer"
            equal 41 "$(report allocations)" "spans, $way, $tracer"
            counted evictions
            said
        done
    done
}

@test "while a blocking stream is captured spans last used on the legacy stream stay, and the capture is valid" {
    requires sim cc
    build_probe legacy <<'END'
#include <pthread.h>
static void *span[12];
static void *work_beside(void *nothing)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaStream_t stream;
    (void)nothing;
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int turn = 0; turn < 24; turn++) {
        CHECK(cudaMemsetAsync(span[turn % 12], 30 + turn % 12, span_size(), stream));
        usleep(2000);
    }
    CHECK(cudaStreamSynchronize(stream));
    return NULL;
}
int main(void)
{
    cudaStream_t blocking;
    cudaGraph_t graph;
    pthread_t thread;
    void *small;

    CHECK(cudaStreamCreate(&blocking));
    CHECK(cudaMalloc(&small, 64));
    for (int i = 0; i < 12; i++) span[i] = new_span(i, NULL);
    usleep(50000);
    for (int i = 0; i < 12; i++) CHECK(cudaMemsetAsync(span[i], 30 + i, span_size(), NULL));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal));
    EXPECT(!pthread_create(&thread, NULL, work_beside, NULL));
    for (int i = 0; i < 20; i++) {
        CHECK(cudaMemsetAsync(small, i, 64, blocking));
        usleep(2000);
    }
    printf("capture: %s\n", cudaGetErrorName(cudaStreamEndCapture(blocking, &graph)));
    EXPECT(!pthread_join(thread, NULL));
    for (int i = 0; i < 12; i++) EXPECT(holds(span[i], 30 + i, blocking));
    CHECK(cudaFree(small));
    puts("ok");
    return 0;
}
END
    local tracer
    for tracer in cupti hook; do
        run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_TRACER=$tracer PENSTOCK_BUDGET=$((8 * PROBE_SPAN)) "PROBE_SPAN=$PROBE_SPAN" ./legacy
        goes_on
        contains "$output" '^capture: cudaSuccess$'
        sound untouched
    done
}
