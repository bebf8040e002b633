/*
 * Cases of `hostile`: memory that kernels find through pointers on the device. Part of hostile.cu,
 * after hostile_access.h.
 */
#ifndef PENSTOCK_SAMPLES_HOSTILE_TABLES_H
#define PENSTOCK_SAMPLES_HOSTILE_TABLES_H

/* The kernel's view of a CUtensorMap: 128 bytes, which begin with the address of the tensor. */
struct alignas(64) tensor_map {
    const uint32_t *tensor;
    uint64_t rest[15];
};

KERNEL(copy_by_map, (uint32_t *__restrict__ out, const struct tensor_map map, size_t count), (out, map, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = map.tensor[i];
}

KERNEL(copy_by_map_in_memory, (uint32_t *__restrict__ out, const struct tensor_map *map, size_t count),
       (out, map, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = map->tensor[i];
}

/* out[i] must be word 5 of span span[i]. */
static void expect_from_spans(const struct span_set *set, uint32_t *out, const size_t *span, size_t pointers,
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

static void expect_through_table(const struct span_set *set, uint32_t *out, const uint32_t *const *table,
                                 const size_t *span, size_t pointers, const char *what)
{
    crowd_out(set);
    LAUNCH(set->stream, pointers, gather_by_table, out, table, pointers, 5);
    expect_from_spans(set, out, span, pointers, what);
}

static size_t around(size_t span)
{
    return span % span_count;
}

/* Launches kernels that name other spans. */
static void launch_others(const struct span_set *set, size_t turn, size_t count)
{
    for (size_t i = 0; i < count; i++)
        LAUNCH(set->stream, 1, add_to_words, set->span[around(turn + 2 + i)], 0, 1);
}

/* Leaves one launch of a grace of four. */
static void launch_three(const struct span_set *set, size_t turn)
{
    launch_others(set, turn, 3);
}

/* Captures four launches, which never run, and launches two. */
static void capture_and_launch(const struct span_set *set, size_t turn)
{
    cudaGraph_t graph = nullptr;

    CHECK(cudaStreamBeginCapture(set->stream, cudaStreamCaptureModeThreadLocal));
    launch_others(set, turn, 4);
    CHECK(cudaStreamEndCapture(set->stream, &graph));
    CHECK(cudaGraphDestroy(graph));
    launch_others(set, turn, 2);
}

/* The last launch of a grace uses a table and needs room for its other argument. */
static void use_at_end_of_grace(void (*meanwhile)(const struct span_set *set, size_t turn))
{
    const uint64_t mask = 0x5555555555555555ull;
    struct span_set set = new_span_set();
    uint64_t *table = nullptr;

    CHECK(cudaMalloc(&table, 2 * sizeof(*table)));
    for (size_t turn = 0; turn < 4 * span_count; turn++) {
        const size_t a = around(turn), b = around(turn + 1), out = around(turn + 7);
        uint32_t host[2];

        LAUNCH(set.stream, 2, write_disguised_pair, table, set.span[a], set.span[b], mask, 2);
        meanwhile(&set, turn);
        LAUNCH(set.stream, 2, gather_disguised, set.span[out], table, mask, 2);
        CHECK(cudaMemcpyAsync(host, set.span[out], sizeof(host), cudaMemcpyDeviceToHost, set.stream));
        CHECK(cudaStreamSynchronize(set.stream));
        expect(host[0] == word_at(static_cast<uint32_t>(a), 0) && host[1] == word_at(static_cast<uint32_t>(b), 0),
               "turn %zu: words found by a table are wrong", turn);
        LAUNCH(set.stream, 2, fill_words, set.span[out], static_cast<uint32_t>(out), 0, 2);
    }
    CHECK(cudaFree(table));
    check_and_free_spans(&set, "after tables that are used at the end of a grace");
}

static void case_table_grace_end(void)
{
    use_at_end_of_grace(launch_three);
}

static void case_table_beside_capture(void)
{
    use_at_end_of_grace(capture_and_launch);
}

static void case_table_changes(void)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    const uint32_t **table = nullptr, **pinned = nullptr;
    const size_t bytes = 4 * sizeof(*table);

    CHECK(cudaMallocHost(&pinned, bytes));
    for (size_t turn = 0; turn < span_count; turn++) {
        size_t span[4];

        CHECK(cudaMalloc(&table, 4 * bytes));
        for (size_t i = 0; i < 4; i++)
            span[i] = (turn + i) % span_count;
        for (size_t i = 0; i < 4; i++)
            pinned[i] = set.span[span[i]];
        /* From pinned memory, in the default direction, into the middle of the block. */
        CHECK(cudaMemcpyAsync(table + 4, pinned, bytes, cudaMemcpyDefault, set.stream));
        expect_through_table(&set, out, table + 4, span, 4, "a table");
        /* One pointer inside the table, by a synchronous call. */
        span[1] = (turn + 5) % span_count;
        const uint32_t *one = set.span[span[1]];
        CHECK(cudaMemcpy(table + 5, &one, sizeof(one), cudaMemcpyHostToDevice));
        CHECK(cudaStreamSynchronize(cudaStreamLegacy)); /* the call returns when ordinary memory has been read */
        expect_through_table(&set, out, table + 4, span, 4, "a table that was changed in its middle");
        /* The second half alone. */
        expect_through_table(&set, out, table + 6, span + 2, 2, "the second half of a table");
        /* Two halves, copied one after the other. */
        CHECK(cudaMemsetAsync(table + 4, 0, bytes, set.stream));
        CHECK(cudaMemcpyAsync(table + 2, pinned + 2, bytes / 2, cudaMemcpyHostToDevice, set.stream));
        CHECK(cudaMemcpyAsync(table, pinned, bytes / 2, cudaMemcpyHostToDevice, set.stream));
        span[1] = (turn + 1) % span_count;
        expect_through_table(&set, out, table, span, 4, "a table that came in two pieces");
        CHECK(cudaFree(table));
    }
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after tables that change");
}

/* A structure of the program's on the device, with pointers between numbers. */
struct device_record {
    uint64_t turn;
    const uint32_t *first;
    uint64_t number;
    const uint32_t *second;
};

KERNEL(gather_by_record, (uint32_t *__restrict__ out, const struct device_record *record, size_t count),
       (out, record, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = (record->first != nullptr ? record->first[i] : 0) + record->second[i] + record->turn;
}

/* The words are the sums of two spans' words and of the turn. */
static void expect_by_record(const struct span_set *set, uint32_t *out, const struct device_record *record,
                             const struct device_record &now, size_t first, size_t second, const char *what)
{
    uint32_t host[8];
    size_t wrong = 0;

    crowd_out(set);
    LAUNCH(set->stream, 8, gather_by_record, out, record, static_cast<size_t>(8));
    CHECK(cudaMemcpyAsync(host, out, sizeof(host), cudaMemcpyDeviceToHost, set->stream));
    CHECK(cudaStreamSynchronize(set->stream));
    for (size_t i = 0; i < 8; i++)
        wrong += host[i] != (now.first != nullptr ? word_at(static_cast<uint32_t>(first), i) : 0) +
                                word_at(static_cast<uint32_t>(second), i) + static_cast<uint32_t>(now.turn);
    expect(wrong == 0, "%s: %zu of 8 words are wrong", what, wrong);
}

/* The stream writes the address. Returns false if the device can't. */
static bool write_address(cudaStream_t stream, const uint32_t **to, const uint32_t *address, bool by_batch)
{
    const auto write = reinterpret_cast<__typeof__(&cuStreamWriteValue64)>(
        dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuStreamWriteValue64_v2"));
    const auto batch = reinterpret_cast<__typeof__(&cuStreamBatchMemOp)>(
        dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuStreamBatchMemOp_v2"));
    CUstreamBatchMemOpParams params = {};

    if (write == nullptr || batch == nullptr)
        return false;
    params.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    params.writeValue.address = reinterpret_cast<CUdeviceptr>(to);
    params.writeValue.value64 = reinterpret_cast<cuuint64_t>(address);
    const CUresult result = by_batch ? batch(stream, 1, &params, 0)
                                     : write(stream, params.writeValue.address, params.writeValue.value64, 0);
    REQUIRE(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_SUPPORTED, "a write of the stream: %d", result);
    return result == CUDA_SUCCESS;
}

/* Structures whose fields are copied one by one. Kernels are given the address of the structure. */
static void case_table_fields(void)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    struct device_record *record = nullptr, *other = nullptr, now = {};

    CHECK(cudaMalloc(&other, sizeof(*other)));
    for (size_t turn = 0; turn < span_count; turn++) {
        const size_t first = around(turn), second = around(turn + 1);

        CHECK(cudaMalloc(&record, sizeof(*record)));
        now = {turn, nullptr, 5, nullptr};
        CHECK(cudaMemcpyAsync(record, &now, sizeof(now), cudaMemcpyHostToDevice, set.stream));
        now.first = set.span[first];
        now.second = set.span[second];
        CHECK(cudaMemcpyAsync(&record->first, &now.first, sizeof(now.first), cudaMemcpyHostToDevice, set.stream));
        CHECK(cudaMemcpyAsync(&record->second, &now.second, sizeof(now.second), cudaMemcpyHostToDevice, set.stream));
        expect_by_record(&set, out, record, now, first, second, "pointers that were copied one by one");
        CHECK(cudaMemcpyAsync(other, record, sizeof(*record), cudaMemcpyDeviceToDevice, set.stream));
        expect_by_record(&set, out, other, now, first, second, "a copy of the structure");
        /* The whole at once; then the numbers before and between the pointers. */
        CHECK(cudaMemcpyAsync(record, &now, sizeof(now), cudaMemcpyHostToDevice, set.stream));
        now.turn = 100 + turn;
        CHECK(cudaMemcpyAsync(&record->turn, &now.turn, sizeof(now.turn), cudaMemcpyHostToDevice, set.stream));
        expect_by_record(&set, out, record, now, first, second, "after a write to the structure's first field");
        CHECK(cudaMemsetAsync(&record->number, 0, sizeof(record->number), set.stream));
        expect_by_record(&set, out, record, now, first, second, "after a fill between its pointers");
        const size_t third = around(turn + 3);
        if (write_address(set.stream, &record->first, set.span[third], turn % 2 != 0)) {
            now.first = set.span[third];
            expect_by_record(&set, out, record, now, third, second, "after the stream wrote a pointer");
        }
        now.first = nullptr;
        CHECK(cudaMemcpyAsync(&record->first, &now.first, sizeof(now.first), cudaMemcpyHostToDevice, set.stream));
        expect_by_record(&set, out, record, now, first, second, "after its first pointer became null");
        CHECK(cudaFree(record));
    }
    CHECK(cudaFree(other));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after structures that are copied field by field");
}

/* Tables that are copied in rows, and then copied again on the device. */
static void case_table_moves(void)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    const uint32_t **table = nullptr, **other = nullptr, **pinned = nullptr;
    const size_t word = sizeof(*table), bytes = 4 * word;

    CHECK(cudaMallocHost(&pinned, bytes));
    CHECK(cudaMalloc(&table, 4 * bytes));
    CHECK(cudaMalloc(&other, 4 * bytes));
    for (size_t turn = 0; turn < span_count; turn++) {
        size_t span[4];

        for (size_t i = 0; i < 4; i++) {
            span[i] = (turn + i) % span_count;
            pinned[i] = set.span[span[i]];
        }
        CHECK(cudaMemcpy2DAsync(table + 4, 2 * bytes, pinned, bytes, bytes, 1, cudaMemcpyDefault, set.stream));
        expect_through_table(&set, out, table + 4, span, 4, "a table that is one row");
        /* Two halves, apart on the device. */
        CHECK(cudaMemcpy2DAsync(table, bytes, pinned, 2 * word, 2 * word, 2, cudaMemcpyHostToDevice, set.stream));
        expect_through_table(&set, out, table, span, 2, "the first row of a table");
        expect_through_table(&set, out, table + 4, span + 2, 2, "the second row of a table");
        /* Copied on from there in one row. The source is then overwritten. */
        CHECK(cudaMemcpyAsync(table + 2, table + 4, 2 * word, cudaMemcpyDefault, set.stream));
        CHECK(cudaMemcpyAsync(other + 3, table, bytes, cudaMemcpyDeviceToDevice, set.stream));
        CHECK(cudaMemsetAsync(table, 0, 4 * bytes, set.stream));
        expect_through_table(&set, out, other + 3, span, 4, "a table that was copied on the device");
        CHECK(cudaMemcpy2DAsync(table + 8, bytes, other + 3, 2 * word, 2 * word, 2, cudaMemcpyDeviceToDevice,
                                set.stream));
        expect_through_table(&set, out, table + 12, span + 2, 2, "a row that was copied on the device");
        /* Two slices, each of one row of two pointers. */
        struct cudaMemcpy3DParms box = {};
        box.srcPtr = make_cudaPitchedPtr(pinned, 2 * word, 2 * word, 1);
        box.dstPtr = make_cudaPitchedPtr(table, 3 * word, 3 * word, 2);
        box.extent = make_cudaExtent(2 * word, 1, 2);
        box.kind = cudaMemcpyHostToDevice;
        CHECK(cudaMemcpy3DAsync(&box, set.stream));
        expect_through_table(&set, out, table, span, 2, "the first slice of a table");
        expect_through_table(&set, out, table + 6, span + 2, 2, "the second slice of a table");
    }
    CHECK(cudaFree(table));
    CHECK(cudaFree(other));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after tables that are copied on");
}

/* A structure by value that leads to a table. */
struct table_view {
    uint32_t count, word;
    const uint32_t *const *table;
};

KERNEL(gather_by_view, (uint32_t *__restrict__ out, struct table_view view), (out, view))
{
    FOR_EACH_ITEM (i, view.count)
        out[i] = view.table[i][view.word];
}

/*
 * Kernels read a table in pinned memory, which the host wrote there without any call. `by_view`: a
 * structure leads to it.
 */
static void table_on_the_host(bool by_view, const char *what)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    const uint32_t **table = nullptr;
    size_t span[4];

    CHECK(cudaMallocHost(&table, 8 * sizeof(*table)));
    for (size_t turn = 0; turn < span_count; turn++) {
        for (size_t i = 0; i < 4; i++) {
            span[i] = around(turn + i);
            table[3 + i] = set.span[span[i]];
        }
        /* All back on the device: spans that its first launch finds away stay within reach. */
        for (auto each : set.span)
            if (each != nullptr)
                LAUNCH(set.stream, 1, copy_words, out, each, 1);
        crowd_out(&set);
        if (by_view)
            LAUNCH(set.stream, 4, gather_by_view, out, table_view{4, 5, table + 3});
        else
            LAUNCH(set.stream, 4, gather_by_table, out, table + 3, 4, 5);
        expect_from_spans(&set, out, span, 4, what);
    }
    CHECK(cudaFreeHost(table));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, what);
}

static void case_host_table(void)
{
    table_on_the_host(false, "a table in host memory");
}

static void case_host_view(void)
{
    table_on_the_host(true, "a table in host memory, which a structure leads to");
}

/* `in_graph`: the kernel reads a copy of the table, in memory that the captured graph allocates. */
static void table_in_graph(bool in_graph)
{
    struct span_set set = new_span_set();
    uint32_t *out = new_span();
    void *table = nullptr, *read = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    const size_t pointers = span_count < 4 ? span_count : 4;

    CHECK(cudaMalloc(&table, sizeof(set.span)));
    CHECK(cudaMemcpyAsync(table, set.span, sizeof(set.span), cudaMemcpyHostToDevice, set.stream));
    CHECK(cudaStreamSynchronize(set.stream));
    CHECK_OR_SKIP(cudaStreamBeginCapture(set.stream, cudaStreamCaptureModeGlobal));
    if (in_graph) {
        CHECK(cudaMallocAsync(&read, sizeof(set.span), set.stream));
        CHECK(cudaMemcpyAsync(read, table, sizeof(set.span), cudaMemcpyDeviceToDevice, set.stream));
    }
    LAUNCH(set.stream, pointers, gather_by_table, out, static_cast<const uint32_t *const *>(in_graph ? read : table),
           pointers, 7);
    if (in_graph)
        CHECK(cudaFreeAsync(read, set.stream));
    CHECK(cudaStreamEndCapture(set.stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (size_t turn = 0; turn < 3; turn++) {
        LAUNCH(set.stream, span_words(), fill_words, out, 1, 0, span_words());
        crowd_out(&set);
        CHECK(cudaGraphLaunch(executable, set.stream));
        expect_gathered(&set, out, pointers, 7, "a table that a graph's kernel is given");
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaFree(table));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after a table in a graph");
}

static void case_table_graph(void)
{
    table_in_graph(false);
}

static void case_table_graph_memory(void)
{
    table_in_graph(true);
}

static void case_tensor_map(void)
{
    struct span_set set = new_span_set();
    const size_t words = span_words() / 4;
    uint32_t *out = new_span();
    struct tensor_map *in_memory = nullptr;

    CHECK(cudaMalloc(&in_memory, sizeof(*in_memory)));
    for (size_t i = 0; i < span_count; i++) {
        struct tensor_map map = {};

        map.tensor = set.span[i] + words; /* a view */
        CHECK(cudaMemcpyAsync(in_memory, &map, sizeof(map), cudaMemcpyHostToDevice, set.stream));
        crowd_out(&set);
        LAUNCH(set.stream, words, copy_by_map, out, map, words);
        expect_words(out, static_cast<uint32_t>(i), words, words, set.stream, "through a tensor map by value");
        crowd_out(&set);
        LAUNCH(set.stream, words, copy_by_map_in_memory, out, in_memory, words);
        expect_words(out, static_cast<uint32_t>(i), words, words, set.stream, "through a tensor map in memory");
    }
    CHECK(cudaFree(in_memory));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after tensor maps");
}

/*
 * Fetches a word of a texture over linear memory. The kernel gets a small number; no parameter
 * holds the address.
 */
static __host__ __device__ inline uint32_t texture_word(cudaTextureObject_t texture, size_t index)
{
#ifdef __CUDA_ARCH__
    return tex1Dfetch<unsigned int>(texture, static_cast<int>(index));
#else
    static __typeof__(&cudasim_texture) simulated; /* only the simulated driver has it */

    if (!simulated)
        simulated = reinterpret_cast<__typeof__(simulated)>(
            dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cudasim_texture"));
    return static_cast<const uint32_t *>(simulated(texture))[index];
#endif
}

KERNEL(copy_by_texture, (uint32_t *__restrict__ out, cudaTextureObject_t texture, size_t first, size_t count),
       (out, texture, first, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = texture_word(texture, first + i);
}

static cudaTextureObject_t new_texture(uint32_t *span, bool in_rows)
{
    struct cudaResourceDesc resource = {};
    struct cudaTextureDesc words = {};
    cudaTextureObject_t texture = 0;

    words.readMode = cudaReadModeElementType;
    if (in_rows) {
        resource.resType = cudaResourceTypePitch2D;
        resource.res.pitch2D.devPtr = span;
        resource.res.pitch2D.desc = cudaCreateChannelDesc<unsigned int>();
        resource.res.pitch2D.width = 1024;
        resource.res.pitch2D.height = 64;
        resource.res.pitch2D.pitchInBytes = 4096;
    } else {
        resource.resType = cudaResourceTypeLinear;
        resource.res.linear.devPtr = span;
        resource.res.linear.desc = cudaCreateChannelDesc<unsigned int>();
        resource.res.linear.sizeInBytes = span_bytes;
    }
    CHECK_OR_SKIP(cudaCreateTextureObject(&texture, &resource, &words, nullptr));
    return texture;
}

/* Textures over spans that are resident or away, read while the spans push each other out. */
static void case_texture(void)
{
    struct span_set set = new_span_set();
    const size_t words = span_words() / 4;
    uint32_t *out = new_span();

    for (size_t turn = 0; turn < span_count; turn++) {
        const cudaTextureObject_t texture = new_texture(set.span[turn], false),
                                  rows = new_texture(set.span[(turn + 1) % span_count], true);

        for (size_t round = 0; round < 3; round++) {
            const uint32_t salt = static_cast<uint32_t>(turn + round);

            /* Words written through the address must be visible through the texture. */
            LAUNCH(set.stream, span_words(), fill_words, set.span[turn], salt, 0, span_words());
            crowd_out(&set);
            LAUNCH(set.stream, words, copy_by_texture, out, texture, words + 1, words);
            expect_words(out, salt, words + 1, words, set.stream, "through a texture");
        }
        LAUNCH(set.stream, span_words(), fill_words, set.span[turn], static_cast<uint32_t>(turn), 0, span_words());
        CHECK(cudaStreamSynchronize(set.stream));
        CHECK(cudaDestroyTextureObject(texture));
        CHECK(cudaDestroyTextureObject(rows));
    }
    /*
     * The memory is freed before its texture, and then reused by a span that has a texture of its
     * own.
     */
    const cudaTextureObject_t former = new_texture(out, false);
    CHECK(cudaFree(out));
    uint32_t *other = new_span();
    out = new_span();
    LAUNCH(set.stream, span_words(), fill_words, other, 7, 0, span_words());
    const cudaTextureObject_t texture = new_texture(other, false);
    CHECK(cudaDestroyTextureObject(former));
    crowd_out(&set);
    for (size_t i = 0; i < span_count; i++)
        expect_words(set.span[i], static_cast<uint32_t>(i), 0, span_words(), set.stream, "beside a texture");
    LAUNCH(set.stream, words, copy_by_texture, out, texture, 0, words);
    expect_words(out, 7, 0, words, set.stream, "through a texture of memory that had another");
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFree(other));
    CHECK(cudaFree(out));
    check_and_free_spans(&set, "after textures");
}

#endif
