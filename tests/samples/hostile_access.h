/*
 * Cases of `hostile`: how kernels, copies and memsets name memory, and the order that CUDA promises
 * them. Part of hostile.cu.
 */
#ifndef PENSTOCK_SAMPLES_HOSTILE_ACCESS_H
#define PENSTOCK_SAMPLES_HOSTILE_ACCESS_H

#include <cuda.h>
#include <dlfcn.h>

#define FEW_POINTERS 400
#define MANY_POINTERS 600

/*
 * 400 pointers fit into the 4 KiB of parameters that every GPU has. 600 need the larger space, for
 * which the cubin has other layout records.
 */
struct few_pointers {
    const uint32_t *in[FEW_POINTERS];
};

struct many_pointers {
    const uint32_t *in[MANY_POINTERS];
};

/* A parameter as libraries pass it: pointers between numbers, in an array, at odd offsets. */
struct argument_block {
    uint32_t tag;
    const uint32_t *in;
    uint16_t turns;
    struct {
        uint8_t kind;
        uint32_t *out;
    } target[2];
    size_t count;
};

KERNEL(copy_by_block, (uint8_t first, struct argument_block block, uint8_t last), (first, block, last))
{
    FOR_EACH_ITEM (i, block.count) {
        block.target[0].out[i] = block.in[i] + block.tag - block.tag;
        block.target[1].out[i] = block.in[i] + first - last;
    }
}

KERNEL(gather_few, (uint32_t *__restrict__ out, struct few_pointers pointers, size_t word), (out, pointers, word))
{
    FOR_EACH_ITEM (i, FEW_POINTERS)
        out[i] = pointers.in[i][word];
}

KERNEL(gather_many, (struct many_pointers pointers, size_t word, uint32_t *out), (pointers, word, out))
{
    FOR_EACH_ITEM (i, MANY_POINTERS)
        out[i] = pointers.in[i][word];
}

KERNEL(gather_by_table, (uint32_t *__restrict__ out, const uint32_t *const *table, size_t pointers, size_t word),
       (out, table, pointers, word))
{
    FOR_EACH_ITEM (i, pointers)
        out[i] = table[i][word];
}

/* Reads words [shift, shift + count) after `base`. `base` itself may lie outside the span. */
KERNEL(copy_shifted, (uint32_t *__restrict__ out, const uint32_t *base, ptrdiff_t shift, size_t count),
       (out, base, shift, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = base[shift + static_cast<ptrdiff_t>(i)];
}

static void case_views(void)
{
    struct span_set set = new_span_set();
    const size_t words = span_words() / 4;
    uint32_t *out = new_span();

    for (size_t turn = 0; turn < 2 * span_count; turn++) {
        const size_t i = turn * 5 % span_count;
        const size_t first = turn % 3 == 0 ? 1 : turn % 3 == 1 ? span_words() / 2 : span_words() - words;

        LAUNCH(set.stream, words, copy_words, out, set.span[i] + first, words);
        expect_words(out, static_cast<uint32_t>(i), first, words, set.stream, "through a view");
        /* Write through a view too: the same words again, so the span's content does not change. */
        LAUNCH(set.stream, words, fill_words, set.span[i] + first, static_cast<uint32_t>(i), first, words);
    }
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after views");
}

/* Allocates further spans, so that others must leave. */
static void crowd_out(const struct span_set *set)
{
    uint32_t *other[3];

    for (auto &span : other) {
        span = new_span();
        LAUNCH(set->stream, span_words(), fill_words, span, 99, 0, span_words());
    }
    expect_words(other[0], 99, 0, span_words(), set->stream, "a span that others make room for");
    for (auto &span : other)
        CHECK(cudaFree(span));
}

KERNEL(copy_before, (uint32_t * out, const uint32_t *end, size_t count), (out, end, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = *(end - count + i);
}

/* Reverse iterators, and loops that count down, are given the end of their memory. */
static void case_past_end(void)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable[2] = {};

    for (size_t g = 0; g < 2; g++) {
        CHECK_OR_SKIP(cudaStreamBeginCapture(set.stream, cudaStreamCaptureModeGlobal));
        LAUNCH(set.stream, span_words(), copy_before, out, set.span[2 * g] + span_words(), span_words());
        CHECK(cudaStreamEndCapture(set.stream, &graph));
        CHECK(cudaGraphInstantiate(&executable[g], graph, 0));
        CHECK(cudaGraphDestroy(graph));
    }
    for (size_t turn = 0; turn < 2 * span_count; turn++) {
        const size_t i = turn * 5 % span_count, g = turn % 2;

        crowd_out(&set);
        LAUNCH(set.stream, span_words(), copy_before, out, set.span[i] + span_words(), span_words());
        expect_words(out, static_cast<uint32_t>(i), 0, span_words(), set.stream, "before an end");
        crowd_out(&set);
        CHECK(cudaGraphLaunch(executable[g], set.stream));
        expect_words(out, static_cast<uint32_t>(2 * g), 0, span_words(), set.stream, "before an end, in a graph");
    }
    for (auto each : executable)
        CHECK(cudaGraphExecDestroy(each));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after reads by their ends");
}

static void case_outside(void)
{
    struct span_set set = new_span_set();
    const ptrdiff_t shift = static_cast<ptrdiff_t>(span_words()) * 2;
    const size_t words = span_words() / 4;
    uint32_t *out = new_span();

    for (size_t i = 0; i < span_count; i++) {
        /*
         * A base address for an index that includes an offset. It is computed as an integer,
         * because a pointer must not leave its object.
         */
        const uintptr_t base =
            reinterpret_cast<uintptr_t>(set.span[i]) - static_cast<uintptr_t>(shift) * sizeof(uint32_t);

        LAUNCH(set.stream, words, copy_shifted, out, reinterpret_cast<const uint32_t *>(base), shift, words);
        expect_words(out, static_cast<uint32_t>(i), 0, words, set.stream, "through a base outside of the span");
    }
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after bases outside of their spans");
}

static void case_struct_parameter(void)
{
    struct span_set set = new_span_set();
    uint32_t *out[2] = {new_span(), new_span()};

    for (size_t i = 0; i < span_count; i++) {
        struct argument_block block = {};

        block.tag = static_cast<uint32_t>(i) * 3;
        block.in = set.span[i];
        block.target[0].out = out[0];
        block.target[1].out = out[1];
        block.count = span_words();
        LAUNCH(set.stream, span_words(), copy_by_block, static_cast<uint8_t>(i), block, static_cast<uint8_t>(i));
        expect_words(out[0], static_cast<uint32_t>(i), 0, span_words(), set.stream, "through a structure's pointer");
        expect_words(out[1], static_cast<uint32_t>(i), 0, span_words(), set.stream,
                     "through a structure's second pointer");
    }
    CHECK(cudaFree(out[0]));
    CHECK(cudaFree(out[1]));
    check_and_free_spans(&set, "after structure parameters");
}

/* out[i] must be word `word` of span i % span_count */
static void expect_gathered(const struct span_set *set, const uint32_t *out, size_t pointers, size_t word,
                            const char *what)
{
    uint32_t host[MANY_POINTERS];
    size_t wrong = 0;

    CHECK(cudaMemcpyAsync(host, out, pointers * sizeof(*host), cudaMemcpyDeviceToHost, set->stream));
    CHECK(cudaStreamSynchronize(set->stream));
    for (size_t i = 0; i < pointers; i++)
        wrong += host[i] != word_at(static_cast<uint32_t>(i % span_count), word);
    expect(wrong == 0, "%s: %zu of %zu words are wrong", what, wrong, pointers);
}

static void case_few_pointers(void)
{
    struct span_set set = new_span_set();
    static struct few_pointers pointers;
    uint32_t *out = new_span();

    for (size_t i = 0; i < FEW_POINTERS; i++)
        pointers.in[i] = set.span[i % span_count];
    for (size_t word = 0; word < 3; word++) {
        LAUNCH(set.stream, FEW_POINTERS, gather_few, out, pointers, word);
        expect_gathered(&set, out, FEW_POINTERS, word, "400 pointers by value");
    }
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after 400 pointers");
}

static void case_many_pointers(void)
{
    struct span_set set = new_span_set();
    static struct many_pointers pointers;
    uint32_t *out = new_span();

    for (size_t i = 0; i < MANY_POINTERS; i++)
        pointers.in[i] = set.span[i % span_count];
    for (size_t word = 0; word < 3; word++) {
        LAUNCH(set.stream, MANY_POINTERS, gather_many, pointers, word, out);
        expect_gathered(&set, out, MANY_POINTERS, word, "600 pointers by value");
    }
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after 600 pointers");
}

static void case_pointer_table(void)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    void *table = nullptr;

    CHECK(cudaMalloc(&table, sizeof(set.span)));
    CHECK(cudaMemcpyAsync(table, set.span, sizeof(set.span), cudaMemcpyHostToDevice, set.stream));
    for (size_t word = 0; word < 3; word++) {
        LAUNCH(set.stream, span_count, gather_by_table, out, static_cast<const uint32_t *const *>(table), span_count,
               word);
        expect_gathered(&set, out, span_count, word, "a table of pointers in device memory");
        /* An unrelated launch, after which the table's spans are those idle longest. */
        LAUNCH(set.stream, span_words(), fill_words, out, 1, 0, span_words());
    }
    CHECK(cudaFree(table));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after a table of pointers");
}

/*
 * Pointers at the beginning of a long copy. torch's chunk_cat has them there, ahead of an index for
 * each block of its grid.
 */
static void case_long_table(void)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();

    for (size_t bytes : {(size_t)1 << 20, (size_t)6 << 20}) {
        void *table = nullptr, *host = calloc(1, bytes);
        REQUIRE(host != nullptr, "no host memory");
        memcpy(host, set.span, sizeof(set.span));
        CHECK(cudaMalloc(&table, bytes));
        CHECK(cudaMemcpyAsync(table, host, bytes, cudaMemcpyHostToDevice, set.stream));
        for (size_t word = 0; word < 2; word++) {
            LAUNCH(set.stream, span_words(), fill_words, out, 1, 0, span_words());
            LAUNCH(set.stream, span_count, gather_by_table, out, static_cast<const uint32_t *const *>(table),
                   span_count, word);
            expect_gathered(&set, out, span_count, word, "a table of pointers at the beginning of a long copy");
        }
        CHECK(cudaFree(table));
        free(host);
    }
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after long tables");
}

/*
 * A table is freed, in stream order, ahead of the kernel that reads it, as torch's chunk_cat does.
 * CUDA's pool keeps the bytes as long as no other stream may take the memory. Meanwhile a second
 * stream asks for the same size and writes there.
 */
static void case_freed_table(void)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    cudaStream_t second = new_stream();
    cudaMemPool_t pool = nullptr;
    uint64_t keep = UINT64_MAX;
    int no = 0;

    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseFollowEventDependencies, &no));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &no));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &no));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    for (size_t turn = 0; turn < 6; turn++) {
        const size_t bytes = turn % 2 == 0 ? sizeof(set.span) : (size_t)6 << 20;
        void *table = nullptr, *other = nullptr, *host = calloc(1, bytes);
        REQUIRE(host != nullptr, "no host memory");
        memcpy(host, set.span, sizeof(set.span));
        CHECK(cudaMallocAsync(&table, bytes, set.stream));
        CHECK(cudaMemcpyAsync(table, host, bytes, cudaMemcpyHostToDevice, set.stream));
        CHECK(cudaFreeAsync(table, set.stream));
        LAUNCH(set.stream, span_count, gather_by_table, out, static_cast<const uint32_t *const *>(table), span_count,
               turn);
        CHECK(cudaMallocAsync(&other, bytes, second));
        LAUNCH(second, bytes / sizeof(uint32_t), fill_words, static_cast<uint32_t *>(other), 1, 0,
               bytes / sizeof(uint32_t));
        CHECK(cudaFreeAsync(other, second));
        expect_gathered(&set, out, span_count, turn, "a table that was freed ahead of the kernel that reads it");
        CHECK(cudaStreamSynchronize(second));
        free(host);
    }
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after freed tables");
}

static void case_copies(void)
{
    struct span_set set = new_span_set();
    uint32_t *pageable = static_cast<uint32_t *>(malloc(span_bytes));
    uint32_t *other = new_span();
    void *pinned = nullptr;

    REQUIRE(pageable != nullptr, "no host memory");
    CHECK(cudaMallocHost(&pinned, span_bytes));
    for (size_t i = 0; i < span_count; i++) {
        const uint32_t salt = static_cast<uint32_t>(i);
        const size_t half = span_words() / 2;

        /*
         * device to pinned host in the default direction, and back to the second half of another
         * span in an explicit one
         */
        CHECK(cudaMemcpyAsync(pinned, set.span[i], span_bytes, cudaMemcpyDefault, set.stream));
        CHECK(cudaMemsetAsync(other, 0xff, span_bytes, set.stream));
        CHECK(cudaMemcpyAsync(other + half, static_cast<uint32_t *>(pinned) + half, half * sizeof(uint32_t),
                              cudaMemcpyHostToDevice, set.stream));
        /* device to device, between interior pointers */
        CHECK(cudaMemcpyAsync(other + 3, set.span[i] + 3, (half - 3) * sizeof(uint32_t), cudaMemcpyDeviceToDevice,
                              set.stream));
        CHECK(cudaMemcpyAsync(other, set.span[i], 3 * sizeof(uint32_t), cudaMemcpyDefault, set.stream));
        expect_words(other, salt, 0, span_words(), set.stream, "a span pieced together by copies");
        /* synchronous calls, to and from pageable memory */
        CHECK(cudaMemcpy(pageable, other, span_bytes, cudaMemcpyDeviceToHost));
        expect(wrong_words(pageable, salt, 0, span_words()) == 0, "cudaMemcpy to pageable memory gave wrong words");
        CHECK(cudaMemset(set.span[i], 0, span_bytes));
        CHECK(cudaMemcpy(set.span[i], pageable, span_bytes, cudaMemcpyHostToDevice));
        /* The synchronous calls ran on the default stream, for which set.stream doesn't wait. */
        CHECK(cudaDeviceSynchronize());
        /* two dimensions, in place: rows of 1,000 words, 1,024 words apart */
        CHECK(cudaMemcpy2DAsync(other, 4096, set.span[i], 4096, 4000, span_bytes / 4096, cudaMemcpyDeviceToDevice,
                                set.stream));
        expect_words(other, salt, 0, span_words(), set.stream, "a span after copied rows");
    }
    CHECK(cudaFree(other));
    CHECK(cudaFreeHost(pinned));
    free(pageable);
    check_and_free_spans(&set, "after copies");
}

/*
 * Copies that may read their source at once, whatever the stream waits for. No queued work uses the
 * source.
 */
static void case_copies_ahead(void)
{
    struct span_set set = new_span_set();
    uint32_t *other = new_span();
    const auto copy = reinterpret_cast<__typeof__(&cuMemcpyBatchAsync)>(
        dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuMemcpyBatchAsync_v2"));
    CUmemcpyAttributes orders[2] = {};
    size_t half = span_bytes / 2, first[2] = {0, 1}, sizes[2] = {half, half};

    if (copy == nullptr) {
        printf("skip: cuMemcpyBatchAsync is not there\n");
        exit(EXIT_SKIP);
    }
    orders[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    orders[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
    CHECK(cudaStreamSynchronize(set.stream));
    for (size_t i = 0; i < 2 * span_count; i++) {
        const CUdeviceptr to = reinterpret_cast<CUdeviceptr>(other),
                          from = reinterpret_cast<CUdeviceptr>(set.span[i % span_count]);
        CUdeviceptr targets[2] = {to, to + half}, sources[2] = {from, from + half};
        const CUresult result = copy(targets, sources, sizes, 2, orders, first, 2, set.stream);

        if (expect(result == CUDA_SUCCESS, "cuMemcpyBatchAsync: %d", result))
            expect_words(other, static_cast<uint32_t>(i % span_count), 0, span_words(), set.stream,
                         "a copy ahead of its stream");
    }
    CHECK(cudaFree(other));
    check_and_free_spans(&set, "after copies ahead of their stream");
}

/* Memory is freed while a kernel still writes it. The next owner must not see those writes. */
static void case_free_in_use(void)
{
    cudaStream_t first = new_stream();
    cudaStream_t second = new_stream();

    for (uint32_t turn = 0; turn < 2 * span_count; turn++) {
        uint32_t *old = new_span();

        LAUNCH(first, span_words(), fill_words, old, turn, 0, span_words());
        CHECK(cudaFree(old));

        uint32_t *fresh = new_span();

        LAUNCH(second, span_words(), fill_words, fresh, turn + 1000, 0, span_words());
        CHECK(cudaStreamSynchronize(first));
        expect_words(fresh, turn + 1000, 0, span_words(), second,
                     "memory that another stream still wrote when it was freed");
        CHECK(cudaFree(fresh));
    }
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}

/* Memory is freed while a kernel still reads it; the reader must see the old words. */
static void case_free_while_read(void)
{
    cudaStream_t first = new_stream();
    cudaStream_t second = new_stream();
    uint32_t *copy = new_span();

    for (uint32_t turn = 0; turn < 2 * span_count; turn++) {
        uint32_t *old = new_span();

        LAUNCH(first, span_words(), fill_words, old, turn, 0, span_words());
        LAUNCH(first, span_words(), copy_words, copy, old, span_words());
        CHECK(cudaFree(old));

        uint32_t *fresh = new_span();

        LAUNCH(second, span_words(), fill_words, fresh, turn + 1000, 0, span_words());
        CHECK(cudaStreamSynchronize(second));
        expect_words(copy, turn, 0, span_words(), first, "a copy of memory that was freed after the copy was issued");
        CHECK(cudaFree(fresh));
    }
    CHECK(cudaFree(copy));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}

/* The same in stream order: memory is freed on one stream and allocated again on another. */
static void case_free_async_in_use(void)
{
    cudaStream_t stream[2] = {new_stream(), new_stream()};

    for (uint32_t turn = 0; turn < 2 * span_count; turn++) {
        const cudaStream_t first = stream[turn % 2];
        const cudaStream_t second = turn % 3 == 0 ? first : stream[1 - turn % 2];
        void *old = nullptr;
        void *fresh = nullptr;

        CHECK(cudaMallocAsync(&old, span_bytes, first));
        LAUNCH(first, span_words(), fill_words, static_cast<uint32_t *>(old), turn, 0, span_words());
        CHECK(cudaFreeAsync(old, first));
        CHECK(cudaMallocAsync(&fresh, span_bytes, second));
        LAUNCH(second, span_words(), fill_words, static_cast<uint32_t *>(fresh), turn + 1000, 0, span_words());
        CHECK(cudaStreamSynchronize(first));
        expect_words(static_cast<uint32_t *>(fresh), turn + 1000, 0, span_words(), second,
                     "memory freed and allocated on streams");
        CHECK(cudaFreeAsync(fresh, second));
    }
    CHECK(cudaStreamDestroy(stream[0]));
    CHECK(cudaStreamDestroy(stream[1]));
}

/*
 * A stream is destroyed while its work runs. The work still completes, and its memory gets other
 * users later.
 */
static void case_stream_destroy(void)
{
    struct span_set set = new_span_set();

    for (size_t turn = 0; turn < 2 * span_count; turn++) {
        const size_t i = turn % span_count;
        cudaStream_t brief = new_stream();

        CHECK(cudaStreamSynchronize(set.stream));
        LAUNCH(brief, span_words(), add_to_words, set.span[i], 1, span_words());
        LAUNCH(brief, span_words(), add_to_words, set.span[i], UINT32_MAX, span_words());
        CHECK(cudaStreamDestroy(brief));
        CHECK(cudaDeviceSynchronize());
    }
    check_and_free_spans(&set, "after streams were destroyed with work under way");
}

/* The default stream and the blocking streams wait for each other without any event. */
static void case_default_stream(void)
{
    struct span_set set = new_span_set();
    cudaStream_t blocking = nullptr;

    CHECK(cudaStreamCreate(&blocking));
    CHECK(cudaStreamSynchronize(set.stream));
    for (size_t turn = 0; turn < 2 * span_count; turn++) {
        uint32_t *span = set.span[turn % span_count];

        LAUNCH(blocking, span_words(), fill_words, span, static_cast<uint32_t>(turn), 0, span_words());
        LAUNCH(cudaStreamLegacy, span_words(), add_to_words, span, 5, span_words());
        LAUNCH(blocking, span_words(), add_to_words, span, UINT32_MAX - 4, span_words());
        LAUNCH(nullptr, span_words(), add_to_words, span, 9, span_words());
        LAUNCH(cudaStreamPerThread, span_words(), add_to_words, span, UINT32_MAX - 8, span_words());
        expect_words(span, static_cast<uint32_t>(turn), 0, span_words(), cudaStreamPerThread,
                     "work on default and blocking streams");
        LAUNCH(blocking, span_words(), fill_words, span, static_cast<uint32_t>(turn % span_count), 0, span_words());
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamDestroy(blocking));
    check_and_free_spans(&set, "after default streams");
}

#endif
