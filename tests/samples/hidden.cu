/*
 * A small training whose kernels use memory that their parameters don't name, for `penstock
 * verify`:
 *
 *   hidden STEPS [WORD]...
 *
 *   table    in backward, reads an activation of layer 2 by a pointer in memory that a kernel wrote
 *   masked   the same, by a masked pointer, which no search of memory finds
 *   weights  in backward, reads the weights of layers 1 and 3 by a table that was made once, at the
 *            start
 *   wide     the same with a table of all weights
 *   mapped   in backward, reads an activation of layer 2 by a table in host memory, where the host
 *            wrote the address in the same step
 *   late     reads the last layer's activation by a masked pointer too, after all launches that
 *            name it and just before its free
 *   since    `mapped` begins with step 20
 *   graph    a graph does the reads of `table`, `masked` and `mapped`
 *   early    the table of `weights` is used before the first step too, and there is no training
 *   wild     in step 3 a kernel reads a GiB behind a weight, where no memory is
 *   quits    ends with status 3 in step 3
 *   differs  each run allocates and launches more ahead of the first step: once for each byte of
 *            the file `runs`, to which the run adds one byte
 *   stale    in some steps, without a lasting order, two small kernels get a weight's address in a
 *            structure and don't use it: it was left on the stack
 *   state    there is optimizer state, which only a kernel with a name of torch's gets
 *   kept     the same, and another kernel gets it before the first step
 *   soon     the same as `state`, and a kernel reads one by a masked pointer just after the kernel
 *            that gets it
 *   lists    the same, given as torch does: in a list, with former entries behind the used one
 *   cat      states, each concatenated with the gradient as torch does: in such a list, too
 *   large    spans of 32 MiB, as on a GPU, instead of 64 KiB. Larger ones would move in pieces,
 *            which are always within reach.
 *
 * Prints a hash of the weights after each step.
 */
#include "hostile.h"

#define LAYERS 8
#define MASK 0x5555555555555555ull

static struct {
    bool table, masked, late, weights, wide, mapped, since, graph, early, wild, quits, differs, stale, state, kept,
        soon, lists, cat, large;
} words;

static size_t width = 16384; /* words a span: 64 KiB */

KERNEL(forward, (uint32_t *__restrict__ out, const uint32_t *in, const uint32_t *weight, size_t count),
       (out, in, weight, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = in[i] * 3 + weight[i];
}

KERNEL(backward, (uint32_t *__restrict__ gradient, const uint32_t *activation, const uint32_t *weight, size_t count),
       (gradient, activation, weight, count))
{
    FOR_EACH_ITEM (i, count)
        gradient[i] = gradient[i] * 5 + (activation[i] ^ weight[i]);
}

KERNEL(update, (uint32_t *__restrict__ weight, const uint32_t *gradient, uint32_t layer, size_t count),
       (weight, gradient, layer, count))
{
    FOR_EACH_ITEM (i, count)
        weight[i] += gradient[i] >> layer;
}

KERNEL(loss, (uint32_t *__restrict__ gradient, const uint32_t *activation, size_t count), (gradient, activation, count))
{
    FOR_EACH_ITEM (i, count)
        gradient[i] = activation[i] * 7;
}

/* Adds the first word behind each pointer of a table to `sum`. */
KERNEL(peek, (uint32_t *__restrict__ sum, const uint64_t *table, uint64_t mask, size_t count),
       (sum, table, mask, count))
{
    FOR_EACH_ITEM (i, count)
        sum[i] += *reinterpret_cast<const uint32_t *>(table[i] ^ mask);
}

KERNEL(peek_at_weights, (uint32_t *__restrict__ sum, const uint64_t *table, size_t count), (sum, table, count))
{
    FOR_EACH_ITEM (i, count)
        sum[i] += *reinterpret_cast<const uint32_t *>(table[i]);
}

/*
 * Writes an address to memory. The kernel gets it in disguise, so that no look at copies and
 * parameters shows it.
 */
KERNEL(store_address, (uint64_t *__restrict__ table, uint64_t disguised, uint64_t mask, size_t count),
       (table, disguised, mask, count))
{
    FOR_EACH_ITEM (i, count)
        table[i] = disguised ^ mask;
}

/* Like torch's lists of tensors: `count` entries are used, and stale ones lie behind them. */
struct few_sums {
    uint32_t *sum[4];
    uint64_t count;
};

KERNEL(count_up, (struct few_sums sums, size_t count), (sums, count))
{
    FOR_EACH_ITEM (i, count)
        if (i < sums.count)
            *sums.sum[i] += 1;
}

/* at::native::multi_tensor_apply_kernel<int>, which updates parameters and state in torch. */
KERNEL(_ZN2at6native25multi_tensor_apply_kernelIiEEvv,
       (uint32_t *__restrict__ state, const uint32_t *gradient, size_t count), (state, gradient, count))
{
    FOR_EACH_ITEM (i, count)
        state[i] = state[i] * 3 + gradient[i];
}

/*
 * at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<1>>, with torch's structure:
 * each block of the grid works on a chunk of a tensor.
 */
#define CHUNK_WORDS 65536

struct tensor_list {
    uint32_t *address[110];
    int64_t words[110];
    unsigned char tensor_of_block[320];
    int chunk_of_block[320];
    int first;
};

KERNEL(_ZN2at6native25multi_tensor_apply_kernelINS0_18TensorListMetadataILi1EEEEEvv,
       (struct tensor_list list, const uint32_t *gradient, size_t count), (list, gradient, count))
{
    FOR_EACH_ITEM (i, count) {
        uint32_t *state = list.address[list.tensor_of_block[i / CHUNK_WORDS]];
        const size_t word = list.chunk_of_block[i / CHUNK_WORDS] * static_cast<size_t>(CHUNK_WORDS) + i % CHUNK_WORDS;
        state[word] = state[word] * 3 + gradient[word];
    }
}

/*
 * at::native::CatArrayBatchedCopy<at::native::OpaqueType<4>, unsigned int, 1, 128, 1>, with torch's
 * structure: the grid has a row for each input.
 */
struct cat_inputs {
    const uint32_t *input[128];
    unsigned offset[128], size[128], words[128];
    bool is_contiguous[128];
    unsigned sizes[4], strides[4];
};

KERNEL(_ZN2at6native19CatArrayBatchedCopyINS0_10OpaqueTypeILj4EEEjLi1ELi128ELi1EEEvv,
       (uint32_t * out, struct cat_inputs inputs, size_t count), (out, inputs, count))
{
    FOR_EACH_ITEM (i, 2 * count) /* all rows write the same words */
        out[i] = inputs.input[i / count][i % count];
}

struct training {
    cudaStream_t stream;
    uint32_t *weight[LAYERS], *state[LAYERS];
    uint32_t *input, *gradient, *sum;
    uint64_t *table, *weight_table, *state_table;
    uint64_t *mapped_table; /* a word for each step, so that the host need not wait for the device */
};

static uint32_t *new_memory(size_t count)
{
    void *memory = nullptr;

    CHECK(cudaMalloc(&memory, count * sizeof(uint32_t)));
    return static_cast<uint32_t *>(memory);
}

static uint32_t *new_words(const struct training *t, uint32_t salt)
{
    uint32_t *memory = new_memory(width);

    LAUNCH(t->stream, width, fill_words, memory, salt, 0, width);
    return memory;
}

static void store(const struct training *t, uint64_t *where, const uint32_t *memory, uint64_t mask)
{
    LAUNCH(t->stream, 1, store_address, where, reinterpret_cast<uint64_t>(memory) ^ MASK, MASK ^ mask, 1);
}

static void launch_peek(const struct training *t, const uint64_t *table, uint64_t mask)
{
    static cudaGraphExec_t executable;
    cudaGraph_t graph = nullptr;

    if (!words.graph) {
        LAUNCH(t->stream, 1, peek, t->sum, table, mask, 1);
        return;
    }
    if (executable == nullptr) {
        CHECK(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeGlobal));
        LAUNCH(t->stream, 1, peek, t->sum, table, mask, 1);
        CHECK(cudaStreamEndCapture(t->stream, &graph));
        CHECK(cudaGraphInstantiate(&executable, graph, 0));
        CHECK(cudaGraphDestroy(graph));
    }
    CHECK(cudaGraphLaunch(executable, t->stream));
}

static void peek_into(const struct training *t, unsigned step, const uint32_t *activation)
{
    const uint64_t mask = words.masked ? MASK : 0;

    if (words.table || words.masked) {
        store(t, t->table, activation, mask);
        launch_peek(t, t->table, mask);
    }
    if (words.mapped && step >= (words.since ? 20 : 0))
        launch_peek(t, words.graph ? t->mapped_table : t->mapped_table + step, 0);
    if (words.wide)
        LAUNCH(t->stream, LAYERS, peek_at_weights, t->sum, t->weight_table, LAYERS);
    else if (words.weights)
        LAUNCH(t->stream, 2, peek_at_weights, t->sum, t->weight_table, 2);
}

static void count_steps(const struct training *t, unsigned step)
{
    struct few_sums sums = {{t->sum + 2}, 1};

    if (step * 2654435761u >> 13 & 1)
        sums.sum[1] = t->weight[3];
    LAUNCH(t->stream, 4, count_up, sums, 4);
    LAUNCH(t->stream, 4, count_up, sums, 4);
}

static void print_hash(const struct training *t, unsigned step)
{
    static uint32_t *host;
    uint64_t hash = 14695981039346656037ull;

    if (host == nullptr)
        host = static_cast<uint32_t *>(malloc(width * sizeof(*host)));
    REQUIRE(host != nullptr, "no host memory");
    for (auto weight : t->weight) {
        CHECK(cudaMemcpyAsync(host, weight, width * sizeof(*host), cudaMemcpyDeviceToHost, t->stream));
        CHECK(cudaStreamSynchronize(t->stream));
        for (size_t i = 0; i < width; i++)
            hash = (hash ^ host[i]) * 1099511628211ull;
    }
    CHECK(cudaMemcpyAsync(host, t->sum, 2 * sizeof(uint32_t), cudaMemcpyDeviceToHost, t->stream));
    CHECK(cudaStreamSynchronize(t->stream));
    printf("step %u weights %016llx sum %08x\n", step, static_cast<unsigned long long>(hash), host[0] ^ host[1] << 1);
}

/* Updates one state, the first in the list. The other entries are the states before it. */
static void update_state_by_list(const struct training *t, unsigned layer)
{
    static struct tensor_list list;
    const unsigned chunks = static_cast<unsigned>((width + CHUNK_WORDS - 1) / CHUNK_WORDS);

    REQUIRE(chunks <= 320, "a state is larger than a launch");
    memmove(&list.address[1], &list.address[0], LAYERS * sizeof(list.address[0]));
    memmove(&list.words[1], &list.words[0], LAYERS * sizeof(list.words[0]));
    list.address[0] = t->state[layer];
    list.words[0] = static_cast<int64_t>(width);
    for (unsigned chunk = 0; chunk < chunks; chunk++) {
        list.tensor_of_block[chunk] = 0;
        list.chunk_of_block[chunk] = static_cast<int>(chunk);
    }
    _ZN2at6native25multi_tensor_apply_kernelINS0_18TensorListMetadataILi1EEEEEvv<<<chunks, KERNEL_BLOCK, 0,
                                                                                   t->stream>>>(list, t->gradient,
                                                                                                width);
    CHECK(cudaGetLastError());
}

/*
 * Updates the weight with gradient and state, concatenated. Behind them in the list are the states
 * before.
 */
static void update_by_both(const struct training *t, unsigned layer)
{
    static struct cat_inputs inputs;
    const unsigned blocks = static_cast<unsigned>((width + KERNEL_BLOCK - 1) / KERNEL_BLOCK);
    uint32_t *both = new_memory(2 * width);

    memmove(&inputs.input[2], &inputs.input[1], LAYERS * sizeof(inputs.input[0]));
    inputs.input[0] = t->gradient;
    inputs.input[1] = t->state[layer];
    _ZN2at6native19CatArrayBatchedCopyINS0_10OpaqueTypeILj4EEEjLi1ELi128ELi1EEEvv<<<dim3(blocks, 2), KERNEL_BLOCK, 0,
                                                                                    t->stream>>>(both, inputs, width);
    CHECK(cudaGetLastError());
    LAUNCH(t->stream, width, update, t->weight[layer], both + width, 1, width);
    CHECK(cudaFree(both));
}

static void train_step(const struct training *t, unsigned step)
{
    uint32_t *activation[LAYERS];

    for (unsigned l = 0; l < LAYERS; l++) {
        activation[l] = new_memory(width);
        LAUNCH(t->stream, width, forward, activation[l], l ? activation[l - 1] : t->input, t->weight[l], width);
    }
    if (words.mapped && words.graph)
        CHECK(cudaStreamSynchronize(t->stream)); /* the graph has one word for all steps */
    if (words.mapped)
        t->mapped_table[words.graph ? 0 : step] = reinterpret_cast<uint64_t>(activation[2]);
    if (words.stale)
        count_steps(t, step);
    LAUNCH(t->stream, width, loss, t->gradient, activation[LAYERS - 1], width);
    for (unsigned l = LAYERS; l-- > 0;) {
        LAUNCH(t->stream, width, backward, t->gradient, activation[l], t->weight[l], width);
        if (l == LAYERS - 2)
            peek_into(t, step, activation[2]);
        if (words.wild && step == 3 && l == 4)
            LAUNCH(t->stream, 1, copy_words, t->sum, t->weight[0] + (1ull << 28), 1);
        if (!words.late || l < LAYERS - 1)
            CHECK(cudaFree(activation[l]));
    }
    if (words.late) {
        CHECK(cudaStreamSynchronize(t->stream)); /* until all evictions after a last use are complete */
        store(t, t->table, activation[LAYERS - 1], MASK);
        launch_peek(t, t->table, MASK);
        CHECK(cudaFree(activation[LAYERS - 1]));
    }
    for (unsigned l = 0; l < LAYERS; l++)
        LAUNCH(t->stream, width, update, t->weight[l], t->gradient, l, width);
    for (unsigned l = 0; words.lists && l < LAYERS; l++)
        update_state_by_list(t, l);
    for (unsigned l = 0; !words.lists && t->state[0] != nullptr && l < LAYERS; l++) {
        LAUNCH(t->stream, width, _ZN2at6native25multi_tensor_apply_kernelIiEEvv, t->state[l], t->gradient, width);
        if (words.soon && l == 2)
            LAUNCH(t->stream, 1, peek, t->sum, t->state_table, MASK, 1);
    }
    for (unsigned l = 0; words.cat && l < LAYERS; l++)
        update_by_both(t, l);
    print_hash(t, step);
    if (words.quits && step == 3)
        exit(3);
}

static bool read_word(const char *word)
{
    const struct {
        const char *name;
        bool *flag;
    } known[] = {
        {"table", &words.table},   {"masked", &words.masked}, {"weights", &words.weights}, {"wide", &words.wide},
        {"mapped", &words.mapped}, {"since", &words.since},   {"late", &words.late},       {"early", &words.early},
        {"graph", &words.graph},   {"wild", &words.wild},     {"quits", &words.quits},     {"differs", &words.differs},
        {"stale", &words.stale},   {"state", &words.state},   {"kept", &words.kept},       {"soon", &words.soon},
        {"lists", &words.lists},   {"cat", &words.cat},       {"large", &words.large}};

    for (const auto &each : known)
        if (strcmp(word, each.name) == 0)
            return *each.flag = true;
    return false;
}

/* Uses each weight in turn, and two by a table in between. No part of this repeats for long. */
static void use_early(const struct training *t)
{
    for (unsigned i = 0; i < 3 * LAYERS; i++) {
        LAUNCH(t->stream, width, update, t->weight[i % LAYERS], t->gradient, i % 7, width - i);
        if (i == 2 * LAYERS)
            LAUNCH(t->stream, 2, peek_at_weights, t->sum, t->weight_table, 2);
    }
    print_hash(t, 0);
}

static long runs_so_far(void)
{
    FILE *runs = fopen("runs", "a");

    REQUIRE(runs != nullptr, "runs can't be written");
    fputc('.', runs);
    const long count = ftell(runs);
    fclose(runs);
    return count;
}

int main(int argc, char **argv)
{
    const unsigned long steps = argc > 1 ? strtoul(argv[1], nullptr, 10) : 0;
    struct training t = {};

    for (int i = 2; i < argc; i++) {
        if (read_word(argv[i]))
            continue;
        fprintf(stderr, "%s: no such word\n", argv[i]);
        return 2;
    }
    if (words.large)
        width <<= 9;
    setvbuf(stdout, nullptr, _IOLBF, 0);
    t.stream = new_stream();
    t.sum = new_memory(16);
    t.table = reinterpret_cast<uint64_t *>(new_memory(16));
    t.weight_table = reinterpret_cast<uint64_t *>(new_memory(16));
    CHECK(cudaMemsetAsync(t.sum, 0, 64, t.stream));
    if (words.mapped)
        CHECK(cudaHostAlloc(reinterpret_cast<void **>(&t.mapped_table), (steps + 1) * sizeof(uint64_t),
                            cudaHostAllocDefault));
    for (unsigned l = 0; l < LAYERS; l++)
        t.weight[l] = new_words(&t, l);
    for (unsigned l = 0; (words.state || words.kept || words.soon || words.lists || words.cat) && l < LAYERS; l++) {
        t.state[l] = new_memory(width);
        CHECK(cudaMemsetAsync(t.state[l], 0, width * sizeof(uint32_t), t.stream));
        if (words.kept)
            LAUNCH(t.stream, width, update, t.state[l], t.weight[l], 0, width);
    }
    if (words.soon) {
        t.state_table = reinterpret_cast<uint64_t *>(new_memory(16));
        store(&t, t.state_table, t.state[1], MASK);
    }
    t.input = new_words(&t, 100);
    t.gradient = new_words(&t, 101);
    for (long i = words.differs ? runs_so_far() : 0; i > 0; i--)
        new_words(&t, 200 + static_cast<uint32_t>(i));
    for (unsigned l = 0; words.wide && l < LAYERS; l++)
        store(&t, &t.weight_table[l], t.weight[l], 0);
    for (unsigned i = 0; !words.wide && i < 2; i++)
        store(&t, &t.weight_table[i], t.weight[2 * i + 1], 0);
    if (words.early) {
        use_early(&t);
    } else {
        for (unsigned step = 1; step <= steps; step++)
            train_step(&t, step);
    }
    CHECK(cudaDeviceSynchronize());
    for (void *memory : {static_cast<void *>(t.sum), static_cast<void *>(t.table), static_cast<void *>(t.weight_table),
                         static_cast<void *>(t.state_table)})
        CHECK(cudaFree(memory));
    CHECK(cudaFreeHost(t.mapped_table));
    printf("ok\n");
    return 0;
}
