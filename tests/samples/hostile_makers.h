/*
 * Cases of `hostile`: kernels that write tables, at their first launches. By those launches
 * Penstock learns what a kernel does. Part of hostile.cu, after hostile_nodes.h.
 */
#ifndef PENSTOCK_SAMPLES_HOSTILE_MAKERS_H
#define PENSTOCK_SAMPLES_HOSTILE_MAKERS_H

/* Each part of a case has kernels of its own, which have never been launched before. */
#define MAKER(name)                                                                                                    \
    KERNEL(name, (const uint32_t **table, const uint32_t *a, const uint32_t *b, size_t count), (table, a, b, count))   \
    {                                                                                                                  \
        FOR_EACH_ITEM (i, count)                                                                                       \
            table[i] = i == 0 ? a : b;                                                                                 \
    }

MAKER(write_beside_capture)
MAKER(write_beside_copy)
MAKER(write_what_is_copied)
MAKER(write_in_graph)
MAKER(write_inside)
MAKER(write_in_span)

KERNEL(write_entry, (const uint32_t **table, const uint32_t *a, size_t index, size_t count), (table, a, index, count))
{
    FOR_EACH_ITEM (i, count)
        table[index + i] = a;
}

KERNEL(write_of_one, (const uint32_t *a, const uint32_t **table, size_t count), (a, table, count))
{
    FOR_EACH_ITEM (i, count)
        table[i] = a;
}

/* Six numbers that are no addresses, as strides are, before the table. */
struct numbers {
    size_t number[6];
};

KERNEL(write_behind_numbers,
       (const uint32_t *a, const uint32_t *b, struct numbers numbers, const uint32_t **table, size_t count),
       (a, b, numbers, table, count))
{
    FOR_EACH_ITEM (i, count)
        table[i] = i < numbers.number[0] ? a : b;
}

/* Is given a span that stands in the table, too. */
KERNEL(gather_and_read,
       (uint32_t *__restrict__ out, const uint32_t *const *table, const uint32_t *also, size_t pointers, size_t word),
       (out, table, also, pointers, word))
{
    FOR_EACH_ITEM (i, pointers)
        out[i] = table[i][word] + (also[0] - also[0]);
}

/* A table, and memory for its kernels' results. */
struct made_table {
    struct span_set set;
    uint32_t *out;
    const uint32_t **table;
    const uint32_t *named[4];
    size_t span[4];
};

#define TABLE_WORDS 128

static struct made_table new_made_table(void)
{
    struct made_table made = {};

    made.set = new_span_set();
    made.out = new_span();
    CHECK(cudaMalloc(&made.table, TABLE_WORDS * sizeof(*made.table)));
    name_four(&made.set, 0, 1, made.span, made.named);
    CHECK(cudaStreamSynchronize(made.set.stream));
    return made;
}

static void check_and_free_made(struct made_table *made, const char *what)
{
    CHECK(cudaFree(made->table));
    CHECK(cudaFree(made->out));
    check_and_free_spans(&made->set, what);
}

/* The kernel's only launch, while another stream is captured. */
static void case_made_beside_capture(void)
{
    struct made_table made = new_made_table();
    const cudaStream_t captured = new_stream();
    cudaGraph_t graph = nullptr;

    CHECK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    LAUNCH(captured, 1, add_to_words, made.set.span[2], 0, 1);
    LAUNCH(made.set.stream, 2, write_beside_capture, made.table, made.named[0], made.named[1], 2);
    CHECK(cudaStreamEndCapture(captured, &graph));
    CHECK(cudaGraphDestroy(graph));
    expect_through_table(&made.set, made.out, made.table, made.span, 2, "a table that is made beside a capture");
    CHECK(cudaStreamDestroy(captured));
    check_and_free_made(&made, "after a table that was made beside a capture");
}

/* Other memory of the allocation is written over at once. */
static void case_made_beside_copy(void)
{
    struct made_table made = new_made_table();
    uint64_t *host = nullptr;

    CHECK(cudaMallocHost(&host, 8 * sizeof(*host)));
    LAUNCH(made.set.stream, 2, write_beside_copy, made.table, made.named[0], made.named[1], 2);
    CHECK(cudaMemcpyAsync(made.table + 64, host, 8 * sizeof(*host), cudaMemcpyHostToDevice, made.set.stream));
    expect_through_table(&made.set, made.out, made.table, made.span, 2, "a table beside memory that is written over");
    CHECK(cudaFreeHost(host));
    check_and_free_made(&made, "after a table beside memory that was written over");
}

/* The table is copied on the device, at once. */
static void case_made_copied(void)
{
    struct made_table made = new_made_table();
    const uint32_t **copy = nullptr;
    const size_t bytes = 2 * sizeof(*copy);

    CHECK(cudaMalloc(&copy, bytes));
    LAUNCH(made.set.stream, 2, write_what_is_copied, made.table, made.named[0], made.named[1], 2);
    CHECK(cudaMemcpyAsync(copy, made.table, bytes, cudaMemcpyDeviceToDevice, made.set.stream));
    CHECK(cudaMemsetAsync(made.table, 0, bytes, made.set.stream));
    expect_through_table(&made.set, made.out, copy, made.span, 2, "the copy of a table that was just made");
    CHECK(cudaFree(copy));
    check_and_free_made(&made, "after the copy of a table that was just made");
}

/* Returns a graph whose only node is the captured launch. */
static cudaGraph_t new_making_graph(const struct made_table *made)
{
    cudaGraph_t graph = nullptr;

    CHECK(cudaStreamBeginCapture(made->set.stream, cudaStreamCaptureModeGlobal));
    LAUNCH(made->set.stream, 2, write_in_graph, made->table, made->named[0], made->named[1], 2);
    CHECK(cudaStreamEndCapture(made->set.stream, &graph));
    return graph;
}

/* Returns a graph that is made node by node: of the kernel in `captured`, with its parameters. */
static cudaGraph_t new_graph_of_nodes(cudaGraph_t captured)
{
    cudaKernelNodeParams parameters = {};
    cudaGraphNode_t node = nullptr;
    cudaGraph_t graph = nullptr;
    size_t nodes = 1;

    CHECK(cudaGraphGetNodes(captured, &node, &nodes));
    CHECK(cudaGraphKernelNodeGetParams(node, &parameters));
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &parameters));
    return graph;
}

/* The table is written over before each launch of the graph. */
static void make_and_use(struct made_table *made, cudaGraph_t graph, const char *what)
{
    cudaGraphExec_t executable = nullptr;

    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (size_t turn = 0; turn < span_count; turn++) {
        CHECK(cudaMemsetAsync(made->table, 0, TABLE_WORDS * sizeof(*made->table), made->set.stream));
        CHECK(cudaGraphLaunch(executable, made->set.stream));
        expect_through_table(&made->set, made->out, made->table, made->span, 2, what);
    }
    CHECK(cudaGraphExecDestroy(executable));
}

/* The kernel is only ever launched by graphs. */
static void case_made_in_graph(void)
{
    struct made_table made = new_made_table();
    const cudaGraph_t captured = new_making_graph(&made), graph = new_graph_of_nodes(captured);

    make_and_use(&made, captured, "a table that a captured graph makes");
    make_and_use(&made, graph, "a table that a graph makes whose nodes were made one by one");
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(captured));
    check_and_free_made(&made, "after tables that graphs made");
}

/* The kernel writes into a structure. Other kernels are given its beginning. */
static void case_made_inside(void)
{
    const size_t first = 64;
    struct made_table made = new_made_table();

    for (size_t turn = 0; turn < span_count; turn++) {
        name_four(&made.set, turn, 1, made.span, made.named);
        LAUNCH(made.set.stream, 2, write_inside, made.table + first, made.named[0], made.named[1], 2);
        expect_behind(&made.set, made.out, made.table, first, made.span, 2, "a table inside a structure");
    }
    check_and_free_made(&made, "after tables inside a structure");
}

/* Returns the size of the smallest span: 2 MiB on a GPU, as a segment of torch's small blocks. */
static size_t page_bytes(void)
{
    CUmemAllocationProp wanted = {};
    size_t bytes = 0;

    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    DRIVER_CALL(cuMemGetAllocationGranularity, &bytes, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    return bytes;
}

/* The table lies in a span, as it does in torch's small blocks. */
static void case_made_in_span(void)
{
    struct made_table made = new_made_table();

    CHECK(cudaFree(made.table));
    CHECK(cudaMalloc(&made.table, page_bytes()));
    for (size_t turn = 0; turn < span_count; turn++) {
        name_four(&made.set, turn, 1, made.span, made.named);
        LAUNCH(made.set.stream, 2, write_in_span, made.table + 64, made.named[0], made.named[1], 2);
        expect_through_table(&made.set, made.out, made.table + 64, made.span, 2, "a table in a span");
    }
    check_and_free_made(&made, "after tables in a span");
}

/* The kernel is given one tensor, of one page, before the table. */
static void case_made_of_one(void)
{
    struct made_table made = new_made_table();
    const size_t words = page_bytes() / sizeof(uint32_t), span[] = {span_count}; /* no span of the set has that salt */
    uint32_t *one = nullptr;

    CHECK(cudaMalloc(&one, page_bytes()));
    LAUNCH(made.set.stream, words, fill_words, one, static_cast<uint32_t>(span_count), 0, words);
    for (size_t turn = 0; turn < span_count; turn++) {
        LAUNCH(made.set.stream, 1, write_of_one, one, made.table, 1);
        expect_through_table(&made.set, made.out, made.table, span, 1, "a table of one tensor");
    }
    CHECK(cudaFree(one));
    check_and_free_made(&made, "after tables of one tensor");
}

/* The table's address is not among the first words that may be one. */
static void case_made_behind_numbers(void)
{
    struct made_table made = new_made_table();
    const struct numbers numbers = {{1, 1u << 20, 1u << 20, 1u << 20, 1ull << 33, 1ull << 33}};

    for (size_t turn = 0; turn < span_count; turn++) {
        name_four(&made.set, turn, 1, made.span, made.named);
        LAUNCH(made.set.stream, 2, write_behind_numbers, made.named[0], made.named[1], numbers, made.table, 2);
        expect_through_table(&made.set, made.out, made.table, made.span, 2, "a table behind numbers");
    }
    check_and_free_made(&made, "after tables behind numbers");
}

/* A kernel that reads a copied table looks as if it made it. The table stays what it was. */
static void case_made_by_nobody(void)
{
    struct made_table made = new_made_table();

    CHECK(cudaMemcpyAsync(made.table, made.named, sizeof(made.named), cudaMemcpyHostToDevice, made.set.stream));
    for (size_t turn = 0; turn < span_count; turn++) {
        crowd_out(&made.set);
        LAUNCH(made.set.stream, 4, gather_and_read, made.out, made.table, made.named[3], 4, 5);
        expect_from_spans(&made.set, made.out, made.span, 4, "a table whose reader is given one of its spans");
    }
    check_and_free_made(&made, "after a table whose reader is given one of its spans");
}

/* The kernel writes one entry at each launch. */
static void case_made_in_pieces(void)
{
    struct made_table made = new_made_table();

    for (size_t turn = 0; turn < span_count; turn++) {
        name_four(&made.set, turn, 1, made.span, made.named);
        for (size_t i = 0; i < 4; i++)
            LAUNCH(made.set.stream, 1, write_entry, made.table, made.named[i], i, 1);
        expect_through_table(&made.set, made.out, made.table, made.span, 4, "a table that is made entry by entry");
    }
    check_and_free_made(&made, "after tables that were made entry by entry");
}

#endif
