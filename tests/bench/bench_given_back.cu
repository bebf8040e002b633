/*
 * The time that copies lose while the driver takes device pages back. This needs a GPU, which
 * clears the pages with an engine that H2D copies use too (shim/memory/spare_pages.h). On the
 * simulated device the program runs, but its figures mean nothing.
 *
 *   bench_given_back [MIB [HANDLES]]
 *
 * MIB is the size of a handle (2048), and HANDLES the number that are released at a time (3).
 *
 * Prints a line of JSON for each case: the rate of copies of 64 MiB in a row, alone and with pages
 * released 15 ms after the first, in GB/s; the time that this adds, in ms, in all and for each GiB;
 * and the time of the calls that release.
 */
#include <pthread.h>

#include <cuda.h>

#include "../samples/kernel.h"
#include "bench.h"
#include "driver.h"

#define COPY_BYTES ((size_t)64 << 20)
#define COPIES 64 /* copies at a time: 78 ms of the link */
#define BUFFERS 8 /* buffers of each side, in turn */
#define STREAMS_MAX 4
#define HANDLES_MAX 1024
#define GIB ((double)(1u << 30))
static const struct timespec before_giving_back = {.tv_sec = 0, .tv_nsec = 15000000};

static size_t handle_bytes = (size_t)2048 << 20;
static int handles = 3;
static CUdeviceptr addresses;
static CUmemGenericAllocationHandle handle[HANDLES_MAX];
static double calls_ms;

static void make_pages()
{
    CUmemAllocationProp property = {};
    CUmemAccessDesc access = {};

    property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    access = {.location = property.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (int h = 0; h < handles; h++) {
        CUdeviceptr address = addresses + handle_bytes * (size_t)h;
        DRIVER(cu.create(&handle[h], handle_bytes, &property, 0));
        DRIVER(cu.map(address, handle_bytes, 0, handle[h], 0));
        DRIVER(cu.set_access(address, handle_bytes, &access, 1));
    }
}

static void *give_back(void *)
{
    nanosleep(&before_giving_back, nullptr);
    uint64_t began = bench_now_ns();
    for (int h = 0; h < handles; h++) {
        DRIVER(cu.unmap(addresses + handle_bytes * (size_t)h, handle_bytes));
        DRIVER(cu.release(handle[h]));
    }
    calls_ms = (double)(bench_now_ns() - began) / 1e6;
    return nullptr;
}

/*
 * Copies on `streams` streams in turn, and releases pages meanwhile if `gives_back`. Returns the ms
 * from the first copy's beginning to the end of all.
 */
static double copy(cudaMemcpyKind kind, int streams, bool gives_back, char *const *device, char *const *host)
{
    cudaStream_t stream[STREAMS_MAX];
    cudaEvent_t began, joined, ended;
    pthread_t thread;
    float ms;

    CHECK(cudaEventCreate(&began));
    CHECK(cudaEventCreate(&ended));
    CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    for (int s = 0; s < streams; s++)
        CHECK(cudaStreamCreateWithFlags(&stream[s], cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaEventRecord(began, stream[0]));
    if (gives_back)
        REQUIRE(!pthread_create(&thread, nullptr, give_back, nullptr), "a thread could not be started");
    for (int i = 0; i < COPIES; i++) {
        char *on_device = device[i % BUFFERS], *on_host = host[i % BUFFERS];
        bool in = kind == cudaMemcpyHostToDevice;
        CHECK(
            cudaMemcpyAsync(in ? on_device : on_host, in ? on_host : on_device, COPY_BYTES, kind, stream[i % streams]));
    }
    for (int s = 1; s < streams; s++) {
        CHECK(cudaEventRecord(joined, stream[s]));
        CHECK(cudaStreamWaitEvent(stream[0], joined, 0));
    }
    CHECK(cudaEventRecord(ended, stream[0]));
    CHECK(cudaEventSynchronize(ended));
    if (gives_back)
        pthread_join(thread, nullptr);
    CHECK(cudaEventElapsedTime(&ms, began, ended));
    for (int s = 0; s < streams; s++)
        CHECK(cudaStreamDestroy(stream[s]));
    return ms;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        cudaMemcpyKind kind;
        int streams;
    } cases[] = {
        {"H2D", cudaMemcpyHostToDevice, 1},
        {"H2D", cudaMemcpyHostToDevice, 2},
        {"H2D", cudaMemcpyHostToDevice, 4},
        {"D2H", cudaMemcpyDeviceToHost, 1},
    };
    char *device[BUFFERS], *host[BUFFERS];

    if (argc > 1)
        handle_bytes = (size_t)bench_number(argv[1]) << 20;
    if (argc > 2)
        handles = bench_number(argv[2]);
    REQUIRE(handles <= HANDLES_MAX && handle_bytes % ((size_t)2 << 20) == 0,
            "at most %d handles, of whole pages of 2 MiB", HANDLES_MAX);
    for (int b = 0; b < BUFFERS; b++) {
        CHECK(cudaMalloc(reinterpret_cast<void **>(&device[b]), COPY_BYTES));
        CHECK(cudaMallocHost(reinterpret_cast<void **>(&host[b]), COPY_BYTES));
    }
    find_driver();
    DRIVER(cu.reserve(&addresses, handle_bytes * (size_t)handles, 0, 0, 0));
    for (const auto &one : cases) {
        const double bytes = (double)COPY_BYTES * COPIES, gib = (double)handle_bytes * handles / GIB;
        double alone = copy(one.kind, one.streams, false, device, host);
        make_pages();
        double beside = copy(one.kind, one.streams, true, device, host);
        printf(
            "{\"copies\": \"%s\", \"streams\": %d, \"given_back_gib\": %.2f, \"handles\": %d, \"calls_ms\": %.1f, \"alone_gbps\": %.1f, "
            "\"beside_gbps\": %.1f, \"lost_ms\": %.1f, \"lost_ms_a_gib\": %.2f}\n",
            one.name, one.streams, gib, handles, calls_ms, bytes / alone / 1e6, bytes / beside / 1e6, beside - alone,
            (beside - alone) / gib);
        fflush(stdout);
    }
    return 0;
}
