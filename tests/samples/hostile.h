/*
 * Shared by the cases of `hostile`: expectations, words with known content, and a set of spans. The
 * spans together exceed a small budget, so that Penstock always keeps some of them evicted.
 */
#ifndef PENSTOCK_SAMPLES_HOSTILE_H
#define PENSTOCK_SAMPLES_HOSTILE_H

#include <stdarg.h>

#include <atomic>

#include "layers.h"

#define EXIT_SKIP 77
#define MAX_SPANS 256
#define PIECE_WORDS 4096

static std::atomic<unsigned> failures;
static size_t span_count = 16;
static size_t span_bytes = 4u << 20;

struct hostile_case {
    const char *name;
    void (*run)(void);
    const char *what;
};

/*
 * Prints the message and counts a failure if `holds` is false. The case goes on; the program ends
 * with status 1.
 */
__attribute__((format(printf, 2, 3))) static inline bool expect(bool holds, const char *format, ...)
{
    va_list args;

    if (holds)
        return true;
    failures++;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return false;
}

/*
 * Checks the call's result and the thread's last error, which the call must have set. Clears the
 * last error.
 */
static inline bool expect_result(cudaError_t wanted, cudaError_t result, const char *call)
{
    const cudaError_t last = cudaGetLastError();

    return expect(result == wanted, "%s: %s, expected %s", call, cudaGetErrorName(result), cudaGetErrorName(wanted)) &&
           expect(last == wanted, "%s: then cudaGetLastError gives %s, expected %s", call, cudaGetErrorName(last),
                  cudaGetErrorName(wanted));
}

/* Skips the program where the (simulated) device doesn't know the call. */
static inline void check_supported(cudaError_t result, const char *call, const char *file, int line)
{
    if (result == cudaErrorNotSupported) {
        printf("skip: %s is not supported\n", call);
        exit(EXIT_SKIP);
    }
    check_cuda(result, call, file, line);
}

#define CHECK_OR_SKIP(call) check_supported((call), #call, __FILE__, __LINE__)

/* ---- words with a known content ---- */
static __host__ __device__ inline uint32_t word_at(uint32_t salt, size_t index)
{
    return static_cast<uint32_t>(mix_bits((static_cast<uint64_t>(salt) << 32) ^ index));
}

KERNEL(fill_words, (uint32_t *__restrict__ out, uint32_t salt, size_t first, size_t count), (out, salt, first, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = word_at(salt, first + i);
}

KERNEL(copy_words, (uint32_t *__restrict__ out, const uint32_t *in, size_t count), (out, in, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = in[i];
}

/* Writes two addresses in disguise, so that no search of memory finds them. */
KERNEL(write_disguised_pair,
       (uint64_t *__restrict__ table, const uint32_t *a, const uint32_t *b, uint64_t mask, size_t count),
       (table, a, b, mask, count))
{
    FOR_EACH_ITEM (i, count)
        table[i] = reinterpret_cast<uint64_t>(i == 0 ? a : b) ^ mask;
}

KERNEL(gather_disguised, (uint32_t *__restrict__ out, const uint64_t *table, uint64_t mask, size_t count),
       (out, table, mask, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = *reinterpret_cast<const uint32_t *>(table[i] ^ mask);
}

KERNEL(add_to_words, (uint32_t *__restrict__ out, uint32_t by, size_t count), (out, by, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] += by;
}

/* sum[piece] = the sum of the PIECE_WORDS words of the piece; the last piece may be shorter */
KERNEL(sum_pieces, (uint64_t *__restrict__ sum, const uint32_t *in, size_t count), (sum, in, count))
{
    FOR_EACH_ITEM (piece, (count + PIECE_WORDS - 1) / PIECE_WORDS) {
        const size_t end = (piece + 1) * PIECE_WORDS < count ? (piece + 1) * PIECE_WORDS : count;
        uint64_t total = 0;

        for (size_t i = piece * PIECE_WORDS; i < end; i++)
            total += in[i];
        sum[piece] = total;
    }
}

/* Returns the number of words in host memory that differ from the salt's. */
static inline size_t wrong_words(const uint32_t *words, uint32_t salt, size_t first, size_t count)
{
    size_t wrong = 0;

    for (size_t i = 0; i < count; i++)
        wrong += words[i] != word_at(salt, first + i);
    return wrong;
}

/* Copies the words back on the stream and compares them. */
static inline bool expect_words(const uint32_t *device, uint32_t salt, size_t first, size_t count, cudaStream_t stream,
                                const char *what)
{
    uint32_t *host = static_cast<uint32_t *>(malloc(count * sizeof(*host)));

    REQUIRE(host != nullptr, "no host memory");
    CHECK(cudaMemcpyAsync(host, device, count * sizeof(*host), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));

    const size_t wrong = wrong_words(host, salt, first, count);

    free(host);
    return expect(wrong == 0, "%s: %zu of %zu words are wrong", what, wrong, count);
}

static inline size_t span_words(void)
{
    return span_bytes / sizeof(uint32_t);
}

static inline uint32_t *new_span(void)
{
    void *data = nullptr;

    CHECK(cudaMalloc(&data, span_bytes));
    return static_cast<uint32_t *>(data);
}

static inline cudaStream_t new_stream(void)
{
    cudaStream_t stream = nullptr;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

/* ---- a set of spans: span i holds the words of salt i ---- */
struct span_set {
    cudaStream_t stream;
    uint32_t *span[MAX_SPANS];
};

static inline struct span_set new_span_set(void)
{
    struct span_set set = {};

    set.stream = new_stream();
    for (size_t i = 0; i < span_count; i++) {
        set.span[i] = new_span();
        LAUNCH(set.stream, span_words(), fill_words, set.span[i], static_cast<uint32_t>(i), 0, span_words());
    }
    return set;
}

/* Checks the words of every span, then frees all spans. */
static inline void check_and_free_spans(struct span_set *set, const char *what)
{
    for (size_t i = 0; i < span_count; i++)
        expect_words(set->span[i], static_cast<uint32_t>(i), 0, span_words(), set->stream, what);
    for (size_t i = 0; i < span_count; i++)
        CHECK(cudaFree(set->span[i]));
    CHECK(cudaStreamDestroy(set->stream));
}

#endif
