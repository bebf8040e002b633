/* Cases of `hostile`: graphs whose kernels decide what runs. Part of hostile.cu. */
#ifndef PENSTOCK_SAMPLES_HOSTILE_CONDITIONS_H
#define PENSTOCK_SAMPLES_HOSTILE_CONDITIONS_H

#include "hostile_graphs.h"

/* Counts one word down. The loop goes on until it is 0; the choice follows its lowest bit. */
KERNEL(count_down, (uint32_t * left, cudaGraphConditionalHandle loop, cudaGraphConditionalHandle choice),
       (left, loop, choice))
{
    FOR_EACH_ITEM (i, 1) {
        *left -= 1;
        set_condition(loop, *left);
        set_condition(choice, *left % 2);
    }
}

/* Adds a conditional node behind `after`, or behind none. Returns it, and stores its bodies. */
static cudaGraphNode_t add_conditional(cudaGraph_t graph, cudaGraphNode_t after, cudaGraphConditionalHandle handle,
                                       cudaGraphConditionalNodeType type, unsigned size, cudaGraph_t **bodies)
{
    struct cudaGraphNodeParams parameters = {};
    cudaGraphNode_t node;

    parameters.type = cudaGraphNodeTypeConditional;
    parameters.conditional.handle = handle;
    parameters.conditional.type = type;
    parameters.conditional.size = size;
    CHECK_OR_SKIP(
        cudaGraphAddNode(&node, graph, &after, nullptr, after == nullptr ? 0 : 1, &parameters)); /* CUDA 12.8 */
    *bodies = parameters.conditional.phGraph_out;
    return node;
}

static cudaGraphNode_t add_count_down(cudaGraph_t graph, uint32_t *left, cudaGraphConditionalHandle loop,
                                      cudaGraphConditionalHandle choice)
{
    struct cudaGraphNodeParams parameters = {};
    void *arguments[] = {&left, &loop, &choice};
    cudaGraphNode_t node;

    parameters.type = cudaGraphNodeTypeKernel;
    parameters.kernel.func = reinterpret_cast<void *>(count_down);
    parameters.kernel.gridDim = dim3(1);
    parameters.kernel.blockDim = dim3(1);
    parameters.kernel.kernelParams = arguments;
    CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &parameters));
    return node;
}

static void capture_to(cudaStream_t stream, cudaGraph_t graph, cudaGraphNode_t after)
{
    CHECK(cudaStreamBeginCaptureToGraph(stream, graph, &after, nullptr, after == nullptr ? 0 : 1,
                                        cudaStreamCaptureModeGlobal));
}

static void end_capture_to(cudaStream_t stream, cudaGraph_t graph)
{
    cudaGraph_t same = nullptr;

    CHECK(cudaStreamEndCapture(stream, &same));
    expect(same == graph, "a capture to a graph ended with another graph");
}

/*
 * Makes a graph with a loop around a choice. Each turn adds 1 to the first span and copies it to
 * the second, fills the third, and adds 1 or 100 to the fourth. Only nodes of bodies name them.
 */
static cudaGraph_t loop_of(uint32_t *const *span, uint32_t *left, cudaStream_t stream, unsigned char byte)
{
    cudaGraphConditionalHandle loop, choice;
    cudaGraph_t graph, *body, *branch;

    CHECK(cudaGraphCreate(&graph, 0));
    CHECK_OR_SKIP(cudaGraphConditionalHandleCreate(&loop, graph, 1, cudaGraphCondAssignDefault));
    CHECK(cudaGraphConditionalHandleCreate(&choice, graph, 0, 0));
    add_conditional(graph, nullptr, loop, cudaGraphCondTypeWhile, 1, &body);
    cudaGraphNode_t node = add_count_down(body[0], left, loop, choice);
    node = add_conditional(body[0], node, choice, cudaGraphCondTypeIf, 2, &branch);
    for (uint32_t i = 0; i < 2; i++) {
        capture_to(stream, branch[i], nullptr);
        LAUNCH(stream, span_words(), add_to_words, span[3], i == 0 ? 1 : 100, span_words());
        end_capture_to(stream, branch[i]);
    }
    capture_to(stream, body[0], node);
    LAUNCH(stream, span_words(), add_to_words, span[0], 1, span_words());
    CHECK(cudaMemcpyAsync(span[1], span[0], span_bytes, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaMemsetAsync(span[2], byte, span_bytes, stream));
    end_capture_to(stream, body[0]);
    return graph;
}

/* Launches the loop for some turns, while all of its spans may be away. Checks what it did. */
static void run_loop(const struct span_set *set, cudaGraphExec_t executable, uint32_t *const *span, uint32_t first,
                     uint32_t *left, uint32_t turns, unsigned char byte)
{
    const uint32_t odd = turns / 2, chosen = odd + 100 * (turns - odd);

    CHECK(cudaMemcpyAsync(left, &turns, sizeof(turns), cudaMemcpyHostToDevice, set->stream));
    crowd_out(set);
    CHECK(cudaStreamSynchronize(set->stream));
    CHECK(cudaGraphLaunch(executable, set->stream));
    crowd_out(set);
    LAUNCH(set->stream, span_words(), add_to_words, span[0], 0u - turns, span_words());
    LAUNCH(set->stream, span_words(), add_to_words, span[1], 0u - turns, span_words());
    LAUNCH(set->stream, span_words(), add_to_words, span[3], 0u - chosen, span_words());
    expect_words(span[0], first, 0, span_words(), set->stream, "a kernel in a loop");
    expect_words(span[1], first, 0, span_words(), set->stream, "a copy in a loop");
    expect_fill(span[2], byte, set->stream);
    expect_words(span[3], first + 3, 0, span_words(), set->stream, "a choice in a loop");
}

/*
 * Only nodes in bodies of conditional nodes name the spans. These are away when the graph is made,
 * changed and launched. Later another graph's bodies, with other spans, take their place.
 */
static void case_graph_conditions(void)
{
    struct span_set set = new_span_set();
    cudaGraph_t graph[2];
    cudaGraphExec_t executable = nullptr;
    cudaGraphExecUpdateResultInfo info;
    uint32_t *left = nullptr;

    REQUIRE(span_count >= 8, "too few spans");
    CHECK(cudaMalloc(&left, sizeof(*left)));
    for (int i = 0; i < 2; i++)
        graph[i] = loop_of(set.span + 4 * i, left, set.stream, static_cast<unsigned char>(7 + i));
    crowd_out(&set);
    CHECK(cudaGraphInstantiate(&executable, graph[0], 0));
    for (uint32_t turns = 1; turns < 4; turns++)
        run_loop(&set, executable, set.span, 0, left, turns, 7);
    CHECK(cudaGraphExecUpdate(executable, graph[1], &info));
    for (uint32_t turns = 4; turns > 2; turns--)
        run_loop(&set, executable, set.span + 4, 4, left, turns, 8);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph[0]));
    CHECK(cudaGraphDestroy(graph[1]));
    for (size_t i = 0; i < 8; i++)
        LAUNCH(set.stream, span_words(), fill_words, set.span[i], static_cast<uint32_t>(i), 0, span_words());
    CHECK(cudaFree(left));
    check_and_free_spans(&set, "after graphs with loops");
}

#endif
