/* Cases of `hostile`: captures, graphs, and the memory that graphs touch. Part of hostile.cu. */
#ifndef PENSTOCK_SAMPLES_HOSTILE_GRAPHS_H
#define PENSTOCK_SAMPLES_HOSTILE_GRAPHS_H

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>

/*
 * A captured graph names its spans at capture, not at launch. The capture uses the mode that
 * forbids most other calls.
 */
static void case_graph(void)
{
    struct span_set set = new_span_set();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;

    CHECK(cudaStreamSynchronize(set.stream));
    CHECK_OR_SKIP(cudaStreamBeginCapture(set.stream, cudaStreamCaptureModeGlobal));
    /* Ending a capture that never began is an error, and the other capture goes on. */
    cudaStream_t idle = new_stream();
    if (cudaStreamEndCapture(idle, &graph) == cudaSuccess)
        expect(false, "a capture ended that had not begun");
    cudaGetLastError();
    for (size_t i = 0; i < span_count; i++)
        LAUNCH(set.stream, span_words(), add_to_words, set.span[i], 1, span_words());
    CHECK(cudaStreamEndCapture(set.stream, &graph));
    CHECK(cudaStreamDestroy(idle));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (size_t turn = 0; turn < 3; turn++) {
        uint32_t *other = new_span();

        CHECK(cudaGraphLaunch(executable, set.stream));
        /* A new span in between, which needs pages. */
        LAUNCH(set.stream, span_words(), fill_words, other, 99, 0, span_words());
        expect_words(other, 99, 0, span_words(), set.stream, "a span beside a graph");
        CHECK(cudaFree(other));
    }
    for (size_t i = 0; i < span_count; i++)
        LAUNCH(set.stream, span_words(), add_to_words, set.span[i], UINT32_MAX - 2, span_words());
    CHECK(cudaGraphExecDestroy(executable));
    check_and_free_spans(&set, "after graph launches");
}

/* Work beside captures: another stream whose spans push out the spans of the captures' streams. */
struct pusher {
    uint32_t *span[3];
    std::atomic<bool> over;
};

static void *push_out(void *argument)
{
    pusher *p = static_cast<pusher *>(argument);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaStream_t stream;

    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (uint32_t turn = 0; !p->over.load(); turn++) {
        for (uint32_t *span : p->span)
            LAUNCH(stream, span_words(), fill_words, span, turn, 0, span_words());
        CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaStreamDestroy(stream));
    return nullptr;
}

/*
 * A second stream repeatedly joins a capture by waiting for one of its events. Meanwhile the spans
 * that the stream used before leave. To know when those uses are over, Penstock records events on
 * that stream. They must not become part of the capture.
 */
static void case_graph_join(void)
{
    struct span_set set = new_span_set();
    cudaStream_t side;
    cudaEvent_t forked, joined;
    pthread_t thread;
    pusher other = {};

    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    CHECK(cudaStreamSynchronize(set.stream));
    for (auto &span : other.span)
        span = new_span();
    REQUIRE(pthread_create(&thread, nullptr, push_out, &other) == 0, "no thread");
    for (uint32_t turn = 0; turn < 24; turn++) {
        uint32_t *span = set.span[turn % span_count];
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t executable = nullptr;

        LAUNCH(side, span_words(), add_to_words, span, 3, span_words());
        CHECK_OR_SKIP(cudaStreamBeginCapture(set.stream, cudaStreamCaptureModeRelaxed));
        CHECK(cudaEventRecord(forked, set.stream));
        usleep(turn % 8 * 100); /* the span may start to leave at any moment from here on */
        CHECK(cudaStreamWaitEvent(side, forked, 0));
        LAUNCH(side, span_words(), add_to_words, span, 4, span_words());
        CHECK(cudaEventRecord(joined, side));
        CHECK(cudaStreamWaitEvent(set.stream, joined, 0));
        CHECK(cudaStreamEndCapture(set.stream, &graph));
        CHECK(cudaGraphInstantiate(&executable, graph, 0));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaGraphLaunch(executable, side));
        LAUNCH(side, span_words(), add_to_words, span, UINT32_MAX - 6, span_words());
        CHECK(cudaStreamSynchronize(side));
        CHECK(cudaGraphExecDestroy(executable));
    }
    other.over.store(true);
    pthread_join(thread, nullptr);
    for (auto &span : other.span)
        CHECK(cudaFree(span));
    CHECK(cudaEventDestroy(forked));
    CHECK(cudaEventDestroy(joined));
    CHECK(cudaStreamDestroy(side));
    check_and_free_spans(&set, "after captures that a second stream joins");
}

/*
 * Memory that is allocated inside a captured graph. Nothing can know or read it before the graph
 * runs. A span is copied there and back.
 */
static void case_graph_memory(void)
{
    struct span_set set = new_span_set();
    const size_t half = span_bytes / 2;
    uint32_t *inner = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;

    CHECK(cudaStreamSynchronize(set.stream));
    CHECK_OR_SKIP(cudaStreamBeginCapture(set.stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync(&inner, span_bytes, set.stream));
    CHECK(cudaMemcpyAsync(inner, set.span[0], span_bytes, cudaMemcpyDeviceToDevice, set.stream));
    LAUNCH(set.stream, span_words(), add_to_words, inner, 5, span_words());
    CHECK(cudaMemcpyAsync(set.span[1], inner, span_bytes, cudaMemcpyDeviceToDevice, set.stream));
    CHECK(cudaMemcpyAsync(set.span[2], inner, span_bytes, cudaMemcpyDefault, set.stream));
    CHECK(cudaMemcpy2DAsync(set.span[3], half, inner, half, half, 2, cudaMemcpyDefault, set.stream));
    CHECK(cudaFreeAsync(inner, set.stream));
    CHECK(cudaStreamEndCapture(set.stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (size_t turn = 0; turn < 3; turn++) {
        crowd_out(&set);
        CHECK(cudaGraphLaunch(executable, set.stream));
        for (size_t i = 1; i <= 3; i++) {
            LAUNCH(set.stream, span_words(), add_to_words, set.span[i], UINT32_MAX - 4, span_words());
            expect_words(set.span[i], 0, 0, span_words(), set.stream, "through a graph's own memory");
        }
    }
    CHECK(cudaGraphExecDestroy(executable));
    for (size_t i = 1; i <= 3; i++)
        LAUNCH(set.stream, span_words(), fill_words, set.span[i], static_cast<uint32_t>(i), 0, span_words());
    check_and_free_spans(&set, "after a graph with memory of its own");
}

static cudaGraphExec_t end_of_capture(cudaStream_t stream)
{
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;

    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiateWithFlags(&executable, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    CHECK(cudaGraphDestroy(graph));
    return executable;
}

/*
 * Two graphs, like a forward and a backward pass. The second one uses memory of the first and frees
 * it. A second launch of the second graph therefore fails.
 */
static void case_graph_frees(void)
{
    struct span_set set = new_span_set();
    uint32_t *inner = nullptr;

    CHECK(cudaStreamSynchronize(set.stream));
    CHECK_OR_SKIP(cudaStreamBeginCapture(set.stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync(&inner, span_bytes, set.stream));
    CHECK(cudaMemcpyAsync(inner, set.span[0], span_bytes, cudaMemcpyDeviceToDevice, set.stream));
    cudaGraphExec_t forward = end_of_capture(set.stream);
    CHECK(cudaStreamBeginCapture(set.stream, cudaStreamCaptureModeGlobal));
    LAUNCH(set.stream, span_words(), add_to_words, inner + 1, 5, span_words() - 1); /* an interior pointer */
    CHECK(cudaMemcpyAsync(set.span[1], inner, span_bytes, cudaMemcpyDeviceToDevice, set.stream));
    CHECK(cudaFreeAsync(inner, set.stream));
    cudaGraphExec_t backward = end_of_capture(set.stream);
    for (size_t turn = 0; turn < 3; turn++) {
        crowd_out(&set);
        CHECK(cudaGraphLaunch(forward, set.stream));
        CHECK(cudaGraphLaunch(backward, set.stream));
        LAUNCH(set.stream, span_words(), add_to_words, set.span[1] + 1, UINT32_MAX - 4, span_words() - 1);
        expect_words(set.span[1], 0, 0, span_words(), set.stream,
                     "through memory that one graph allocates and another one frees");
        expect(cudaGraphLaunch(backward, set.stream) == cudaErrorInvalidValue, "memory that had gone was freed again");
        cudaGetLastError();
    }
    CHECK(cudaGraphExecDestroy(forward));
    CHECK(cudaGraphExecDestroy(backward));
    LAUNCH(set.stream, span_words(), fill_words, set.span[1], 1, 0, span_words());
    check_and_free_spans(&set, "after graphs with memory in common");
}

static void expect_fill(const uint32_t *device, unsigned char value, cudaStream_t stream)
{
    unsigned char *host = static_cast<unsigned char *>(malloc(span_bytes));
    size_t wrong = 0;

    REQUIRE(host != nullptr, "no host memory");
    CHECK(cudaMemcpyAsync(host, device, span_bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < span_bytes; i++)
        wrong += host[i] != value;
    free(host);
    expect(wrong == 0, "a fill in a graph: %zu of %zu bytes are wrong", wrong, span_bytes);
}

/*
 * Only a graph's nodes show what it touches: a fill, a copy and a kernel. No other launch of this
 * program names their spans. The spans change when the executable graph is updated from another
 * graph, or when one of its kernels gets other parameters.
 */
static void case_graph_nodes(void)
{
    struct span_set set = new_span_set();
    size_t count = 8;
    cudaGraph_t graph[2];
    cudaGraphExec_t executable = nullptr;
    cudaGraphExecUpdateResultInfo info;
    cudaGraphNode_t nodes[8];
    cudaStream_t side;

    if (span_count < 6)
        return;
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(cudaStreamSynchronize(set.stream));
    for (int i = 0; i < 2; i++) {
        uint32_t **span = set.span + 3 * i;

        CHECK_OR_SKIP(cudaStreamBeginCapture(set.stream, cudaStreamCaptureModeGlobal));
        CHECK(cudaMemsetAsync(span[0], 1 + i, span_bytes, set.stream));
        CHECK(cudaMemcpyAsync(span[1], span[2], span_bytes, cudaMemcpyDeviceToDevice, set.stream));
        LAUNCH(set.stream, span_words(), add_to_words, span[2], 10, span_words());
        CHECK(cudaStreamEndCapture(set.stream, &graph[i]));
    }
    CHECK(cudaGraphInstantiate(&executable, graph[0], 0));
    for (int i = 0; i < 2; i++) {
        uint32_t **span = set.span + 3 * i;

        if (i == 1)
            CHECK(cudaGraphExecUpdate(executable, graph[1], &info));
        for (size_t turn = 0; turn < 3; turn++) {
            LAUNCH(set.stream, span_words(), fill_words, span[2], static_cast<uint32_t>(50 + turn), 0, span_words());
            crowd_out(&set);
            CHECK(cudaStreamSynchronize(set.stream));
            CHECK(cudaGraphLaunch(executable, turn == 1 ? side : set.stream));
            CHECK(cudaStreamSynchronize(side));
            crowd_out(&set);
            expect_fill(span[0], static_cast<unsigned char>(1 + i), set.stream);
            expect_words(span[1], static_cast<uint32_t>(50 + turn), 0, span_words(), set.stream, "a copy in a graph");
            LAUNCH(set.stream, span_words(), add_to_words, span[2], UINT32_MAX - 9, span_words());
            expect_words(span[2], static_cast<uint32_t>(50 + turn), 0, span_words(), set.stream, "a kernel in a graph");
        }
    }
    /* Gives the kernel another span, which no graph has used so far. */
    CHECK(cudaGraphGetNodes(graph[0], nodes, &count));
    for (size_t n = 0; n < count; n++) {
        struct cudaKernelNodeParams parameters = {};
        uint32_t *span = set.span[span_count - 1];
        uint32_t value = 7;
        size_t words = span_words();
        void *arguments[] = {&span, &value, &words};

        if (cudaGraphKernelNodeGetParams(nodes[n], &parameters) != cudaSuccess) {
            cudaGetLastError();
            continue;
        }
        parameters.kernelParams = arguments;
        CHECK(cudaGraphExecKernelNodeSetParams(executable, nodes[n], &parameters));
        LAUNCH(set.stream, span_words(), fill_words, span, 60, 0, span_words());
        crowd_out(&set);
        CHECK(cudaGraphLaunch(executable, set.stream));
        crowd_out(&set);
        LAUNCH(set.stream, span_words(), add_to_words, span, UINT32_MAX - 6, span_words());
        expect_words(span, 60, 0, span_words(), set.stream, "a kernel in a graph that was changed");
    }
    for (size_t i = 0; i < 6; i++)
        LAUNCH(set.stream, span_words(), fill_words, set.span[i], static_cast<uint32_t>(i), 0, span_words());
    LAUNCH(set.stream, span_words(), fill_words, set.span[span_count - 1], static_cast<uint32_t>(span_count - 1), 0,
           span_words());
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph[0]));
    CHECK(cudaGraphDestroy(graph[1]));
    CHECK(cudaStreamSynchronize(set.stream));
    CHECK(cudaStreamDestroy(side));
    check_and_free_spans(&set, "after graphs of copies and fills");
}

#define MANY_STREAMS 20 /* more streams than Penstock tracks one by one for a span */

/*
 * Captures a copy between two spans just after every span was used. Not all
 * spans fit, so those two are away. The last visible work of each stream used neither of them.
 */
static void capture_copies_beside(const cudaStream_t *streams, size_t count, cudaStream_t captured)
{
    struct span_set set = new_span_set();
    uint32_t *word = nullptr;

    CHECK(cudaMalloc(&word, sizeof(*word)));
    CHECK(cudaDeviceSynchronize());
    for (size_t turn = 0; turn < 2 * span_count; turn++) {
        const size_t from = turn % span_count, to = (turn + 1) % span_count;

        for (size_t i = 0; i < span_count; i++) {
            const size_t span = (from + i) % span_count;

            LAUNCH(streams[span % count], 1, add_to_words, set.span[span], 0, 1);
        }
        for (size_t i = 0; i < count; i++)
            LAUNCH(streams[i], 1, add_to_words, word, 0, 1);
        CHECK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeThreadLocal));
        CHECK(cudaMemcpyAsync(set.span[to], set.span[from], span_bytes, cudaMemcpyDeviceToDevice, captured));
        const cudaGraphExec_t executable = end_of_capture(captured);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaGraphLaunch(executable, captured));
        expect_words(set.span[to], static_cast<uint32_t>(from), 0, span_words(), captured,
                     "a copy captured beside other streams' work");
        LAUNCH(captured, span_words(), fill_words, set.span[to], static_cast<uint32_t>(to), 0, span_words());
        CHECK(cudaStreamSynchronize(captured));
        CHECK(cudaGraphExecDestroy(executable));
    }
    CHECK(cudaFree(word));
    check_and_free_spans(&set, "beside graphs of copies");
}

static void case_graph_copies_streams(void)
{
    cudaStream_t streams[MANY_STREAMS];

    for (cudaStream_t &each : streams)
        each = new_stream();
    capture_copies_beside(streams, MANY_STREAMS, new_stream());
}

/*
 * The captured stream is a blocking one. During the capture, no call may use or query the default
 * stream.
 */
static void case_graph_copies_legacy(void)
{
    const cudaStream_t legacy = nullptr;
    cudaStream_t captured = nullptr;

    CHECK(cudaStreamCreate(&captured));
    capture_copies_beside(&legacy, 1, captured);
}

/* The nodes of a graph by kind: a fill, a copy and a kernel. */
struct three_nodes {
    cudaGraphNode_t fill, copy, kernel;
    struct cudaMemsetParams filled;
    struct cudaKernelNodeParams launched;
};

static struct three_nodes nodes_of(cudaGraph_t graph)
{
    struct three_nodes three = {};
    cudaGraphNode_t nodes[3];
    size_t count = 3;

    CHECK(cudaGraphGetNodes(graph, nodes, &count));
    for (size_t n = 0; n < count; n++)
        if (cudaGraphKernelNodeGetParams(nodes[n], &three.launched) == cudaSuccess)
            three.kernel = nodes[n];
    cudaGetLastError();
    for (size_t n = 0; n < count; n++) { /* in the order of capture */
        if (nodes[n] == three.kernel)
            continue;
        if (three.fill == nullptr)
            three.fill = nodes[n];
        else
            three.copy = nodes[n];
    }
    three.filled = {
        .dst = nullptr, .pitch = span_bytes, .value = 0, .elementSize = 1, .width = span_bytes, .height = 1};
    return three;
}

/* Gives the nodes four spans, two of them to the copy, and lets the kernel add `more`. */
static void change_nodes(cudaGraphExec_t executable, struct three_nodes *three, uint32_t *const *span,
                         unsigned char byte, uint32_t more)
{
    uint32_t *added_to = span[3];
    size_t words = span_words();
    void *arguments[] = {&added_to, &more, &words};

    three->filled.dst = span[0];
    three->filled.value = byte;
    three->launched.kernelParams = arguments;
    CHECK(cudaGraphExecMemsetNodeSetParams(executable, three->fill, &three->filled));
    CHECK(cudaGraphExecMemcpyNodeSetParams1D(executable, three->copy, span[1], span[2], span_bytes,
                                             cudaMemcpyDeviceToDevice));
    CHECK(cudaGraphExecKernelNodeSetParams(executable, three->kernel, &three->launched));
}

/*
 * A refused change has no effect: kernel parameters for another kind of node, and a graph of
 * another shape.
 */
static void change_in_vain(cudaGraphExec_t executable, struct three_nodes *three, uint32_t *span, cudaStream_t stream)
{
    uint32_t more = 1;
    size_t words = span_words();
    void *arguments[] = {&span, &more, &words};
    cudaGraphExecUpdateResultInfo info;
    cudaGraph_t other;

    three->launched.kernelParams = arguments;
    expect(cudaGraphExecKernelNodeSetParams(executable, three->fill, &three->launched) != cudaSuccess,
           "a fill became a kernel");
    cudaGetLastError();
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemsetAsync(span, 0, span_bytes, stream));
    CHECK(cudaStreamEndCapture(stream, &other));
    expect(cudaGraphExecUpdate(executable, other, &info) != cudaSuccess, "a graph of three nodes became one of one");
    cudaGetLastError();
    CHECK(cudaGraphDestroy(other));
}

/*
 * Each node gets other spans before each launch, as XLA does it. A launch concerns only the nodes'
 * current spans. Their earlier spans may be anywhere, or freed.
 */
static void case_graph_changes(void)
{
    struct span_set set = new_span_set();
    cudaGraph_t graph;
    cudaGraphExec_t executable = nullptr;

    CHECK(cudaStreamSynchronize(set.stream));
    CHECK_OR_SKIP(cudaStreamBeginCapture(set.stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemsetAsync(set.span[0], 1, span_bytes, set.stream));
    CHECK(cudaMemcpyAsync(set.span[1], set.span[2], span_bytes, cudaMemcpyDeviceToDevice, set.stream));
    LAUNCH(set.stream, span_words(), add_to_words, set.span[3], 10, span_words());
    CHECK(cudaStreamEndCapture(set.stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    struct three_nodes three = nodes_of(graph);
    for (size_t turn = 0; turn < 2 * (span_count / 4); turn++) {
        const size_t first = turn % (span_count / 4) * 4;
        uint32_t **span = set.span + first;
        const unsigned char byte = static_cast<unsigned char>(turn + 1);

        change_nodes(executable, &three, span, byte, 10);
        if (turn == 1)
            change_in_vain(executable, &three, set.span[0], set.stream);
        CHECK(cudaGraphLaunch(executable, set.stream));
        expect_fill(span[0], byte, set.stream);
        expect_words(span[1], static_cast<uint32_t>(first + 2), 0, span_words(), set.stream, "a copy in a graph");
        LAUNCH(set.stream, span_words(), add_to_words, span[3], UINT32_MAX - 9, span_words());
        expect_words(span[3], static_cast<uint32_t>(first + 3), 0, span_words(), set.stream, "a kernel in a graph");
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    for (size_t i = 0; i < span_count; i++)
        LAUNCH(set.stream, span_words(), fill_words, set.span[i], static_cast<uint32_t>(i), 0, span_words());
    check_and_free_spans(&set, "after graphs whose nodes were changed");
}

/* Builds, node by node, a graph that fills one span and copies another to a third. */
static cudaGraph_t fill_and_copy(uint32_t *const *span, unsigned char byte)
{
    const struct cudaMemsetParams filled = {
        .dst = span[0], .pitch = span_bytes, .value = byte, .elementSize = 1, .width = span_bytes, .height = 1};
    cudaGraphNode_t fill, copy;
    cudaGraph_t graph;

    CHECK(cudaGraphCreate(&graph, 0));
    CHECK_OR_SKIP(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &filled));
    CHECK_OR_SKIP(
        cudaGraphAddMemcpyNode1D(&copy, graph, &fill, 1, span[1], span[2], span_bytes, cudaMemcpyDeviceToDevice));
    return graph;
}

/*
 * A graph whose child gets other spans before each launch. XLA does this with its captures: it
 * rebuilds the child and hands it over. Each time the driver looks at the addresses of the child's
 * copies and fills. The first half of the turns launches without waiting; the second half checks
 * each turn.
 */
static void case_graph_children(void)
{
    struct span_set set = new_span_set();
    const size_t turns = 2 * (span_count / 3);
    cudaGraph_t graph, child = fill_and_copy(set.span, 0);
    cudaGraphExec_t executable = nullptr;
    cudaGraphNode_t node;

    CHECK(cudaGraphCreate(&graph, 0));
    CHECK_OR_SKIP(cudaGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
    CHECK(cudaGraphDestroy(child));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (size_t turn = 0; turn < 2 * turns; turn++) {
        uint32_t **span = set.span + turn % (span_count / 3) * 3;
        const uint32_t salt = static_cast<uint32_t>(turn % (span_count / 3) * 3 + 2);

        child = fill_and_copy(span, static_cast<unsigned char>(turn));
        CHECK(cudaGraphExecChildGraphNodeSetParams(executable, node, child));
        CHECK(cudaGraphDestroy(child));
        LAUNCH(set.stream, span_words(), add_to_words, span[2], 5, span_words());
        CHECK(cudaGraphLaunch(executable, set.stream));
        LAUNCH(set.stream, span_words(), add_to_words, span[1], UINT32_MAX - 4, span_words());
        LAUNCH(set.stream, span_words(), add_to_words, span[2], UINT32_MAX - 4, span_words());
        if (turn < turns)
            continue;
        expect_fill(span[0], static_cast<unsigned char>(turn), set.stream);
        expect_words(span[1], salt, 0, span_words(), set.stream, "a copy in a child graph");
        expect_words(span[2], salt, 0, span_words(), set.stream, "a source in a child graph");
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    for (size_t i = 0; i < span_count; i++)
        LAUNCH(set.stream, span_words(), fill_words, set.span[i], static_cast<uint32_t>(i), 0, span_words());
    check_and_free_spans(&set, "after graphs whose children were changed");
}

/*
 * Returns the function by which kernels launch graphs on the simulated device. Returns NULL on a
 * GPU, where that would need -rdc=true.
 */
static __typeof__(&cudasim_graph_launch) graph_launch_of_kernels(void)
{
    return reinterpret_cast<__typeof__(&cudasim_graph_launch)>(
        dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cudasim_graph_launch"));
}

KERNEL(launch_graph, (void *graph, uint32_t times), (graph, times))
{
#ifndef __CUDA_ARCH__
    FOR_EACH_ITEM (i, times)
        expect(graph_launch_of_kernels()(graph) == 0, "a kernel may not launch this graph");
#else
    (void)graph, (void)times, (void)lane;
#endif
}

/* Returns an executable graph of one kernel, which launches `launched`. */
static cudaGraphExec_t launcher_of(cudaGraphExec_t launched, cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t launcher = nullptr;

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    LAUNCH(stream, 1, launch_graph, static_cast<void *>(launched), 1u);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&launcher, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return launcher;
}

/* Lets the graph's kernel `number` add 1 to the span. */
static void change_kernel(cudaGraphExec_t executable, cudaGraph_t graph, size_t number, uint32_t *span)
{
    struct cudaKernelNodeParams parameters = {};
    cudaGraphNode_t node[3];
    uint32_t value = 1;
    size_t words = span_words(), count = 3;
    void *arguments[] = {&span, &value, &words};

    CHECK(cudaGraphGetNodes(graph, node, &count));
    CHECK(cudaGraphKernelNodeGetParams(node[number], &parameters));
    parameters.kernelParams = arguments;
    CHECK(cudaGraphExecKernelNodeSetParams(executable, node[number], &parameters));
}

/*
 * A graph that a kernel launches finds its bytes. Some of its spans were away when the graph was
 * made or changed. Other spans have since taken addresses of the graph.
 */
static void case_graph_by_kernel(void)
{
    struct span_set set = new_span_set();
    cudaGraph_t graph;
    cudaGraphExec_t launched = nullptr;
    const uint32_t less[4] = {2, 3, 3, 1};

    if (graph_launch_of_kernels() == nullptr) {
        printf("skip: a kernel of this program can't launch graphs\n");
        exit(EXIT_SKIP);
    }
    CHECK(cudaStreamSynchronize(set.stream));
    CHECK(cudaStreamBeginCapture(set.stream, cudaStreamCaptureModeGlobal));
    for (size_t i = 0; i < 3; i++)
        LAUNCH(set.stream, span_words(), add_to_words, set.span[i], 1, span_words());
    CHECK(cudaStreamEndCapture(set.stream, &graph));
    crowd_out(&set);
    CHECK(cudaGraphInstantiate(&launched, graph, cudaGraphInstantiateFlagDeviceLaunch));
    CHECK(cudaGraphUpload(launched, set.stream));
    cudaGraphExec_t launcher = launcher_of(launched, set.stream);
    for (size_t turn = 0; turn < 2; turn++) {
        crowd_out(&set);
        CHECK(cudaGraphLaunch(launcher, set.stream));
    }
    /* The first kernel gets another span. The second kernel's span is freed and allocated again. */
    CHECK(cudaStreamSynchronize(set.stream));
    crowd_out(&set);
    change_kernel(launched, graph, 0, set.span[3]);
    uint32_t *before = set.span[1];
    CHECK(cudaFree(before));
    set.span[1] = new_span();
    if (set.span[1] != before)
        change_kernel(launched, graph, 1, set.span[1]);
    CHECK(cudaGraphUpload(launched, set.stream));
    LAUNCH(set.stream, span_words(), fill_words, set.span[1], 1, 0, span_words());
    LAUNCH(set.stream, span_words(), add_to_words, set.span[1], 2, span_words());
    crowd_out(&set);
    CHECK(cudaGraphLaunch(launcher, set.stream));
    CHECK(cudaStreamSynchronize(set.stream));
    crowd_out(&set);
    for (size_t i = 0; i < 4; i++)
        LAUNCH(set.stream, span_words(), add_to_words, set.span[i], 0u - less[i], span_words());
    CHECK(cudaGraphExecDestroy(launched));
    CHECK(cudaGraphExecDestroy(launcher));
    CHECK(cudaGraphDestroy(graph));
    crowd_out(&set);
    check_and_free_spans(&set, "after a graph that a kernel launched");
}

#endif
