/*
 * A small training on several devices of one process, with data parallelism by hand:
 *
 *     devices STEPS DEVICES [WORD]...
 *
 *     threads  a host thread for each device, instead of one that goes from device to device
 *     default  each device's work is on its default stream
 *     async    activations are allocated by cudaMallocAsync
 *     peers    a kernel of the first device reads the others' gradients, instead of copies
 *
 * In each step every device runs forward and backward on its own input. The gradients are summed on
 * the first device and the sum is copied to all. Each device then updates its weights. Prints a
 * hash of each device's weights and input gradient after each step.
 */
#include <pthread.h>

#include "hostile.h"

#define LAYERS 8
#define WIDTH 16384 /* words a span: 64 KiB */
#define DEVICES_MAX 8

static struct {
    bool threads, on_default, async, peers;
} words;

KERNEL(forward, (uint32_t *__restrict__ out, const uint32_t *in, const uint32_t *weight, size_t count),
       (out, in, weight, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = in[i] * 3 + weight[i];
}

KERNEL(backward,
       (uint32_t *__restrict__ gradient, uint32_t *__restrict__ sum, const uint32_t *activation, size_t count),
       (gradient, sum, activation, count))
{
    FOR_EACH_ITEM (i, count) {
        gradient[i] = gradient[i] * 5 + activation[i];
        sum[i] = gradient[i];
    }
}

KERNEL(add_words, (uint32_t *__restrict__ sum, const uint32_t *more, size_t count), (sum, more, count))
{
    FOR_EACH_ITEM (i, count)
        sum[i] += more[i];
}

KERNEL(update, (uint32_t *__restrict__ weight, const uint32_t *sum, uint32_t layer, size_t count),
       (weight, sum, layer, count))
{
    FOR_EACH_ITEM (i, count)
        weight[i] += sum[i] >> layer;
}

struct replica {
    int device;
    cudaStream_t stream;
    cudaEvent_t ready; /* recorded when its gradients are ready; on the first device also when their sum is */
    uint32_t *weight[LAYERS], *sum[LAYERS];
    uint32_t *input, *gradient;
    uint32_t *received; /* on the first device alone: a buffer for another device's gradient */
};

static struct replica replica[DEVICES_MAX];
static int devices;
static unsigned long steps;
static pthread_barrier_t barrier;

static uint32_t *allocate(const struct replica *r, bool is_activation)
{
    void *memory = nullptr;

    if (is_activation && words.async)
        CHECK(cudaMallocAsync(&memory, WIDTH * sizeof(uint32_t), r->stream));
    else
        CHECK(cudaMalloc(&memory, WIDTH * sizeof(uint32_t)));
    return static_cast<uint32_t *>(memory);
}

static void release(const struct replica *r, uint32_t *memory)
{
    if (words.async)
        CHECK(cudaFreeAsync(memory, r->stream));
    else
        CHECK(cudaFree(memory));
}

static uint32_t *filled(const struct replica *r, uint32_t salt)
{
    uint32_t *memory = allocate(r, false);

    LAUNCH(r->stream, WIDTH, fill_words, memory, salt, 0, WIDTH);
    return memory;
}

static void begin(struct replica *r, int device)
{
    r->device = device;
    CHECK(cudaSetDevice(device));
    r->stream = words.on_default ? nullptr : new_stream();
    CHECK(cudaEventCreateWithFlags(&r->ready, cudaEventDisableTiming));
    for (unsigned l = 0; l < LAYERS; l++) {
        r->weight[l] = filled(r, l);
        r->sum[l] = filled(r, 50 + l);
    }
    r->input = filled(r, 100 + static_cast<uint32_t>(device));
    r->gradient = filled(r, 200);
    if (!device)
        r->received = filled(r, 300);
}

/* Leaves each layer's gradient in `sum`. */
static void forward_and_backward(const struct replica *r)
{
    uint32_t *activation[LAYERS];

    CHECK(cudaSetDevice(r->device));
    for (unsigned l = 0; l < LAYERS; l++) {
        activation[l] = allocate(r, true);
        LAUNCH(r->stream, WIDTH, forward, activation[l], l ? activation[l - 1] : r->input, r->weight[l], WIDTH);
    }
    for (unsigned l = LAYERS; l-- > 0;) {
        LAUNCH(r->stream, WIDTH, backward, r->gradient, r->sum[l], activation[l], WIDTH);
        release(r, activation[l]);
    }
    CHECK(cudaEventRecord(r->ready, r->stream));
}

/*
 * Sums on the first device's stream, after the others' backward. Then the other streams follow it.
 */
static void sum_gradients(void)
{
    const struct replica *first = &replica[0];

    CHECK(cudaSetDevice(0));
    for (int d = 1; d < devices; d++)
        CHECK(cudaStreamWaitEvent(first->stream, replica[d].ready, 0));
    for (unsigned l = 0; l < LAYERS; l++) {
        for (int d = 1; d < devices; d++) {
            if (!words.peers)
                CHECK(cudaMemcpyPeerAsync(first->received, 0, replica[d].sum[l], d, WIDTH * sizeof(uint32_t),
                                          first->stream));
            LAUNCH(first->stream, WIDTH, add_words, first->sum[l], words.peers ? replica[d].sum[l] : first->received,
                   WIDTH);
        }
    }
    CHECK(cudaEventRecord(first->ready, first->stream));
    for (int d = 1; d < devices; d++) {
        CHECK(cudaSetDevice(d));
        CHECK(cudaStreamWaitEvent(replica[d].stream, first->ready, 0));
        for (unsigned l = 0; l < LAYERS; l++)
            CHECK(cudaMemcpyPeerAsync(replica[d].sum[l], d, first->sum[l], 0, WIDTH * sizeof(uint32_t),
                                      replica[d].stream));
        /*
         * The first device overwrites its sums in the next step, so it waits until all have read
         * them.
         */
        CHECK(cudaEventRecord(replica[d].ready, replica[d].stream));
        CHECK(cudaSetDevice(0));
        CHECK(cudaStreamWaitEvent(first->stream, replica[d].ready, 0));
    }
}

static void update_weights(const struct replica *r)
{
    CHECK(cudaSetDevice(r->device));
    for (unsigned l = 0; l < LAYERS; l++)
        LAUNCH(r->stream, WIDTH, update, r->weight[l], r->sum[l], l, WIDTH);
}

static uint64_t hash_of(const struct replica *r)
{
    static uint32_t host[WIDTH];
    uint64_t hash = 14695981039346656037ull;

    CHECK(cudaSetDevice(r->device));
    for (unsigned l = 0; l <= LAYERS; l++) {
        CHECK(cudaMemcpyAsync(host, l < LAYERS ? r->weight[l] : r->gradient, sizeof(host), cudaMemcpyDeviceToHost,
                              r->stream));
        CHECK(cudaStreamSynchronize(r->stream));
        for (auto word : host)
            hash = (hash ^ word) * 1099511628211ull;
    }
    return hash;
}

static void print_hashes(unsigned long step)
{
    printf("step %lu", step);
    for (int d = 0; d < devices; d++)
        printf(" %016llx", static_cast<unsigned long long>(hash_of(&replica[d])));
    printf("\n");
}

static void *train_one(void *which)
{
    struct replica *r = static_cast<struct replica *>(which);

    for (unsigned long step = 1; step <= steps; step++) {
        forward_and_backward(r);
        pthread_barrier_wait(&barrier);
        if (!r->device)
            sum_gradients();
        pthread_barrier_wait(&barrier);
        update_weights(r);
        pthread_barrier_wait(&barrier);
        if (!r->device)
            print_hashes(step);
        pthread_barrier_wait(&barrier);
    }
    return nullptr;
}

static void train_in_threads(void)
{
    pthread_t thread[DEVICES_MAX];

    pthread_barrier_init(&barrier, nullptr, static_cast<unsigned>(devices));
    for (int d = 0; d < devices; d++)
        REQUIRE(pthread_create(&thread[d], nullptr, train_one, &replica[d]) == 0, "no thread");
    for (int d = 0; d < devices; d++)
        pthread_join(thread[d], nullptr);
}

static void train_in_turn(void)
{
    for (unsigned long step = 1; step <= steps; step++) {
        for (int d = 0; d < devices; d++)
            forward_and_backward(&replica[d]);
        sum_gradients();
        for (int d = 0; d < devices; d++)
            update_weights(&replica[d]);
        print_hashes(step);
    }
}

static void let_peers_reach_each_other(void)
{
    for (int d = 1; d < devices; d++) {
        CHECK(cudaSetDevice(0));
        CHECK(cudaDeviceEnablePeerAccess(d, 0));
    }
}

static bool read_word(const char *word)
{
    const struct {
        const char *name;
        bool *flag;
    } known[] = {
        {"threads", &words.threads}, {"default", &words.on_default}, {"async", &words.async}, {"peers", &words.peers}};

    for (const auto &each : known)
        if (strcmp(word, each.name) == 0)
            return *each.flag = true;
    return false;
}

int main(int argc, char **argv)
{
    steps = argc > 1 ? strtoul(argv[1], nullptr, 10) : 0;
    devices = argc > 2 ? atoi(argv[2]) : 0;
    for (int i = 3; i < argc; i++) {
        if (read_word(argv[i]))
            continue;
        fprintf(stderr, "%s: no such word\n", argv[i]);
        return 2;
    }
    if (devices < 1 || devices > DEVICES_MAX) {
        fprintf(stderr, "devices STEPS DEVICES [WORD]...: from 1 to %d devices\n", DEVICES_MAX);
        return 2;
    }
    setvbuf(stdout, nullptr, _IOLBF, 0);
    for (int d = 0; d < devices; d++)
        begin(&replica[d], d);
    if (words.peers)
        let_peers_reach_each_other();
    if (words.threads)
        train_in_threads();
    else
        train_in_turn();
    for (int d = 0; d < devices; d++) {
        CHECK(cudaSetDevice(d));
        CHECK(cudaDeviceSynchronize());
        for (unsigned l = 0; l < LAYERS; l++) {
            CHECK(cudaFree(replica[d].weight[l]));
            CHECK(cudaFree(replica[d].sum[l]));
        }
        CHECK(cudaSetDevice(0)); /* cudaFree works whichever device is current */
        CHECK(cudaFree(replica[d].input));
        CHECK(cudaFree(replica[d].gradient));
        if (!d)
            CHECK(cudaFree(replica[d].received));
    }
    puts("ok");
    return failures ? 1 : 0;
}
