/*
 * A small training whose tensors grow every tenth step, like those of Gaussian splatting.
 * Parameters are rebuilt by concatenation, and no freed size is ever allocated again.
 *
 *     growing STEPS
 *
 * A step has few launches, and the largest ones name half of the memory in use at the peak. Much of
 * the other memory had its last use just before, and is freed just after.
 *
 * Prints a hash of the parameters after each step.
 */
#include <stdlib.h>

#include "word_layers.h"

#define FIRST 65536 /* words of the smallest large tensor, in the first steps */
#define EVERY 10
#define PARAMETERS 4

static cudaStream_t stream;

KERNEL(spread, (uint32_t *__restrict__ out, const uint32_t *in, size_t in_count, size_t count),
       (out, in, in_count, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = in[i % in_count] * 5 + static_cast<uint32_t>(i);
}

KERNEL(both, (uint32_t *__restrict__ out, const uint32_t *a, const uint32_t *b, size_t a_count, size_t count),
       (out, a, b, a_count, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = a[i % a_count] * 3 + (b[i % a_count] ^ (b[i % a_count] >> 7));
}

static uint32_t *take(size_t count)
{
    void *memory = nullptr;

    CHECK(cudaMallocAsync(&memory, count * sizeof(uint32_t), stream));
    return static_cast<uint32_t *>(memory);
}

static void give(uint32_t *tensor)
{
    CHECK(cudaFreeAsync(tensor, stream));
}

static uint32_t *made_from(const uint32_t *in, size_t in_count, size_t count)
{
    uint32_t *out = take(count);

    LAUNCH(stream, count, spread, out, in, in_count, count);
    return out;
}

static uint32_t *made_from_both(const uint32_t *a, const uint32_t *b, size_t a_count, size_t count)
{
    uint32_t *out = take(count);

    LAUNCH(stream, count, both, out, a, b, a_count, count);
    return out;
}

struct model {
    size_t n; /* words of a large tensor; some have twice as many, and parameters a tenth */
    uint32_t *parameter[PARAMETERS], *state[PARAMETERS];
};

static size_t small(const struct model *m)
{
    return m->n / 10;
}

/*
 * Distances, their squares and weights have one word for each pixel and splat. Backward takes the
 * same path in reverse.
 */
static uint32_t *differences_back(const struct model *m, uint32_t *differences)
{
    const size_t n = m->n;
    uint32_t *squares = made_from(differences, 2 * n, 2 * n), *far = made_from(squares, 2 * n, n);
    give(squares);
    uint32_t *scaled = made_from(far, n, n), *powers = made_from(scaled, n, n), *shares = made_from(powers, n, n);
    give(powers);
    uint32_t *weights = made_from(shares, n, n);
    give(far);
    uint32_t *colours = made_from(weights, n, small(m));
    give(weights);
    uint32_t *back = made_from(colours, small(m), n), *back_weights = made_from_both(back, shares, n, n);
    give(back);
    uint32_t *back_shares = made_from_both(back_weights, shares, n, n), *back_powers = made_from(back_weights, n, n);
    LAUNCH(stream, small(m), update, m->parameter[1], back_shares, small(m));
    give(back_shares);
    give(back_weights);
    uint32_t *back_scaled = made_from_both(back_powers, shares, n, n);
    give(back_powers);
    give(shares);
    uint32_t *more = made_from_both(back_scaled, scaled, n, n), *back_far = made_from(back_scaled, n, n);
    LAUNCH(stream, small(m), update, m->parameter[2], more, small(m));
    give(more);
    give(back_scaled);
    give(scaled);
    give(colours);
    uint32_t *spread_back = made_from(back_far, n, n);
    give(back_far);
    return spread_back;
}

static void train_step(struct model *m)
{
    const size_t n = m->n;
    uint32_t *differences = made_from(m->parameter[0], small(m), 2 * n);
    uint32_t *back = differences_back(m, differences);
    uint32_t *copy = take(2 * n);

    CHECK(cudaMemcpyAsync(copy, differences, 2 * n * sizeof(uint32_t), cudaMemcpyDeviceToDevice, stream));
    uint32_t *twice = made_from(copy, 2 * n, 2 * n);
    LAUNCH(stream, n, update, twice, copy, n);
    uint32_t *product = made_from_both(back, twice, n, 2 * n);
    LAUNCH(stream, n, update, product, back, n);
    give(twice);
    give(copy);
    give(back);
    give(differences);
    uint32_t *gradient = made_from(product, 2 * n, 2 * n);
    LAUNCH(stream, small(m), update, m->parameter[0], gradient, small(m));
    give(gradient);
    give(product);
    for (unsigned i = 0; i < PARAMETERS; i++) {
        LAUNCH(stream, small(m), update, m->state[i], m->parameter[i], small(m));
        LAUNCH(stream, small(m), update, m->parameter[i], m->state[i], small(m));
    }
}

static void grow(struct model *m)
{
    const size_t before = small(m);

    m->n = (m->n + m->n / 6) & ~size_t(1023);
    for (unsigned i = 0; i < 2 * PARAMETERS; i++) {
        uint32_t **tensor = i < PARAMETERS ? &m->parameter[i] : &m->state[i - PARAMETERS];
        uint32_t *grown = made_from(*tensor, before, small(m));
        give(*tensor);
        *tensor = grown;
    }
}

int main(int argc, char **argv)
{
    const unsigned long steps = argc > 1 ? strtoul(argv[1], nullptr, 10) : 0;
    struct model m = {FIRST, {}, {}};

    setvbuf(stdout, nullptr, _IOLBF, 0);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    uint32_t *seed = take(1024);
    CHECK(cudaMemsetAsync(seed, 7, 1024 * sizeof(uint32_t), stream));
    for (unsigned i = 0; i < PARAMETERS; i++) {
        m.parameter[i] = made_from(seed, 1024, small(&m));
        m.state[i] = made_from(seed, 512, small(&m));
    }
    for (unsigned long step = 1; step <= steps; step++) {
        train_step(&m);
        if (step % EVERY == 0)
            grow(&m);
        uint64_t hash = HASH_START;
        for (unsigned i = 0; i < PARAMETERS; i++)
            hash = hash_words(hash, m.parameter[i], small(&m), stream);
        printf("step %lu parameters %016llx\n", step, static_cast<unsigned long long>(hash));
    }
    printf("%zu bytes of a large tensor\n", m.n * sizeof(uint32_t));
    return 0;
}
