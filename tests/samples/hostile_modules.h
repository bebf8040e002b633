/*
 * Cases of `hostile`: memory that kernels find through variables of the module, and streams of
 * green contexts. Part of hostile.cu, after hostile_tables.h.
 */
#ifndef PENSTOCK_SAMPLES_HOSTILE_MODULES_H
#define PENSTOCK_SAMPLES_HOSTILE_MODULES_H

#include "green.h"

/* Addresses of spans that no parameter names, nor leads to. */
__device__ const uint32_t *spans_in_variable[8];
__constant__ const uint32_t *span_in_constant;

KERNEL(gather_by_variable, (uint32_t *__restrict__ out, size_t pointers, size_t word), (out, pointers, word))
{
    FOR_EACH_ITEM (i, pointers)
        out[i] = VARIABLE(spans_in_variable)[i][word];
}

KERNEL(copy_by_constant, (uint32_t *__restrict__ out, size_t count), (out, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = VARIABLE(span_in_constant)[i];
}

static void expect_gathered_words(const struct span_set *set, const uint32_t *out, const size_t *span, size_t pointers,
                                  const char *what)
{
    uint32_t host[8];
    size_t wrong = 0;

    CHECK(cudaMemcpyAsync(host, out, pointers * sizeof(*host), cudaMemcpyDeviceToHost, set->stream));
    CHECK(cudaStreamSynchronize(set->stream));
    for (size_t i = 0; i < pointers; i++)
        wrong += host[i] != word_at(static_cast<uint32_t>(span[i]), 5);
    expect(wrong == 0, "%s: %zu of %zu words are wrong", what, wrong, pointers);
}

/* out[i] must be the first word of span span[i], which the variable names. */
static void expect_through_variable(const struct span_set *set, uint32_t *out, const size_t *span, size_t pointers,
                                    const char *what)
{
    crowd_out(set);
    LAUNCH(set->stream, pointers, gather_by_variable, out, pointers, 5);
    expect_gathered_words(set, out, span, pointers, what);
}

static void case_module_table(void)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    const uint32_t **pinned = nullptr, **table = nullptr;

    CHECK(cudaMallocHost(&pinned, 4 * sizeof(*pinned)));
    CHECK(cudaMalloc(&table, 4 * sizeof(*table)));
    for (size_t turn = 0; turn < span_count; turn++) {
        size_t span[4];
        const uint32_t *one;

        for (size_t i = 0; i < 4; i++) {
            span[i] = (turn + i) % span_count;
            pinned[i] = set.span[span[i]];
        }
        CHECK(cudaMemcpyToSymbolAsync(spans_in_variable, pinned, 4 * sizeof(*pinned), 0, cudaMemcpyHostToDevice,
                                      set.stream));
        expect_through_variable(&set, out, span, 4, "a table in a variable");
        expect_through_variable(&set, out, span, 4, "the same table, used again");
        /* One pointer in its middle, by a synchronous call. */
        span[2] = (turn + 5) % span_count;
        one = set.span[span[2]];
        CHECK(cudaMemcpyToSymbol(spans_in_variable, &one, sizeof(one), 2 * sizeof(one)));
        CHECK(cudaStreamSynchronize(cudaStreamLegacy)); /* the call returns when ordinary memory has been read */
        expect_through_variable(&set, out, span, 4, "a table in a variable, changed in its middle");
        /* A table that is copied there on the device. */
        for (size_t i = 0; i < 4; i++) {
            span[i] = (turn + 3 * i) % span_count;
            pinned[i] = set.span[span[i]];
        }
        CHECK(cudaMemcpyAsync(table, pinned, 4 * sizeof(*table), cudaMemcpyHostToDevice, set.stream));
        CHECK(cudaMemcpyToSymbolAsync(spans_in_variable, table, 4 * sizeof(*table), 0, cudaMemcpyDeviceToDevice,
                                      set.stream));
        expect_through_variable(&set, out, span, 4, "a table that was copied to a variable on the device");
        /* And one pointer among the constants. */
        one = set.span[turn];
        CHECK(cudaMemcpyToSymbolAsync(span_in_constant, &one, sizeof(one), 0, cudaMemcpyHostToDevice, set.stream));
        crowd_out(&set);
        LAUNCH(set.stream, span_words(), copy_by_constant, out, span_words());
        expect_words(out, static_cast<uint32_t>(turn), 0, span_words(), set.stream, "a span that a constant names");
    }
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(table));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after tables in variables");
}

/* A graph's kernel reads the variable as it is when the graph is launched. */
static void case_module_table_graph(void)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;

    CHECK(cudaStreamBeginCapture(set.stream, cudaStreamCaptureModeGlobal));
    LAUNCH(set.stream, 4, gather_by_variable, out, 4, 5);
    CHECK(cudaStreamEndCapture(set.stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (size_t turn = 0; turn < span_count; turn++) {
        size_t span[4];
        const uint32_t *table[4];

        for (size_t i = 0; i < 4; i++) {
            span[i] = (turn + 2 * i) % span_count;
            table[i] = set.span[span[i]];
        }
        CHECK(cudaMemcpyToSymbolAsync(spans_in_variable, table, sizeof(table), 0, cudaMemcpyHostToDevice, set.stream));
        crowd_out(&set);
        CHECK(cudaGraphLaunch(executable, set.stream));
        expect_gathered_words(&set, out, span, 4, "a table in a variable that a graph's kernel reads");
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after tables in variables and graphs");
}

/*
 * A table in a variable of a second context names the second half of the spans. The context is
 * destroyed, and the launches behind that use the first half in turn.
 */
static void case_module_context(void)
{
    struct span_set set = new_span_set();
    CUcontext second;
    const uint32_t *table[8];

    CHECK(cudaStreamSynchronize(set.stream));
    for (size_t i = 0; i < 8; i++)
        table[i] = set.span[span_count / 2 + i % (span_count / 2)];
    DRIVER_CALL(cuCtxCreate_v4, &second, nullptr, 0, 0);
    CHECK(cudaMemcpyToSymbol(spans_in_variable, table, sizeof(table)));
    DRIVER_CALL(cuCtxDestroy_v2, second);
    for (size_t turn = 0; turn < 8 * span_count; turn++) {
        LAUNCH(set.stream, span_words(), add_to_words, set.span[turn % (span_count / 2)],
               turn < 4 * span_count ? 1 : 0xffffffff, span_words());
        CHECK(cudaStreamSynchronize(set.stream));
    }
    check_and_free_spans(&set, "after a context with a table in a variable");
}

/* ---- copies of tables in graphs ---- */

/* Four spans of the turn, and their addresses in `table`. */
static void name_four(const struct span_set *set, size_t turn, size_t apart, size_t *span, const uint32_t **table)
{
    for (size_t i = 0; i < 4; i++) {
        span[i] = (turn + apart * i) % span_count;
        table[i] = set->span[span[i]];
    }
}

/* A graph that brings tables from pinned memory, along on the device, and to a variable. */
static cudaGraphExec_t new_table_bringer(const struct span_set *set, uint32_t *out, const uint32_t **pinned,
                                         const uint32_t **table, const uint32_t **second)
{
    const size_t bytes = 4 * sizeof(*table);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;

    CHECK(cudaStreamBeginCapture(set->stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemcpyAsync(table, pinned, bytes, cudaMemcpyHostToDevice, set->stream));
    CHECK(cudaMemcpyAsync(second, table, bytes, cudaMemcpyDeviceToDevice, set->stream));
    CHECK(cudaMemcpyToSymbolAsync(spans_in_variable, pinned + 4, bytes, 0, cudaMemcpyHostToDevice, set->stream));
    LAUNCH(set->stream, 4, gather_by_table, out, second, 4, 5);
    LAUNCH(set->stream, 4, gather_by_variable, out + 4, 4, 5);
    CHECK(cudaStreamEndCapture(set->stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return executable;
}

/* Captures a fill of the table and a copy to it. Neither ever runs. */
static void capture_in_vain(cudaStream_t stream, const uint32_t **pinned, const uint32_t **table)
{
    cudaGraph_t graph = nullptr;

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemsetAsync(table, 0, 4 * sizeof(*table), stream));
    CHECK(cudaMemcpyAsync(table, pinned, 4 * sizeof(*table), cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphDestroy(graph));
}

/*
 * The pinned memory has other addresses at each launch of the graph. Kernels behind the launch use
 * what it brought. Copies that are only captured change no table.
 */
static void case_table_captured(void)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    const uint32_t **pinned = nullptr, **table = nullptr, **second = nullptr, **stays = nullptr;
    size_t span[8];

    CHECK(cudaMallocHost(&pinned, 8 * sizeof(*pinned)));
    for (auto each : {&table, &second, &stays})
        CHECK(cudaMalloc(each, 4 * sizeof(**each)));
    name_four(&set, 0, 1, span, pinned);
    name_four(&set, 0, 1, span, pinned + 4);
    const cudaGraphExec_t bringer = new_table_bringer(&set, out, pinned, table, second);
    for (size_t turn = 0; turn < span_count; turn++) {
        name_four(&set, turn, 1, span, pinned);
        name_four(&set, turn + 4, 2, span + 4, pinned + 4);
        crowd_out(&set);
        CHECK(cudaGraphLaunch(bringer, set.stream));
        expect_gathered_words(&set, out, span, 4, "a table that a graph brings");
        expect_gathered_words(&set, out + 4, span + 4, 4, "a table that a graph brings to a variable");
        expect_through_variable(&set, out, span + 4, 4, "that variable, behind the graph");
        expect_through_table(&set, out, table, span, 4, "a table that a graph brought");

        name_four(&set, turn + 2, 3, span, pinned);
        CHECK(cudaMemcpyAsync(stays, pinned, 4 * sizeof(*stays), cudaMemcpyHostToDevice, set.stream));
        CHECK(cudaStreamSynchronize(set.stream));
        name_four(&set, turn + 3, 3, span + 4, pinned);
        capture_in_vain(set.stream, pinned, stays);
        expect_through_table(&set, out, stays, span, 4, "a table with a captured copy that never ran");
    }
    CHECK(cudaGraphExecDestroy(bringer));
    CHECK(cudaFreeHost(pinned));
    for (auto each : {table, second, stays})
        CHECK(cudaFree(each));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after tables in copies of graphs");
}

/* A graph that brings a table from pinned memory and takes it along on the device. */
static cudaGraphExec_t new_table_taker(const uint32_t **pinned, const uint32_t **table, const uint32_t **second,
                                       cudaGraphNode_t *brings)
{
    const size_t bytes = 4 * sizeof(*table);
    cudaGraph_t graph = nullptr;
    cudaGraphNode_t takes = nullptr;
    cudaGraphExec_t executable = nullptr;

    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemcpyNode1D(brings, graph, nullptr, 0, table, pinned, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaGraphAddMemcpyNode1D(&takes, graph, brings, 1, second, table, bytes, cudaMemcpyDeviceToDevice));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    return executable;
}

/*
 * A graph's copy of a table is disabled, and enabled again. While it is disabled, another copy
 * brings the table that is used.
 */
static void case_table_disabled(void)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    const uint32_t **pinned = nullptr, **table = nullptr, **second = nullptr;
    size_t span[4], unused[4];
    cudaGraphNode_t brings = nullptr;

    CHECK(cudaMallocHost(&pinned, 8 * sizeof(*pinned)));
    CHECK(cudaMalloc(&table, 4 * sizeof(*table)));
    CHECK(cudaMalloc(&second, 4 * sizeof(*second)));
    name_four(&set, 0, 1, span, pinned);
    const cudaGraphExec_t taker = new_table_taker(pinned, table, second, &brings);
    for (size_t turn = 0; turn < span_count; turn++) {
        const bool enabled = turn % 3 == 2;

        CHECK(cudaGraphNodeSetEnabled(taker, brings, enabled));
        name_four(&set, turn, 1, enabled ? span : unused, pinned);
        name_four(&set, turn + 4, 3, enabled ? unused : span, pinned + 4);
        CHECK(cudaMemcpyAsync(table, pinned + 4, 4 * sizeof(*table), cudaMemcpyHostToDevice, set.stream));
        CHECK(cudaGraphLaunch(taker, set.stream));
        expect_through_table(&set, out, second, span, 4, "a table that a graph took along");
        expect_through_table(&set, out, table, span, 4, "a table with a copy in a graph that may be disabled");
    }
    CHECK(cudaGraphExecDestroy(taker));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(table));
    CHECK(cudaFree(second));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after a graph's copy that was disabled");
}

/* ---- green contexts ---- */

/* Uses every span on the stream, twice. The words end as they began. */
static void use_spans(const struct span_set *set, cudaStream_t stream)
{
    for (size_t round = 0; round < 2; round++)
        for (size_t i = 0; i < span_count; i++) {
            LAUNCH(stream, span_words(), add_to_words, set->span[i], 1, span_words());
            LAUNCH(stream, span_words(), add_to_words, set->span[around(i + 3)], 0xffffffff, span_words());
        }
}

/*
 * Spans of the primary context are used and freed on streams of a green context. Then that context
 * goes away, and the spans are used on.
 */
static void case_green_streams(void)
{
    struct span_set set = new_span_set();
    CUcontext context;
    CUgreenCtx green = new_green_context(&context);
    cudaStream_t stream[2];
    uint32_t *other = nullptr;

    CHECK(cudaStreamSynchronize(set.stream));
    for (auto &each : stream)
        DRIVER_CALL(cuGreenCtxStreamCreate, &each, green, CU_STREAM_NON_BLOCKING, 0);
    for (size_t turn = 0; turn < span_count; turn++) {
        use_spans(&set, stream[turn % 2]);
        CHECK(cudaMallocAsync(&other, span_bytes, stream[turn % 2]));
        LAUNCH(stream[turn % 2], span_words(), fill_words, other, 9, 0, span_words());
        expect_words(other, 9, 0, span_words(), stream[turn % 2], "a span that was allocated on a green stream");
        CHECK(cudaFreeAsync(other, stream[turn % 2]));
        CHECK(cudaStreamSynchronize(stream[turn % 2]));
    }
    use_spans(&set, stream[0]);
    CHECK(cudaDeviceSynchronize());
    for (auto &each : stream)
        CHECK(cudaStreamDestroy(each));
    DRIVER_CALL(cuGreenCtxDestroy, green);
    use_spans(&set, set.stream);
    check_and_free_spans(&set, "after green streams");
}

/*
 * A green context is current: it allocates the spans and uses them on its default stream. The
 * driver's waits for it leave other streams alone. `first`: no memory was allocated before.
 */
static void green_is_current(bool first)
{
    uint32_t *before = first ? nullptr : new_span();
    CUcontext context, popped;
    CUgreenCtx green = new_green_context(&context);
    cudaStream_t ordinary;
    uint32_t *gate = nullptr;

    CHECK(cudaMallocHost(&gate, sizeof(*gate)));
    *gate = 0;
    CHECK(cudaStreamCreateWithFlags(&ordinary, cudaStreamNonBlocking));
    DRIVER_CALL(cuCtxPushCurrent_v2, context);
    struct span_set set = new_span_set();
    CHECK(cudaStreamSynchronize(set.stream));
    for (size_t turn = 0; turn < span_count; turn++) {
        use_spans(&set, nullptr);
        DRIVER_CALL(cuCtxSynchronize);
        /* The other stream goes on only after the wait. */
        DRIVER_CALL(cuStreamWaitValue32_v2, ordinary, reinterpret_cast<CUdeviceptr>(gate),
                    static_cast<uint32_t>(turn + 1), CU_STREAM_WAIT_VALUE_GEQ);
        LAUNCH(ordinary, span_words(), add_to_words, set.span[turn], 0, span_words());
        DRIVER_CALL(cuCtxSynchronize);
        __atomic_store_n(gate, static_cast<uint32_t>(turn + 1), __ATOMIC_SEQ_CST);
        CHECK(cudaStreamSynchronize(ordinary));
        /* Its work is under way behind the wait, on spans that must stay meanwhile. */
        for (size_t i = 0; i < span_count / 2; i++)
            LAUNCH(ordinary, span_words(), add_to_words, set.span[i], 1, span_words());
        DRIVER_CALL(cuCtxSynchronize);
        for (size_t i = span_count / 2; i < span_count; i++)
            LAUNCH(nullptr, span_words(), add_to_words, set.span[i], 1, span_words());
        CHECK(cudaStreamSynchronize(ordinary));
        for (auto each : set.span)
            if (each != nullptr)
                LAUNCH(nullptr, span_words(), add_to_words, each, 0xffffffff, span_words());
        DRIVER_CALL(cuCtxSynchronize);
        /* The runtime's wait is for the ordinary stream, too. */
        LAUNCH(ordinary, span_words(), add_to_words, set.span[turn], 0, span_words());
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaStreamQuery(ordinary));
    }
    check_and_free_spans(&set, "after use on a green context's default stream");
    set = new_span_set();
    CHECK(cudaStreamSynchronize(set.stream));
    CHECK(cudaStreamDestroy(set.stream));
    use_spans(&set, nullptr);
    CHECK(cudaDeviceSynchronize());
    DRIVER_CALL(cuCtxPopCurrent_v2, &popped);
    DRIVER_CALL(cuGreenCtxDestroy, green);
    set.stream = ordinary;
    use_spans(&set, set.stream);
    check_and_free_spans(&set, "after the green context that allocated them");
    CHECK(cudaFreeHost(gate));
    CHECK(cudaFree(before));
}

static void case_green_current(void)
{
    green_is_current(false);
}

static void case_green_first(void)
{
    green_is_current(true);
}

#endif
