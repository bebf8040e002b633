/*
 * Shared by the cases of `collectives`: a set of spans, a second stream for NCCL, a communicator,
 * and a function that pushes spans out.
 */
#ifndef PENSTOCK_SAMPLES_COLLECTIVES_H
#define PENSTOCK_SAMPLES_COLLECTIVES_H

#include "hostile.h"

#include "../cudasim/nccl/nccl.h"

static int ranks = 4;

static inline void check_nccl(ncclResult_t result, const char *call, const char *file, int line)
{
    if (result == ncclSuccess)
        return;
    fprintf(stderr, "%s:%d: %s: result %d\n", file, line, call, static_cast<int>(result));
    exit(1);
}
#define NCCL(call) check_nccl((call), #call, __FILE__, __LINE__)

/* Expects the words of the salt, multiplied by `factor`. */
static void expect_product(const uint32_t *device, uint32_t salt, uint32_t factor, size_t count, cudaStream_t stream,
                           const char *what)
{
    uint32_t *host = static_cast<uint32_t *>(malloc(count * sizeof(*host)));
    size_t wrong = 0;

    REQUIRE(host != nullptr, "no host memory");
    CHECK(cudaMemcpyAsync(host, device, count * sizeof(*host), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < count; i++)
        wrong += host[i] != word_at(salt, i) * factor;
    free(host);
    expect(wrong == 0, "%s: %zu of %zu words are wrong", what, wrong, count);
}

/* A trainer's two streams, with the event by which one waits for the other. */
struct setting {
    struct span_set set;
    cudaStream_t comm_stream;
    cudaEvent_t event;
    ncclComm_t comm;
};

static void wait_for(struct setting *s, cudaStream_t waiter, cudaStream_t before)
{
    CHECK(cudaEventRecord(s->event, before));
    CHECK(cudaStreamWaitEvent(waiter, s->event, 0));
}

static ncclComm_t new_communicator(bool blocking)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclComm_t comm = nullptr;
    ncclResult_t state = ncclInProgress;

    NCCL(ncclGetUniqueId(&id));
    config.blocking = blocking ? 1 : 0;
    const ncclResult_t result = ncclCommInitRankConfig(&comm, ranks, id, 0, &config);
    REQUIRE(result == ncclSuccess || result == ncclInProgress, "no communicator: %d", static_cast<int>(result));
    while (state == ncclInProgress)
        NCCL(ncclCommGetAsyncError(comm, &state));
    NCCL(state);
    return comm;
}

static struct setting new_setting(bool blocking)
{
    struct setting s = {};

    s.set = new_span_set();
    s.comm_stream = new_stream();
    CHECK(cudaEventCreateWithFlags(&s.event, cudaEventDisableTiming));
    s.comm = new_communicator(blocking);
    return s;
}

/* Restores the initial words, for check_and_free_spans. */
static void end_setting(struct setting *s, const char *what)
{
    CHECK(cudaDeviceSynchronize());
    for (size_t i = 0; i < span_count; i++)
        LAUNCH(s->set.stream, span_words(), fill_words, s->set.span[i], static_cast<uint32_t>(i), 0, span_words());
    CHECK(cudaStreamSynchronize(s->set.stream));
    NCCL(ncclCommDestroy(s->comm));
    CHECK(cudaStreamDestroy(s->comm_stream));
    CHECK(cudaEventDestroy(s->event));
    check_and_free_spans(&s->set, what);
}

/* Allocates further spans, so that others must leave. No other stream waits for `stream`. */
static void crowd_out(cudaStream_t stream)
{
    uint32_t *other[3];

    for (auto &span : other) {
        span = new_span();
        LAUNCH(stream, span_words(), fill_words, span, 99, 0, span_words());
    }
    expect_words(other[0], 99, 0, span_words(), stream, "a span beside collectives");
    for (auto &span : other)
        CHECK(cudaFree(span));
}

static void fill(struct setting *s, size_t span, uint32_t salt)
{
    LAUNCH(s->set.stream, span_words(), fill_words, s->set.span[span], salt, 0, span_words());
}

static void all_reduce(struct setting *s, size_t span)
{
    NCCL(ncclAllReduce(s->set.span[span], s->set.span[span], span_words(), ncclUint32, ncclSum, s->comm,
                       s->comm_stream));
}

#endif
