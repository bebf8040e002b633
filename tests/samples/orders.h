/*
 * Shared by the cases of `orders`: blocks of memory, gates that hold a stream until they are
 * opened, and a watch that ends a case which hangs.
 *
 * A gate is a word in pinned memory for which a stream waits (cuStreamWaitValue32). Another stream
 * or the host opens it. A case whose gate is not opened in time hangs. The watch then reports it
 * and opens all gates, so that the program ends by itself on any device.
 */
#ifndef PENSTOCK_SAMPLES_ORDERS_H
#define PENSTOCK_SAMPLES_ORDERS_H

#include <cuda.h>
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <mutex>
#include <set>
#include <thread>

#include "hostile.h"

#define GATES 16
#define GATE 0 /* for cases with a single gate */
#define OPEN_FOR_ALL 0x40000000u
#define MOST_BLOCKS 64
#define BUDGET_BLOCKS 8 /* the budget of cases that need memory to be short */

static size_t block_bytes = 8u << 20;
static unsigned patience_s = 10;
static bool own_pool; /* blocks come from a pool that the program made */
static cudaMemPool_t pool;

struct order_case {
    const char *name;
    void (*run)(void);
    const char *what;
};

static inline size_t block_words(void)
{
    return block_bytes / sizeof(uint32_t);
}

static inline double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

/* ---- memory ---- */

/* Lets the pool keep freed memory, as torch does. */
static inline void prepare_pool(void)
{
    uint64_t all = UINT64_MAX;

    CHECK_OR_SKIP(cudaDeviceGetDefaultMemPool(&pool, 0));
    if (own_pool) {
        struct cudaMemPoolProps properties = {};

        properties.allocType = cudaMemAllocationTypePinned;
        properties.location.type = cudaMemLocationTypeDevice;
        CHECK_OR_SKIP(cudaMemPoolCreate(&pool, &properties));
    }
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
}

/*
 * Blocks that are allocated and not freed. The program frees them at its end. Guarded by
 * `live_lock`.
 */
static std::mutex live_lock;
static std::set<uint32_t *> live_blocks;

static inline uint32_t *remember(void *block)
{
    const std::lock_guard<std::mutex> guard(live_lock);

    return *live_blocks.insert(static_cast<uint32_t *>(block)).first;
}

static inline void forget(uint32_t *block)
{
    const std::lock_guard<std::mutex> guard(live_lock);

    live_blocks.erase(block);
}

static inline void free_what_is_left(void)
{
    for (uint32_t *block : live_blocks)
        CHECK(cudaFree(block));
    live_blocks.clear();
}

/* Allocates a block in stream order. */
static inline uint32_t *take_bytes(size_t bytes, cudaStream_t stream)
{
    void *block = nullptr;

    CHECK(own_pool ? cudaMallocFromPoolAsync(&block, bytes, pool, stream) : cudaMallocAsync(&block, bytes, stream));
    return remember(block);
}

static inline uint32_t *take(cudaStream_t stream)
{
    return take_bytes(block_bytes, stream);
}

static inline void give(uint32_t *block, cudaStream_t stream)
{
    forget(block);
    CHECK(cudaFreeAsync(block, stream));
}

/* Allocates a block by cudaMalloc, which all streams may use at once. */
static inline uint32_t *take_for_all(size_t bytes)
{
    void *block = nullptr;

    CHECK(cudaMalloc(&block, bytes));
    return remember(block);
}

static inline void give_for_all(uint32_t *block)
{
    forget(block);
    CHECK(cudaFree(block));
}

static inline void fill(cudaStream_t stream, uint32_t *block, uint32_t salt)
{
    LAUNCH(stream, block_words(), fill_words, block, salt, 0, block_words());
}

/* A short kernel that names the whole block. */
static inline void touch(cudaStream_t stream, uint32_t *block)
{
    LAUNCH(stream, 1, add_to_words, block, 0, 1);
}

static inline void copy(cudaStream_t stream, uint32_t *to, const uint32_t *from)
{
    LAUNCH(stream, block_words(), copy_words, to, from, block_words());
}

static inline void expect_block(const uint32_t *block, uint32_t salt, const char *what)
{
    const cudaStream_t stream = new_stream();

    expect_words(block, salt, 0, block_words(), stream, what);
    CHECK(cudaStreamDestroy(stream));
}

/* Creates a stream that waits for the legacy default stream, and for which that stream waits. */
static inline cudaStream_t new_blocking_stream(void)
{
    cudaStream_t stream = nullptr;

    CHECK(cudaStreamCreate(&stream));
    return stream;
}

/* ---- gates ---- */
static uint32_t *gate_words; /* GATES words, a cache line apart */
static CUdeviceptr gate_words_on_device;

static inline volatile uint32_t *gate_word(unsigned gate)
{
    return gate_words + static_cast<size_t>(gate) * 16;
}

static inline CUdeviceptr gate_on_device(unsigned gate)
{
    return gate_words_on_device + static_cast<CUdeviceptr>(gate) * 64;
}

static inline void prepare_gates(void)
{
    void *on_host = nullptr, *on_device = nullptr;

    CHECK(cudaHostAlloc(&on_host, GATES * 64, cudaHostAllocMapped));
    memset(on_host, 0, GATES * 64);
    CHECK(cudaHostGetDevicePointer(&on_device, on_host, 0));
    gate_words_on_device = reinterpret_cast<CUdeviceptr>(on_device);
    __atomic_store_n(&gate_words, static_cast<uint32_t *>(on_host), __ATOMIC_RELEASE);
}

typedef CUresult (*word_call)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

static inline void call_with_word(const char *name, cudaStream_t stream, unsigned gate, uint32_t value, unsigned flags)
{
    const auto call = reinterpret_cast<word_call>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name));
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;

    if (call != nullptr)
        result = call(stream, gate_on_device(gate), value, flags);
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        printf("skip: %s is not supported\n", name);
        exit(EXIT_SKIP);
    }
    REQUIRE(result == CUDA_SUCCESS, "%s: %d", name, result);
}

/* Later work of the stream waits until the gate's number is `value` or more. */
static inline void hold(cudaStream_t stream, unsigned gate, uint32_t value = 1)
{
    call_with_word("cuStreamWaitValue32_v2", stream, gate, value, CU_STREAM_WAIT_VALUE_GEQ);
}

/* The stream opens the gate when all its earlier work is complete. */
static inline void open_on(cudaStream_t stream, unsigned gate, uint32_t value = 1)
{
    call_with_word("cuStreamWriteValue32_v2", stream, gate, value, 0);
}

static inline void open_from_host(unsigned gate, uint32_t value = 1)
{
    __atomic_store_n(gate_word(gate), value, __ATOMIC_RELEASE);
}

/*
 * Waits a while for the stream to become idle, and returns after that even if it is not. Work that
 * must not run yet gets its chance to run by mistake.
 */
static inline void give_a_chance(cudaStream_t stream)
{
    for (const double until = seconds_now() + 0.15; seconds_now() < until; usleep(1000)) {
        const cudaError_t result = cudaStreamQuery(stream);

        if (result == cudaSuccess)
            return;
        if (result != cudaErrorNotReady)
            CHECK(result);
    }
}

/*
 * Opens a gate when told to, or after half a second. Without Penstock, cudaFree waits for the work
 * behind the gate.
 */
class later_opening
{
  public:
    explicit later_opening(unsigned gate) : thread([this, gate] { wait_and_open(gate); }) {}
    later_opening(const later_opening &) = delete;
    later_opening &operator=(const later_opening &) = delete;
    ~later_opening()
    {
        thread.join();
    }
    void now(void)
    {
        told = true;
    }

  private:
    void wait_and_open(unsigned gate)
    {
        for (unsigned i = 0; i < 500 && !told; i++)
            usleep(1000);
        open_from_host(gate);
    }

    std::atomic<bool> told{false};
    std::thread thread;
};

/* ---- the watch ---- */
static std::atomic<bool> case_is_over;

static void open_all_gates(void)
{
    if (__atomic_load_n(&gate_words, __ATOMIC_ACQUIRE) == nullptr)
        return;
    for (unsigned gate = 0; gate < GATES; gate++)
        open_from_host(gate, OPEN_FOR_ALL);
}

/* Counts naps instead of reading a clock, so that a pause of the whole machine does not count. */
static bool over_within(unsigned seconds, bool opening)
{
    for (unsigned naps = 0; naps < 100 * seconds; naps++, usleep(10000)) {
        if (case_is_over)
            return true;
        if (opening)
            open_all_gates(); /* again: a stream may have written a lower number meanwhile */
    }
    return case_is_over;
}

static void watch(void)
{
    if (over_within(patience_s, false))
        return;
    failures++;
    fprintf(stderr, "hung: not over after %u s; all gates are opened\n", patience_s);
    if (over_within(patience_s, true))
        return;
    fprintf(stderr, "hung: not over after %u s more, with all gates open\n", patience_s);
    _exit(1);
}

/* Ends the watch after the case and prints "ok" if nothing failed. Returns the exit status. */
static int end_watch(std::thread *watcher)
{
    case_is_over = true;
    watcher->join();
    if (failures > 0)
        return 1;
    printf("ok\n");
    return 0;
}

#endif
