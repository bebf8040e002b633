/*
 * NCCL's calls as trainers make them. Each case checks the results:
 *
 *     collectives CASE [SPANS [MIB [RANKS]]]
 *     collectives --list
 *
 * A case has SPANS allocations of MIB MiB each (16, 4) and communicators of RANKS ranks (4). In the
 * simulated NCCL, every other rank does what this one does: a sum is RANKS times the input. With
 * the real NCCL, RANKS is 1. Prints "ok" and ends with 0, or prints the failure and ends with 1.
 */
#include "collectives.h"

#include <pthread.h>
#include <unistd.h>

/* ---- gradient buckets ---- */
/* out = in * 3 + weight: a layer, forward or backward */
KERNEL(layer_words, (uint32_t *__restrict__ out, const uint32_t *in, const uint32_t *weight, size_t count),
       (out, in, weight, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = in[i] * 3 + weight[i];
}

/* Writes a gradient to its place in the bucket, as a view of it. */
KERNEL(gradient_words, (uint32_t *__restrict__ gradient, const uint32_t *in, const uint32_t *delta, size_t count),
       (gradient, in, delta, count))
{
    FOR_EACH_ITEM (i, count)
        gradient[i] = in[i] * 7 ^ delta[i];
}

KERNEL(update_words, (uint32_t *__restrict__ weight, const uint32_t *gradient, size_t count), (weight, gradient, count))
{
    FOR_EACH_ITEM (i, count)
        weight[i] = weight[i] * 5 + gradient[i];
}

#define LAYERS_A_BUCKET 2

/*
 * Data-parallel training. Backward fills buckets of gradients, last layer first. Each full bucket
 * is summed over the ranks on a second stream, while backward goes on. The update waits for all
 * sums. Prints a sum of all weights after each step.
 */
static void case_buckets(void)
{
    struct setting s = new_setting(true);
    const size_t layers = span_count / LAYERS_A_BUCKET * LAYERS_A_BUCKET, words = span_words() / LAYERS_A_BUCKET;
    const size_t buckets = layers / LAYERS_A_BUCKET, pieces = (words + PIECE_WORDS - 1) / PIECE_WORDS;
    uint32_t *bucket[MAX_SPANS], *activation[MAX_SPANS + 1];
    uint64_t *sums = nullptr;
    uint64_t *host = static_cast<uint64_t *>(malloc(pieces * sizeof(*host)));
    cudaStream_t compute = s.set.stream;

    REQUIRE(host != nullptr, "no host memory");
    CHECK(cudaMalloc(&sums, pieces * sizeof(*sums)));
    for (size_t b = 0; b < buckets; b++)
        bucket[b] = new_span();
    for (int step = 0; step < 9; step++) {
        uint64_t total = 0;

        for (size_t i = 0; i <= layers; i++) {
            CHECK(cudaMallocAsync(&activation[i], words * sizeof(uint32_t), compute));
            if (i == 0)
                LAUNCH(compute, words, fill_words, activation[0], static_cast<uint32_t>(1000 + step), 0, words);
            else
                LAUNCH(compute, words, layer_words, activation[i], activation[i - 1], s.set.span[i - 1], words);
        }
        for (size_t i = layers; i-- > 0;) {
            uint32_t *gradient = bucket[i / LAYERS_A_BUCKET] + i % LAYERS_A_BUCKET * words;

            LAUNCH(compute, words, gradient_words, gradient, activation[i], activation[i + 1], words);
            CHECK(cudaFreeAsync(activation[i + 1], compute));
            if (i % LAYERS_A_BUCKET != 0)
                continue;
            wait_for(&s, s.comm_stream, compute);
            NCCL(ncclAllReduce(bucket[i / LAYERS_A_BUCKET], bucket[i / LAYERS_A_BUCKET], LAYERS_A_BUCKET * words,
                               ncclUint32, ncclSum, s.comm, s.comm_stream));
        }
        CHECK(cudaFreeAsync(activation[0], compute));
        wait_for(&s, compute, s.comm_stream);
        for (size_t i = 0; i < layers; i++) {
            LAUNCH(compute, words, update_words, s.set.span[i],
                   bucket[i / LAYERS_A_BUCKET] + i % LAYERS_A_BUCKET * words, words);
            LAUNCH(compute, pieces, sum_pieces, sums, s.set.span[i], words);
            CHECK(cudaMemcpyAsync(host, sums, pieces * sizeof(*host), cudaMemcpyDeviceToHost, compute));
            CHECK(cudaStreamSynchronize(compute));
            for (size_t p = 0; p < pieces; p++)
                total = total * 31 + host[p];
        }
        printf("step %d weights %016llx\n", step, static_cast<unsigned long long>(total));
    }
    for (size_t b = 0; b < buckets; b++)
        CHECK(cudaFree(bucket[b]));
    CHECK(cudaFree(sums));
    free(host);
    end_setting(&s, "after buckets");
}

/* ---- groups ---- */
/*
 * Several calls in a group, with other work of the program inside it. NCCL launches nothing of the
 * group before its end.
 */
static void case_group(void)
{
    struct setting s = new_setting(true);
    const size_t many = span_count / 3 > 0 ? span_count / 3 : 1;

    for (size_t turn = 0; turn < 4; turn++) {
        const uint32_t salt = static_cast<uint32_t>(20 * turn);

        for (size_t i = 0; i < many; i++)
            fill(&s, i, salt + static_cast<uint32_t>(i));
        wait_for(&s, s.comm_stream, s.set.stream);
        NCCL(ncclGroupStart());
        for (size_t i = 0; i < many; i++) {
            NCCL(ncclGroupStart());
            all_reduce(&s, i);
            NCCL(ncclGroupEnd());
        }
        crowd_out(s.set.stream);
        crowd_out(s.set.stream);
        NCCL(ncclGroupEnd());
        if (turn % 2 == 0)
            crowd_out(s.set.stream);
        wait_for(&s, s.set.stream, s.comm_stream);
        for (size_t i = 0; i < many; i++)
            expect_product(s.set.span[i], salt + static_cast<uint32_t>(i), static_cast<uint32_t>(ranks), span_words(),
                           s.set.stream, "a sum in a group");
    }
    end_setting(&s, "after groups");
}

/* A group on two streams, with two communicators. */
static void case_streams(void)
{
    struct setting s = new_setting(true);
    ncclComm_t second = new_communicator(true);
    cudaStream_t other = new_stream();

    for (size_t turn = 0; turn < span_count; turn++) {
        const size_t span[3] = {turn, (turn + 1) % span_count, (turn + 2) % span_count};

        for (size_t i = 0; i < 3; i++)
            fill(&s, span[i], static_cast<uint32_t>(30 + i));
        wait_for(&s, s.comm_stream, s.set.stream);
        wait_for(&s, other, s.set.stream);
        NCCL(ncclGroupStart());
        all_reduce(&s, span[0]);
        NCCL(ncclAllReduce(s.set.span[span[1]], s.set.span[span[1]], span_words(), ncclUint32, ncclSum, s.comm, other));
        NCCL(ncclAllReduce(s.set.span[span[2]], s.set.span[span[2]], span_words(), ncclUint32, ncclSum, second, other));
        NCCL(ncclGroupEnd());
        crowd_out(s.set.stream);
        wait_for(&s, s.set.stream, s.comm_stream);
        wait_for(&s, s.set.stream, other);
        for (size_t i = 0; i < 3; i++)
            expect_product(s.set.span[span[i]], static_cast<uint32_t>(30 + i), static_cast<uint32_t>(ranks),
                           span_words(), s.set.stream, "a sum on several streams");
    }
    CHECK(cudaDeviceSynchronize());
    NCCL(ncclCommDestroy(second));
    CHECK(cudaStreamDestroy(other));
    end_setting(&s, "after several streams");
}

/* ---- every call, with its extents ---- */
struct transfer {
    const char *name;
    ncclResult_t (*call)(const uint32_t *sent, uint32_t *received, size_t count, ncclComm_t comm, cudaStream_t stream);
    int blocks_sent, blocks_received; /* 0: one for each rank */
    uint32_t factor;                  /* 0: the number of ranks */
};

static const struct transfer transfers[] = {
    {"AllReduce",
     [](const uint32_t *in, uint32_t *out, size_t n, ncclComm_t c, cudaStream_t s) {
         return ncclAllReduce(in, out, n, ncclUint32, ncclSum, c, s);
     },
     1, 1, 0},
    {"Broadcast",
     [](const uint32_t *in, uint32_t *out, size_t n, ncclComm_t c, cudaStream_t s) {
         return ncclBroadcast(in, out, n, ncclUint32, 0, c, s);
     },
     1, 1, 1},
    {"Reduce",
     [](const uint32_t *in, uint32_t *out, size_t n, ncclComm_t c, cudaStream_t s) {
         return ncclReduce(in, out, n, ncclUint32, ncclSum, 0, c, s);
     },
     1, 1, 0},
    {"ReduceScatter",
     [](const uint32_t *in, uint32_t *out, size_t n, ncclComm_t c, cudaStream_t s) {
         return ncclReduceScatter(in, out, n, ncclUint32, ncclSum, c, s);
     },
     0, 1, 0},
    {"AllGather",
     [](const uint32_t *in, uint32_t *out, size_t n, ncclComm_t c, cudaStream_t s) {
         return ncclAllGather(in, out, n, ncclUint32, c, s);
     },
     1, 0, 1},
    {"AlltoAll",
     [](const uint32_t *in, uint32_t *out, size_t n, ncclComm_t c, cudaStream_t s) {
         return ncclAlltoAll(in, out, n, ncclUint32, c, s);
     },
     0, 0, 1},
    {"Gather",
     [](const uint32_t *in, uint32_t *out, size_t n, ncclComm_t c, cudaStream_t s) {
         return ncclGather(in, out, n, ncclUint32, 0, c, s);
     },
     1, 0, 1},
    {"Scatter",
     [](const uint32_t *in, uint32_t *out, size_t n, ncclComm_t c, cudaStream_t s) {
         return ncclScatter(in, out, n, ncclUint32, 0, c, s);
     },
     0, 1, 1},
    {"Send and Recv",
     [](const uint32_t *in, uint32_t *out, size_t n, ncclComm_t c, cudaStream_t s) {
         const int peer = ranks - 1;
         NCCL(ncclGroupStart());
         NCCL(ncclRecv(out, n, ncclUint32, peer, c, s));
         NCCL(ncclSend(in, n, ncclUint32, peer, c, s));
         return ncclGroupEnd();
     },
     1, 1, 1},
    {"Bcast",
     [](const uint32_t *in, uint32_t *out, size_t n, ncclComm_t c, cudaStream_t s) {
         CHECK(cudaMemcpyAsync(out, in, n * sizeof(*out), cudaMemcpyDeviceToDevice, s));
         return ncclBcast(out, n, ncclUint32, 0, c, s);
     },
     1, 1, 1},
};

static void case_transfers(void)
{
    struct setting s = new_setting(true);
    const size_t each = span_words() / static_cast<size_t>(ranks);
    uint32_t salt = 100;

    for (const struct transfer &t : transfers) {
        for (size_t turn = 0; turn < 3; turn++, salt++) {
            const size_t in = turn, out = span_count - 1 - turn;
            const size_t count = t.blocks_sent != 0 && t.blocks_received != 0 ? span_words() : each;
            const size_t shift = t.blocks_sent != 0 && turn == 1 ? 64 : 0; /* not at the span's start */

            LAUNCH(s.set.stream, span_words() - shift, fill_words, s.set.span[in] + shift, salt, 0,
                   span_words() - shift);
            wait_for(&s, s.comm_stream, s.set.stream);
            crowd_out(s.set.stream);
            NCCL(t.call(s.set.span[in] + shift, s.set.span[out], count - shift, s.comm, s.comm_stream));
            crowd_out(s.set.stream);
            wait_for(&s, s.set.stream, s.comm_stream);
            expect_product(s.set.span[out], salt, t.factor != 0 ? t.factor : static_cast<uint32_t>(ranks),
                           count - shift, s.set.stream, t.name);
            if (t.blocks_received == 0)
                expect_product(s.set.span[out] + (count - shift) * static_cast<size_t>(ranks - 1), salt, 1,
                               count - shift, s.set.stream, t.name);
        }
    }
    end_setting(&s, "after transfers");
}

/* ---- launches from a thread of NCCL ---- */
static void settle(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;

    while (state == ncclInProgress)
        NCCL(ncclCommGetAsyncError(comm, &state));
    NCCL(state);
}

static void case_nonblocking(void)
{
    struct setting s = new_setting(false);

    for (size_t turn = 0; turn < 2 * span_count; turn++) {
        const size_t i = turn % span_count, j = (turn + 1) % span_count;
        ncclResult_t result;

        fill(&s, i, 40);
        fill(&s, j, 41);
        wait_for(&s, s.comm_stream, s.set.stream);
        if (turn % 2 == 0) {
            NCCL(ncclGroupStart());
            all_reduce(&s, i);
            all_reduce(&s, j);
            result = ncclGroupEnd();
        } else {
            result =
                ncclAllReduce(s.set.span[i], s.set.span[i], span_words(), ncclUint32, ncclSum, s.comm, s.comm_stream);
        }
        expect(result == ncclSuccess || result == ncclInProgress, "a call that does not block: %d",
               static_cast<int>(result));
        crowd_out(s.set.stream);
        crowd_out(s.set.stream);
        settle(s.comm);
        wait_for(&s, s.set.stream, s.comm_stream);
        expect_product(s.set.span[i], 40, static_cast<uint32_t>(ranks), span_words(), s.set.stream,
                       "a sum by a thread of NCCL's");
        if (turn % 2 == 0)
            expect_product(s.set.span[j], 41, static_cast<uint32_t>(ranks), span_words(), s.set.stream,
                           "a second sum by a thread");
    }
    end_setting(&s, "after calls that don't block");
}

/* Another thread asks for a communicator's state again and again, as a watchdog does. */
static std::atomic<bool> watching;

static void *watch(void *argument)
{
    ncclComm_t comm = static_cast<ncclComm_t>(argument);
    ncclResult_t state;

    while (watching) {
        NCCL(ncclCommGetAsyncError(comm, &state));
        usleep(50);
    }
    return nullptr;
}

static void case_watched(void)
{
    struct setting s = new_setting(false);
    pthread_t watchdog;

    watching = true;
    REQUIRE(pthread_create(&watchdog, nullptr, watch, s.comm) == 0, "no thread");
    for (size_t turn = 0; turn < 2 * span_count; turn++) {
        const size_t i = turn % span_count;

        fill(&s, i, 60);
        wait_for(&s, s.comm_stream, s.set.stream);
        const ncclResult_t result =
            ncclAllReduce(s.set.span[i], s.set.span[i], span_words(), ncclUint32, ncclSum, s.comm, s.comm_stream);
        expect(result == ncclSuccess || result == ncclInProgress, "a call that is watched: %d",
               static_cast<int>(result));
        crowd_out(s.set.stream);
        settle(s.comm);
        wait_for(&s, s.set.stream, s.comm_stream);
        expect_product(s.set.span[i], 60, static_cast<uint32_t>(ranks), span_words(), s.set.stream,
                       "a sum that is watched");
    }
    watching = false;
    pthread_join(watchdog, nullptr);
    end_setting(&s, "after being watched");
}

/* ---- registered memory ---- */
static void use_registered(struct setting *s, size_t span, const char *what)
{
    for (size_t turn = 0; turn < 4; turn++) {
        const uint32_t salt = static_cast<uint32_t>(70 + turn);

        crowd_out(s->set.stream);
        crowd_out(s->set.stream);
        fill(s, span, salt);
        wait_for(s, s->comm_stream, s->set.stream);
        all_reduce(s, span);
        wait_for(s, s->set.stream, s->comm_stream);
        for (size_t i = 1; i < span_count; i++)
            fill(s, (span + i) % span_count, 1);
        expect_product(s->set.span[span], salt, static_cast<uint32_t>(ranks), span_words(), s->set.stream, what);
    }
}

static void case_registered(void)
{
    struct setting s = new_setting(true);
    void *handle = nullptr, *again = nullptr;

    /* A span that has left the device comes back to be registered. */
    NCCL(ncclCommRegister(s.comm, s.set.span[0], span_bytes, &handle));
    use_registered(&s, 0, "a registered buffer");
    /* Registered a second time, from word 64 on. */
    NCCL(ncclCommRegister(s.comm, s.set.span[0] + 64, span_bytes / 2, &again));
    NCCL(ncclCommDeregister(s.comm, handle));
    use_registered(&s, 0, "a buffer that is registered again");
    CHECK(cudaDeviceSynchronize());
    NCCL(ncclCommDeregister(s.comm, again));
    use_registered(&s, 0, "a buffer that was registered");
    end_setting(&s, "after registered buffers");
}

static void case_window(void)
{
    struct setting s = new_setting(true);
    ncclWindow_t window[2] = {};

    NCCL(ncclCommWindowRegister(s.comm, s.set.span[0], span_bytes, &window[0], 1));
    NCCL(ncclGroupStart());
    NCCL(ncclCommWindowRegister(s.comm, s.set.span[1], span_bytes, &window[1], 1));
    NCCL(ncclGroupEnd());
    use_registered(&s, 0, "a window");
    use_registered(&s, 1, "a window that was made in a group");
    CHECK(cudaDeviceSynchronize());
    NCCL(ncclGroupStart());
    NCCL(ncclCommWindowDeregister(s.comm, window[0]));
    NCCL(ncclGroupEnd());
    NCCL(ncclCommWindowDeregister(s.comm, window[1]));
    use_registered(&s, 0, "a span that was a window");
    end_setting(&s, "after windows");
}

/* An operator's scalar, which is in device memory and is read when the collective runs. */
static void case_scalar(void)
{
    struct setting s = new_setting(true);
    const uint32_t factor = 3;
    ncclRedOp_t op;

    CHECK(cudaMemcpyAsync(s.set.span[0], &factor, sizeof factor, cudaMemcpyHostToDevice, s.set.stream));
    CHECK(cudaStreamSynchronize(s.set.stream));
    NCCL(ncclRedOpCreatePreMulSum(&op, s.set.span[0], ncclUint32, ncclScalarDevice, s.comm));
    for (size_t turn = 0; turn < 4; turn++) {
        crowd_out(s.set.stream);
        crowd_out(s.set.stream);
        fill(&s, 1, 80);
        wait_for(&s, s.comm_stream, s.set.stream);
        NCCL(ncclAllReduce(s.set.span[1], s.set.span[1], span_words(), ncclUint32, op, s.comm, s.comm_stream));
        wait_for(&s, s.set.stream, s.comm_stream);
        expect_product(s.set.span[1], 80, factor * static_cast<uint32_t>(ranks), span_words(), s.set.stream,
                       "a scaled sum");
    }
    NCCL(ncclRedOpDestroy(op, s.comm));
    end_setting(&s, "after scaled sums");
}

/* ---- graphs ---- */
/*
 * Makes the executable graph from a clone of a graph that has the captured one as a child. Destroys
 * all three graphs.
 */
static cudaGraphExec_t instantiate_copy(cudaGraph_t captured)
{
    cudaGraph_t parent = nullptr, clone = nullptr;
    cudaGraphNode_t node = nullptr;
    cudaGraphExec_t executable = nullptr;

    CHECK(cudaGraphCreate(&parent, 0));
    CHECK(cudaGraphAddChildGraphNode(&node, parent, nullptr, 0, captured));
    CHECK(cudaGraphDestroy(captured));
    CHECK(cudaGraphClone(&clone, parent));
    CHECK(cudaGraphDestroy(parent));
    CHECK(cudaGraphInstantiate(&executable, clone, 0));
    CHECK(cudaGraphDestroy(clone));
    return executable;
}

static void sum_in_graph(bool copied)
{
    struct setting s = new_setting(true);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    const size_t many = span_count / 3 > 0 ? span_count / 3 : 1;

    wait_for(&s, s.comm_stream, s.set.stream);
    all_reduce(&s, 0); /* so that the communicator has all that it makes at its first use */
    CHECK(cudaDeviceSynchronize());
    CHECK_OR_SKIP(cudaStreamBeginCapture(s.comm_stream, cudaStreamCaptureModeGlobal));
    NCCL(ncclGroupStart());
    for (size_t i = 0; i < many; i++)
        all_reduce(&s, i);
    NCCL(ncclGroupEnd());
    CHECK(cudaStreamEndCapture(s.comm_stream, &graph));
    if (copied) {
        executable = instantiate_copy(graph);
    } else {
        CHECK(cudaGraphInstantiate(&executable, graph, 0));
        CHECK(cudaGraphDestroy(graph));
    }
    for (size_t turn = 0; turn < 4; turn++) {
        for (size_t i = 0; i < many; i++)
            fill(&s, i, static_cast<uint32_t>(90 + i));
        crowd_out(s.set.stream);
        crowd_out(s.set.stream);
        wait_for(&s, s.comm_stream, s.set.stream);
        CHECK(cudaGraphLaunch(executable, s.comm_stream));
        crowd_out(s.set.stream);
        wait_for(&s, s.set.stream, s.comm_stream);
        for (size_t i = 0; i < many; i++)
            expect_product(s.set.span[i], static_cast<uint32_t>(90 + i), static_cast<uint32_t>(ranks), span_words(),
                           s.set.stream, "a sum in a graph");
    }
    CHECK(cudaGraphExecDestroy(executable));
    end_setting(&s, "after graphs");
}

static void case_graph(void)
{
    sum_in_graph(false);
}

static void case_graph_copied(void)
{
    sum_in_graph(true);
}

/* ---- errors, and several threads ---- */
static void case_errors(void)
{
    struct setting s = new_setting(true);
    const ncclDataType_t none = static_cast<ncclDataType_t>(77);

    expect(ncclAllReduce(s.set.span[0], s.set.span[0], 4, none, ncclSum, s.comm, s.comm_stream) == ncclInvalidArgument,
           "no such type");
    expect(ncclAllReduce(s.set.span[0], s.set.span[0], SIZE_MAX / 2, none, ncclSum, s.comm, s.comm_stream) ==
               ncclInvalidArgument,
           "no such type, and too many of them");
    expect(ncclAllReduce(s.set.span[0], s.set.span[0], 4, ncclUint32, ncclSum, nullptr, s.comm_stream) ==
               ncclInvalidArgument,
           "no communicator");
    expect(ncclGroupEnd() == ncclInvalidUsage, "the end of no group");
    NCCL(ncclGroupStart());
    all_reduce(&s, 0);
    expect(ncclBroadcast(s.set.span[0], s.set.span[1], 4, ncclUint32, ranks, s.comm, s.comm_stream) ==
               ncclInvalidArgument,
           "no such root");
    expect(ncclGroupEnd() == ncclInvalidArgument, "a group of which a call failed");
    NCCL(ncclGroupStart());
    all_reduce(&s, 0);
    NCCL(ncclGroupSimulateEnd(nullptr));
    expect(ncclRecv(s.set.span[0], 4, ncclUint32, 0, s.comm, s.comm_stream) == ncclInvalidUsage, "nothing was sent");
    /* Afterwards all calls work as before. */
    for (size_t i = 0; i < span_count; i++) {
        fill(&s, i, static_cast<uint32_t>(i));
        wait_for(&s, s.comm_stream, s.set.stream);
        all_reduce(&s, i);
        wait_for(&s, s.set.stream, s.comm_stream);
        crowd_out(s.set.stream);
        expect_product(s.set.span[i], static_cast<uint32_t>(i), static_cast<uint32_t>(ranks), span_words(),
                       s.set.stream, "a sum after errors");
    }
    end_setting(&s, "after errors");
}

static void *train_one(void *argument)
{
    const uint32_t salt = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(argument)) * 100;
    cudaStream_t stream = new_stream();
    ncclComm_t comm;
    uint32_t *span[3];

    CHECK(cudaFree(nullptr));
    comm = new_communicator(salt != 0);
    for (auto &each : span)
        each = new_span();
    for (uint32_t turn = 0; turn < 6; turn++) {
        for (uint32_t i = 0; i < 3; i++)
            LAUNCH(stream, span_words(), fill_words, span[i], salt + turn + i, 0, span_words());
        NCCL(ncclGroupStart());
        for (auto &each : span)
            NCCL(ncclAllReduce(each, each, span_words(), ncclUint32, ncclSum, comm, stream));
        const ncclResult_t result = ncclGroupEnd();
        expect(result == ncclSuccess || result == ncclInProgress, "a group of a thread's: %d",
               static_cast<int>(result));
        settle(comm);
        for (uint32_t i = 0; i < 3; i++)
            expect_product(span[i], salt + turn + i, static_cast<uint32_t>(ranks), span_words(), stream,
                           "a sum by one of several threads");
    }
    for (auto &each : span)
        CHECK(cudaFree(each));
    NCCL(ncclCommDestroy(comm));
    CHECK(cudaStreamDestroy(stream));
    return nullptr;
}

static void case_threads(void)
{
    pthread_t thread[3];

    for (uintptr_t i = 0; i < 3; i++)
        REQUIRE(pthread_create(&thread[i], nullptr, train_one, reinterpret_cast<void *>(i)) == 0, "no thread");
    for (auto &each : thread)
        pthread_join(each, nullptr);
}

static const struct hostile_case cases[] = {
    {"buckets", case_buckets, "buckets of gradients, each summed while backward goes on"},
    {"group", case_group, "groups in a group, with other work inside"},
    {"streams", case_streams, "a group on two streams and of two communicators"},
    {"transfers", case_transfers, "every collective, and a send with its receive"},
    {"nonblocking", case_nonblocking, "a communicator that does not block"},
    {"watched", case_watched, "the same, with a watchdog"},
    {"registered", case_registered, "a registered buffer"},
    {"window", case_window, "windows, one of them made in a group"},
    {"scalar", case_scalar, "an operator's scalar in device memory"},
    {"graph", case_graph, "a captured group, launched again and again"},
    {"graph-copied", case_graph_copied, "the same in a clone of a graph that has it as a child"},
    {"errors", case_errors, "calls that NCCL refuses"},
    {"threads", case_threads, "three threads, each with a communicator"},
};

static size_t count_of(const char *text, size_t least, size_t most)
{
    const size_t value = strtoull(text, nullptr, 10);

    REQUIRE(value >= least && value <= most, "%s: expected a number from %zu to %zu", text, least, most);
    return value;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (const struct hostile_case &each : cases)
            printf("%-12s %s\n", each.name, each.what);
        return 0;
    }
    REQUIRE(argc >= 2 && argc <= 5, "usage: %s CASE [SPANS [MIB [RANKS]]] | --list", argv[0]);
    span_count = argc > 2 ? count_of(argv[2], 6, MAX_SPANS) : span_count;
    span_bytes = argc > 3 ? count_of(argv[3], 1, 1024) << 20 : span_bytes;
    ranks = argc > 4 ? static_cast<int>(count_of(argv[4], 1, 64)) : ranks;
    setvbuf(stdout, nullptr, _IOLBF, 0);
    for (const struct hostile_case &each : cases) {
        if (strcmp(each.name, argv[1]) != 0)
            continue;
        CHECK(cudaSetDevice(0));
        each.run();
        CHECK(cudaDeviceSynchronize());
        if (failures > 0)
            return 1;
        printf("ok\n");
        return 0;
    }
    fprintf(stderr, "%s: no such case; see --list\n", argv[1]);
    return 2;
}
