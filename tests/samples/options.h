/* The command line of the sample trainers. Parsing, help and defaults come from one table. */
#ifndef PENSTOCK_SAMPLES_OPTIONS_H
#define PENSTOCK_SAMPLES_OPTIONS_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
    /* Sizes. The batch is counted in rows (mlp) or in sequences (transformer). */
    uint64_t layers;
    uint64_t width;
    uint64_t batch;
    uint64_t seq;
    uint64_t heads;
    uint64_t vocab;
    uint64_t steps;
    uint64_t seed;
    uint64_t skew; /* 1: the layers' inner widths differ, so that spans have many sizes */

    /*
     * How the work is issued. None of these changes a value, except `halves`, which changes the
     * order of a sum.
     */
    uint64_t async_alloc; /* 0: cudaMalloc and cudaFree; 1: cudaMallocAsync and cudaFreeAsync */
    uint64_t streams;     /* 2: weight gradients and the optimizer run on a stream of their own */
    uint64_t threads;     /* 2: backward is issued by another host thread than forward */
    uint64_t halves; /* 2: two host threads each train half of the batch at the same time, on streams of their own */
    uint64_t nvtx;   /* 1: layers are marked by NVTX ranges */
    uint64_t print_at_end; /* 1: results are printed after the last step, so the host never waits for the device */

    /* Departures from the regular step. 0: no departure. */
    uint64_t shapes;     /* the number of batch sizes that are taken in turn */
    uint64_t eval_every; /* after every `eval_every` steps, a forward pass alone */
    uint64_t skip_every; /* every `skip_every` steps, the update is omitted */

    uint64_t verify;    /* 1: end with status 1 at a loss or gradient that is not a number or absurdly large */
    uint64_t gradcheck; /* 1: instead of training, compare loss and gradients with a reference in double precision */
    uint64_t memory;    /* 1: print the peak of allocated memory at the end */
};

struct option_word {
    const char *word;
    uint64_t value;
};

struct option_entry {
    const char *name;
    size_t offset; /* of the uint64_t in struct options */
    uint64_t least;
    uint64_t most;
    struct option_word words[2]; /* words that may stand for a value */
    const char *help;
};

static const struct option_entry option_table[] = {
    {"layers", offsetof(struct options, layers), 1, 256, {}, "layers"},
    {"width", offsetof(struct options, width), 1, 65536, {}, "floats in a row of activations"},
    {"hidden", offsetof(struct options, width), 1, 65536, {}, "the same as --width"},
    {"batch", offsetof(struct options, batch), 1, 1ull << 32, {}, "rows (mlp) or sequences (transformer) in a batch"},
    {"seq", offsetof(struct options, seq), 1, 1 << 20, {}, "tokens in a sequence"},
    {"heads", offsetof(struct options, heads), 1, 1024, {}, "attention heads; divides the width"},
    {"vocab", offsetof(struct options, vocab), 2, 1 << 20, {}, "different tokens"},
    {"steps", offsetof(struct options, steps), 0, 1 << 20, {}, "training steps"},
    {"seed", offsetof(struct options, seed), 0, UINT64_MAX, {}, "of parameters, data and dropout"},
    {"skew", offsetof(struct options, skew), 0, 1, {}, "1: inner widths differ by layer"},
    {"alloc",
     offsetof(struct options, async_alloc),
     0,
     1,
     {{"sync", 0}, {"async", 1}},
     "cudaMalloc or cudaMallocAsync"},
    {"streams", offsetof(struct options, streams), 1, 2, {}, "2: weight gradients and optimizer on a second stream"},
    {"threads", offsetof(struct options, threads), 1, 2, {}, "2: backward issued by a second host thread"},
    {"halves", offsetof(struct options, halves), 1, 2, {}, "2: two threads train half of the batch each"},
    {"markers", offsetof(struct options, nvtx), 0, 1, {{"none", 0}, {"nvtx", 1}}, "layer boundaries"},
    {"print",
     offsetof(struct options, print_at_end),
     0,
     1,
     {{"step", 0}, {"end", 1}},
     "print after each step or all at the end"},
    {"shapes", offsetof(struct options, shapes), 0, 16, {}, "batch sizes taken in turn"},
    {"eval-every", offsetof(struct options, eval_every), 0, 1 << 20, {}, "a forward pass alone after every N steps"},
    {"skip-every", offsetof(struct options, skip_every), 0, 1 << 20, {}, "no update in every Nth step"},
    {"verify", offsetof(struct options, verify), 0, 1, {}, "stop at a loss or gradient that is no sane number"},
    {"gradcheck", offsetof(struct options, gradcheck), 0, 1, {}, "compare with a double precision reference"},
    {"memory", offsetof(struct options, memory), 0, 1, {}, "say the peak of allocated memory"},
};

#define OPTION_COUNT (sizeof(option_table) / sizeof(option_table[0]))

static inline uint64_t *option_value(struct options *options, const struct option_entry *entry)
{
    return reinterpret_cast<uint64_t *>(reinterpret_cast<char *>(options) + entry->offset);
}

static inline void print_option_help(const char *program, struct options *defaults)
{
    printf("usage: %s [--NAME=VALUE | --NAME VALUE | --NAME]...\n", program);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option_entry *entry = &option_table[i];

        if (entry->words[0].word != nullptr)
            printf("  --%s=%s|%s  %s", entry->name, entry->words[0].word, entry->words[1].word, entry->help);
        else
            printf("  --%-10s  %s", entry->name, entry->help);
        printf(" (%llu)\n", static_cast<unsigned long long>(*option_value(defaults, entry)));
    }
}

/* Reads a value of the entry. Returns false if the text is not a value. */
static inline bool read_option_value(const struct option_entry *entry, const char *text, uint64_t *value)
{
    for (size_t i = 0; i < 2; i++) {
        if (entry->words[i].word != nullptr && strcmp(entry->words[i].word, text) == 0) {
            *value = entry->words[i].value;
            return true;
        }
    }

    char *end = nullptr;

    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && *value >= entry->least && *value <= entry->most;
}

/*
 * Overwrites the defaults in *options with the values of the command line. A flag (0 or 1) may
 * stand without a value. Ends the program with status 2 at an error.
 */
static inline void parse_options(struct options *options, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        const struct option_entry *found = nullptr;
        size_t length = 0;

        if (strcmp(name, "--help") == 0) {
            print_option_help(argv[0], options);
            exit(0);
        }
        if (strncmp(name, "--", 2) == 0) {
            name += 2;
            length = strcspn(name, "=");
            for (size_t j = 0; j < OPTION_COUNT && found == nullptr; j++)
                if (strlen(option_table[j].name) == length && strncmp(option_table[j].name, name, length) == 0)
                    found = &option_table[j];
        }
        if (found == nullptr) {
            fprintf(stderr, "%s: unknown option %s (try --help)\n", argv[0], argv[i]);
            exit(2);
        }

        const bool is_flag = found->least == 0 && found->most == 1 && found->words[0].word == nullptr;
        const char *text = name[length] == '=' ? name + length + 1 : nullptr;

        if (text == nullptr && i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0)
            text = argv[++i];
        if (text == nullptr && is_flag)
            text = "1";
        if (text == nullptr || !read_option_value(found, text, option_value(options, found))) {
            fprintf(stderr, "%s: --%s takes a number from %llu to %llu%s\n", argv[0], found->name,
                    static_cast<unsigned long long>(found->least), static_cast<unsigned long long>(found->most),
                    found->words[0].word != nullptr ? " or one of its words (see --help)" : "");
            exit(2);
        }
    }
}

#endif
