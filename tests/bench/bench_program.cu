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

KERNEL(four, (float *__restrict__ out, const float *a, const float *b, float *scalar, size_t count),
       (out, a, b, scalar, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] += a[i] + b[i] + (scalar ? *scalar : 0);
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

/* ---- a graph that changes before each launch, as that of a jitted step ---- */

#define NODES 512
#define GRAPH_SPANS 64
#define SCALARS 52 /* one kernel in ten is given a small allocation, too */

struct changing_graph {
    float *span[GRAPH_SPANS], *scalar[SCALARS];
    cudaGraphNode_t node[NODES];
    cudaGraphExec_t executable;
    size_t turn;
};

/* The parameters of a node: turn about, its memory is one of two. */
struct four_parameters {
    const float *pointer[4];
    size_t count;
    void *parameter[5];
    cudaKernelNodeParams node;
};

static void fill_parameters(const struct changing_graph *g, struct four_parameters *p, size_t i)
{
    const size_t turn = g->turn % 2;

    p->pointer[0] = g->span[(i + turn) % GRAPH_SPANS];
    p->pointer[1] = g->span[(7 * i + turn) % GRAPH_SPANS];
    p->pointer[2] = g->span[13 * i % GRAPH_SPANS];
    p->pointer[3] = i % 10 ? nullptr : g->scalar[i / 10];
    p->count = 0;
    for (size_t k = 0; k < 4; k++)
        p->parameter[k] = &p->pointer[k];
    p->parameter[4] = &p->count;
    p->node = {};
    p->node.func = reinterpret_cast<void *>(four);
    p->node.gridDim = p->node.blockDim = dim3(1);
    p->node.kernelParams = p->parameter;
}

/* Changes a node. The last one's change is followed by the launch. */
static void change(void *context, int i)
{
    struct changing_graph *g = static_cast<struct changing_graph *>(context);
    struct four_parameters p;

    fill_parameters(g, &p, static_cast<size_t>(i));
    CHECK(cudaGraphExecKernelNodeSetParams(g->executable, g->node[i], &p.node));
    if (i < NODES - 1)
        return;
    CHECK(cudaGraphLaunch(g->executable, nullptr));
    g->turn++;
}

static void measure_graph(void)
{
    static struct changing_graph g;
    struct four_parameters p;
    cudaGraph_t graph;

    for (auto &one : g.span)
        CHECK(cudaMalloc(reinterpret_cast<void **>(&one), SPAN_BYTES));
    for (auto &one : g.scalar)
        CHECK(cudaMalloc(reinterpret_cast<void **>(&one), SMALL_BYTES));
    CHECK(cudaGraphCreate(&graph, 0));
    for (size_t i = 0; i < NODES; i++) {
        fill_parameters(&g, &p, i);
        CHECK(cudaGraphAddKernelNode(&g.node[i], graph, i ? &g.node[i - 1] : nullptr, i ? 1 : 0, &p.node));
    }
    CHECK(cudaGraphInstantiate(&g.executable, graph, 0));
    figure("launch of a graph of 512 changed kernels, for each", NODES, change, settle, &g);
    CHECK(cudaGraphExecDestroy(g.executable));
    CHECK(cudaGraphDestroy(graph));
    for (auto &one : g.span)
        CHECK(cudaFree(one));
    for (auto &one : g.scalar)
        CHECK(cudaFree(one));
}

/* Penstock traces launches when memory is short, or from the first capture on. */
static void begin_tracing(void)
{
    cudaStream_t stream;
    cudaGraph_t graph;

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
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
    malloc_free(nullptr, 0); /* Penstock begins with the first allocation */
    begin_tracing();
    measure_launches("launch of 20 pointers in a program, small allocations", SMALL_BYTES);
    measure_launches("launch of 20 pointers in a program, spans", SPAN_BYTES);
    measure_graph();
    figure("malloc+free in a program", LAUNCHES, malloc_free, settle, nullptr);
    figure("mallocAsync+freeAsync in a program", LAUNCHES, malloc_free_async, settle, nullptr);
    return 0;
}
