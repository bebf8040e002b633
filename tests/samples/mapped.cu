/*
 * A small training in which every tensor is a mapping of its own:
 *
 *   mapped STEPS [WORD]...
 *
 * The tensors are made by CUDA's virtual memory management, as XLA's allocator makes them: memory,
 * addresses, mapping, access. To free one, the program waits for the device and releases all of
 * these.
 *
 *   reserve-first  the addresses come before the memory
 *   release-early  the handle is released as soon as it is mapped
 *   keep-range     a freed tensor's addresses stay reserved for a later tensor of its size
 *   streams        updates on a second stream
 *   entry-point    the driver's functions come from the runtime's look-up instead of dlsym
 *
 * Prints a hash of the weights after each step. These words choose a case without a training:
 *
 *   moves      handles are unmapped, and mapped at other addresses
 *   swaps      handles of one size change places
 *   range      many handles in one range, some of which are replaced
 *   lengths    handles side by side, while larger allocations are free
 *   twice      a handle is mapped at two addresses at once
 *   part       a handle's halves
 *   export     handles are exported as file descriptors, imported and mapped a second time
 *   export-beside  the same, while another thread captures a graph
 *   threads    two threads make and free tensors
 *   full       tensors are made until there is no memory, twice
 *   asks       the driver's answers about mapped addresses and handles
 *   errors     the driver's answers to wrong calls
 *   hint       addresses that the program asks for
 *   multicast  handles and addresses are bound to multicast objects and endpoints that don't exist
 */
#include "mapped_asks.h"
#include "word_layers.h"

#define LAYERS 6

struct layer {
    struct tensor weight, activation, halves;
};

static struct layer layers[LAYERS];
static cudaStream_t other;

static size_t count_of(unsigned layer)
{
    return (2 + layer * 3 % 5) * unit;
}

static void train_step(const struct tensor *input)
{
    struct tensor above = {};

    for (unsigned l = 0; l < LAYERS; l++) {
        struct layer *a = &layers[l];
        const struct tensor *in = l > 0 ? &layers[l - 1].activation : input;
        const size_t count = a->weight.count;
        a->activation = new_tensor(count);
        LAUNCH(stream, count, forward, a->activation.words, in->words, a->weight.words, in->count, count);
        a->halves = new_tensor(count);
        LAUNCH(stream, count / 2, split, a->halves.words, a->halves.words + count / 2, a->activation.words, count / 2);
    }
    for (unsigned l = LAYERS; l-- > 0;) {
        struct layer *a = &layers[l];
        const struct tensor *from = l + 1 < LAYERS ? &above : &a->activation;
        const size_t count = a->weight.count;
        const struct tensor gradient = new_tensor(count);
        LAUNCH(stream, count, backward, gradient.words, from->words, a->activation.words, a->halves.words, from->count,
               count);
        first_waits(other, stream);
        LAUNCH(other, count, update, a->weight.words, gradient.words, count);
        first_waits(stream, other);
        free_tensor(&a->halves);
        free_tensor(&a->activation);
        if (l + 1 < LAYERS)
            free_tensor(&above);
        above = gradient;
    }
    free_tensor(&above);
}

static void train(unsigned long steps)
{
    const struct tensor input = new_tensor(unit);

    LAUNCH(stream, unit, fill_words, input.words, 100, 0, unit);
    for (unsigned l = 0; l < LAYERS; l++) {
        layers[l].weight = new_tensor(count_of(l));
        LAUNCH(stream, count_of(l), fill_words, layers[l].weight.words, l, 0, count_of(l));
    }
    for (unsigned step = 1; step <= steps; step++) {
        uint64_t hash = HASH_START;
        train_step(&input);
        for (const struct layer &layer : layers)
            hash = hash_words(hash, layer.weight.words, layer.weight.count, stream);
        printf("step %u weights %016llx\n", step, static_cast<unsigned long long>(hash));
    }
    for (const struct layer &layer : layers)
        free_tensor(&layer.weight);
    free_tensor(&input);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"moves", case_moves},        {"swaps", case_swaps}, {"range", case_range},   {"lengths", case_lengths},
             {"twice", case_twice},        {"part", case_part},   {"export", case_export}, {"threads", case_threads},
             {"export-beside", case_export_beside}, {"holes", case_holes}, {"far", case_far}, {"hole-table", case_hole_table},
             {"full", case_full},          {"asks", case_asks},   {"errors", case_errors}, {"hint", case_hint},
             {"multicast", case_multicast}};

static void (*chosen)(void);

static bool read_word(const char *word)
{
    const struct {
        const char *name;
        bool *flag;
    } known[] = {{"reserve-first", &ways.reserve_first},
                 {"release-early", &ways.release_early},
                 {"keep-range", &ways.keep_range},
                 {"streams", &ways.streams},
                 {"entry-point", &ways.entry_point}};

    for (const auto &each : known)
        if (strcmp(word, each.name) == 0)
            return *each.flag = true;
    for (const auto &each : cases)
        if (strcmp(word, each.name) == 0)
            return (chosen = each.run) != nullptr;
    return false;
}

int main(int argc, char **argv)
{
    const unsigned long steps = argc > 1 ? strtoul(argv[1], nullptr, 10) : 0;

    for (int i = 2; i < argc; i++) {
        if (read_word(argv[i]))
            continue;
        fprintf(stderr, "%s: no such word\n", argv[i]);
        return 2;
    }
    setvbuf(stdout, nullptr, _IOLBF, 0);
    find_mapping_functions(ways.entry_point);
    unit = whole_granules(16384) / sizeof(uint32_t);
    stream = new_stream();
    other = ways.streams ? new_stream() : stream;
    if (chosen != nullptr)
        chosen();
    else
        train(steps);
    free_kept_ranges();
    CHECK(cudaDeviceSynchronize());
    if (failures)
        return 1;
    printf("ok\n");
    return 0;
}
