/*
 * Structures of tables on the device, at random:
 *
 *     structures SEED [ROUNDS [graphs] [contexts] [mixed] [direct] [large]]
 *
 * Three structures have four tables each. A kernel of its own writes the tables at each place. In
 * each round (of 150) one table is written, or a structure is copied on the device, cleared, or
 * allocated anew in stream order. Then kernels use other spans, and one uses two spans by a table.
 * It is given the structure, or the table itself.
 *
 *     graphs    some writes and copies are captured, and launched once as a graph
 *     contexts  contexts come and go
 *     mixed     tables are also copied from the host, whole or a pointer alone, and from one place
 *               to another; the work goes on on a second stream
 *     direct    kernels are given the tables themselves only
 *     large     spans of 4 MiB, as a GPU needs them, instead of 4 KiB
 *
 * Prints "ok" if all words were right.
 */
#include "green.h"

#include "hostile.h"

#define STRUCTURES 3
#define PLACES 4
#define STRIDE 32 /* pointers from one place to the next */
#define BYTES (PLACES * STRIDE * sizeof(void *))
#define TENSORS 10
#define SPAN_BYTES 4096u
#define LARGE_BYTES (4u << 20)
#define WORD 5 /* of each span that is used through a table */

#define MAKER(name)                                                                                                    \
    KERNEL(name, (const uint32_t **table, const uint32_t *a, const uint32_t *b, size_t count), (table, a, b, count))   \
    {                                                                                                                  \
        FOR_EACH_ITEM (i, count)                                                                                       \
            table[i] = i == 0 ? a : b;                                                                                 \
    }

MAKER(write_first)
MAKER(write_second)
MAKER(write_third)
MAKER(write_fourth)

KERNEL(gather_by_table, (uint32_t *__restrict__ out, const uint32_t *const *table, size_t pointers, size_t word),
       (out, table, pointers, word))
{
    FOR_EACH_ITEM (i, pointers)
        out[i] = table[i][word];
}

KERNEL(gather_inside,
       (uint32_t *__restrict__ out, const uint32_t *const *structure, size_t first, size_t pointers, size_t word),
       (out, structure, first, pointers, word))
{
    FOR_EACH_ITEM (i, pointers)
        out[i] = structure[first + i][word];
}

/* What a table holds. */
struct pair {
    bool is;
    size_t a, b;
};

static struct {
    bool graphs, contexts, mixed, direct, large;
} mode;

static struct {
    uint64_t state;
    cudaStream_t stream[2], now;
    uint32_t *span[TENSORS], *out;
    const uint32_t **structure[STRUCTURES];
    struct pair holds[STRUCTURES][PLACES];
} here;

static size_t below(size_t bound)
{
    here.state = mix_bits(here.state + 1);
    return static_cast<size_t>(here.state % bound);
}

static struct pair any_pair(void)
{
    const size_t a = below(TENSORS);

    return {true, a, (a + 1 + below(TENSORS - 1)) % TENSORS};
}

static void write_table(size_t place, const uint32_t **table, const struct pair *pair)
{
    const uint32_t *a = here.span[pair->a], *b = here.span[pair->b];

    if (place == 0)
        LAUNCH(here.now, 2, write_first, table, a, b, 2);
    else if (place == 1)
        LAUNCH(here.now, 2, write_second, table, a, b, 2);
    else if (place == 2)
        LAUNCH(here.now, 2, write_third, table, a, b, 2);
    else
        LAUNCH(here.now, 2, write_fourth, table, a, b, 2);
}

static const uint32_t **table_at(size_t structure, size_t place)
{
    return here.structure[structure] + place * STRIDE;
}

static void copy(const uint32_t **to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    CHECK(cudaMemcpyAsync(to, from, bytes, kind, here.now));
}

/* ---- steps ---- */

static void write_by_kernel(size_t structure, size_t kernel, size_t place)
{
    here.holds[structure][place] = any_pair();
    write_table(kernel, table_at(structure, place), &here.holds[structure][place]);
}

static void copy_structure(size_t from, size_t to)
{
    copy(here.structure[to], here.structure[from], BYTES, cudaMemcpyDeviceToDevice);
    memcpy(here.holds[to], here.holds[from], sizeof(here.holds[to]));
}

static void forget(size_t structure)
{
    memset(here.holds[structure], 0, sizeof(here.holds[structure]));
}

static void copy_from_host(size_t structure, size_t place)
{
    const struct pair pair = any_pair();
    const uint32_t *pointers[2] = {here.span[pair.a], here.span[pair.b]};

    copy(table_at(structure, place), pointers, sizeof(pointers), cudaMemcpyHostToDevice);
    here.holds[structure][place] = pair;
}

static void copy_pointer_from_host(size_t structure, size_t place)
{
    struct pair *pair = &here.holds[structure][place];

    pair->b = any_pair().b;
    copy(table_at(structure, place) + 1, &here.span[pair->b], sizeof(void *), cudaMemcpyHostToDevice);
}

static void copy_table(size_t from, size_t from_place, size_t to, size_t to_place)
{
    copy(table_at(to, to_place), table_at(from, from_place), 2 * sizeof(void *), cudaMemcpyDeviceToDevice);
    here.holds[to][to_place] = here.holds[from][from_place];
}

static void change_stream(void)
{
    cudaEvent_t event = nullptr;

    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventRecord(event, here.now));
    here.now = here.stream[below(2)];
    CHECK(cudaStreamWaitEvent(here.now, event, 0));
    CHECK(cudaEventDestroy(event));
}

static void visit_context(void)
{
    CUcontext context = nullptr, popped = nullptr;

    DRIVER_CALL(cuCtxCreate_v4, &context, nullptr, 0, 0);
    DRIVER_CALL(cuCtxPopCurrent_v2, &popped);
    DRIVER_CALL(cuCtxDestroy_v2, context);
}

/* Work of both kinds can be captured. */
static void write_or_copy(size_t structure, size_t kernel, size_t place)
{
    const bool captured = mode.graphs && below(4) == 0;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;

    if (captured)
        CHECK(cudaStreamBeginCapture(here.now, cudaStreamCaptureModeGlobal));
    if (below(7) < 5)
        write_by_kernel(structure, kernel, place);
    else
        copy_structure(structure, (structure + 1) % STRUCTURES);
    if (!captured)
        return;
    CHECK(cudaStreamEndCapture(here.now, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, here.now));
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
}

static void take_a_step(void)
{
    const size_t structure = below(STRUCTURES), kernel = below(PLACES), step = below(mode.mixed ? 14 : 10);
    const size_t place = mode.mixed ? below(PLACES) : kernel;

    if (step < 7)
        write_or_copy(structure, kernel, place);
    else if (step == 7) {
        CHECK(cudaMemsetAsync(here.structure[structure], 0, BYTES, here.now));
        forget(structure);
    } else if (step == 8) {
        CHECK(cudaFreeAsync(here.structure[structure], here.now));
        CHECK(cudaMallocAsync(&here.structure[structure], BYTES, here.now));
        forget(structure);
    } else if (step == 9 && mode.contexts && below(3) == 0)
        visit_context();
    else if (step == 10)
        copy_from_host(structure, place);
    else if (step == 11 && here.holds[structure][place].is)
        copy_pointer_from_host(structure, place);
    else if (step == 12)
        copy_table(structure, place, (structure + 1) % STRUCTURES, kernel);
    else if (step == 13)
        change_stream();
}

static void use_a_table(size_t round)
{
    const size_t structure = below(STRUCTURES), place = below(PLACES);
    const struct pair pair = here.holds[structure][place];
    uint32_t host[2];

    if (!pair.is)
        return;
    if (mode.direct || below(2))
        LAUNCH(here.now, 2, gather_by_table, here.out, table_at(structure, place), 2, WORD);
    else
        LAUNCH(here.now, 2, gather_inside, here.out, here.structure[structure], place * STRIDE, 2, WORD);
    CHECK(cudaMemcpyAsync(host, here.out, sizeof(host), cudaMemcpyDeviceToHost, here.now));
    CHECK(cudaStreamSynchronize(here.now));
    expect(host[0] == word_at(static_cast<uint32_t>(pair.a), WORD) &&
               host[1] == word_at(static_cast<uint32_t>(pair.b), WORD),
           "round %zu: place %zu of structure %zu led to wrong words", round, place, structure);
}

static bool read_options(int argc, char **argv)
{
    for (int i = 3; i < argc; i++) {
        const struct {
            const char *name;
            bool *is;
        } options[] = {{"graphs", &mode.graphs},
                       {"contexts", &mode.contexts},
                       {"mixed", &mode.mixed},
                       {"direct", &mode.direct},
                       {"large", &mode.large}};
        bool found = false;
        for (const auto &option : options)
            if (strcmp(argv[i], option.name) == 0)
                *option.is = found = true;
        if (!found)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    const size_t rounds = argc > 2 ? strtoul(argv[2], nullptr, 10) : 150;

    if (argc < 2 || !read_options(argc, argv)) {
        fprintf(stderr, "usage: %s SEED [ROUNDS [graphs] [contexts] [mixed] [direct] [large]]\n", argv[0]);
        return 2;
    }
    here.state = mix_bits(strtoul(argv[1], nullptr, 10));
    span_bytes = mode.large ? LARGE_BYTES : SPAN_BYTES;
    for (cudaStream_t &stream : here.stream)
        stream = new_stream();
    here.now = here.stream[0];
    here.out = new_span();
    for (size_t i = 0; i < TENSORS; i++) {
        here.span[i] = new_span();
        LAUNCH(here.now, span_words(), fill_words, here.span[i], static_cast<uint32_t>(i), 0, span_words());
    }
    for (auto &structure : here.structure)
        CHECK(cudaMallocAsync(&structure, BYTES, here.now));
    for (size_t round = 0; round < rounds; round++) {
        take_a_step();
        for (size_t others = below(8); others > 0; others--)
            LAUNCH(here.now, 1, add_to_words, here.span[below(TENSORS)], 0, 1);
        if (below(3) == 0)
            CHECK(cudaStreamSynchronize(here.now));
        use_a_table(round);
    }
    CHECK(cudaDeviceSynchronize());
    for (auto &structure : here.structure)
        CHECK(cudaFree(structure));
    for (auto &span : here.span)
        CHECK(cudaFree(span));
    CHECK(cudaFree(here.out));
    if (failures > 0)
        return 1;
    printf("ok\n");
    return 0;
}
