#!/usr/bin/env bats
# Memory that is allocated while a stream is captured. For torch, on the allocator that Penstock
# chooses for it, frees of such memory would fail or come too early.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; }

# build_torch: graphs.c makes graphs and frees memory as torch does on cudaMallocAsync, beside an
# empty library of torch's name.
build_torch() {
    echo 'int torch_is_here;' | gcc -shared -fPIC -Wl,-soname,libc10_cuda.so -o libc10_cuda.so -x c -
    build_probe graphs -Wl,--no-as-needed -L. -l:libc10_cuda.so -Wl,-rpath,"$PWD" <<'END'
/* CASE names how the memory is freed. Each graph copies it to `out`. */
static cudaStream_t capturing, launching;
static void *out;
static cudaError_t error;

static void begin(void) { CHECK(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeThreadLocal)); }

static cudaGraphExec_t end(unsigned long long flags)
{
    cudaGraphExec_t executable;
    cudaGraph_t graph;

    CHECK(cudaStreamEndCapture(capturing, &graph));
    CHECK(cudaGraphInstantiateWithFlags(&executable, graph, flags));
    CHECK(cudaGraphDestroy(graph));
    return executable;
}

static void *fill(int value)
{
    void *memory;

    CHECK(cudaMallocAsync(&memory, span_size(), capturing));
    CHECK(cudaMemsetAsync(memory, value, span_size(), capturing));
    CHECK(cudaMemcpyAsync(out, memory, span_size(), cudaMemcpyDeviceToDevice, capturing));
    return memory;
}

static void free_it(void *memory)
{
    cudaError_t result = cudaFreeAsync(memory, capturing);
    error = error ? error : result;
    cudaGetLastError();
}

static void launch(cudaGraphExec_t executable, int value)
{
    CHECK(cudaMemsetAsync(out, 99, span_size(), launching));
    cudaError_t result = cudaGraphLaunch(executable, launching);
    error = error ? error : result;
    cudaGetLastError();
    if (!error)
        EXPECT(holds(out, value, launching));
}

/* A function's own tensor: freed before the first launch. */
static void local(unsigned long long flags)
{
    begin();
    void *memory = fill(1);
    cudaGraphExec_t executable = end(flags);
    free_it(memory);
    for (int i = 0; i < 3; i++) launch(executable, 1);
    CHECK(cudaGraphExecDestroy(executable));
}

/*
 * One name for the tensors of several graphs: each is freed in the capture of the next graph. The
 * graphs are launched in another order, and more often.
 */
static void rebind(unsigned long long flags)
{
    cudaGraphExec_t executable[3];
    void *memory = NULL;
    int order[] = {2, 1, 2, 0, 1, 2};

    for (int i = 0; i < 3; i++) {
        begin();
        void *now = fill(i);
        if (memory) free_it(memory);
        memory = now;
        executable[i] = end(flags);
    }
    for (int i = 0; i < 6; i++) launch(executable[order[i]], order[i]);
    for (int i = 0; i < 3; i++) CHECK(cudaGraphExecDestroy(executable[i]));
    free_it(memory);
}

/*
 * A graph rebuilt in place of another: the old tensor is freed in the new one's capture, when its
 * graph has been destroyed.
 */
static void recapture(unsigned long long flags)
{
    void *memory = NULL;

    for (int i = 0; i < 3; i++) {
        begin();
        void *now = fill(i);
        if (memory) free_it(memory);
        memory = now;
        cudaGraphExec_t executable = end(flags);
        for (int turn = 0; turn < 3; turn++) launch(executable, i);
        CHECK(cudaGraphExecDestroy(executable));
    }
    free_it(memory);
}

/* Never launched; the graph is destroyed first. */
static void unlaunched(unsigned long long flags)
{
    begin();
    void *memory = fill(1);
    CHECK(cudaGraphExecDestroy(end(flags)));
    free_it(memory);
}

/*
 * Memory of a forward graph that the backward graph frees. The forward graph is launched more
 * often, or the backward one.
 */
static void backward(unsigned long long flags)
{
    begin();
    void *kept = fill(5);
    cudaGraphExec_t forward = end(flags);
    begin();
    CHECK(cudaMemcpyAsync(out, kept, span_size(), cudaMemcpyDeviceToDevice, capturing));
    free_it(kept);
    cudaGraphExec_t back = end(flags);
    cudaGraphExec_t order[] = {forward, back, forward, forward, back, back, back, forward, back};
    for (int i = 0; i < 9; i++) launch(order[i], 5);
    CHECK(cudaGraphExecDestroy(back));
    CHECK(cudaGraphExecDestroy(forward));
}

/* Memory that its own capture frees belongs to the graph either way. */
static void within(unsigned long long flags)
{
    begin();
    free_it(fill(7));
    cudaGraphExec_t executable = end(flags);
    for (int i = 0; i < 3; i++) launch(executable, 7);
    CHECK(cudaGraphExecDestroy(executable));
}

/* The capture fails, and the program goes on. */
static void failed(unsigned long long flags)
{
    cudaGraph_t graph = NULL;
    cudaEvent_t event;
    cudaStream_t other;

    (void)flags;
    begin();
    void *memory = fill(1);
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventRecord(event, capturing));
    CHECK(cudaStreamWaitEvent(other, event, 0));
    CHECK(cudaMemsetAsync(out, 1, span_size(), other)); /* never joined */
    EXPECT(cudaStreamEndCapture(capturing, &graph) != cudaSuccess);
    cudaGetLastError();
    free_it(memory);
}

int main(void)
{
    static const struct { const char *name; void (*run)(unsigned long long flags); } cases[] = {
        {"local", local}, {"rebind", rebind}, {"recapture", recapture}, {"unlaunched", unlaunched},
        {"backward", backward}, {"within", within}, {"failed", failed},
    };
    unsigned long long flags = getenv("KEEPS") ? 0 : cudaGraphInstantiateFlagAutoFreeOnLaunch;

    out = new_span(0, NULL);
    CHECK(cudaStreamCreateWithFlags(&capturing, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&launching, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, getenv("CASE"))) {
            cases[i].run(flags);
            CHECK(cudaDeviceSynchronize());
            printf("%s: %s\n", cases[i].name, cudaGetErrorName(error));
        }
    CHECK(cudaFree(out));
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
}

@test "memory that torch frees stays its graph's until the graph ends, whenever the free comes" {
    requires sim cc
    build_torch
    local case tracer
    for case in local rebind recapture unlaunched backward failed; do
        run_sim CASE=$case PROBE_SPAN=$PROBE_SPAN ./graphs
        contains "$output" "^$case: cudaErrorInvalidValue$"
        for tracer in cupti hook; do
            run_probe graphs CASE=$case PENSTOCK_TRACER=$tracer
            goes_on
            contains "$output" "^$case: cudaSuccess$"
            sound
            said 'memory that is allocated while a CUDA graph is captured'
        done
        run_probe graphs CASE=$case PENSTOCK_BUDGET=auto
        goes_on
        contains "$output" "^$case: cudaSuccess$"
        said
    done
    run_probe graphs CASE=within
    goes_on
    contains "$output" '^within: cudaSuccess$'
    sound
}

@test "memory that a backward graph's kernels use is freed by its launch, with torch and without" {
    requires sim cc
    local tracer torch
    echo 'int torch_is_here;' | gcc -shared -fPIC -Wl,-soname,libc10_cuda.so -o libc10_cuda.so -x c -
    for torch in "" ":$PWD/libc10_cuda.so"; do
        for tracer in cupti hook; do
            hostile graph-frees LD_PRELOAD="${SANITIZER:+$SANITIZER:}$PENSTOCK_SO$torch" PENSTOCK_TRACER=$tracer PENSTOCK_BUDGET=24MiB
            goes_on
            sound untouched
            equal 9 "$(report graph_launches)" "launches of graphs, with those that fail"
        done
    done
}

@test "graphs without auto-free, programs that chose their allocator, and programs without torch are left alone" {
    requires sim cc
    build_torch
    local case
    for case in local unlaunched; do
        run_probe graphs CASE=$case KEEPS=1 PENSTOCK_BUDGET=auto
        contains "$output" "^$case: cudaErrorInvalidValue$"
        run_probe graphs CASE=$case PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync PENSTOCK_BUDGET=auto
        contains "$output" "^$case: cudaErrorInvalidValue$"
    done
    sed 's/libc10_cuda\.so/libc10_cudb.so/g' libc10_cuda.so >libc10_cudb.so
    sed -i 's/libc10_cuda\.so/libc10_cudb.so/g' graphs
    run_probe graphs CASE=local PENSTOCK_BUDGET=auto
    contains "$output" '^local: cudaErrorInvalidValue$'
}

@test "a capture may precede Penstock's start: the first allocation is a node of its graph" {
    requires cc
    local tracer
    build_probe first <<'END'
int main(void)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    unsigned char *host = malloc(span_size());
    void *memory, *span;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync(&memory, span_size(), stream));
    CHECK(cudaMemsetAsync(memory, 3, span_size(), stream));
    CHECK(cudaMemcpyAsync(host, memory, span_size(), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaFreeAsync(memory, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 3; i++) {
        memset(host, 0, span_size());
        CHECK(cudaGraphLaunch(executable, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(host[0] == 3 && host[span_size() - 1] == 3);
        span = new_span(5, stream); /* now Penstock has started */
        EXPECT(holds(span, 5, stream));
        CHECK(cudaFree(span));
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
    run_sim PROBE_SPAN=$PROBE_SPAN ./first
    goes_on
    for tracer in cupti hook; do
        run_probe first PENSTOCK_TRACER=$tracer
        goes_on
        sound
        equal 3 "$(report allocations)" "allocations after it"
    done
}
