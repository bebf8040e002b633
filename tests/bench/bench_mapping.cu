/*
 * The time that the driver takes to make, map and unmap pages, and to launch meanwhile, beside
 * copies of several kinds. On a GPU the shim's helper threads are as fast as this allows
 * (shim/cuda/copy_gate.h). On the simulated device the program runs, but its figures mean nothing.
 *
 *   bench_mapping [MIB [TIMES [HANDLES]]]
 *
 * MIB is a span's size (64), TIMES the number of repetitions (200), and HANDLES the number of
 * handles of the span (1).
 *
 * Prints a line of JSON for each case: medians of each call and the 99th percentile of all five
 * together, in us; the same of a launch of an empty kernel while another thread maps; and the rates
 * of the copies beside it, in GB/s.
 */
#include <pthread.h>

#include <atomic>
#include <cstring>

#include <cuda.h>

#include "../samples/kernel.h"
#include "bench.h"
#include "driver.h"

#define COPY_BYTES ((size_t)256 << 20) /* copied repeatedly in each direction */
#define TIMES_MAX 4000
#define HANDLES_MAX 64
#define NS_PER_US 1e3

KERNEL(nothing, (float *out, size_t count), (out, count))
{
    FOR_EACH_ITEM(i, count)
    out[i] = 0;
}

static CUmemAllocationProp property;
static CUmemAccessDesc access_desc;
static CUdeviceptr addresses; /* one span for each of the two threads that map */
static size_t span_bytes = (size_t)64 << 20;
static int times = 200, handles = 1;

/* ---- copies beside the mappings ---- */

enum { OUT, IN, WAYS };
#define THE_WAY(way) (1 << (way))
#define WAY_OUT THE_WAY(OUT)
#define WAY_IN THE_WAY(IN)
#define WAYS_BOTH (WAY_OUT | WAY_IN)
#define MIB(n) ((size_t)(n) << 20)

struct beside {
    const char *name;
    size_t piece[WAYS]; /* bytes of a copy; 0: no copy in that direction */
    int looks;          /* bits of the ways whose copies wait for a word in host memory ahead of each piece */
    int shuts; /* bits of the ways whose word a mapping thread sets during cuMemSetAccess, so that copies wait */
};

static const struct beside cases[] = {
    {"nothing", {0, 0}, 0, 0},
    {"D2H in 256 MiB", {COPY_BYTES, 0}, 0, 0},
    {"D2H in 64 MiB", {MIB(64), 0}, 0, 0},
    {"D2H in 16 MiB", {MIB(16), 0}, 0, 0},
    {"D2H in 4 MiB", {MIB(4), 0}, 0, 0},
    {"D2H in 1 MiB", {MIB(1), 0}, 0, 0},
    {"D2H in 64 MiB, with a gate", {MIB(64), 0}, WAY_OUT, WAY_OUT},
    {"D2H in 32 MiB, with a gate", {MIB(32), 0}, WAY_OUT, WAY_OUT},
    {"D2H in 16 MiB, with a gate", {MIB(16), 0}, WAY_OUT, WAY_OUT},
    {"D2H in 16 MiB, with a gate that stays open", {MIB(16), 0}, WAY_OUT, 0},
    {"D2H in 8 MiB, with a gate", {MIB(8), 0}, WAY_OUT, WAY_OUT},
    {"D2H in 4 MiB, with a gate", {MIB(4), 0}, WAY_OUT, WAY_OUT},
    {"H2D in 64 MiB", {0, MIB(64)}, 0, 0},
    {"H2D in 4 MiB", {0, MIB(4)}, 0, 0},
    {"H2D in 16 MiB, with a gate", {0, MIB(16)}, WAY_IN, WAY_IN},
    {"H2D in 4 MiB, with a gate", {0, MIB(4)}, WAY_IN, WAY_IN},
    {"both in 64 MiB", {MIB(64), MIB(64)}, 0, 0},
    {"both in 4 MiB", {MIB(4), MIB(4)}, 0, 0},
    {"both in 16 MiB", {MIB(16), MIB(16)}, 0, 0},
    {"both in 16 MiB, with a gate on the way out", {MIB(16), MIB(16)}, WAY_OUT, WAY_OUT},
    {"both in 16 MiB, with a gate on the way in", {MIB(16), MIB(16)}, WAY_IN, WAY_IN},
    {"both in 16 MiB, with a gate each way", {MIB(16), MIB(16)}, WAYS_BOTH, WAYS_BOTH},
    {"both in 16 MiB, with gates that stay open", {MIB(16), MIB(16)}, WAYS_BOTH, 0},
};

struct way {
    const struct beside *beside;
    int number;
    char *device, *host;
    double gbps;
};
static std::atomic<bool> go_on;
#define WORDS_APART 16  /* a cache line */
static unsigned *words; /* one for each way; 0: copies go on */

static unsigned *word_of(int way)
{
    return words + way * WORDS_APART;
}

/* Keeps two rounds of copies queued while `go_on` is true. */
static void *copy(void *context)
{
    struct way *way = static_cast<struct way *>(context);
    const bool out = way->number == OUT;
    const size_t piece = way->beside->piece[way->number];
    cudaStream_t stream;
    cudaEvent_t ended[2];
    uint64_t rounds = 0, began = bench_now_ns();

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (cudaEvent_t &event : ended)
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (; go_on.load(); rounds++) {
        if (rounds >= 2)
            CHECK(cudaEventSynchronize(ended[rounds % 2]));
        for (size_t at = 0; at < COPY_BYTES; at += piece) {
            if (way->beside->looks & THE_WAY(way->number))
                DRIVER(cu.wait_value(stream, (CUdeviceptr)(uintptr_t)word_of(way->number), 0, CU_STREAM_WAIT_VALUE_EQ));
            CHECK(cudaMemcpyAsync((out ? way->host : way->device) + at, (out ? way->device : way->host) + at, piece,
                                  out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream));
        }
        CHECK(cudaEventRecord(ended[rounds % 2], stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    way->gbps = (double)(rounds * COPY_BYTES) / (double)(bench_now_ns() - began);
    return nullptr;
}

/* ---- measurements ---- */

enum { CREATE, MAP, ACCESS, UNMAP, RELEASE, ALL, CALLS };
static double took[CALLS + 1][TIMES_MAX]; /* ns; the last row: a launch */

static double *lap(uint64_t *since, double *into)
{
    uint64_t now = bench_now_ns();

    *into = (double)(now - *since);
    *since = now;
    return into;
}

/* Two threads map. Each adds itself to the word and subtracts itself. */
static void shut(const struct beside *beside, int by)
{
    for (int way = 0; way < WAYS; way++)
        if (beside->shuts & THE_WAY(way))
            __atomic_add_fetch(word_of(way), (unsigned)by, __ATOMIC_SEQ_CST);
}

static void map_once(const struct beside *beside, CUdeviceptr address, double *each)
{
    CUmemGenericAllocationHandle handle[HANDLES_MAX];
    const size_t bytes = span_bytes / (size_t)handles;
    uint64_t since = bench_now_ns(), began = since;

    for (int h = 0; h < handles; h++)
        DRIVER(cu.create(&handle[h], bytes, &property, 0));
    lap(&since, &each[CREATE]);
    for (int h = 0; h < handles; h++)
        DRIVER(cu.map(address + bytes * (size_t)h, bytes, 0, handle[h], 0));
    lap(&since, &each[MAP]);
    shut(beside, 1);
    DRIVER(cu.set_access(address, span_bytes, &access_desc, 1));
    shut(beside, -1);
    lap(&since, &each[ACCESS]);
    DRIVER(cu.unmap(address, span_bytes));
    lap(&since, &each[UNMAP]);
    for (int h = 0; h < handles; h++)
        DRIVER(cu.release(handle[h]));
    lap(&since, &each[RELEASE]);
    lap(&began, &each[ALL]);
}

static void *map_again_and_again(void *beside)
{
    double each[CALLS];

    while (go_on.load())
        map_once(static_cast<const struct beside *>(beside), addresses + span_bytes, each);
    return nullptr;
}

static double quantile(double *values, double share)
{
    qsort(values, (size_t)times, sizeof *values, bench_compare);
    return values[(size_t)((times - 1) * share)] / NS_PER_US;
}

static void start(pthread_t *thread, void *(*run)(void *), void *context)
{
    REQUIRE(!pthread_create(thread, nullptr, run, context), "a thread could not be started");
}

static void measure(const struct beside *beside, struct way *ways, float *out)
{
    static const char *const names[] = {"create", "map", "set_access", "unmap", "release", "all"};
    pthread_t copies[WAYS], mapper;

    go_on.store(true);
    for (int i = 0; i < WAYS; i++) {
        ways[i].beside = beside;
        ways[i].gbps = 0;
        if (beside->piece[i])
            start(&copies[i], copy, &ways[i]);
    }
    for (int i = 0; i < times; i++) {
        double each[CALLS];
        map_once(beside, addresses, each);
        for (int c = 0; c < CALLS; c++)
            took[c][i] = each[c];
    }
    start(&mapper, map_again_and_again, const_cast<struct beside *>(beside));
    for (int i = 0; i < times; i++) {
        static const struct timespec apart = {.tv_sec = 0, .tv_nsec = 50000};
        uint64_t since = bench_now_ns();
        LAUNCH(nullptr, 1, nothing, out, 1);
        lap(&since, &took[CALLS][i]);
        nanosleep(&apart, nullptr);
    }
    go_on.store(false);
    pthread_join(mapper, nullptr);
    for (int i = 0; i < WAYS; i++)
        if (beside->piece[i])
            pthread_join(copies[i], nullptr);
    CHECK(cudaDeviceSynchronize());
    printf("{\"beside\": \"%s\"", beside->name);
    for (int c = 0; c < CALLS; c++)
        printf(", \"%s_us\": %.1f", names[c], quantile(took[c], 0.5));
    printf(
        ", \"all_99_us\": %.1f, \"launch_us\": %.1f, \"launch_99_us\": %.1f, \"out_gbps\": %.1f, \"in_gbps\": %.1f}\n",
        quantile(took[ALL], 0.99), quantile(took[CALLS], 0.5), quantile(took[CALLS], 0.99), ways[OUT].gbps,
        ways[IN].gbps);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct way ways[WAYS] = {};
    float *out;

    if (argc > 1)
        span_bytes = (size_t)bench_number(argv[1]) << 20;
    if (argc > 2)
        times = bench_number(argv[2]);
    if (argc > 3)
        handles = bench_number(argv[3]);
    REQUIRE(times <= TIMES_MAX && handles <= HANDLES_MAX, "at most %d times, %d handles", TIMES_MAX, HANDLES_MAX);
    REQUIRE(span_bytes % ((size_t)handles << 21) == 0, "a handle is of whole pages of 2 MiB");
    CHECK(cudaMalloc(&out, sizeof *out));
    find_driver();
    CHECK(cudaMallocHost(reinterpret_cast<void **>(&words), WAYS * WORDS_APART * sizeof *words));
    memset(words, 0, WAYS * WORDS_APART * sizeof *words);
    property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    access_desc = {.location = property.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    DRIVER(cu.reserve(&addresses, 2 * span_bytes, 0, 0, 0));
    for (int i = 0; i < WAYS; i++) {
        ways[i].number = i;
        CHECK(cudaMalloc(reinterpret_cast<void **>(&ways[i].device), COPY_BYTES));
        CHECK(cudaMallocHost(reinterpret_cast<void **>(&ways[i].host), COPY_BYTES));
    }
    for (const struct beside &beside : cases)
        measure(&beside, ways, out);
    return 0;
}
