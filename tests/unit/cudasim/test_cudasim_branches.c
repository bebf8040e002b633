/*
 * The simulated device: the branches of a launched graph run as their dependencies allow, in any
 * order under the seeded scheduler and side by side under threads.
 */
#include <string.h>
#include <time.h>

#include "unit_graph.h"

#define LAUNCHES 64

static bool seeded(void)
{
    return !strcmp(getenv("CUDASIM_SCHED"), "seeded");
}

/* Sets *to to 3 * *to + by, so the order of several such kernels shows. */
static void run_mix(const struct cudasim_launch *launch, void *const *params)
{
    (void)launch;
    uint32_t *to = *(uint32_t *const *)params[0];
    *to = *to * 3 + *(const uint32_t *)params[1];
}

static int here; /* the number of kernels that have come to the meeting */

/* Under threads, waits until both kernels have come, for a second at most. Notes that in *to. */
static void run_meet(const struct cudasim_launch *launch, void *const *params)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    (void)launch;
    __atomic_add_fetch(&here, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 1000 && !seeded() && __atomic_load_n(&here, __ATOMIC_SEQ_CST) < 2; i++)
        nanosleep(&nap, NULL);
    **(uint32_t *const *)params[0] = __atomic_load_n(&here, __ATOMIC_SEQ_CST) == 2;
}

static const struct cudasim_param mix_params[] = {{0, 8}, {8, 4}};
static const struct cudasim_kernel mix_code = {CUDASIM_KERNEL_ABI, 2, mix_params, run_mix};
static const struct cudasim_kernel meet_code = {CUDASIM_KERNEL_ABI, 2, mix_params, run_meet};
static CUkernel mix_kernel, meet_kernel;

static void open_all(void)
{
    open_words();
    mix_kernel = cudasim_register_kernel("mix", &mix_code, NULL, 0);
    meet_kernel = cudasim_register_kernel("meet", &meet_code, NULL, 0);
}

static void launch(CUkernel kernel, unsigned word, uint32_t by, CUstream on)
{
    CUdeviceptr to = words + 4 * word;
    void *params[] = {&to, &by};
    EXPECT_OK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, on, params, NULL));
}

static void mix(unsigned word, uint32_t by, CUstream on)
{
    launch(mix_kernel, word, by, on);
}

static void make_wait(CUstream later, CUevent event, CUstream earlier)
{
    EXPECT_OK(cuEventRecord(event, earlier));
    EXPECT_OK(cuStreamWaitEvent(later, event, 0));
}

static void begin(void)
{
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static CUgraphExec end(void)
{
    CUgraphExec executable = NULL;
    EXPECT_OK(cuStreamEndCapture(stream, &graph));
    EXPECT_OK(cuGraphInstantiate(&executable, graph, 0));
    EXPECT_OK(cuGraphDestroy(graph));
    return executable;
}

/* Two branches with no order between them: both orders are seen, and the work around is outside. */
static void branches_take_any_order(void)
{
    open_all();
    begin();
    make_wait(side, fork_event, stream);
    mix(0, 1, stream);
    mix(0, 2, side);
    make_wait(stream, join_event, side);
    CUgraphExec executable = end();
    unsigned first = 0, second = 0;
    for (int i = 0; seeded() && i < LAUNCHES; i++) {
        EXPECT_OK(cuMemsetD32Async(words, 1, 1, stream));
        EXPECT_OK(cuGraphLaunch(executable, stream));
        mix(0, 4, stream);
        const uint32_t result = word(0);
        first += result == ((3 + 1) * 3 + 2) * 3 + 4;
        second += result == ((3 + 2) * 3 + 1) * 3 + 4;
    }
    EXPECT_U64(seeded() ? LAUNCHES : 0, first + second);
    EXPECT(!seeded() || (first && second));
}

static void branches_run_side_by_side(void)
{
    open_all();
    begin();
    make_wait(side, fork_event, stream);
    launch(meet_kernel, 0, 0, stream);
    launch(meet_kernel, 1, 0, side);
    make_wait(stream, join_event, side);
    CUgraphExec executable = end();
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_U64(seeded() ? 1 : 2, word(0) + word(1)); /* seeded: kernels run one at a time */
}

/* A diamond whose sides are ordered after its top and before its bottom, by waits. */
static void dependencies_hold(void)
{
    open_all();
    begin();
    mix(0, 1, stream);
    make_wait(side, fork_event, stream);
    mix(1, 2, stream);
    EXPECT_OK(cuMemcpyDtoDAsync(words + 8, words, 4, side));
    make_wait(stream, join_event, side);
    mix(0, 3, stream);
    CUgraphExec executable = end();
    for (uint32_t i = 0, before = 0; i < LAUNCHES; i++, before = (before * 3 + 1) * 3 + 3) {
        EXPECT_OK(cuGraphLaunch(executable, stream));
        EXPECT_U64(before * 3 + 1, word(2));
        EXPECT_U64((before * 3 + 1) * 3 + 3, word(0));
    }
}

/* More parallel nodes than branches: each runs once, and the stream goes on after them. */
static void a_wide_graph_runs_whole(void)
{
    CUgraphExec executable;
    CUgraphNode node, joined;
    open_all();
    CUDA_MEMSET_NODE_PARAMS fill = {.elementSize = 4, .width = 1, .height = 1};
    CUgraphNode all[40];
    for (unsigned i = 0; i < 40; i++) {
        fill.dst = words + 4 * i, fill.value = i + 1;
        EXPECT_OK(cuGraphAddMemsetNode(&all[i], graph, NULL, 0, &fill, NULL));
    }
    fill.dst = words, fill.width = 40, fill.value = 77;
    EXPECT_OK(cuGraphAddMemsetNode(&joined, graph, all, 40, &fill, NULL));
    EXPECT_OK(cuGraphInstantiate(&executable, graph, 0));
    EXPECT_OK(cuGraphLaunch(executable, stream));
    for (unsigned i = 0; i < 40; i++)
        EXPECT_U64(77, word(i));
    fill.dst = words + 4 * 40, fill.width = 1;
    EXPECT_OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, NULL));
    CUgraphExecUpdateResultInfo info;
    EXPECT_CUDA(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(executable, graph, &info));
}

/* A child's branches come after its node's dependencies and before the nodes that depend on it. */
static void a_child_keeps_its_place(void)
{
    CUDA_MEMSET_NODE_PARAMS fill = {.elementSize = 4, .width = 2, .height = 1, .value = 5};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .WidthInBytes = 8,
                          .Height = 1,
                          .Depth = 1};
    CUgraph captured, whole;
    CUgraphNode node[3];
    CUgraphExec executable;
    open_all();
    begin();
    make_wait(side, fork_event, stream);
    mix(0, 1, stream);
    mix(1, 1, side);
    make_wait(stream, join_event, side);
    EXPECT_OK(cuStreamEndCapture(stream, &captured));
    EXPECT_OK(cuGraphCreate(&whole, 0));
    fill.dst = copy.srcDevice = words, copy.dstDevice = words + 8;
    EXPECT_OK(cuGraphAddMemsetNode(&node[0], whole, NULL, 0, &fill, NULL));
    EXPECT_OK(cuGraphAddChildGraphNode(&node[1], whole, &node[0], 1, captured));
    EXPECT_OK(cuGraphAddMemcpyNode(&node[2], whole, &node[1], 1, &copy, NULL));
    EXPECT_OK(cuGraphInstantiate(&executable, whole, 0));
    for (unsigned i = 0; i < LAUNCHES; i++) {
        EXPECT_OK(cuMemsetD32Async(words, 0, 4, stream));
        EXPECT_OK(cuGraphLaunch(executable, stream));
        EXPECT_U64(16, word(2));
        EXPECT_U64(16, word(3));
    }
}

/* Launches of one executable graph come one after the other, whatever their streams. */
static void launches_of_one_graph_are_ordered(void)
{
    open_all();
    begin();
    EXPECT_OK(cuMemcpyDtoDAsync(words + 4, words, 4, stream));
    EXPECT_OK(cuMemcpyDtoDAsync(words + 8, words + 4, 4, stream));
    CUgraphExec executable = end();
    for (uint32_t i = 1; i < LAUNCHES; i++) {
        EXPECT_OK(cuMemsetD32Async(words, i, 1, side));
        EXPECT_OK(cuGraphLaunch(executable, side));
        EXPECT_OK(cuGraphLaunch(executable, stream));
        mix(2, 1, stream);
        EXPECT_U64(i * 3 + 1, word(2));
    }
}

/* The legacy stream waits for the branches of a graph that a blocking stream launches. */
static void the_legacy_stream_waits_for_branches(void)
{
    CUstream blocking;
    open_all();
    begin();
    make_wait(side, fork_event, stream);
    mix(0, 1, stream);
    mix(1, 1, side);
    make_wait(stream, join_event, side);
    CUgraphExec executable = end();
    EXPECT_OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    for (unsigned i = 0; i < LAUNCHES; i++) {
        EXPECT_OK(cuMemsetD32Async(words, 2, 2, CU_STREAM_LEGACY));
        EXPECT_OK(cuGraphLaunch(executable, blocking));
        mix(0, 1, CU_STREAM_LEGACY);
        mix(1, 1, CU_STREAM_LEGACY);
        EXPECT_OK(cuStreamSynchronize(CU_STREAM_LEGACY));
        EXPECT_U64(22, word(0));
        EXPECT_U64(22, word(1));
    }
    EXPECT_OK(cuStreamDestroy(blocking));
}

int main(void)
{
    RUN_CASE(branches_take_any_order);
    RUN_CASE(branches_run_side_by_side);
    RUN_CASE(dependencies_hold);
    RUN_CASE(a_wide_graph_runs_whole);
    RUN_CASE(a_child_keeps_its_place);
    RUN_CASE(launches_of_one_graph_are_ordered);
    RUN_CASE(the_legacy_stream_waits_for_branches);
    return expect_status();
}
