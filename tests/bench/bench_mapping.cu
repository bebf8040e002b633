/*
 * What the driver takes to make, map and unmap pages, and what a launch takes meanwhile, beside copies of several kinds: on a GPU, where the shim's
 * helper threads are as fast as this allows (shim/gate.h). (On the simulated device it only runs.)
 *
 *   bench_mapping [MIB [TIMES [HANDLES]]]    a span's size (64), how often each is done (200), and of how many handles the span is (1)
 *
 * One line of JSON a case: medians of each call and the 99th percentile of all five together, in us; the same of a launch of an empty kernel while another
 * thread maps; and the rates of the copies beside it, GB/s.
 */
#include <pthread.h>

#include <atomic>

#include <cuda.h>

#include "../samples/kernel.h"
#include "bench.h"
#include "driver.h"

#define COPY_BYTES ((size_t)256 << 20) /* copied again and again, each way */
#define TIMES_MAX   4000
#define HANDLES_MAX 64
#define NS_PER_US  1e3

KERNEL(nothing, (float *out, size_t count), (out, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = 0;
}


static CUmemAllocationProp property;
static CUmemAccessDesc access_desc;
static CUdeviceptr addresses; /* of a span for each of the two threads that map */
static size_t span_bytes = (size_t)64 << 20;
static int times = 200, handles = 1;

/* ---- copies beside it ---- */

struct beside {
    const char *name;
    size_t out_piece, in_piece; /* bytes a copy, 0: none in that direction */
    bool looks;                 /* the way out looks at a word in host memory ahead of each piece */
    bool shuts;                 /* who maps holds it up there */
};

static const struct beside cases[] = {
    {"nothing", 0, 0, false, false},
    {"D2H in 256 MiB", COPY_BYTES, 0, false, false},
    {"D2H in 64 MiB", (size_t)64 << 20, 0, false, false},
    {"D2H in 16 MiB", (size_t)16 << 20, 0, false, false},
    {"D2H in 4 MiB", (size_t)4 << 20, 0, false, false},
    {"D2H in 1 MiB", (size_t)1 << 20, 0, false, false},
    {"D2H in 64 MiB, with a gate", (size_t)64 << 20, 0, true, true},
    {"D2H in 32 MiB, with a gate", (size_t)32 << 20, 0, true, true},
    {"D2H in 16 MiB, with a gate", (size_t)16 << 20, 0, true, true},
    {"D2H in 16 MiB, with a gate that stays open", (size_t)16 << 20, 0, true, false},
    {"D2H in 8 MiB, with a gate", (size_t)8 << 20, 0, true, true},
    {"D2H in 4 MiB, with a gate", (size_t)4 << 20, 0, true, true},
    {"H2D in 64 MiB", 0, (size_t)64 << 20, false, false},
    {"H2D in 4 MiB", 0, (size_t)4 << 20, false, false},
    {"both in 64 MiB", (size_t)64 << 20, (size_t)64 << 20, false, false},
    {"both in 4 MiB", (size_t)4 << 20, (size_t)4 << 20, false, false},
    {"both in 16 MiB", (size_t)16 << 20, (size_t)16 << 20, false, false},
    {"both in 16 MiB, with a gate", (size_t)16 << 20, (size_t)16 << 20, true, true},
    {"both in 16 MiB, with a gate that stays open", (size_t)16 << 20, (size_t)16 << 20, true, false},
};

struct way {
    const struct beside *beside;
    bool out;
    char *device, *host;
    double gbps;
};
static std::atomic<bool> go_on;
static unsigned *word; /* 0: copies go on */

/* Keeps two rounds of copies queued, until go_on ends. */
static void *copy(void *context)
{
    struct way *way = static_cast<struct way *>(context);
    size_t piece = way->out ? way->beside->out_piece : way->beside->in_piece;
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
            if (way->out && way->beside->looks)
                DRIVER(cu.wait_value(stream, (CUdeviceptr)(uintptr_t)word, 0, CU_STREAM_WAIT_VALUE_EQ));
            CHECK(cudaMemcpyAsync((way->out ? way->host : way->device) + at, (way->out ? way->device : way->host) + at, piece,
                                  way->out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream));
        }
        CHECK(cudaEventRecord(ended[rounds % 2], stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    way->gbps = (double)(rounds * COPY_BYTES) / (double)(bench_now_ns() - began);
    return nullptr;
}

/* ---- what is measured ---- */

enum { CREATE, MAP, ACCESS, UNMAP, RELEASE, ALL, CALLS };
static double took[CALLS + 1][TIMES_MAX]; /* ns; the last: a launch */

static double *lap(uint64_t *since, double *into)
{
    uint64_t now = bench_now_ns();

    *into = (double)(now - *since);
    *since = now;
    return into;
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
    if (beside->shuts)
        __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
    DRIVER(cu.set_access(address, span_bytes, &access_desc, 1));
    if (beside->shuts)
        __atomic_sub_fetch(word, 1, __ATOMIC_SEQ_CST);
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
    pthread_t copies[2], mapper;
    size_t pieces[] = {beside->out_piece, beside->in_piece};

    go_on.store(true);
    for (int i = 0; i < 2; i++) {
        ways[i].beside = beside;
        ways[i].gbps = 0;
        if (pieces[i])
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
    for (int i = 0; i < 2; i++)
        if (pieces[i])
            pthread_join(copies[i], nullptr);
    CHECK(cudaDeviceSynchronize());
    printf("{\"beside\": \"%s\"", beside->name);
    for (int c = 0; c < CALLS; c++)
        printf(", \"%s_us\": %.1f", names[c], quantile(took[c], 0.5));
    printf(", \"all_99_us\": %.1f, \"launch_us\": %.1f, \"launch_99_us\": %.1f, \"out_gbps\": %.1f, \"in_gbps\": %.1f}\n", quantile(took[ALL], 0.99),
           quantile(took[CALLS], 0.5), quantile(took[CALLS], 0.99), ways[0].gbps, ways[1].gbps);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct way ways[2] = {};
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
    CHECK(cudaMallocHost(reinterpret_cast<void **>(&word), sizeof *word));
    *word = 0;
    property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    access_desc = {.location = property.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    DRIVER(cu.reserve(&addresses, 2 * span_bytes, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        ways[i].out = i == 0;
        CHECK(cudaMalloc(reinterpret_cast<void **>(&ways[i].device), COPY_BYTES));
        CHECK(cudaMallocHost(reinterpret_cast<void **>(&ways[i].host), COPY_BYTES));
    }
    for (const struct beside &beside : cases)
        measure(&beside, ways, out);
    return 0;
}
