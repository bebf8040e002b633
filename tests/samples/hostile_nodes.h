/*
 * Cases of `hostile`: pointer tables that are filled in pieces, and tables that graphs bring or use
 * whose nodes are made one by one; and graphs that reach over several pieces. Part of hostile.cu,
 * after hostile_modules.h.
 */
#ifndef PENSTOCK_SAMPLES_HOSTILE_NODES_H
#define PENSTOCK_SAMPLES_HOSTILE_NODES_H

#include <utility>

KERNEL(gather_behind, (uint32_t *__restrict__ out, const uint32_t *const *table, size_t first, size_t pointers),
       (out, table, first, pointers))
{
    FOR_EACH_ITEM (i, pointers)
        out[i] = table[first + i][5];
}

KERNEL(write_addresses, (const uint32_t **table, const uint32_t *a, const uint32_t *b, size_t count),
       (table, a, b, count))
{
    FOR_EACH_ITEM (i, count)
        table[i] = i == 0 ? a : b;
}

/* The kernel is given the table's beginning, and uses the pointers from `first` on. */
static void expect_behind(const struct span_set *set, uint32_t *out, const uint32_t *const *table, size_t first,
                          const size_t *span, size_t pointers, const char *what)
{
    crowd_out(set);
    LAUNCH(set->stream, pointers, gather_behind, out, table, first, pointers);
    expect_gathered_words(set, out, span, pointers, what);
}

/* Tables of which a part is written anew, or a part is never written. */
static void case_table_pieces(void)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    const uint32_t **table = nullptr;
    const size_t word = sizeof(*table);

    CHECK(cudaMalloc(&table, 8 * word));
    for (size_t turn = 0; turn < span_count; turn++) {
        const uint32_t *named[4];
        size_t span[4];

        name_four(&set, turn, 3, span, named);
        CHECK(cudaMemcpyAsync(table, named, 4 * word, cudaMemcpyHostToDevice, set.stream));
        CHECK(cudaMemsetAsync(table, 0, word, set.stream));
        expect_behind(&set, out, table, 1, span + 1, 3, "pointers behind a word that was written anew");
        CHECK(cudaMemsetAsync(table + 2, 0, word, set.stream));
        expect_behind(&set, out, table, 3, span + 3, 1, "a pointer behind two words that were written anew");
        CHECK(cudaMemsetAsync(table, 0, 8 * word, set.stream));
        CHECK(cudaMemcpyAsync(table + 5, named, word, cudaMemcpyHostToDevice, set.stream));
        CHECK(cudaMemcpyAsync(table + 7, named + 2, word, cudaMemcpyHostToDevice, set.stream));
        expect_behind(&set, out, table, 7, span + 2, 1, "a pointer in a table of zeros");
    }
    CHECK(cudaFree(table));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after tables in pieces");
}

/* A graph that copies pinned to first and first to second. The second copy is made first. */
static cudaGraph_t new_chain_of_copies(const uint32_t **pinned, const uint32_t **first, const uint32_t **second)
{
    const size_t bytes = 4 * sizeof(*pinned);
    cudaGraphNode_t bring, move;
    cudaGraph_t graph;

    CHECK(cudaGraphCreate(&graph, 0));
    CHECK_OR_SKIP(cudaGraphAddMemcpyNode1D(&move, graph, nullptr, 0, second, first, bytes, cudaMemcpyDeviceToDevice));
    CHECK(cudaGraphAddMemcpyNode1D(&bring, graph, nullptr, 0, first, pinned, bytes, cudaMemcpyHostToDevice));
    DRIVER_CALL(cuGraphAddDependencies_v2, graph, &bring, &move, nullptr, 1);
    return graph;
}

/* A graph that has such a chain as its child, and copies second to third behind it. */
static cudaGraphNode_t add_chain_as_child(cudaGraph_t graph, cudaGraph_t chain, const uint32_t **second,
                                          const uint32_t **third)
{
    cudaGraphNode_t child, move;

    CHECK_OR_SKIP(cudaGraphAddChildGraphNode(&child, graph, nullptr, 0, chain));
    CHECK(cudaGraphDestroy(chain));
    CHECK(
        cudaGraphAddMemcpyNode1D(&move, graph, &child, 1, third, second, 4 * sizeof(*third), cudaMemcpyDeviceToDevice));
    return child;
}

static cudaGraphExec_t instantiated(cudaGraph_t graph)
{
    cudaGraphExec_t executable = nullptr;

    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    return executable;
}

/* The child of an executable graph gets other copies, and still comes before the copy behind it. */
static void case_table_nodes(void)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    const uint32_t **pinned = nullptr, **table[4];
    size_t span[4];
    cudaGraph_t graph;

    CHECK(cudaMallocHost(&pinned, 4 * sizeof(*pinned)));
    for (auto &each : table)
        CHECK(cudaMalloc(&each, 4 * sizeof(*each)));
    name_four(&set, 0, 1, span, pinned);
    CHECK(cudaGraphCreate(&graph, 0));
    const cudaGraphNode_t child =
        add_chain_as_child(graph, new_chain_of_copies(pinned, table[0], table[1]), table[1], table[2]);
    const cudaGraphExec_t executable = instantiated(graph);
    for (size_t turn = 0; turn < span_count; turn++) {
        if (turn % 3 == 2) {
            const cudaGraph_t other = new_chain_of_copies(pinned, table[turn % 2 * 3], table[1]);

            CHECK(cudaGraphExecChildGraphNodeSetParams(executable, child, other));
            CHECK(cudaGraphDestroy(other));
        }
        CHECK(cudaStreamSynchronize(set.stream));
        name_four(&set, 4 * turn, 1, span, pinned);
        crowd_out(&set);
        CHECK(cudaGraphLaunch(executable, set.stream));
        expect_through_table(&set, out, table[1], span, 4, "a table that a graph's second copy moved");
        expect_through_table(&set, out, table[2], span, 4, "a table that a graph's third copy moved");
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFreeHost(pinned));
    for (auto each : table)
        CHECK(cudaFree(each));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after tables that nodes of graphs copy");
}

/* A kernel of a graph uses a table that is first written when the graph is there. */
static void case_table_graph_later(void)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    const uint32_t **small = nullptr, **large = reinterpret_cast<const uint32_t **>(new_span());
    cudaGraph_t graph;

    CHECK(cudaMalloc(&small, 4 * sizeof(*small)));
    CHECK(cudaStreamSynchronize(set.stream));
    CHECK(cudaStreamBeginCapture(set.stream, cudaStreamCaptureModeGlobal));
    LAUNCH(set.stream, 4, gather_by_table, out, small, 4, 5);
    LAUNCH(set.stream, 4, gather_by_table, out + 4, large, 4, 5);
    CHECK(cudaStreamEndCapture(set.stream, &graph));
    const cudaGraphExec_t executable = instantiated(graph);
    for (size_t turn = 0; turn < span_count; turn++) {
        const uint32_t *named[8];
        size_t span[8];

        name_four(&set, turn, 1, span, named);
        name_four(&set, turn + 2, 3, span + 4, named + 4);
        CHECK(cudaMemcpyAsync(small, named, 4 * sizeof(*named), cudaMemcpyHostToDevice, set.stream));
        CHECK(cudaMemcpyAsync(large, named + 4, 4 * sizeof(*named), cudaMemcpyHostToDevice, set.stream));
        crowd_out(&set);
        CHECK(cudaGraphLaunch(executable, set.stream));
        expect_gathered_words(&set, out, span, 4, "a table that is written behind the graph");
        expect_gathered_words(&set, out + 4, span + 4, 4, "the same in memory as large as a span");
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(small));
    CHECK(cudaFree(large));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after tables that came behind their graph");
}

/* A graph whose only copy is in the body of a conditional node. */
static cudaGraph_t new_bringer_if(const uint32_t **table, const uint32_t **pinned)
{
    cudaGraphConditionalHandle always;
    cudaGraphNode_t node;
    cudaGraph_t graph, *body;

    CHECK(cudaGraphCreate(&graph, 0));
    CHECK_OR_SKIP(cudaGraphConditionalHandleCreate(&always, graph, 1, cudaGraphCondAssignDefault));
    add_conditional(graph, nullptr, always, cudaGraphCondTypeIf, 1, &body);
    CHECK(cudaGraphAddMemcpyNode1D(&node, body[0], nullptr, 0, table, pinned, 4 * sizeof(*table),
                                   cudaMemcpyHostToDevice));
    return graph;
}

/* The copy of a conditional node brings other pointers at each launch. */
static void case_table_condition(void)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    const uint32_t **pinned = nullptr, **table = nullptr;
    size_t span[4];

    CHECK(cudaMallocHost(&pinned, 4 * sizeof(*pinned)));
    CHECK(cudaMalloc(&table, 4 * sizeof(*table)));
    name_four(&set, 0, 1, span, pinned);
    const cudaGraph_t graph = new_bringer_if(table, pinned);
    const cudaGraphExec_t executable = instantiated(graph);
    for (size_t turn = 0; turn < span_count; turn++) {
        CHECK(cudaStreamSynchronize(set.stream));
        name_four(&set, 4 * turn, 1, span, pinned);
        CHECK(cudaGraphLaunch(executable, set.stream));
        expect_through_table(&set, out, table, span, 4, "a table that a conditional node brought");
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(table));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after tables of conditional nodes");
}

/* A kernel that writes a table is captured with other tensors. The graph never runs. */
static void case_table_made_captured(void)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    const uint32_t **table = nullptr;
    cudaGraph_t graph;

    CHECK(cudaMalloc(&table, 2 * sizeof(*table)));
    for (size_t turn = 0; turn < 2 * span_count; turn++) {
        size_t span[4];
        const uint32_t *named[4];

        name_four(&set, 4 * turn, 1, span, named);
        LAUNCH(set.stream, 2, write_addresses, table, named[0], named[1], 2);
        CHECK(cudaStreamSynchronize(set.stream));
        if (turn < span_count) /* Penstock learns what the kernel does */
            continue;
        CHECK(cudaStreamBeginCapture(set.stream, cudaStreamCaptureModeGlobal));
        LAUNCH(set.stream, 2, write_addresses, table, named[2], named[3], 2);
        CHECK(cudaStreamEndCapture(set.stream, &graph));
        CHECK(cudaGraphDestroy(graph));
        expect_through_table(&set, out, table, span, 2, "a table whose next writer is only captured");
    }
    CHECK(cudaFree(table));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after tables whose writers are captured");
}

/* ---- several pieces ---- */

/* What a graph of the next case does: a fill in rows, and a copy of all that was filled. */
struct in_pieces {
    uint32_t *filled, *copied;
    unsigned char value;
    size_t row, pitch; /* words */
};

/*
 * Launches the graph after launches that name each part, so that no name reaches further than it
 * has to, and after others that use all memory. Checks what was copied.
 */
static void expect_in_pieces(const struct span_set *set, cudaGraphExec_t executable, const in_pieces *p,
                             const char *what)
{
    const size_t words = 2 * span_words(), part = words / 8;
    uint32_t *host = static_cast<uint32_t *>(malloc(words * sizeof(*host)));
    size_t wrong = 0;

    REQUIRE(host != nullptr, "no host memory");
    for (size_t i = 0; i < 8; i++) {
        LAUNCH(set->stream, part, fill_words, p->filled + i * part, static_cast<uint32_t>(50 + i), 0, part);
        LAUNCH(set->stream, part, fill_words, p->copied + i * part, 99, 0, part);
    }
    for (size_t i = 0; i < span_count; i++)
        LAUNCH(set->stream, span_words(), add_to_words, set->span[i], 0, span_words());
    CHECK(cudaStreamSynchronize(set->stream));
    CHECK(cudaGraphLaunch(executable, set->stream));
    CHECK(cudaMemcpyAsync(host, p->copied, words * sizeof(*host), cudaMemcpyDeviceToHost, set->stream));
    CHECK(cudaStreamSynchronize(set->stream));
    for (size_t i = 0; i < words; i++)
        wrong += host[i] != (i % p->pitch < p->row ? p->value * 0x01010101u
                                                   : word_at(static_cast<uint32_t>(50 + i / part), i % part));
    expect(wrong == 0, "%s: %zu of %zu words are wrong", what, wrong, words);
    free(host);
}

/* Finds the graph's node of that type. */
static cudaGraphNode_t node_of_type(cudaGraph_t graph, enum cudaGraphNodeType wanted)
{
    cudaGraphNode_t nodes[2];
    size_t count = 2;
    enum cudaGraphNodeType type = cudaGraphNodeTypeEmpty;

    CHECK(cudaGraphGetNodes(graph, nodes, &count));
    CHECK(cudaGraphNodeGetType(nodes[0], &type));
    return nodes[type == wanted ? 0 : 1];
}

/*
 * Fills and copies of graphs reach over several pieces, if allocations larger than a span have
 * some.
 */
static void case_graph_pieces(void)
{
    struct span_set set = new_span_set();
    const size_t words = 2 * span_words(), word = sizeof(uint32_t);
    in_pieces p = {nullptr, nullptr, 3, words, words};
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    struct cudaMemsetParams fill = {};

    CHECK(cudaMalloc(&p.filled, words * word));
    CHECK(cudaMalloc(&p.copied, words * word));
    CHECK(cudaStreamSynchronize(set.stream));
    CHECK_OR_SKIP(cudaStreamBeginCapture(set.stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemsetAsync(p.filled, p.value, words * word, set.stream));
    CHECK(cudaMemcpyAsync(p.copied, p.filled, words * word, cudaMemcpyDeviceToDevice, set.stream));
    CHECK(cudaStreamEndCapture(set.stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    expect_in_pieces(&set, executable, &p, "a fill and a copy of several pieces");
    /* The other way round, with other values. */
    std::swap(p.filled, p.copied);
    CHECK(cudaGraphExecMemcpyNodeSetParams1D(executable, node_of_type(graph, cudaGraphNodeTypeMemcpy), p.copied,
                                             p.filled, words * word, cudaMemcpyDeviceToDevice));
    fill.dst = p.filled;
    fill.value = p.value = 4;
    fill.elementSize = 1;
    fill.width = words * word;
    fill.height = 1;
    CHECK(cudaGraphExecMemsetNodeSetParams(executable, node_of_type(graph, cudaGraphNodeTypeMemset), &fill));
    expect_in_pieces(&set, executable, &p, "a fill and a copy that were changed");
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    p.pitch = words / 8;
    p.row = p.pitch / 2;
    CHECK(cudaStreamBeginCapture(set.stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemset2DAsync(p.filled, p.pitch * word, p.value, p.row * word, 8, set.stream));
    CHECK(cudaMemcpy2DAsync(p.copied, 2 * p.pitch * word, p.filled, 2 * p.pitch * word, 2 * p.pitch * word, 4,
                            cudaMemcpyDeviceToDevice, set.stream));
    CHECK(cudaStreamEndCapture(set.stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    expect_in_pieces(&set, executable, &p, "a fill and a copy in rows of several pieces");
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(p.filled));
    CHECK(cudaFree(p.copied));
    check_and_free_spans(&set, "after graphs in pieces");
}

#endif
