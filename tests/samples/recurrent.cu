/*
 * A small training of a recurrent network, with the memory layout of cuDNN:
 *
 *     recurrent STEPS
 *
 * A step allocates a large buffer that forward fills and backward reads (the reserve space), and
 * another one as workspace. There are a few launches for each moment of a sequence. They name
 * addresses inside both buffers, where a moment's hidden state, cell and gates begin. One direction
 * goes up through them, the other one down. The sequences, and so the buffers, have another length
 * in each step.
 *
 * Prints a hash of the weights after each step.
 */
#include <stdlib.h>

#include "word_layers.h"

#define LAYERS 3
#define UNIT 2048  /* words of a moment's hidden state: 8 KiB */
#define LONGEST 64 /* moments */
#define WEIGHTS 16 /* units, for each layer and direction */
#define DIRECTIONS 2

static cudaStream_t stream;

KERNEL(recur, (uint32_t *__restrict__ scratch, const uint32_t *hidden, const uint32_t *weight, size_t count),
       (scratch, hidden, weight, count))
{
    FOR_EACH_ITEM (i, count) {
        uint32_t sum = hidden[i];
        for (size_t k = 0; k < WEIGHTS; k++)
            sum = sum * 31 + weight[k * count + i];
        scratch[i] = sum;
    }
}

KERNEL(cell,
       (uint32_t * gates, uint32_t *cells, uint32_t *hidden, uint32_t *__restrict__ kept, const uint32_t *scratch,
        size_t count),
       (gates, cells, hidden, kept, scratch, count))
{
    FOR_EACH_ITEM (i, count) {
        for (size_t k = 0; k < 4; k++) {
            gates[k * count + i] = scratch[i] * static_cast<uint32_t>(2 * k + 3);
            kept[k * count + i] = gates[k * count + i] ^ static_cast<uint32_t>(i);
        }
        cells[i] = gates[i] + scratch[i] / 3;
        hidden[i] = cells[i] * 5 + gates[3 * count + i];
    }
}

KERNEL(cell_back,
       (uint32_t * gates, const uint32_t *cells, const uint32_t *kept, uint32_t *__restrict__ gradient, size_t count),
       (gates, cells, kept, gradient, count))
{
    FOR_EACH_ITEM (i, count)
        for (size_t k = 0; k < 4; k++) {
            gates[k * count + i] = kept[k * count + i] + gradient[i] * static_cast<uint32_t>(k + 1);
            gradient[i] = gradient[i] * 7 + (gates[k * count + i] ^ cells[i]);
        }
}

KERNEL(weigh, (uint32_t *__restrict__ gradient, const uint32_t *gates, const uint32_t *hidden, size_t count),
       (gradient, gates, hidden, count))
{
    FOR_EACH_ITEM (i, count)
        for (size_t k = 0; k < WEIGHTS; k++)
            gradient[k * count + i] += gates[k % 4 * count + i] * 3 + hidden[i];
}

static uint32_t *take(size_t units)
{
    void *memory = nullptr;

    CHECK(cudaMallocAsync(&memory, units * UNIT * sizeof(uint32_t), stream));
    return static_cast<uint32_t *>(memory);
}

/*
 * The places of data in the reserve space and in the workspace, in units, for each layer and
 * direction.
 */
struct places {
    size_t length;
    uint32_t *reserve, *work, *weights;

    uint32_t *hidden(size_t of, size_t moment) const
    {
        return reserve + (of * length + moment) * UNIT;
    }
    uint32_t *cells(size_t of, size_t moment) const
    {
        return reserve + ((LAYERS * DIRECTIONS + of) * length + moment) * UNIT;
    }
    uint32_t *kept(size_t of, size_t moment) const
    {
        return reserve + ((2 * LAYERS * DIRECTIONS + 4 * of) * length + 4 * moment) * UNIT;
    }
    uint32_t *scratch(size_t direction) const
    {
        return work + direction * UNIT;
    }
    uint32_t *gates(size_t direction, size_t moment) const
    {
        return work + (2 + (direction * length + moment) * 4) * UNIT;
    }
    uint32_t *weight(size_t of) const
    {
        return weights + of * WEIGHTS * UNIT;
    }
    size_t at(size_t direction, size_t nth) const
    {
        return direction ? length - 1 - nth : nth;
    }
};

static void go_forward(const struct places *p, uint32_t *first)
{
    for (size_t layer = 0; layer < LAYERS; layer++)
        for (size_t nth = 0; nth < p->length; nth++)
            for (size_t d = 0; d < DIRECTIONS; d++) {
                const size_t of = layer * DIRECTIONS + d, m = p->at(d, nth);
                LAUNCH(stream, UNIT, recur, p->scratch(d), nth ? p->hidden(of, p->at(d, nth - 1)) : first,
                       p->weight(of), UNIT);
                LAUNCH(stream, UNIT, cell, p->gates(d, m), p->cells(of, m), p->hidden(of, m), p->kept(of, m),
                       p->scratch(d), UNIT);
            }
}

static void go_back(const struct places *p, uint32_t *first, uint32_t *gradients)
{
    for (size_t layer = LAYERS; layer-- > 0;)
        for (size_t nth = p->length; nth-- > 0;)
            for (size_t d = 0; d < DIRECTIONS; d++) {
                const size_t of = layer * DIRECTIONS + d, m = p->at(d, nth);
                LAUNCH(stream, UNIT, cell_back, p->gates(d, m), p->cells(of, m), p->kept(of, m), first, UNIT);
                LAUNCH(stream, UNIT, weigh, gradients + of * WEIGHTS * UNIT, p->gates(d, m), p->hidden(of, m), UNIT);
            }
}

int main(int argc, char **argv)
{
    const unsigned long steps = argc > 1 ? strtoul(argv[1], nullptr, 10) : 0;
    const size_t all = LAYERS * DIRECTIONS * WEIGHTS;

    setvbuf(stdout, nullptr, _IOLBF, 0);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    uint32_t *weights = take(all), *first = take(1);
    CHECK(cudaMemsetAsync(weights, 3, all * UNIT * sizeof(uint32_t), stream));
    for (unsigned long step = 1; step <= steps; step++) {
        const size_t length = LONGEST - step * 7 % 16;
        uint32_t *work = take((2 + 4 * DIRECTIONS * length));
        const struct places places = {length, take(6 * LAYERS * DIRECTIONS * length), work, weights};
        CHECK(cudaMemsetAsync(first, static_cast<int>(step), UNIT * sizeof(uint32_t), stream));
        go_forward(&places, first);
        CHECK(cudaFreeAsync(work, stream));
        uint32_t *gradients = take(all);
        CHECK(cudaMemsetAsync(gradients, 0, all * UNIT * sizeof(uint32_t), stream));
        const struct places again = {length, places.reserve, take((2 + 4 * DIRECTIONS * length)), weights};
        go_back(&again, first, gradients);
        LAUNCH(stream, all * UNIT, update, weights, gradients, all * UNIT);
        CHECK(cudaFreeAsync(again.work, stream));
        CHECK(cudaFreeAsync(gradients, stream));
        CHECK(cudaFreeAsync(places.reserve, stream));
        printf("step %lu weights %016llx\n", step,
               static_cast<unsigned long long>(hash_words(HASH_START, weights, all * UNIT, stream)));
    }
    CHECK(cudaFreeAsync(weights, stream));
    CHECK(cudaFreeAsync(first, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("ok\n");
    return 0;
}
