#!/usr/bin/env bats
# Programs that allocate past the shared runtime's functions: through the driver, found in any way,
# or with the runtime inside them. Their memory is managed like any other. Allocations by NVIDIA's
# own libraries are left to them.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; }

# --- the runtime inside the program ---------------------------------------------------------------
# The toolkit's static runtime refuses a driver that is not NVIDIA's, so there is one trainer for
# each device.
static_trainer() {
    [ "$DEVICE" = sim ] && STATIC=("$SAMPLES/mlp-static-sim" "${TRAINER[@]:1}") || STATIC=("$SAMPLES/mlp-static" "${TRAINER[@]:1}")
    [ -x "${STATIC[0]}" ] || skip "the toolkit has no static runtime"
}

figures() { jq -c '{launches, copies_seen, peak_demand_bytes, small: .passthrough.small, others: (.passthrough | del(.small) | add)}' "$REPORT"; }

@test "a trainer with the runtime inside it is managed as one with the shared runtime" {
    static_trainer
    local tracer way shared
    run_sim "${STATIC[@]}"
    right_results
    for tracer in cupti hook; do
        for way in '' --streams=2 '--streams=2 --alloc=async' '--streams=2 --threads=2 --halves=2 --alloc=async'; do
            # shellcheck disable=SC2086 # several words
            run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$(share 55)" PENSTOCK_TRACER=$tracer "${TRAINER[@]}" $way
            ended_with 0
            shared=$(figures)
            grep -v '^penstock: ' <<<"$output" >shared
            # shellcheck disable=SC2086
            run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$(share 55)" PENSTOCK_TRACER=$tracer "${STATIC[@]}" $way
            ended_with 0
            said
            sound untouched
            counted evictions
            equal "$tracer" "$(report tracer)" tracer
            diff shared <(grep -v '^penstock: ' <<<"$output")
            # The peak with several threads varies.
            [[ "$way" == *threads* ]] || equal "$shared" "$(figures)" "what was seen with $tracer $way"
        done
    done
}

@test "a trainer with the runtime inside it is left alone when Penstock is off or memory is plentiful" {
    static_trainer
    run_penstock PENSTOCK_DISABLE=1 "${STATIC[@]}"
    right_results
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM "${STATIC[@]}"
    right_results
    sound
    equal 0 "$(report evictions)" evictions
    at_least 1 "$(report peak_resident_bytes)" "bytes in spans"
}

# --- the driver's functions -----------------------------------------------------------------------
# driver_memory: allocates twice the budget by each of the driver's functions, found as the variable
# HOW names; reads all of it back and frees it.
build_driver_memory() {
    build_probe driver_memory "-L$SIM" -l:libcuda.so.1 -Wl,--as-needed <<'END_OF_C'
#include <dlfcn.h>

static void *driver;
static CUresult (*look_up)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
static const char *how;

/* `name` is the symbol's name; look-ups by name take it without the version. */
static void *find(const char *name, void *linked)
{
    char base[64];
    void *function = NULL;
    CUdriverProcAddressQueryResult status;

    if (!strcmp(how, "linked")) return linked;
    if (!strcmp(how, "dlsym")) return dlsym(driver, name);
    snprintf(base, sizeof base, "%s", name);
    if (strstr(base, "_v2")) *strstr(base, "_v2") = '\0';
    EXPECT(look_up(base, &function, CUDA_VERSION, CU_GET_PROC_ADDRESS_DEFAULT, &status) == CUDA_SUCCESS);
    return function;
}

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)
#define FIND(name) __typeof__(&name) its_##name = (__typeof__(&name))find(#name, (void *)name)

int main(void)
{
    enum { WAYS = 4, EACH = 6 };
    CUdeviceptr at[WAYS][EACH];
    size_t bytes[WAYS], free_before, free_with_all, free_after, total, pitch = 0;
    CUcontext context;
    CUstream stream;
    CUmemoryPool pool;

    how = getenv("HOW");
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    look_up = (__typeof__(look_up))dlsym(driver, "cuGetProcAddress_v2");
    EXPECT(driver && look_up);
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    FIND(cuMemAlloc_v2);
    FIND(cuMemAllocPitch_v2);
    FIND(cuMemAllocAsync);
    FIND(cuMemAllocFromPoolAsync);
    FIND(cuMemFree_v2);
    FIND(cuMemFreeAsync);
    FIND(cuMemGetInfo_v2);

    MUST(its_cuMemAlloc_v2(&at[0][0], span_size()));
    MUST(its_cuMemGetInfo_v2(&free_before, &total));
    MUST(its_cuMemFree_v2(at[0][0]));
    for (int i = 0; i < EACH; i++) {
        MUST(its_cuMemAlloc_v2(&at[0][i], span_size()));
        MUST(its_cuMemAllocPitch_v2(&at[1][i], &pitch, span_size() / 8 - 1, 8, 4));
        EXPECT(pitch == span_size() / 8);
        MUST(its_cuMemAllocAsync(&at[2][i], span_size(), stream));
        MUST(its_cuMemAllocFromPoolAsync(&at[3][i], span_size(), pool, stream));
        for (int way = 0; way < WAYS; way++) MUST(cuMemsetD8Async(at[way][i], (unsigned char)(way * EACH + i), span_size(), stream));
    }
    MUST(its_cuMemGetInfo_v2(&free_with_all, &total));
    EXPECT(free_with_all <= total && free_with_all < free_before);
    for (int round = 0; round < 2; round++)
        for (int way = 0; way < WAYS; way++)
            for (int i = 0; i < EACH; i++) {
                unsigned char *host = malloc(span_size());
                CUdeviceptr start = 0;
                MUST(cuMemcpyDtoHAsync(host, at[way][i], span_size(), stream));
                MUST(cuStreamSynchronize(stream));
                for (size_t k = 0; k < span_size(); k++) EXPECT(host[k] == (unsigned char)(way * EACH + i));
                MUST(cuMemGetAddressRange(&start, &bytes[way], at[way][i] + 100));
                EXPECT(start == at[way][i] && bytes[way] == span_size());
                free(host);
            }
    /* Errors are the driver's. */
    CUdeviceptr nowhere = 0;
    EXPECT(its_cuMemAlloc_v2(&nowhere, (size_t)1 << 50) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(its_cuMemAlloc_v2(&nowhere, 0) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(its_cuMemAlloc_v2(NULL, span_size()) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(its_cuMemFree_v2(at[0][0] + 4096) == CUDA_ERROR_INVALID_VALUE);
    MUST(cuCtxSetCurrent(NULL));
    EXPECT(its_cuMemAlloc_v2(&nowhere, span_size()) == CUDA_ERROR_INVALID_CONTEXT);
    EXPECT(its_cuMemFree_v2(at[0][0]) == CUDA_ERROR_INVALID_CONTEXT);
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < EACH; i++) {
        MUST(its_cuMemFree_v2(at[0][i]));
        MUST(its_cuMemFree_v2(at[1][i]));
        MUST(its_cuMemFreeAsync(at[2][i], stream));
        MUST(its_cuMemFreeAsync(at[3][i], stream));
    }
    EXPECT(its_cuMemFree_v2(at[0][0]) == CUDA_ERROR_INVALID_VALUE);
    MUST(cuStreamSynchronize(stream));
    MUST(its_cuMemGetInfo_v2(&free_after, &total));
    EXPECT(free_after + span_size() >= free_before);
    MUST(cuDevicePrimaryCtxRelease(0));
    puts("ok");
    return 0;
}
END_OF_C
}

@test "the driver's functions, linked or looked up, give managed memory" {
    requires cc
    build_driver_memory
    local how tracer
    run_sim PROBE_SPAN=$PROBE_SPAN HOW=linked ./driver_memory
    goes_on
    for tracer in cupti hook; do
        for how in linked dlsym look-up; do
            run_probe driver_memory PENSTOCK_TRACER=$tracer PENSTOCK_BUDGET=$((12 * PROBE_SPAN)) HOW=$how
            goes_on
            said 'out of memory: 1.00 PiB asked for'
            sound
            at_least 12 "$(report evictions)" "evictions, $how"
            equal $((24 * PROBE_SPAN)) "$(report peak_demand_bytes)" "bytes in spans at the peak, $how"
        done
    done
}

@test "the runtime's look-ups of driver entry points, and dlsym of its own functions, give managed memory" {
    requires cc
    build_probe looked_up <<'END_OF_C'
#include <dlfcn.h>

int main(void)
{
    enum { SPANS = 12 };
    void *runtime = dlopen("libcudart.so.13", RTLD_NOW), *function = NULL, *span[SPANS];
    enum cudaDriverEntryPointQueryResult status;
    cudaError_t (*allocate)(void **, size_t) = (__typeof__(allocate))dlsym(runtime, "cudaMalloc");
    cudaError_t (*release)(void *) = (__typeof__(release))dlsym(runtime, "cudaFree");

    EXPECT(allocate && release && !dlsym(runtime, "cudaNoSuchFunction") && dlerror());
    CHECK(cudaFree(NULL));
    CHECK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 12000, cudaEnableDefault, &status));
    for (int i = 0; i < SPANS; i++) {
        if (i % 2)
            CHECK(allocate(&span[i], span_size()));
        else
            EXPECT(((CUresult(*)(CUdeviceptr *, size_t))function)((CUdeviceptr *)&span[i], span_size()) == CUDA_SUCCESS);
        CHECK(cudaMemset(span[i], i, span_size()));
    }
    for (int i = 0; i < SPANS; i++) EXPECT(holds(span[i], i, NULL));
    for (int i = 0; i < SPANS; i++) CHECK(release(span[i]));
    EXPECT(release(span[0]) == cudaErrorInvalidValue);
    puts("ok");
    return 0;
}
END_OF_C
    run_sim PROBE_SPAN=$PROBE_SPAN ./looked_up
    goes_on
    local tracer
    for tracer in cupti hook; do
        run_probe looked_up PENSTOCK_TRACER=$tracer PENSTOCK_BUDGET=$((6 * PROBE_SPAN))
        goes_on
        sound
        counted evictions
        equal $((12 * PROBE_SPAN)) "$(report peak_demand_bytes)" "bytes in spans at the peak"
    done
}

@test "allocations by a library of NVIDIA's stay plain memory, however it looks up functions" {
    requires cc
    local code='
        #include <cuda.h>
        #include <dlfcn.h>
        CUdeviceptr workspace(size_t bytes)
        {
            void *driver = dlopen("libcuda.so.1", RTLD_NOW);
            CUresult (*look_up)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) = dlsym(driver, "cuGetProcAddress_v2");
            CUresult (*allocate)(CUdeviceptr *, size_t) = NULL, (*allocate_too)(CUdeviceptr *, size_t) = dlsym(driver, "cuMemAlloc_v2");
            CUdriverProcAddressQueryResult status;
            CUdeviceptr at[2] = {0, 0};
            look_up("cuMemAlloc", (void **)&allocate, CUDA_VERSION, 0, &status);
            return allocate(&at[0], bytes) || allocate_too(&at[1], bytes) ? 0 : at[0];
        }'
    local library
    for library in libcublasLt.so.13 libmine.so; do
        gcc -shared -fPIC -Wno-incompatible-pointer-types "-I$TOOLKIT/include" -x c -o "$library" - <<<"$code"
    done
    build_probe uses_library <<'END_OF_C'
#include <dlfcn.h>

int main(void)
{
    void *library = dlopen(getenv("LIBRARY"), RTLD_NOW);
    CUdeviceptr (*workspace)(size_t) = library ? (__typeof__(workspace))dlsym(library, "workspace") : NULL;

    CHECK(cudaFree(NULL));
    CHECK(cudaFree(new_span(0, NULL)));
    EXPECT(workspace && workspace(span_size()));
    puts("ok");
    return 0;
}
END_OF_C
    local tracer
    for tracer in cupti hook; do
        run_probe uses_library PENSTOCK_TRACER=$tracer "LIBRARY=$WORK/libmine.so"
        goes_on
        equal $((2 * PROBE_SPAN)) "$(report peak_demand_bytes)" "bytes in spans, some library's"
        run_probe uses_library PENSTOCK_TRACER=$tracer "LIBRARY=$WORK/libcublasLt.so.13"
        goes_on
        equal "$PROBE_SPAN" "$(report peak_demand_bytes)" "bytes in spans, NVIDIA's library's"
    done
}

@test "in a program with contexts of its own the first one's memory is managed, until that context ends" {
    requires cc
    build_probe contexts "-L$SIM" -l:libcuda.so.1 -Wl,--as-needed <<'END_OF_C'
#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static CUdeviceptr filled(int value)
{
    CUdeviceptr at;

    MUST(cuMemAlloc(&at, span_size()));
    MUST(cuMemsetD8(at, (unsigned char)value, span_size()));
    return at;
}

static void expect(CUdeviceptr at, int value)
{
    unsigned char *host = malloc(span_size());

    MUST(cuMemcpyDtoH(host, at, span_size()));
    for (size_t i = 0; i < span_size(); i++) EXPECT(host[i] == (unsigned char)value);
    free(host);
}

int main(void)
{
    enum { SPANS = 12 };
    CUcontext first, second;
    CUdeviceptr at[SPANS], other;

    MUST(cuInit(0));
    MUST(cuCtxCreate(&first, NULL, 0, 0));
    for (int i = 0; i < SPANS; i++) at[i] = filled(i);
    MUST(cuCtxCreate(&second, NULL, 0, 0));
    other = filled(100);
    expect(other, 100);
    MUST(cuMemFree(other));
    MUST(cuCtxSetCurrent(first));
    for (int i = 0; i < SPANS; i++) expect(at[i], i);
    for (int i = 0; i < SPANS; i++) MUST(cuMemFree(at[i]));
    MUST(cuCtxDestroy(first));
    MUST(cuCtxSetCurrent(second));
    other = filled(101);
    expect(other, 101);
    MUST(cuMemFree(other));
    MUST(cuCtxDestroy(second));
    puts("ok");
    return 0;
}
END_OF_C
    run_sim PROBE_SPAN=$PROBE_SPAN ./contexts
    goes_on
    run_probe contexts PENSTOCK_BUDGET=$((6 * PROBE_SPAN))
    goes_on
    said 'standing aside from now on: the program destroys its context'
    counted evictions
    equal $((12 * PROBE_SPAN)) "$(report peak_demand_bytes)" "bytes in spans at the peak"
    equal 1 "$(report passthrough.other_device)" "allocations in the other context"
    equal 1 "$(report passthrough.disabled)" "allocations after the end"
}

@test "the runtime's memory in a second context is CUDA's, and work there uses the first one's memory in order" {
    requires cc sim
    build_probe second_context "-L$SIM" -l:libcuda.so.1 -Wl,--as-needed <<'END_OF_C'
#define MUST(call) EXPECT((call) == CUDA_SUCCESS)
enum { SPANS = 12 };

static void CUDART_CB nap(void *unused)
{
    (void)unused;
    usleep(20000);
}

/*
 * A default stream's work is late. A read that does not wait for it, or waits for the same handle
 * in another context, finds the old bytes.
 */
static void fill(void **span, int salt)
{
    for (int i = 0; i < SPANS; i++) {
        CHECK(cudaLaunchHostFunc(NULL, nap, NULL));
        CHECK(cudaMemsetAsync(span[i], salt + i, span_size(), NULL));
    }
}

int main(void)
{
    CUcontext second;
    void *ours[SPANS], *theirs[SPANS], *in_order;

    for (int i = 0; i < SPANS; i++) ours[i] = new_span(i, NULL);
    CHECK(cudaDeviceSynchronize());
    MUST(cuCtxCreate(&second, NULL, 0, 0));
    for (int i = 0; i < SPANS; i++) CHECK(cudaMalloc(&theirs[i], span_size()));
    CHECK(cudaMallocAsync(&in_order, span_size(), NULL));
    fill(theirs, 100);
    for (int i = 0; i < SPANS; i++) EXPECT(holds(theirs[i], 100 + i, NULL));
    for (int turn = 0; turn < 2; turn++) {
        fill(ours, 20 + 40 * turn);
        for (int i = 0; i < SPANS; i++) EXPECT(holds(ours[i], 20 + 40 * turn + i, NULL));
        fill(ours, 40 + 40 * turn);
        MUST(cuCtxSynchronize());
        MUST(cuCtxPopCurrent(NULL));
        for (int i = 0; i < SPANS; i++) EXPECT(holds(ours[i], 40 + 40 * turn + i, NULL));
        MUST(cuCtxPushCurrent(second));
    }
    for (int i = 0; i < SPANS; i++) CHECK(cudaFree(ours[i]));
    for (int i = 0; i < SPANS; i++) CHECK(cudaFree(theirs[i]));
    CHECK(cudaFreeAsync(in_order, NULL));
    CHECK(cudaDeviceSynchronize());
    MUST(cuCtxDestroy(second));
    for (int i = 0; i < SPANS; i++) ours[i] = new_span(i, NULL);
    for (int i = 0; i < SPANS; i++) EXPECT(holds(ours[i], i, NULL));
    for (int i = 0; i < SPANS; i++) CHECK(cudaFree(ours[i]));
    puts("ok");
    return 0;
}
END_OF_C
    run_sim PROBE_SPAN=$PROBE_SPAN ./second_context
    goes_on
    local tracer
    for tracer in cupti hook; do
        run_probe second_context PENSTOCK_TRACER=$tracer PENSTOCK_BUDGET=$((6 * PROBE_SPAN))
        goes_on
        said
        sound
        counted evictions
        equal 0 "$(report reload_errors)" "reloads that failed"
        equal $((12 * PROBE_SPAN)) "$(report peak_demand_bytes)" "bytes in spans at the peak"
        equal 13 "$(report passthrough.other_device)" "allocations in the other context"
    done
}

@test "a context of the program's own outlives the primary one, however that is retained, released or reset" {
    requires sim cc
    build_probe primary "-L$SIM" -l:libcuda.so.1 <<'END'
#define MUST(call) EXPECT((call) == CUDA_SUCCESS)
int main(void)
{
    CUcontext own, primary;
    CUdeviceptr at[6];

    MUST(cuInit(0));
    MUST(cuCtxCreate(&own, NULL, 0, 0));
    MUST(cuMemAlloc(&at[0], span_size()));
    /* As a library does to query the device. */
    MUST(cuDevicePrimaryCtxRetain(&primary, 0));
    EXPECT(primary != own);
    MUST(cuDevicePrimaryCtxRelease(0));
    MUST(cuDevicePrimaryCtxRetain(&primary, 0));
    MUST(cuDevicePrimaryCtxReset(0));
    for (int i = 1; i < 6; i++) {
        MUST(cuMemAlloc(&at[i], span_size()));
        MUST(cuMemsetD8(at[i], (unsigned char)i, span_size()));
    }
    for (int i = 0; i < 6; i++) MUST(cuMemFree(at[i]));
    puts("ok");
    return 0;
}
END
    run_probe primary
    goes_on
    said
    equal 6 "$(report allocations)" spans
    build_probe resets <<'END'
int main(int count, char **words)
{
    void *span = NULL;

    CHECK(cudaSetDevice(1)); /* the device that is reset has a context */
    CHECK(cudaFree(NULL));
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(new_span(1, NULL)));
    CHECK(cudaSetDevice(count > 1 ? atoi(words[1]) : 1));
    CHECK(cudaDeviceReset());
    CHECK(cudaSetDevice(0));
    for (int i = 0; i < 3; i++) span = new_span(i, NULL);
    EXPECT(holds(span, 2, NULL));
    puts("ok");
    return 0;
}
END
    run_penstock CUDASIM_DEVICES=2 PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=$((32 * PROBE_SPAN)) PROBE_SPAN=$PROBE_SPAN ./resets 1
    goes_on
    said
    equal 4 "$(report allocations)" spans
    run_penstock CUDASIM_DEVICES=2 PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=$((32 * PROBE_SPAN)) PROBE_SPAN=$PROBE_SPAN ./resets 0
    goes_on
    said 'standing aside from now on: the program resets the device'
}

@test "a thread without a context frees spans and small blocks in the order of a stream of the program's" {
    requires sim cc
    build_probe without "-L$SIM" -l:libcuda.so.1 <<'END'
#include <pthread.h>
static CUdeviceptr spans[8], small;
static CUstream stream;
static void *free_all(void *nothing)
{
    CUcontext context = NULL;
    (void)nothing;
    EXPECT(!cuCtxGetCurrent(&context) && !context);
    for (int i = 0; i < 8; i++) EXPECT(cuMemFreeAsync(spans[i], stream) == CUDA_SUCCESS);
    EXPECT(cuMemFreeAsync(small, stream) == CUDA_SUCCESS);
    EXPECT(cuMemFreeAsync(spans[0], NULL) == CUDA_ERROR_INVALID_CONTEXT); /* cuda.h: a default stream, and no current context */
    return NULL;
}
int main(void)
{
    pthread_t thread;

    CHECK(cudaFree(NULL));
    EXPECT(!cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 8; i++) {
            EXPECT(!cuMemAllocAsync(&spans[i], span_size(), stream));
            EXPECT(!cuMemsetD8Async(spans[i], i, span_size(), stream));
        }
        EXPECT(!cuMemAllocAsync(&small, 512, stream));
        for (int i = 0; i < 8; i++) EXPECT(holds((void *)spans[i], i, stream));
        EXPECT(!pthread_create(&thread, NULL, free_all, NULL) && !pthread_join(thread, NULL));
    }
    puts("ok");
    return 0;
}
END
    run_sim PROBE_SPAN=$PROBE_SPAN ./without
    goes_on
    local budget
    for budget in 4 100; do
        run_probe without PENSTOCK_BUDGET=$((budget * PROBE_SPAN))
        goes_on
        sound untouched
        equal 24 "$(report allocations)" spans
        equal 24 "$(report frees)" "spans that were freed"
        equal 0 "$(report bad_frees)" "frees of what is none"
    done
}
