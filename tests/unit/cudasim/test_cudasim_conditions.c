/*
 * The simulated device: conditional nodes of graphs. Kernels set the conditions, bodies run as
 * often as these say, and in the order that the edges demand.
 */
#include <string.h>
#include <time.h>

#include "unit_graph.h"

#define LAUNCHES 48

static CUkernel set_kernel, count_kernel, mix_kernel, meet_kernel;

static bool seeded(void)
{
    return !strcmp(getenv("CUDASIM_SCHED"), "seeded");
}

static int set_result;

static void run_set(const struct cudasim_launch *launch, void *const *params)
{
    (void)launch;
    set_result = cudasim_graph_set_conditional(*(const unsigned long long *)params[1], *(const uint32_t *)params[2]);
}

/* Counts the word down by 1. The handle's condition becomes its value. */
static void run_count(const struct cudasim_launch *launch, void *const *params)
{
    (void)launch;
    uint32_t *word = *(uint32_t *const *)params[0];
    EXPECT_INT(0, cudasim_graph_set_conditional(*(const unsigned long long *)params[1], --*word));
}

/* Sets the word to 3 times itself plus a number, so the order of several such kernels shows. */
static void run_mix(const struct cudasim_launch *launch, void *const *params)
{
    (void)launch;
    uint32_t *to = *(uint32_t *const *)params[0];
    *to = *to * 3 + *(const uint32_t *)params[2];
}

static int here; /* number of kernels that have come to the meeting */

/* Under threads, waits until both kernels have come, for a second at most. Adds 1 if so. */
static void run_meet(const struct cudasim_launch *launch, void *const *params)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    (void)launch;
    __atomic_add_fetch(&here, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 1000 && !seeded() && __atomic_load_n(&here, __ATOMIC_SEQ_CST) < 2; i++)
        nanosleep(&nap, NULL);
    **(uint32_t *const *)params[0] += __atomic_load_n(&here, __ATOMIC_SEQ_CST) == 2;
}

static const struct cudasim_param all_params[] = {{0, 8}, {8, 8}, {16, 4}};
static const struct cudasim_kernel set_code = {CUDASIM_KERNEL_ABI, 3, all_params, run_set},
                                   count_code = {CUDASIM_KERNEL_ABI, 3, all_params, run_count},
                                   mix_code = {CUDASIM_KERNEL_ABI, 3, all_params, run_mix},
                                   meet_code = {CUDASIM_KERNEL_ABI, 3, all_params, run_meet};

static void open_all(void)
{
    open_words();
    set_kernel = cudasim_register_kernel("set", &set_code, NULL, 0);
    count_kernel = cudasim_register_kernel("count", &count_code, NULL, 0);
    mix_kernel = cudasim_register_kernel("mix", &mix_code, NULL, 0);
    meet_kernel = cudasim_register_kernel("meet", &meet_code, NULL, 0);
}

static void set_word(unsigned at, uint32_t value)
{
    EXPECT_OK(cuMemsetD32Async(words + 4 * at, value, 1, stream));
}

/* A kernel's parameters: a word, a handle, and a number. It reads them when it becomes a node. */
struct all_params {
    CUdeviceptr to;
    CUgraphConditionalHandle handle;
    uint32_t value;
    void *params[3];
};

static CUDA_KERNEL_NODE_PARAMS kernel_params(struct all_params *all, CUkernel kernel, unsigned at,
                                             CUgraphConditionalHandle handle, uint32_t value)
{
    *all = (struct all_params){words + 4 * at, handle, value, {&all->to, &all->handle, &all->value}};
    return (CUDA_KERNEL_NODE_PARAMS){.kern = kernel,
                                     .gridDimX = 1,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 1,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = all->params};
}

/* Adds a kernel behind one other node, or behind none (NULL). */
static CUgraphNode add(CUgraph to, CUgraphNode after, CUkernel kernel, unsigned at, CUgraphConditionalHandle handle,
                       uint32_t value)
{
    struct all_params all;
    CUgraphNode node = NULL;
    CUDA_KERNEL_NODE_PARAMS params = kernel_params(&all, kernel, at, handle, value);
    EXPECT_OK(cuGraphAddKernelNode(&node, to, &after, after != NULL, &params));
    return node;
}

static CUgraphNode mix(CUgraph to, CUgraphNode after, unsigned at, uint32_t by)
{
    return add(to, after, mix_kernel, at, 0, by);
}

static CUgraphConditionalHandle new_handle(CUgraph for_graph, unsigned value, unsigned flags)
{
    CUgraphConditionalHandle handle = 0;
    EXPECT_OK(cuGraphConditionalHandleCreate(&handle, for_graph, device.context, value, flags));
    return handle;
}

static CUgraphNodeParams conditional(CUgraphConditionalHandle handle, CUgraphConditionalNodeType type, unsigned size)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = device.context;
    return params;
}

/* Adds a conditional node, and stores the array of its bodies. */
static CUgraphNode add_conditional(CUgraph to, CUgraphNode after, CUgraphConditionalHandle handle,
                                   CUgraphConditionalNodeType type, unsigned size, CUgraph **bodies)
{
    CUgraphNode node = NULL;
    CUgraphNodeParams params = conditional(handle, type, size);
    EXPECT_OK(cuGraphAddNode(&node, to, &after, NULL, after != NULL, &params));
    *bodies = params.conditional.phGraph_out;
    EXPECT(*bodies);
    return node;
}

/* A value that a kernel sets chooses the body. The work around stays outside. */
static void values_choose_bodies(void)
{
    static const struct {
        CUgraphConditionalNodeType type;
        unsigned size, value;
        uint32_t result; /* of the word, which begins as 1: body n adds n + 1 */
    } cases[] = {
        {CU_GRAPH_COND_TYPE_IF, 1, 0, 3},         {CU_GRAPH_COND_TYPE_IF, 1, 7, 3 * 3 + 1},
        {CU_GRAPH_COND_TYPE_IF, 2, 1, 3 * 3 + 1}, {CU_GRAPH_COND_TYPE_IF, 2, 0, 3 * 3 + 2},
        {CU_GRAPH_COND_TYPE_SWITCH, 3, 0, 10},    {CU_GRAPH_COND_TYPE_SWITCH, 3, 2, 12},
        {CU_GRAPH_COND_TYPE_SWITCH, 3, 3, 3},     {CU_GRAPH_COND_TYPE_SWITCH, 1, 0, 10},
    };
    open_all();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CUgraph own, *body;
        CUgraphNodeType type;
        size_t count = 0;
        EXPECT_OK(cuGraphCreate(&own, 0));
        CUgraphConditionalHandle handle = new_handle(own, 0, 0);
        CUgraphNode node = mix(own, NULL, 0, 0);
        node = add(own, node, set_kernel, 0, handle, cases[i].value);
        node = add_conditional(own, node, handle, cases[i].type, cases[i].size, &body);
        for (unsigned n = 0; n < cases[i].size; n++)
            mix(body[n], NULL, 0, n + 1);
        EXPECT_OK(cuGraphNodeGetType(node, &type));
        EXPECT_INT(CU_GRAPH_NODE_TYPE_CONDITIONAL, type);
        mix(own, node, 0, 5);
        EXPECT_OK(cuGraphGetNodes(own, NULL, &count));
        EXPECT_U64(4, count); /* none of a body */
        CUgraphExec executable = instantiate(own);
        EXPECT_OK(cuGraphDestroy(own));
        for (int turn = 0; turn < 3; turn++) {
            set_word(0, 1);
            EXPECT_OK(cuGraphLaunch(executable, stream));
            EXPECT_OK(cuMemcpyDtoDAsync(words + 4, words, 4, stream));
            EXPECT_U64(3 * cases[i].result + 5, word(1));
        }
        EXPECT_OK(cuGraphExecDestroy(executable));
    }
}

/* A loop runs until its kernel says 0, and a loop in a loop begins again each time. */
static void loops_end_when_told(void)
{
    CUgraph *outer, *inner;
    open_all();
    CUgraphConditionalHandle turns = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphConditionalHandle steps = new_handle(graph, 0, 0);
    CUgraphNode node = add_conditional(graph, NULL, turns, CU_GRAPH_COND_TYPE_WHILE, 1, &outer);
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = words + 4, .value = 4, .elementSize = 4, .width = 1, .height = 1};
    CUgraphNode in = NULL;
    EXPECT_OK(cuGraphAddMemsetNode(&in, outer[0], NULL, 0, &fill, NULL));
    in = add(outer[0], in, set_kernel, 0, steps, 1);
    in = add_conditional(outer[0], in, steps, CU_GRAPH_COND_TYPE_WHILE, 1, &inner);
    CUgraphNode deep = add(inner[0], NULL, count_kernel, 1, steps, 0);
    mix(inner[0], deep, 2, 1);
    add(outer[0], in, count_kernel, 0, turns, 0);
    mix(graph, node, 2, 2);
    CUgraphExec executable = instantiate(graph);
    EXPECT_OK(cuGraphDestroy(graph));
    for (unsigned turn = 0; turn < 3; turn++) {
        uint32_t expected = 0;
        for (unsigned i = 0; i < 4 * (turn + 1); i++)
            expected = expected * 3 + 1;
        set_word(0, turn + 1);
        set_word(2, 0);
        EXPECT_OK(cuGraphLaunch(executable, stream));
        EXPECT_U64(expected * 3 + 2, word(2));
        EXPECT_U64(0, word(0));
        EXPECT_U64(0, word(1));
    }
    EXPECT_OK(cuGraphExecDestroy(executable));
}

/* The default is set anew for each launch. Without one the value is none that a program knows. */
static void defaults_begin_launches(void)
{
    CUgraph *body, other;
    open_all();
    CUgraphConditionalHandle handle = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &body);
    add(body[0], mix(body[0], NULL, 0, 1), set_kernel, 0, handle, 0);
    CUgraphExec executable = instantiate(graph);
    for (unsigned turn = 0; turn < 4; turn++)
        EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_U64(((1 * 3 + 1) * 3 + 1) * 3 + 1, word(0));
    EXPECT_OK(cuGraphCreate(&other, 0));
    handle = new_handle(other, 0, 0);
    add_conditional(other, NULL, handle, CU_GRAPH_COND_TYPE_SWITCH, 2, &body);
    mix(body[0], NULL, 1, 1);
    add(body[1], NULL, set_kernel, 0, handle, 0);
    CUgraphExec undefined = instantiate(other);
    EXPECT_OK(cuGraphLaunch(undefined, stream));
    EXPECT_U64(0, word(1)); /* not the value of the handle's creation, which has no flag */
    EXPECT_OK(cuGraphExecDestroy(executable));
    EXPECT_OK(cuGraphExecDestroy(undefined));
}

/*
 * Fills a body by a capture: the kernel before it in the body, then two branches. Returns the node
 * before.
 */
static CUgraphNode capture_branches(CUgraph body, CUkernel kernel, unsigned left, unsigned right)
{
    struct all_params all;
    CUgraph same = NULL;
    CUgraphNode before = mix(body, NULL, left, 4);
    EXPECT_OK(cuStreamBeginCaptureToGraph(stream, body, &before, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_OK(cuEventRecord(fork_event, stream));
    EXPECT_OK(cuStreamWaitEvent(side, fork_event, 0));
    kernel_params(&all, kernel, left, 0, 1);
    EXPECT_OK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, stream, all.params, NULL));
    kernel_params(&all, kernel, right, 0, 2);
    EXPECT_OK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, side, all.params, NULL));
    EXPECT_OK(cuEventRecord(join_event, side));
    EXPECT_OK(cuStreamWaitEvent(stream, join_event, 0));
    EXPECT_OK(cuStreamEndCapture(stream, &same));
    EXPECT(same == body);
    return before;
}

/* Branches in a body take any order, but come after what the capture came after. */
static void branches_in_bodies_take_any_order(void)
{
    CUgraph *body;
    size_t count = 0;
    unsigned first = 0, second = 0;
    open_all();
    CUgraphConditionalHandle handle = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode node = add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &body);
    CUgraphNode before = capture_branches(body[0], mix_kernel, 0, 0);
    EXPECT_OK(cuGraphNodeGetDependentNodes(before, NULL, NULL, &count));
    EXPECT_U64(2, count);
    mix(graph, node, 0, 7);
    CUgraphExec executable = instantiate(graph);
    for (int i = 0; seeded() && i < LAUNCHES; i++) {
        set_word(0, 1);
        EXPECT_OK(cuGraphLaunch(executable, stream));
        const uint32_t result = word(0);
        first += result == (((3 + 4) * 3 + 1) * 3 + 2) * 3 + 7;
        second += result == (((3 + 4) * 3 + 2) * 3 + 1) * 3 + 7;
    }
    EXPECT_U64(seeded() ? LAUNCHES : 0, first + second);
    EXPECT(!seeded() || (first && second));
}

static void branches_in_bodies_run_side_by_side(void)
{
    CUgraph *body;
    open_all();
    CUgraphConditionalHandle handle = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &body);
    capture_branches(body[0], meet_kernel, 0, 1);
    EXPECT_OK(cuGraphLaunch(instantiate(graph), stream));
    EXPECT_U64(seeded() ? 1 : 2, word(0) + word(1) - 4);
}

/* Two conditional nodes without an edge between them: their bodies take any order. */
static void conditional_branches_take_any_order(void)
{
    CUgraph *left, *right;
    unsigned first = 0, second = 0;
    open_all();
    CUgraphNode top = mix(graph, NULL, 0, 0), ends[2];
    CUgraphConditionalHandle one = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphConditionalHandle other = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    ends[0] = add_conditional(graph, top, one, CU_GRAPH_COND_TYPE_IF, 1, &left);
    ends[1] = add_conditional(graph, top, other, CU_GRAPH_COND_TYPE_IF, 1, &right);
    mix(left[0], NULL, 0, 1);
    mix(right[0], NULL, 0, 2);
    struct all_params all;
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS last = kernel_params(&all, mix_kernel, 0, 0, 5);
    EXPECT_OK(cuGraphAddKernelNode(&node, graph, ends, 2, &last));
    CUgraphExec executable = instantiate(graph);
    for (int i = 0; seeded() && i < LAUNCHES; i++) { /* under threads the two would race for the word */
        set_word(0, 1);
        EXPECT_OK(cuGraphLaunch(executable, stream));
        const uint32_t result = word(0);
        first += result == ((3 * 3 + 1) * 3 + 2) * 3 + 5;
        second += result == ((3 * 3 + 2) * 3 + 1) * 3 + 5;
    }
    EXPECT_U64(seeded() ? LAUNCHES : 0, first + second);
    EXPECT(!seeded() || (first && second));
}

static void conditional_branches_run_side_by_side(void)
{
    CUgraph *body;
    open_all();
    for (unsigned i = 0; i < 2; i++) {
        CUgraphConditionalHandle handle = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
        add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &body);
        add(body[0], NULL, meet_kernel, i, 0, 0);
    }
    EXPECT_OK(cuGraphLaunch(instantiate(graph), stream));
    EXPECT_U64(seeded() ? 1 : 2, word(0) + word(1));
}

/* Later work of the stream, and of one that waits for it, comes after the bodies. */
static void work_behind_waits_for_bodies(void)
{
    CUgraph *body;
    open_all();
    CUgraphConditionalHandle handle = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &body);
    CUgraphNode node = add(body[0], NULL, count_kernel, 0, handle, 0);
    CUgraph child;
    EXPECT_OK(cuGraphCreate(&child, 0));
    mix(child, NULL, 1, 1);
    EXPECT_OK(cuGraphAddChildGraphNode(&node, body[0], &node, 1, child));
    CUgraphExec executable = instantiate(graph);
    for (int turn = 0; turn < 8; turn++) {
        set_word(0, 3);
        set_word(1, 0);
        EXPECT_OK(cuGraphLaunch(executable, stream));
        EXPECT_OK(cuEventRecord(fork_event, stream));
        EXPECT_OK(cuStreamWaitEvent(side, fork_event, 0));
        EXPECT_OK(cuMemcpyDtoDAsync(words + 8, words + 4, 4, side));
        EXPECT_OK(cuEventRecord(join_event, side));
        set_word(0, 2); /* the second launch comes after the first one */
        EXPECT_OK(cuGraphLaunch(executable, stream));
        EXPECT_OK(cuStreamWaitEvent(stream, join_event, 0));
        EXPECT_U64(0, word(0));
        EXPECT(word(2) >= (1 * 3 + 1) * 3 + 1);
        EXPECT_U64((((1 * 3 + 1) * 3 + 1) * 3 + 1) * 3 + 1, word(1));
    }
}

/* A launch on another stream begins after the one before, and so do its first values. */
static void launches_come_one_after_the_other(void)
{
    CUgraph *body;
    open_all();
    CUgraphConditionalHandle handle = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode node = add(graph, mix(graph, NULL, 0, 4), set_kernel, 0, handle, 0);
    add_conditional(graph, node, handle, CU_GRAPH_COND_TYPE_SWITCH, 2, &body);
    mix(body[0], NULL, 0, 1);
    mix(body[1], NULL, 0, 2);
    CUgraphExec executable = instantiate(graph);
    for (int turn = 0; turn < LAUNCHES; turn++) {
        set_word(0, 0);
        EXPECT_OK(cuStreamSynchronize(stream));
        EXPECT_OK(cuGraphLaunch(executable, stream));
        EXPECT_OK(cuGraphLaunch(executable, side));
        EXPECT_OK(cuCtxSynchronize());
        EXPECT_U64(((4 * 3 + 1) * 3 + 4) * 3 + 1, word(0));
    }
}

/* A loop goes on after its stream and its graphs were destroyed, beside streams made since. */
static void loops_outlive_their_stream(void)
{
    CUgraph *body;
    open_all();
    CUgraphConditionalHandle handle = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &body);
    capture_branches(body[0], mix_kernel, 1, 2);
    add(body[0], NULL, count_kernel, 0, handle, 0);
    CUgraphExec executable = instantiate(graph);
    EXPECT_OK(cuGraphDestroy(graph));
    for (int turn = 0; turn < 8; turn++) {
        CUstream gone = stream;
        set_word(0, 4);
        set_word(1, 0);
        set_word(2, 0);
        EXPECT_OK(cuGraphLaunch(executable, gone));
        EXPECT_OK(cuStreamDestroy(gone));
        EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        EXPECT_OK(cuMemsetD32Async(words + 64, 1, 1, stream));
        if (turn == 7)
            EXPECT_OK(cuGraphExecDestroy(executable));
        EXPECT_OK(cuCtxSynchronize());
        EXPECT_U64(0, word(0));
        EXPECT_U64(((2 * 3 + 2) * 3 + 2) * 3 + 2, word(2));
        EXPECT_U64(10660, word(1)); /* four times 3 * (3 * w + 4) + 1 */
    }
}

/* A fault in a body ends the launch, and the context answers it from then on. */
static void faults_in_bodies_are_the_contexts(void)
{
    CUgraph *body;
    CUdeviceptr nowhere;
    CUgraphNode node;
    struct all_params all;
    open_all();
    EXPECT_OK(cuMemAddressReserve(&nowhere, device.granularity, 0, 0, 0));
    CUgraphConditionalHandle handle = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &body); /* endless without the fault */
    CUDA_KERNEL_NODE_PARAMS params = kernel_params(&all, mix_kernel, 0, 0, 1);
    all.to = nowhere;
    EXPECT_OK(cuGraphAddKernelNode(&node, body[0], NULL, 0, &params));
    EXPECT_OK(cuGraphLaunch(instantiate(graph), stream));
    EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

/* Kernels and whole graphs in bodies can be changed. An update brings its handles and defaults. */
static void bodies_are_updated(void)
{
    CUgraph *body, *other_body, other;
    CUgraphExecUpdateResultInfo info;
    struct all_params all;
    open_all();
    CUgraphConditionalHandle handle = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode node = add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &body);
    CUgraphNode inner = mix(body[0], NULL, 0, 1);
    CUgraphExec executable = instantiate(graph);
    CUDA_KERNEL_NODE_PARAMS params = kernel_params(&all, mix_kernel, 0, 0, 2);
    EXPECT_OK(cuGraphExecKernelNodeSetParams(executable, inner, &params));
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_U64(2, word(0));
    CUgraphNodeParams same = conditional(handle, CU_GRAPH_COND_TYPE_IF, 1);
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphExecNodeSetParams(executable, node, &same));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphNodeSetParams(node, &same));
    EXPECT_OK(cuGraphCreate(&other, 0));
    CUgraphConditionalHandle other_handle = new_handle(other, 0, CU_GRAPH_COND_ASSIGN_DEFAULT);
    add_conditional(other, NULL, other_handle, CU_GRAPH_COND_TYPE_IF, 1, &other_body);
    mix(other_body[0], NULL, 0, 5);
    EXPECT_OK(cuGraphExecUpdate(executable, other, &info));
    EXPECT_INT(CU_GRAPH_EXEC_UPDATE_SUCCESS, info.result);
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_U64(2, word(0));                                                /* the default is 0 now */
    EXPECT_OK(cuGraphExecKernelNodeSetParams(executable, inner, &params)); /* the node is known as before */
    CUgraphExec second;
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiate(&second, other, 0)); /* its handle is taken */
    second = instantiate(graph);
    EXPECT_CUDA(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(executable, graph, &info));
    EXPECT_OK(cuGraphExecDestroy(second));
    EXPECT_OK(cuGraphExecUpdate(executable, graph, &info));
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_U64(2 * 3 + 1, word(0));
    EXPECT_OK(cuGraphExecKernelNodeSetParams(executable, inner, &params));
    EXPECT_OK(cuGraphLaunch(executable, stream));
    EXPECT_U64(7 * 3 + 2, word(0));
    mix(other_body[0], NULL, 0, 5);
    EXPECT_CUDA(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(executable, other, &info));
    EXPECT_OK(cuGraphCreate(&other, 0));
    other_handle = new_handle(other, 0, CU_GRAPH_COND_ASSIGN_DEFAULT);
    add_conditional(other, NULL, other_handle, CU_GRAPH_COND_TYPE_WHILE, 1, &other_body);
    mix(other_body[0], NULL, 0, 5);
    EXPECT_CUDA(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(executable, other, &info));
}

static void add_refused(CUgraph to, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type, unsigned size)
{
    CUgraphNode node;
    CUgraphNodeParams params = conditional(handle, type, size);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, to, NULL, NULL, 0, &params));
}

/* A handle has one node, in its graph or in a body there. A graph has a node for each handle. */
static void handles_have_one_node(void)
{
    CUgraph *body, other, child;
    CUgraphConditionalHandle handle, left_over;
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {.flags = 0};
    CUgraphExec executable;
    CUgraphNode node;
    open_all();
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphConditionalHandleCreate(&handle, graph, device.context, 0, 2));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphConditionalHandleCreate(NULL, graph, device.context, 0, 0));
    EXPECT_OK(cuGraphCreate(&other, 0));
    handle = new_handle(graph, 0, 0);
    add_refused(other, handle, CU_GRAPH_COND_TYPE_IF, 1);
    add_refused(graph, handle + 100, CU_GRAPH_COND_TYPE_IF, 1);
    add_refused(graph, handle, CU_GRAPH_COND_TYPE_IF, 0);
    add_refused(graph, handle, CU_GRAPH_COND_TYPE_IF, 3);
    add_refused(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 2);
    add_refused(graph, handle, CU_GRAPH_COND_TYPE_SWITCH, 0);
    add_refused(graph, handle, (CUgraphConditionalNodeType)3, 1);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithParams(&executable, graph, &how));
    EXPECT_INT(CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED, how.result_out);
    add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &body);
    add_refused(graph, handle, CU_GRAPH_COND_TYPE_IF, 1);
    left_over = new_handle(body[0], 0, 0);
    add_refused(graph, left_over, CU_GRAPH_COND_TYPE_IF, 1); /* outside the body that it is for */
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&executable, graph, 0));
    add_conditional(body[0], NULL, left_over, CU_GRAPH_COND_TYPE_IF, 1, &body);
    EXPECT_OK(cuGraphExecDestroy(instantiate(graph)));
    EXPECT_OK(cuGraphCreate(&child, 0));
    EXPECT_OK(cuGraphAddChildGraphNode(&node, other, NULL, 0, child));
    EXPECT_OK(cuGraphChildGraphNodeGetGraph(node, &child));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphConditionalHandleCreate(&handle, child, device.context, 0, 0));
    add(other, NULL, set_kernel, 0, left_over + 100, 1); /* no such handle */
    EXPECT_OK(cuGraphLaunch(instantiate(other), stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_INT(-1, set_result);
    struct all_params all;
    kernel_params(&all, set_kernel, 0, left_over, 1); /* a kernel outside graphs */
    set_result = 0;
    EXPECT_OK(cuLaunchKernel((CUfunction)set_kernel, 1, 1, 1, 1, 1, 1, 0, stream, all.params, NULL));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_INT(-1, set_result);
}

/* Graphs with conditional nodes have one executable graph, and no copies. */
static void such_graphs_are_not_copied(void)
{
    CUgraph *body, clone, other;
    CUgraphExec executable;
    CUgraphNode node;
    CUgraphExecUpdateResultInfo info;
    const unsigned by_kernels = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    open_all();
    CUgraphConditionalHandle handle = new_handle(graph, 0, CU_GRAPH_COND_ASSIGN_DEFAULT);
    add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &body);
    mix(body[0], NULL, 0, 1);
    EXPECT_OK(cuGraphCreate(&other, 0));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&clone, graph));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddChildGraphNode(&node, other, NULL, 0, graph));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&executable, graph, by_kernels));
    CUgraphExec own = instantiate(graph);
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiate(&executable, graph, 0));
    EXPECT_OK(cuGraphExecUpdate(own, graph, &info));
    EXPECT_OK(cuGraphExecDestroy(own));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(body[0]));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&executable, body[0], 0));
    EXPECT_OK(cuGraphClone(&clone, body[0])); /* a graph of its own, in which any node may be */
    EXPECT_OK(cuGraphLaunch(instantiate(clone), stream));
    EXPECT_U64(1, word(0));
}

static void nothing(void *data)
{
    (void)data;
}

/* A body has kernels, copies, fills, children, conditional and empty nodes, and no others. */
static void bodies_have_some_kinds(void)
{
    CUgraph *body, child, same;
    CUgraphNode node;
    const CUDA_HOST_NODE_PARAMS host = {nothing, NULL};
    CUDA_MEM_ALLOC_NODE_PARAMS own = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = 4096};
    open_all();
    CUgraphConditionalHandle handle = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    add_conditional(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &body);
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddHostNode(&node, body[0], NULL, 0, &host));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddEventRecordNode(&node, body[0], NULL, 0, fork_event));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddEventWaitNode(&node, body[0], NULL, 0, fork_event));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddMemAllocNode(&node, body[0], NULL, 0, &own));
    EXPECT_OK(cuGraphCreate(&child, 0));
    EXPECT_OK(cuGraphAddChildGraphNode(&node, body[0], NULL, 0, child));
    EXPECT_OK(cuGraphAddHostNode(&node, child, NULL, 0, &host));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddChildGraphNode(&node, body[0], NULL, 0, child));
    EXPECT_OK(cuGraphAddEmptyNode(&node, body[0], NULL, 0));
    EXPECT_OK(cuStreamBeginCaptureToGraph(stream, body[0], &node, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
    set_word(0, 3);
    EXPECT_OK(cuMemcpyDtoDAsync(words + 4, words, 4, stream));
    EXPECT_OK(cuStreamEndCapture(stream, &same));
    EXPECT_OK(cuGraphLaunch(instantiate(graph), stream));
    EXPECT_U64(3, word(1));
    EXPECT_OK(cuStreamBeginCaptureToGraph(stream, body[0], NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuLaunchHostFunc(stream, nothing, NULL));
    EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &same));
    EXPECT_OK(cuGraphDestroy(graph)); /* the failed capture left the program its graph */
}

/* Hardware queues and their room are for what the host queues: bodies need none. */
static void bodies_need_no_hardware_queue(void)
{
    work_behind_waits_for_bodies();
}

int main(void)
{
    RUN_CASE(values_choose_bodies);
    RUN_CASE(loops_end_when_told);
    RUN_CASE(defaults_begin_launches);
    RUN_CASE(branches_in_bodies_take_any_order);
    RUN_CASE(branches_in_bodies_run_side_by_side);
    RUN_CASE(conditional_branches_take_any_order);
    RUN_CASE(conditional_branches_run_side_by_side);
    RUN_CASE(work_behind_waits_for_bodies);
    RUN_CASE(launches_come_one_after_the_other);
    RUN_CASE(loops_outlive_their_stream);
    RUN_CASE(faults_in_bodies_are_the_contexts);
    RUN_CASE(bodies_are_updated);
    RUN_CASE(handles_have_one_node);
    RUN_CASE(such_graphs_are_not_copied);
    RUN_CASE(bodies_have_some_kinds);
    RUN_CASE(bodies_need_no_hardware_queue, "CUDASIM_MAX_CONNECTIONS", "1", "CUDASIM_QUEUE", "8");
    return expect_status();
}
