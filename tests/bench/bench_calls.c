/*
 * The time of Penstock's own code, without a driver: the allocation hooks in steady state, and the
 * tracer's work for a launch.
 *
 * The program holds the shim's objects (libpenstock-test.a) instead of preloading the library. They
 * start on the simulated device as in any program. Then the program replaces the driver's calls
 * that the measured paths can reach by empty functions. So only the shim's time remains, and the
 * program counts the driver calls.
 *
 * usage: bench_calls BATCHES    prints a line of JSON for each figure: name, median_ns, low_ns, and
 * driver_calls an operation
 */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <unistd.h>

#include "base/counters.h"
#include "base/settings.h"
#include "bench.h"
#include "cuda/address_map.h"
#include "cuda/driver.h"
#include "memory/registry.h"
#include "plan/live_values.h"
#include "plan/step_log.h"
#include "process.h"
#include "tracer/start.h"
#include "tracer/tracer.h"

#define KERNELS 64 /* different kernels of the imagined program */
#define LAUNCHES_A_STEP 512
#define SPANS 400
#define WORDS 400 /* 8-byte words of the parameter that is passed by value */
#define POINTERS 20
#define ALLOCATIONS 4000 /* operations a batch */
#define LAUNCHES 2048

static uint64_t driver_calls;

/* ---- the empty driver ---- */

static CUresult no_wait(CUstream stream, CUevent event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    driver_calls++;
    return CUDA_SUCCESS;
}

static CUresult no_record(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    driver_calls++;
    return CUDA_SUCCESS;
}

static CUresult no_create(CUevent *event, unsigned flags)
{
    static int events;

    (void)flags;
    driver_calls++;
    *event = (CUevent)&events;
    return CUDA_SUCCESS;
}

static CUresult is_over(CUevent event)
{
    (void)event;
    driver_calls++;
    return CUDA_SUCCESS;
}

/*
 * A kernel of the imagined program; its address is its handle. The spacing is like that of the
 * driver's handles, which are structures of some size.
 */
struct kernel {
    uint32_t parameters;
    uint32_t bytes; /* of each parameter */
    char rest[248];
};

static CUresult layout_of(CUkernel handle, size_t index, size_t *offset, size_t *bytes)
{
    const struct kernel *kernel = (const struct kernel *)(void *)handle;

    if (index >= kernel->parameters)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = index * kernel->bytes;
    *bytes = kernel->bytes;
    return CUDA_SUCCESS;
}

static CUresult name_of(const char **name, CUkernel handle)
{
    (void)handle;
    *name = "bench";
    return CUDA_SUCCESS;
}

/* Host memory that kernels get, without a table in it. */
#define HOST_BYTES ((size_t)1 << 20)
static unsigned char *host_memory;

static CUresult attributes_of(unsigned count, CUpointer_attribute *asked, void **values, CUdeviceptr address)
{
    const uintptr_t start = (uintptr_t)host_memory;

    driver_calls++;
    if (address - start >= HOST_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        switch (asked[i]) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *(unsigned *)values[i] = CU_MEMORYTYPE_HOST;
            break;
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            *(void **)values[i] = (void *)(uintptr_t)address;
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            *(CUdeviceptr *)values[i] = start;
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            *(size_t *)values[i] = HOST_BYTES;
            break;
        default:
            break;
        }
    return CUDA_SUCCESS;
}

static CUcontext current_context;

static CUresult context_now(CUcontext *context)
{
    *context = current_context;
    return CUDA_SUCCESS;
}

static void empty_driver(void)
{
    ps_cu.cuCtxGetCurrent(&current_context); /* before it is replaced: the context that all calls run in */
    ps_cu.cuCtxGetCurrent = context_now;
    ps_cu.cuStreamWaitEvent = no_wait;
    ps_cu.cuEventRecord = no_record;
    ps_cu.cuEventCreate = no_create;
    ps_cu.cuEventQuery = is_over;
    ps_cu.cuEventSynchronize = is_over;
    ps_cu.cuKernelGetParamInfo = layout_of;
    ps_cu.cuKernelGetName = name_of;
    ps_cu.cuPointerGetAttributes = attributes_of;
}

/* ---- figures ---- */

static int batches;

static void fail(const char *what)
{
    fprintf(stderr, "bench_calls: %s\n", what);
    exit(1);
}

static void check(cudaError_t result, const char *what)
{
    if (result != cudaSuccess)
        fail(what);
}

static void figure(const char *name, int operations, void (*operation)(void *context, int i), void *context)
{
    uint64_t before = driver_calls;
    struct bench_figure f = bench_measure(batches, operations, operation, NULL, context);
    double calls = (double)(driver_calls - before) / ((double)operations * (batches + 1));

    printf("{\"name\": \"%s\", \"median_ns\": %.1f, \"low_ns\": %.1f, \"driver_calls\": %.2f}\n", name, f.median_ns,
           f.low_ns, calls);
    fflush(stdout);
}

/* ---- allocation and free ---- */

#define CLASSES 8
#define LIVE_A_CLASS 64

struct allocations {
    size_t bytes;
    cudaStream_t stream, other;
    void *live[CLASSES][LIVE_A_CLASS];
    uint32_t random;
};

static void malloc_free(void *context, int i)
{
    const struct allocations *a = context;
    void *address;

    (void)i;
    check(cudaMalloc(&address, a->bytes), "cudaMalloc");
    check(cudaFree(address), "cudaFree");
}

static void malloc_free_async(void *context, int i)
{
    const struct allocations *a = context;
    void *address;

    (void)i;
    check(cudaMallocAsync(&address, a->bytes, a->stream), "cudaMallocAsync");
    check(cudaFreeAsync(address, a->other), "cudaFreeAsync");
}

/*
 * A program with many live tensors of several sizes. It does not free the memory that it allocated
 * last.
 */
static void malloc_free_among_many(void *context, int i)
{
    struct allocations *a = context;
    void *old;

    (void)i;
    a->random = a->random * 1664525u + 1013904223u;
    unsigned which = a->random >> 16, size = which % CLASSES;
    void **place = &a->live[size][which / CLASSES % LIVE_A_CLASS];
    old = *place;
    check(cudaMallocAsync(place, a->bytes * (size + 1), a->stream), "cudaMallocAsync");
    check(cudaFreeAsync(old, a->stream), "cudaFreeAsync");
}

/* Makes the stream known, as the tracer does at a launch in a program. */
static void meet_stream(cudaStream_t stream)
{
    ps_stream_find(stream, false);
}

static void measure_allocations(size_t unit)
{
    struct allocations a = {.bytes = unit, .random = 1};
    cudaStream_t second;
    uint64_t passed = ps_counted(allocations);

    meet_stream(NULL);
    figure("malloc+free", ALLOCATIONS, malloc_free, &a);
    figure("mallocAsync+freeAsync", ALLOCATIONS, malloc_free_async, &a);
    for (unsigned c = 0; c < CLASSES; c++)
        for (unsigned i = 0; i < LIVE_A_CLASS; i++)
            check(cudaMallocAsync(&a.live[c][i], a.bytes * (c + 1), a.stream), "cudaMallocAsync");
    figure("mallocAsync+freeAsync among 512", ALLOCATIONS, malloc_free_among_many, &a);
    for (unsigned c = 0; c < CLASSES; c++)
        for (unsigned i = 0; i < LIVE_A_CLASS; i++)
            check(cudaFreeAsync(a.live[c][i], a.stream), "cudaFreeAsync");

    check(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    meet_stream(second);
    a.bytes = unit * (CLASSES + 1); /* a size without a history */
    figure("malloc+free, two streams", ALLOCATIONS, malloc_free, &a);
    a.bytes = unit * (CLASSES + 2);
    figure("mallocAsync+freeAsync, two streams", ALLOCATIONS, malloc_free_async, &a);
    a.bytes = unit * (CLASSES + 3);
    a.other = second;
    figure("mallocAsync on one, freeAsync on the other", ALLOCATIONS, malloc_free_async, &a);
    if (ps_counted(allocations) - passed < (uint64_t)batches * ALLOCATIONS * 6)
        fail("the allocations were no spans");
}

/* ---- launches ---- */

struct launches {
    struct kernel kernel[KERNELS];
    uint64_t word[SPANS]; /* values of the parameters: 20 pointers, or one parameter of 400 words */
    void *parameter[POINTERS];
    uint16_t order[LAUNCHES_A_STEP]; /* the kernel of each launch of a step */
    cudaStream_t stream[2];
    unsigned streams;
};

static CUfunction kernel_of(struct launches *l, int i)
{
    return (CUfunction)(void *)&l->kernel[l->order[i % LAUNCHES_A_STEP]];
}

static void scan(void *context, int i)
{
    struct launches *l = context;

    ps_tracer_begin(l->stream[0], false);
    ps_tracer_kernel(kernel_of(l, i), (struct ps_grid){1, 1, 1}, l->parameter, NULL);
}

static void launch(void *context, int i)
{
    struct launches *l = context;

    ps_tracer_begin(l->stream[(unsigned)i % l->streams], false);
    ps_tracer_kernel(kernel_of(l, i), (struct ps_grid){1, 1, 1}, l->parameter, NULL);
    ps_tracer_ready(true);
    ps_tracer_end(true);
}

/*
 * Gives every kernel `parameters` parameters of `bytes` bytes. Each of the first `in_spans` words
 * lies in a span of its own. The others are addresses of no span, behind all spans.
 */
static void prepare(struct launches *l, uint32_t parameters, uint32_t bytes, void *const *spans, unsigned in_spans)
{
    const uint64_t others = ps_reservation.base + atomic_load(&ps_reservation.reserved);

    for (unsigned i = 0; i < KERNELS; i++)
        l->kernel[i] = (struct kernel){.parameters = parameters, .bytes = bytes};
    for (unsigned i = 0; i < SPANS; i++)
        l->word[i] = i < in_spans ? (uint64_t)(uintptr_t)spans[i] + 64 : others + i * UINT64_C(4096);
    for (unsigned i = 0; i < POINTERS; i++)
        l->parameter[i] = &l->word[i];
}

static void measure_launches(size_t unit)
{
    static struct launches few, one;
    static void *spans[SPANS];
    uint32_t random = 1;

    for (unsigned i = 0; i < SPANS; i++)
        check(cudaMalloc(&spans[i], unit), "cudaMalloc");
    for (unsigned i = 0; i < LAUNCHES_A_STEP; i++) {
        random = random * 1664525u + 1013904223u;
        few.order[i] = one.order[i] = (uint16_t)((random >> 16) % KERNELS);
    }
    check(cudaStreamCreateWithFlags(&few.stream[1], cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    few.streams = one.streams = 1;

    prepare(&few, POINTERS, 8, spans, 0);
    figure("scan 20, none in a span", LAUNCHES, scan, &few);
    figure("launch 20, none in a span", LAUNCHES, launch, &few);
    prepare(&few, POINTERS, 8, spans, 1);
    figure("scan 20, one in a span", LAUNCHES, scan, &few);
    figure("launch 20, one in a span", LAUNCHES, launch, &few);
    prepare(&few, POINTERS, 8, spans, POINTERS);
    figure("scan 20, all in spans", LAUNCHES, scan, &few);
    figure("launch 20, all in spans", LAUNCHES, launch, &few);
    few.streams = 2;
    figure("launch 20, all in spans, two streams in turn", LAUNCHES, launch, &few);
    few.streams = 1;
    prepare(&few, POINTERS, 8, spans, 1);
    few.word[1] = (uintptr_t)host_memory + 64;
    figure("launch 20, one in a span, one in host memory", LAUNCHES, launch, &few);
    prepare(&one, 1, 8 * WORDS, spans, 0);
    figure("scan 400 words by value, none in a span", LAUNCHES, scan, &one);
    prepare(&one, 1, 8 * WORDS, spans, WORDS);
    figure("scan 400 words by value, all in spans", LAUNCHES, scan, &one);
    figure("launch 400 words by value, all in spans", LAUNCHES, launch, &one);
    if (ps_counted(launches_without_layout))
        fail("a kernel's parameters could not be read");
    if (ps_registry.launch_number < (uint64_t)batches * LAUNCHES * 4)
        fail("the launches named no spans");
}

/* ---- the live page ---- */

/* The live page's work for one device, without its history of rates. */
static void update_page(void *context, int i)
{
    struct ps_live_page *page = context;
    struct ps_live_process p = {.updated_ns = bench_now_ns()};
    struct ps_live_device d;

    (void)i;
    ps_registry_lock();
    ps_live_values_device(&d.figures);
    ps_step_log_recent(d.recent_step_ns);
    ps_registry_unlock();
    ps_live_record_write(&page->device[0], &d, PS_LIVE_WORDS(d));
    ps_live_values_process(&p.figures);
    ps_live_record_write(&page->process, &p, PS_LIVE_WORDS(p));
}

static void read_page(void *context, int i)
{
    const struct ps_live_page *page = context;
    struct ps_live_device d;

    (void)i;
    if (!ps_live_record_read(&page->device[0], &d, PS_LIVE_WORDS(d)))
        fail("the page could not be read");
}

static void end_step(void *context, int i)
{
    (void)context;
    ps_step_log_ended((uint64_t)i);
}

static void measure_live(void)
{
    static struct ps_live_page page;

    figure("live page, an update", LAUNCHES, update_page, &page);
    figure("live page, a device read", LAUNCHES, read_page, &page);
    figure("end of a step, told of", LAUNCHES, end_step, NULL);
    if (ps_step_log_keep())
        fail("no memory to keep steps");
    figure("end of a step, kept for PENSTOCK_METRICS", LAUNCHES, end_step, NULL);
}

/*
 * A training program has many threads. The C library's locks are cheaper until there is a second
 * thread.
 */
static void *sit(void *nothing)
{
    for (;;)
        pause();
    return nothing;
}

int main(int argc, char **argv)
{
    pthread_t second_thread;
    void *first;

    if (argc != 2) {
        fprintf(stderr, "usage: bench_calls BATCHES\n");
        return 2;
    }
    batches = bench_number(argv[1]);
    if (pthread_create(&second_thread, NULL, sit, NULL))
        fail("no second thread");
    check(cudaMalloc(&first, 1), "the first cudaMalloc");
    if (!ps_process_is_managing())
        fail("Penstock stands aside");
    ps_tracing_assume(); /* as under a named budget */
    if (!(host_memory = calloc(1, HOST_BYTES)))
        fail("no host memory");
    size_t unit = ps_settings.min_span > ps_reservation.granularity ? ps_settings.min_span : ps_reservation.granularity;
    empty_driver();
    measure_allocations(unit);
    measure_launches(unit);
    measure_live();
    return 0;
}
