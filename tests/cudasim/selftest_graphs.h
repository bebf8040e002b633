/*
 * Graphs made node by node. Part of selftest.cu. Only what CUDA documents is expected, since the
 * same checks run on a GPU.
 */
#ifndef CUDASIM_SELFTEST_GRAPHS_H
#define CUDASIM_SELFTEST_GRAPHS_H

#include "selftest.h"

/* A kernel node of `fill`, and its arguments. */
struct fill_node {
    float *out;
    float value;
    size_t count;
    void *arguments[3];
    struct cudaKernelNodeParams parameters;
};

static void set_fill_node(struct fill_node *fill_of, float *out, float value, size_t count)
{
    fill_of->out = out;
    fill_of->value = value;
    fill_of->count = count;
    fill_of->arguments[0] = &fill_of->out;
    fill_of->arguments[1] = &fill_of->value;
    fill_of->arguments[2] = &fill_of->count;
    fill_of->parameters = {};
    fill_of->parameters.func = reinterpret_cast<void *>(fill);
    fill_of->parameters.gridDim = dim3(8);
    fill_of->parameters.blockDim = dim3(64);
    fill_of->parameters.kernelParams = fill_of->arguments;
}

static void launch_and_wait(cudaGraphExec_t executable)
{
    CHECK(cudaGraphLaunch(executable, 0));
    CHECK(cudaStreamSynchronize(0));
}

/* A kernel is added, changed, and changed in the executable graph. Its arguments are copied. */
static void kernel_nodes_are_added_and_changed(void)
{
    float *y = new_floats(0.0f, ITEMS), *x = new_floats(0.0f, ITEMS);
    struct fill_node first, second;
    struct cudaKernelNodeParams read = {};
    struct cudaGraphNodeParams any = {};
    enum cudaGraphNodeType type;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaGraphNode_t node, behind;

    CHECK(cudaGraphCreate(&graph, 0));
    set_fill_node(&first, y, 1.0f, ITEMS);
    CHECK(cudaGraphAddKernelNode(&node, graph, NULL, 0, &first.parameters));
    first.value = 9.0f;
    set_fill_node(&second, y, 2.0f, ITEMS / 2);
    any.type = cudaGraphNodeTypeKernel;
    any.kernel.func = second.parameters.func;
    any.kernel.gridDim = second.parameters.gridDim;
    any.kernel.blockDim = second.parameters.blockDim;
    any.kernel.kernelParams = second.arguments;
    CHECK(cudaGraphAddNode(&behind, graph, &node, NULL, 1, &any));
    CHECK(cudaGraphNodeGetType(behind, &type));
    EXPECT(type == cudaGraphNodeTypeKernel);
    CHECK(cudaGraphKernelNodeGetParams(node, &read));
    EXPECT(read.gridDim.x == 8 && read.blockDim.x == 64 && read.sharedMemBytes == 0);
    EXPECT(read.kernelParams != NULL && *static_cast<float **>(read.kernelParams[0]) == y &&
           *static_cast<float *>(read.kernelParams[1]) == 1.0f);
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    launch_and_wait(executable);
    EXPECT(count_other_than(y, 2.0f, ITEMS / 2) == 0);
    EXPECT(count_other_than(y + ITEMS / 2, 1.0f, ITEMS - ITEMS / 2) == 0);

    set_fill_node(&second, x, 4.0f, ITEMS);
    CHECK(cudaGraphExecKernelNodeSetParams(executable, behind, &second.parameters));
    launch_and_wait(executable);
    EXPECT(count_other_than(y, 1.0f, ITEMS) == 0);
    EXPECT(count_other_than(x, 4.0f, ITEMS) == 0);

    /* The graph itself is as it was, until it is changed. What a node returns can be set again. */
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphKernelNodeGetParams(behind, &read));
    EXPECT(*static_cast<float *>(read.kernelParams[1]) == 2.0f);
    read.kernelParams = first.arguments;
    CHECK(cudaGraphKernelNodeSetParams(behind, &read));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    launch_and_wait(executable);
    EXPECT(count_other_than(y, 9.0f, ITEMS) == 0);

    first.parameters.func = NULL;
    EXPECT(cudaGraphAddKernelNode(&node, graph, NULL, 0, &first.parameters) != cudaSuccess);
    cudaGetLastError();
    EXPECT_ERROR(cudaGraphAddKernelNode(&node, graph, NULL, 0, NULL), cudaErrorInvalidValue);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
}

static void CUDART_CB count_call(void *number)
{
    *static_cast<unsigned *>(number) += 1;
}

/* A fill, a copy of rows, a host function and an empty node, one behind the other. */
static void nodes_of_other_kinds(void)
{
    const size_t pitch = 64, width = 24, rows = 10;
    unsigned char *from = NULL, *to = NULL, host[rows * pitch];
    unsigned calls = 0;
    struct cudaMemsetParams filled = {}, read_fill = {};
    struct cudaMemcpy3DParms copied = {}, read_copy = {};
    struct cudaHostNodeParams called = {count_call, &calls}, read_call = {};
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaGraphNode_t node[4], found[4];
    size_t count = 4, wrong = 0;

    CHECK(cudaMalloc(&from, rows * pitch));
    CHECK(cudaMalloc(&to, rows * pitch));
    CHECK(cudaMemset(to, 1, rows * pitch));
    CHECK(cudaDeviceSynchronize());
    filled.dst = from;
    filled.elementSize = 1;
    filled.value = 7;
    filled.width = rows * pitch;
    filled.height = 1;
    copied.srcPtr = make_cudaPitchedPtr(from, pitch, width, rows);
    copied.dstPtr = make_cudaPitchedPtr(to, pitch, width, rows);
    copied.dstPos = make_cudaPos(8, 2, 0);
    copied.extent = make_cudaExtent(width, rows - 2, 1);
    copied.kind = cudaMemcpyDeviceToDevice;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemsetNode(&node[0], graph, NULL, 0, &filled));
    CHECK(cudaGraphAddMemcpyNode(&node[1], graph, &node[0], 1, &copied));
    CHECK(cudaGraphAddEmptyNode(&node[2], graph, &node[1], 1));
    CHECK(cudaGraphAddHostNode(&node[3], graph, &node[2], 1, &called));
    CHECK(cudaGraphMemsetNodeGetParams(node[0], &read_fill));
    EXPECT(read_fill.dst == from && read_fill.value == 7 && read_fill.width == rows * pitch);
    CHECK(cudaGraphMemcpyNodeGetParams(node[1], &read_copy));
    EXPECT(read_copy.extent.width == width && read_copy.extent.height == rows - 2);
    CHECK(cudaGraphHostNodeGetParams(node[3], &read_call));
    EXPECT(read_call.fn == count_call && read_call.userData == &calls);
    CHECK(cudaGraphGetRootNodes(graph, found, &count));
    EXPECT(count == 1 && found[0] == node[0]);
    count = 4;
    CHECK(cudaGraphNodeGetDependencies(node[3], found, NULL, &count));
    EXPECT(count == 1 && found[0] == node[2]);
    count = 4;
    CHECK(cudaGraphNodeGetDependentNodes(node[0], found, NULL, &count));
    EXPECT(count == 1 && found[0] == node[1]);
    count = 0;
    CHECK(cudaGraphGetEdges(graph, NULL, NULL, NULL, &count));
    EXPECT(count == 3);
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    launch_and_wait(executable);
    EXPECT(calls == 1);
    CHECK(cudaMemcpy(host, to, sizeof(host), cudaMemcpyDeviceToHost));
    for (size_t at = 0; at < sizeof(host); at++) {
        const size_t row = at / pitch, column = at % pitch;
        wrong += host[at] != (row >= 2 && column >= 8 && column < 8 + width ? 7 : 1);
    }
    EXPECT(wrong == 0);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
}

static void test_graph_nodes(void)
{
    kernel_nodes_are_added_and_changed();
    nodes_of_other_kinds();
}

#endif
