/*
 * A small training whose products get their matrices by tables of addresses that kernels write on
 * the device:
 *
 *     made_tables [each|apart|long|beside|once|later] [STEPS [KIB [disguised]]]
 *
 *     each   before each product one kernel gets three tensors and writes three tables. The product
 *            gets the tables alone.
 *     apart  a kernel for each table, as torch makes them for its batched linear algebra
 *     long   as each, but the product is eight launches; a factorisation has dozens
 *     beside as each, but the products run on a second stream, where no kernel gets a tensor
 *     once   the tables of the weights are written before the training begins. No launch of the
 *            forward pass names a weight.
 *     later  a step's tables are written when it begins, each in memory of its own, and used after
 *            many other launches
 *
 * Tensors have KIB KiB (64). `disguised`: the addresses in the tables are masked, so that no search
 * of memory finds them.
 *
 * Prints a hash of the weights after each step, and "ok".
 */
#include "hostile.h"

#define LAYERS 8
#define PARTS 8
#define ROUNDS 2 /* passes over the words, so that a product takes a while */

static struct {
    bool apart, is_long, beside, once, later;
} mode;

static size_t words = 16384;
static uint64_t mask;

static __host__ __device__ inline uint32_t *masked(const uint32_t *address, uint64_t by)
{
    return reinterpret_cast<uint32_t *>(reinterpret_cast<uint64_t>(address) ^ by);
}

/* Writes up to three tables, one behind the other. A tensor that is NULL gets no table. */
KERNEL(write_tables,
       (uint32_t * *__restrict__ table, uint32_t *a, uint32_t *b, uint32_t *c, uint64_t by, size_t stride,
        size_t count),
       (table, a, b, c, by, stride, count))
{
    FOR_EACH_ITEM (i, count) {
        if (a)
            table[i] = masked(a + i * stride, by);
        if (b)
            table[count + i] = masked(b + i * stride, by);
        if (c)
            table[2 * count + i] = masked(c + i * stride, by);
    }
}

/* c = a combined with b, for `count` parts from `first` on. */
KERNEL(product_by_tables,
       (uint32_t *const *c, const uint32_t *const *a, const uint32_t *const *b, uint64_t by, size_t stride,
        size_t count),
       (c, a, b, by, stride, count))
{
    FOR_EACH_ITEM (i, count * stride) {
        const size_t part = i / stride, at = i % stride;
        const uint32_t *of_a = masked(a[part], by), *of_b = masked(b[part], by);
        uint32_t sum = 0;

        for (size_t round = 0; round < ROUNDS; round++)
            sum += of_a[at] * 5 + (of_b[(at + round) % stride] >> 3);
        masked(c[part], by)[at] = sum;
    }
}

KERNEL(activate, (uint32_t *__restrict__ out, size_t count), (out, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = out[i] * 3 + 1;
}

KERNEL(deactivate, (uint32_t *__restrict__ gradient, const uint32_t *activation, size_t count),
       (gradient, activation, count))
{
    FOR_EACH_ITEM (i, count)
        gradient[i] ^= activation[i] >> 1;
}

KERNEL(update, (uint32_t *__restrict__ weight, const uint32_t *gradient, size_t count), (weight, gradient, count))
{
    FOR_EACH_ITEM (i, count)
        weight[i] += gradient[i] >> 4;
}

struct tables {
    uint32_t **a, **b, **c;
};

struct training {
    cudaStream_t stream, beside; /* one and the same stream, except in mode `beside` */
    cudaEvent_t there;
    uint32_t *weight[LAYERS];
    uint32_t **of_weight[LAYERS]; /* `once`, `later` */
    uint32_t **scratch;           /* three tables */
};

static uint32_t *new_tensor(const struct training *t)
{
    void *memory = nullptr;

    CHECK(cudaMallocAsync(&memory, words * sizeof(uint32_t), t->stream));
    return static_cast<uint32_t *>(memory);
}

static uint32_t **new_table(size_t pointers)
{
    void *memory = nullptr;

    CHECK(cudaMalloc(&memory, pointers * sizeof(uint32_t *)));
    return static_cast<uint32_t **>(memory);
}

static void write(const struct training *t, uint32_t **table, uint32_t *a, uint32_t *b, uint32_t *c)
{
    LAUNCH(t->stream, PARTS, write_tables, table, a, b, c, mask, words / PARTS, PARTS);
}

/* Later work of one stream comes after all present work of another. */
static void come_after(const struct training *t, cudaStream_t later, cudaStream_t earlier)
{
    if (later == earlier)
        return;
    CHECK(cudaEventRecord(t->there, earlier));
    CHECK(cudaStreamWaitEvent(later, t->there, 0));
}

static void multiply(const struct training *t, const struct tables *by)
{
    const size_t count = mode.is_long ? 1 : PARTS;

    come_after(t, t->beside, t->stream);
    for (size_t first = 0; first < PARTS; first += count)
        LAUNCH(t->beside, words / PARTS * count, product_by_tables, by->c + first, by->a + first, by->b + first, mask,
               words / PARTS, count);
    come_after(t, t->stream, t->beside);
}

/* `of_a`: an existing table of a, or NULL. */
static void product(const struct training *t, uint32_t *c, uint32_t *a, uint32_t **of_a, uint32_t *b)
{
    const struct tables by = {of_a ? of_a : t->scratch, t->scratch + PARTS, t->scratch + 2 * PARTS};
    uint32_t *const still = of_a ? nullptr : a;

    if (mode.apart) {
        if (still)
            write(t, t->scratch, still, nullptr, nullptr);
        write(t, t->scratch, nullptr, b, nullptr);
        write(t, t->scratch, nullptr, nullptr, c);
    } else {
        write(t, t->scratch, still, b, c);
    }
    multiply(t, &by);
}

static void print_hash(const struct training *t, unsigned long step)
{
    static uint32_t *host;
    uint64_t hash = 14695981039346656037ull;

    if (host == nullptr)
        host = static_cast<uint32_t *>(malloc(words * sizeof(*host)));
    REQUIRE(host != nullptr, "no host memory");
    for (auto weight : t->weight) {
        CHECK(cudaMemcpyAsync(host, weight, words * sizeof(*host), cudaMemcpyDeviceToHost, t->stream));
        CHECK(cudaStreamSynchronize(t->stream));
        for (size_t i = 0; i < words; i++)
            hash = (hash ^ host[i]) * 1099511628211ull;
    }
    printf("step %lu weights %016llx\n", step, static_cast<unsigned long long>(hash));
}

static void train_step(const struct training *t, unsigned long step)
{
    uint32_t *x[LAYERS + 1];

    for (unsigned l = 0; mode.later && l < LAYERS; l++)
        write(t, t->of_weight[l], t->weight[l], nullptr, nullptr);
    x[0] = new_tensor(t);
    LAUNCH(t->stream, words, fill_words, x[0], static_cast<uint32_t>(1000 + step), 0, words);
    for (unsigned l = 0; l < LAYERS; l++) {
        x[l + 1] = new_tensor(t);
        product(t, x[l + 1], t->weight[l], t->of_weight[l], x[l]);
        LAUNCH(t->stream, words, activate, x[l + 1], words);
    }
    uint32_t *dy = new_tensor(t), *dx = new_tensor(t), *dw = new_tensor(t);
    LAUNCH(t->stream, words, copy_words, dy, x[LAYERS], words);
    for (unsigned l = LAYERS; l-- > 0;) {
        LAUNCH(t->stream, words, deactivate, dy, x[l + 1], words);
        CHECK(cudaFreeAsync(x[l + 1], t->stream));
        product(t, dx, t->weight[l], t->of_weight[l], dy);
        product(t, dw, dy, nullptr, x[l]);
        LAUNCH(t->stream, words, update, t->weight[l], dw, words);
        std::swap(dx, dy);
    }
    for (uint32_t *memory : {x[0], dy, dx, dw})
        CHECK(cudaFreeAsync(memory, t->stream));
    print_hash(t, step);
}

static bool read_mode(const char *word)
{
    const struct {
        const char *name;
        bool *flag;
    } known[] = {{"apart", &mode.apart},
                 {"long", &mode.is_long},
                 {"beside", &mode.beside},
                 {"once", &mode.once},
                 {"later", &mode.later}};

    for (const auto &each : known)
        if (strcmp(word, each.name) == 0)
            return *each.flag = true;
    return strcmp(word, "each") == 0;
}

int main(int argc, char **argv)
{
    const unsigned long steps = argc > 2 ? strtoul(argv[2], nullptr, 10) : 4;
    struct training t = {};

    if (argc > 1 && !read_mode(argv[1])) {
        fprintf(stderr, "%s: no such mode\n", argv[1]);
        return 2;
    }
    if (argc > 3)
        words = strtoul(argv[3], nullptr, 10) * 256;
    if (argc > 4 && strcmp(argv[4], "disguised") == 0)
        mask = 0x5555555555555555ull;
    setvbuf(stdout, nullptr, _IOLBF, 0);
    t.stream = new_stream();
    t.beside = mode.beside ? new_stream() : t.stream;
    CHECK(cudaEventCreateWithFlags(&t.there, cudaEventDisableTiming));
    t.scratch = new_table(3 * PARTS);
    for (unsigned l = 0; l < LAYERS; l++) {
        CHECK(cudaMalloc(&t.weight[l], words * sizeof(uint32_t)));
        LAUNCH(t.stream, words, fill_words, t.weight[l], l, 0, words);
        if (!mode.once && !mode.later)
            continue;
        t.of_weight[l] = new_table(PARTS);
        write(&t, t.of_weight[l], t.weight[l], nullptr, nullptr);
    }
    CHECK(cudaStreamSynchronize(t.stream));
    for (unsigned long step = 1; step <= steps; step++)
        train_step(&t, step);
    CHECK(cudaDeviceSynchronize());
    for (unsigned l = 0; l < LAYERS; l++) {
        CHECK(cudaFree(t.weight[l]));
        CHECK(cudaFree(t.of_weight[l]));
    }
    CHECK(cudaFree(t.scratch));
    CHECK(cudaEventDestroy(t.there));
    if (mode.beside)
        CHECK(cudaStreamDestroy(t.beside));
    CHECK(cudaStreamDestroy(t.stream));
    printf("ok\n");
    return 0;
}
