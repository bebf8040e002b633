#!/usr/bin/env bats
# CUDA graphs that a program makes node by node: nodes of each kind, branches, and clones.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; }

@test "graphs of explicit nodes, with branches, events and memory of their own, find their bytes, and clones of them" {
    requires sim cc
    build_probe nodes "-I$ROOT/tests/cudasim" "-L$SIM" -l:libcuda.so.1 <<'END'
#include "registry.h"
#define SPANS 24
static void *span[SPANS];
static cudaStream_t stream;
static CUkernel kernel;
static void run_set(const struct cudasim_launch *launch, void *const *params)
{
    memset(*(void *const *)params[0], *(const int *)params[1], span_size());
}
static const struct cudasim_param set_params[] = {{0, 8}, {8, 4}};
static const struct cudasim_kernel set_code = {CUDASIM_KERNEL_ABI, 2, set_params, run_set};
/* The first four spans, which the graphs name, leave for the others. */
static int away(void)
{
    for (int i = 4; i < SPANS; i++) CHECK(cudaMemsetAsync(span[i], i, span_size(), stream));
    CHECK(cudaStreamSynchronize(stream));
    return 1;
}
static CUDA_KERNEL_NODE_PARAMS set(void **to, int *value)
{
    static void *params[2];
    params[0] = to, params[1] = value;
    return (CUDA_KERNEL_NODE_PARAMS){.kern = kernel, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
                                     .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = params};
}
static CUDA_MEMCPY3D copy(void *to, void *from)
{
    return (CUDA_MEMCPY3D){.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = (CUdeviceptr)to, .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = (CUdeviceptr)from, .WidthInBytes = span_size(), .Height = 1, .Depth = 1};
}
static CUgraphNode add_copy(CUgraph graph, CUgraphNode after, void *to, void *from)
{
    CUDA_MEMCPY3D how = copy(to, from);
    CUgraphNode node = NULL;
    EXPECT(away() && !cuGraphAddMemcpyNode(&node, graph, &after, 1, &how, NULL));
    return node;
}
static int called;
static void call(void *by) { called += *(int *)by; }
int main(void)
{
    CUgraph graph, clone, memory;
    CUgraphExec own, cloned, with_memory;
    CUgraphNode top, left, right, node, found;
    CUevent reached;
    int value = 40, one = 1;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < SPANS; i++) span[i] = new_span(i, stream);
    kernel = cudasim_register_kernel("set", &set_code, NULL, 0);
    EXPECT(kernel && !cuGraphCreate(&graph, 0) && !cuGraphCreate(&memory, 0) && !cuEventCreate(&reached, CU_EVENT_DISABLE_TIMING));
    /* A diamond: its sides are a copy and a fill. */
    CUDA_KERNEL_NODE_PARAMS k = set(&span[0], &value);
    EXPECT(!cuGraphAddKernelNode(&top, graph, NULL, 0, &k));
    left = add_copy(graph, top, span[1], span[0]);
    CUDA_MEMSET_NODE_PARAMS f = {.dst = (CUdeviceptr)span[2], .value = 50, .elementSize = 1, .width = span_size(), .height = 1};
    EXPECT(away() && !cuGraphAddMemsetNode(&right, graph, &top, 1, &f, NULL));
    CUgraphNode sides[] = {left, right};
    CUDA_HOST_NODE_PARAMS host = {call, &one};
    EXPECT(!cuGraphAddHostNode(&node, graph, sides, 2, &host));
    EXPECT(!cuGraphAddEventRecordNode(&node, graph, &node, 1, reached));
    node = add_copy(graph, node, span[3], span[2]);
    EXPECT(!cuGraphAddEmptyNode(&node, graph, &node, 1));
    EXPECT(away() && !cuGraphClone(&clone, graph) && !cuGraphNodeFindInClone(&found, top, clone));
    EXPECT(away() && !cuGraphInstantiate(&own, graph, 0) && !cuGraphDestroy(graph));
    EXPECT(away() && !cuGraphInstantiate(&cloned, clone, 0));
    EXPECT(away() && !cuGraphLaunch(own, stream) && !cuStreamWaitEvent(stream, reached, 0));
    EXPECT(holds(span[0], 40, stream) && holds(span[1], 40, stream) && holds(span[2], 50, stream) && holds(span[3], 50, stream));
    value = 41;
    k = set(&span[0], &value);
    EXPECT(away() && !cuGraphExecKernelNodeSetParams(cloned, found, &k));
    EXPECT(away() && !cuGraphLaunch(cloned, stream));
    EXPECT(holds(span[0], 41, stream) && holds(span[1], 41, stream) && called == 2);
    value = 42;
    k = set(&span[3], &value); /* a race with the copy there, if the top were not before it */
    EXPECT(away() && !cuGraphExecKernelNodeSetParams(cloned, found, &k));
    EXPECT(away() && !cuGraphLaunch(cloned, stream));
    EXPECT(holds(span[1], 41, stream) && holds(span[3], 50, stream));
    /* Memory of the graph's own lies between two spans. */
    CUDA_MEM_ALLOC_NODE_PARAMS take = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
                                       .bytesize = span_size()};
    EXPECT(!cuGraphAddMemAllocNode(&node, memory, NULL, 0, &take));
    node = add_copy(memory, node, (void *)take.dptr, span[1]);
    node = add_copy(memory, node, span[0], (void *)take.dptr);
    EXPECT(!cuGraphAddMemFreeNode(&node, memory, &node, 1, take.dptr));
    EXPECT(away() && !cuGraphInstantiate(&with_memory, memory, 0));
    for (int turn = 0; turn < 2; turn++) {
        CHECK(cudaMemsetAsync(span[1], 60 + turn, span_size(), stream));
        EXPECT(away() && !cuGraphLaunch(with_memory, stream));
        EXPECT(holds(span[0], 60 + turn, stream));
    }
    for (int i = 4; i < SPANS; i++) EXPECT(holds(span[i], i, stream));
    puts("ok");
    return 0;
}
END
    local tracer budget guard scheduler
    while IFS=: read -r budget guard tracer scheduler; do
        run_probe nodes PENSTOCK_TRACER=$tracer PENSTOCK_GUARD=$guard PENSTOCK_BUDGET=$((budget * PROBE_SPAN)) CUDASIM_SCHED=$scheduler
        goes_on || { echo "$budget spans, $guard, $tracer, $scheduler" >&2 && return 1; }
        sound untouched
        equal 0 "$(report graph_launches_unknown)" "graphs that could not be read"
        equal 5 "$(report graph_launches)" "launches of graphs"
    done < <(some_of 8 {0,1,3,8}:{host,unmap}:{cupti,hook}:{threads,seeded})
}
