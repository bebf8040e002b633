/*
 * A program that only calls the runtime, plain or with Penstock preloaded, and times each call.
 * scripts/dev/bench runs it both ways in turn. The difference is the cost of Penstock, with the
 * tracer's source of events.
 *
 * It is for the simulated device's seeded scheduler, under which nothing runs while launches are
 * being queued.
 *
 * usage: bench_program BATCHES    prints a line of JSON for each figure: name, median_ns, low_ns
 */
#include <pthread.h>
#include <unistd.h>

#include "../samples/kernel.h"
#include "bench.h"

#define POINTERS 20
#define SMALL_BYTES 4096
/*
 * PENSTOCK_MIN_SPAN, as scripts/dev/bench sets it. It is small because the simulated device takes
 * long to fill new memory.
 */
#define SPAN_BYTES (64u << 10)
#define LAUNCHES 200

#define TWENTY(of)                                                                                                     \
    of(0), of(1), of(2), of(3), of(4), of(5), of(6), of(7), of(8), of(9), of(10), of(11), of(12), of(13), of(14),      \
        of(15), of(16), of(17), of(18), of(19)
#define PARAMETER(i) float *p##i
#define ARGUMENT(i) p##i

KERNEL(twenty, (size_t count, TWENTY(PARAMETER)), (count, TWENTY(ARGUMENT)))
{
    float *const all[] = {TWENTY(ARGUMENT)};

    FOR_EACH_ITEM(i, count)
    all[i % POINTERS][0] += 1.0f;
}

static int batches;

static void figure(const char *name, int operations, void (*operation)(void *context, int i),
                   void (*between)(void *context), void *context)
{
    struct bench_figure f = bench_measure(batches, operations, operation, between, context);

    printf("{\"name\": \"%s\", \"median_ns\": %.1f, \"low_ns\": %.1f}\n", name, f.median_ns, f.low_ns);
    fflush(stdout);
}

static void launch(void *context, int)
{
    float *const *p = static_cast<float *const *>(context);
#define VALUE(i) p[i]
    LAUNCH(nullptr, 1, twenty, 1, TWENTY(VALUE));
}

static void settle(void *)
{
    CHECK(cudaDeviceSynchronize());
}

static void malloc_free(void *, int)
{
    void *address;

    CHECK(cudaMalloc(&address, SPAN_BYTES));
    CHECK(cudaFree(address));
}

static void malloc_free_async(void *, int)
{
    void *address;

    CHECK(cudaMallocAsync(&address, SPAN_BYTES, nullptr));
    CHECK(cudaFreeAsync(address, nullptr));
}

/* Allocates twenty buffers, launches on them and frees them. */
static void measure_launches(const char *name, size_t bytes)
{
    float *p[POINTERS];

    for (auto &one : p) {
        CHECK(cudaMalloc(reinterpret_cast<void **>(&one), bytes));
        CHECK(cudaMemset(one, 0, bytes));
    }
    figure(name, LAUNCHES, launch, settle, p);
    for (auto &one : p)
        CHECK(cudaFree(one));
}

/*
 * As in bench_calls: the C library's locks are cheaper until there is a second thread. A real
 * driver has one, and so has Penstock.
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

    if (argc != 2) {
        fprintf(stderr, "usage: bench_program BATCHES\n");
        return 2;
    }
    batches = bench_number(argv[1]);
    if (pthread_create(&second_thread, nullptr, sit, nullptr))
        return 1;
    measure_launches("launch of 20 pointers in a program, small allocations", SMALL_BYTES);
    measure_launches("launch of 20 pointers in a program, spans", SPAN_BYTES);
    figure("malloc+free in a program", LAUNCHES, malloc_free, settle, nullptr);
    figure("mallocAsync+freeAsync in a program", LAUNCHES, malloc_free_async, settle, nullptr);
    return 0;
}
