#!/usr/bin/env bats
# The two tracers, CUPTI and functions in front of the driver's, see the same calls, and the second
# needs no CUPTI. Look-ups of other functions work as without Penstock.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; }

traced_names() { "$ROOT/scripts/dev/exports" list | grep -E '^cu[A-Z]' | grep -v '^cuFile'; }

# build_finder: prints the library that has a driver function, by dlsym and, without version and
# suffix, by cuGetProcAddress.
build_finder() {
    build_probe finder <<'END_OF_C'
#include <dlfcn.h>

static const char *library_of(void *function)
{
    Dl_info info;
    return function && dladdr(function, &info) ? strrchr(info.dli_fname, '/') + 1 : "nowhere";
}

/* By the name that cuGetProcAddress takes, as in cuda.h; returns the newest version. */
static void *by_cuda(void *driver, const char *name)
{
    CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
        (__typeof__(get))dlsym(driver, "cuGetProcAddress_v2");
    char base[128], *suffix;
    cuuint64_t flags = strstr(name, "_pt") ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    CUdriverProcAddressQueryResult status;
    void *function = NULL;

    snprintf(base, sizeof base, "%s", name);
    if ((suffix = strstr(base, "_pt"))) *suffix = '\0';
    if ((suffix = strstr(base, "_v2"))) *suffix = '\0';
    EXPECT(get && get(base, &function, CUDA_VERSION, flags, &status) == CUDA_SUCCESS);
    return function;
}

int main(int argc, char **argv)
{
    CHECK(cudaFree(NULL));
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    EXPECT(driver);
    for (int i = 1; i < argc; i++) {
        void *plain = dlsym(driver, argv[i]);
        printf("%s %s %s\n", argv[i], library_of(plain), library_of(by_cuda(driver, argv[i])));
    }
    return 0;
}
END_OF_C
}

@test "under hook a look-up gives our function; under cupti traced functions are the driver's" {
    requires cc
    build_finder
    local names
    mapfile -t names < <(traced_names)
    at_least 60 "${#names[@]}" "functions in front of the driver's"
    run_penstock PENSTOCK_TRACER=hook "$WORK/finder" "${names[@]}"
    ended_with 0
    equal "${#names[@]}" "$(grep -cE '^\w+ libpenstock\.so libpenstock\.so$' <<<"$output")" "functions of ours"
    local hooks
    hooks=$(sed -nE 's/^PS_HOOK_CUDA(_MEMORY)?\([^,]*, *(\w+) *,.*/\2/p' "$ROOT/shim/cuda/hooks.def" | wc -l)
    at_least 20 "$hooks" "hooks"
    run_penstock PENSTOCK_TRACER=cupti "$WORK/finder" "${names[@]}" cuCtxGetCurrent
    ended_with 0
    equal $((${#names[@]} - hooks + 1)) "$(grep -cE '^\w+ libcuda\.so\S* ' <<<"$output")" "functions of the driver's" # by name without version it may be a hook
    equal "$hooks" "$(grep -cE '^\w+ libpenstock\.so libpenstock\.so$' <<<"$output")" "functions of ours under cupti"
    # A function that we have none for stays the driver's.
    run_penstock PENSTOCK_TRACER=hook "$WORK/finder" cuCtxGetCurrent cuEventRecord cuEventRecord_ptsz
    ended_with 0
    equal 3 "$(grep -cE '^\w+ libcuda\.so\S* libcuda\.so\S*$' <<<"$output")" "functions of the driver's"
    run_penstock PENSTOCK_TRACER=hook PENSTOCK_DISABLE=1 "$WORK/finder" "${names[@]}"
    equal "${#names[@]}" "$(grep -cE '^\w+ libcuda\.so\S* libcuda\.so\S*$' <<<"$output")" "functions of the driver's, disabled"
}

# seen_by TRACER COMMAND...: runs it under a tracer; prints the launches and copies seen, then its
# output. auto has both tracers at once.
seen_by() {
    local tracer=$1
    shift
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="${BYTES:-24MiB}" "PENSTOCK_TRACER=$tracer" "$@"
    ended_with 0 || return 1
    equal "${tracer/auto/cupti}" "$(report tracer)" tracer || return 1
    equal 0 "$(report launches_without_layout)" "launches that could not be read" || return 1
    printf '%s launches, %s copies\n' "$(report launches)" "$(report copies_seen)"
    grep -v '^penstock: ' <<<"$output"
}

@test "each tracer, and both together, see exactly the launches and copies that were made" {
    local way
    BYTES=$(share 55)
    for way in '' --streams=2 '--streams=2 --threads=2' --alloc=async '--halves=2 --alloc=async' --shapes=3 --skew; do
        # shellcheck disable=SC2086 # several words
        seen_by cupti "${TRAINER[@]}" $way >cupti || { cat cupti && return 1; }
        # shellcheck disable=SC2086
        seen_by hook "${TRAINER[@]}" $way >hook || { cat hook && return 1; }
        at_least 1 "$(report evictions)" "evictions"
        diff cupti hook
        # shellcheck disable=SC2086
        seen_by auto "${TRAINER[@]}" $way >auto || { cat auto && return 1; }
        diff cupti auto
        contains "$(cat hook)" '^[1-9][0-9]+ launches, [1-9][0-9]* copies$'
        [ "$DEVICE" != sim ] || equal "$(ledger kernels_run) launches" "$(head -n 1 hook | sed 's/,.*//')" "launches on the device"
    done
}

@test "both tracers see the same calls of other programs than trainers" {
    local case
    for case in $(some_of 2 views struct-parameter few-pointers many-pointers copies default-stream stream-destroy free-in-use free-async-in-use churn); do
        seen_by cupti "$SAMPLES/hostile" $case 8 4 >cupti || { cat cupti && return 1; }
        seen_by hook "$SAMPLES/hostile" $case 8 4 >hook || { cat hook && return 1; }
        seen_by auto "$SAMPLES/hostile" $case 8 4 >auto || { cat auto && return 1; }
        diff cupti hook && diff cupti auto || { echo "of $case" >&2 && return 1; }
    done
    sound untouched
}

@test "launches are seen with CUPTI taken, with a tool announced, and without CUPTI" {
    requires sim
    train CUDASIM_CUPTI_TAKEN=1 PENSTOCK_TRACER=hook
    right_results
    said
    equal hook "$(report tracer)" tracer
    counted evictions
    for announced in CUDA_INJECTION64_PATH=/opt/tool.so NSYS_PROFILING_SESSION_ID=7 NV_SANITIZER_INJECTION_PORT_BASE=1; do
        train CUDASIM_CUPTI_TAKEN=1 "$announced"
        right_results
        said
        equal hook "$(report tracer)" "tracer with $announced"
        counted evictions
    done
    train PENSTOCK_CUPTI= CUDA_INJECTION64_PATH=/opt/tool.so PENSTOCK_TRACER=cupti
    right_results
    equal cupti "$(report tracer)" "tracer that was asked for"
    train PENSTOCK_TRACER=auto
    equal cupti "$(report tracer)" "tracer where nothing is announced"
}

# build_profiler: a tool in the program. It fills and reads spans. By way of HOW it takes CUPTI
# before its round TAKE (from 1; 0: before the first CUDA call; -1: after the first span is made).
# From then on it expects a callback for each fill. PAST=1: the fills bypass every look-up of ours.
build_profiler() {
    build_probe profiler "$@" <<'END_OF_C'
#include <cupti.h>
#include <dlfcn.h>

enum { SPANS = 12, ROUNDS = 8 };

static int told;

static void CUPTIAPI tell(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
    told += domain == CUPTI_CB_DOMAIN_DRIVER_API && ((const CUpti_CallbackData *)data)->callbackSite == CUPTI_API_ENTER;
}

static CUptiResult take(const char *how)
{
    static CUpti_SubscriberHandle subscriber;
    void *cupti = dlopen("libcupti.so.13", RTLD_NOW);
    __typeof__(&cuptiSubscribe) subscribe = (__typeof__(subscribe))dlsym(cupti, "cuptiSubscribe");
    __typeof__(&cuptiSubscribe_v2) subscribe_v2 = (__typeof__(subscribe_v2))dlsym(cupti, "cuptiSubscribe_v2");
    CUpti_SubscriberParams parameters = {.structSize = CUpti_SubscriberParams_STRUCT_SIZE};

    EXPECT(cupti && subscribe && subscribe_v2);
#ifdef LINKED
    subscribe = cuptiSubscribe;
#endif
    CUptiResult result = strcmp(how, "v2") ? subscribe(&subscriber, (CUpti_CallbackFunc)tell, NULL)
                                           : subscribe_v2(&subscriber, (CUpti_CallbackFunc)tell, NULL, &parameters);
    if (result == CUPTI_SUCCESS) {
        __typeof__(&cuptiEnableCallback) enable = (__typeof__(enable))dlsym(cupti, "cuptiEnableCallback");
        EXPECT(enable(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async) == CUPTI_SUCCESS);
    }
    return result;
}

int main(void)
{
    int when = atoi(getenv("TAKE")), wanted = 0;
    const char *how = getenv("HOW") ? getenv("HOW") : "";
    void *span[SPANS];

    if (when == 0) printf("take: %d\n", take(how));
    for (int i = 0; i < SPANS; i++) {
        CHECK(cudaMalloc(&span[i], span_size()));
        if (when == -1 && !i) printf("take: %d\n", take(how));
    }
    void *(*real)(void *, const char *) = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*fill)(CUdeviceptr, unsigned char, size_t, CUstream) =
        (__typeof__(fill))(getenv("PAST") ? real : dlsym)(driver, "cuMemsetD8Async");
    EXPECT(fill);
    for (int round = 1; round <= ROUNDS; round++) {
        if (when == round) printf("take: %d\n", take(how));
        for (int i = 0; i < SPANS; i++) {
            EXPECT(fill((CUdeviceptr)span[i], (unsigned char)(i + round), span_size(), NULL) == CUDA_SUCCESS);
            wanted += when <= round;
        }
        for (int i = 0; i < SPANS; i++) EXPECT(holds(span[i], i + round, NULL));
    }
    printf("told: %d of %d\n", told, wanted);
    puts("ok");
    return 0;
}
END_OF_C
}

# profiled [VARIABLE=VALUE]...: its last run was right, the tool got every callback, and Penstock
# saw every fill and copy by hooks.
profiled() {
    run_probe profiler PENSTOCK_BUDGET=$((6 * PROBE_SPAN)) "$@"
    goes_on
    said
    contains "$output" '^take: 0$'
    contains "$output" '^told: ([1-9][0-9]*) of \1$'
    sound untouched
    counted evictions
    equal hook "$(report tracer)" tracer
}

@test "a tool may take CUPTI unannounced before the first CUDA call, and both work" {
    requires sim cc
    train PENSTOCK_TRACER=cupti
    local seen
    seen="$(report launches) $(report copies_seen)"
    train CUDASIM_CUPTI_TAKEN=1
    right_results
    said
    equal hook "$(report tracer)" tracer
    equal "$seen" "$(report launches) $(report copies_seen)" "launches and copies"
    counted evictions
    train CUDASIM_CUPTI_TAKEN=1 PENSTOCK_LOG=info
    contains "$output" "Penstock sees launches by functions in front of the driver's, because another tool"
    build_profiler
    profiled TAKE=0
    equal $((12 * 8 * 2)) "$(report copies_seen)" "fills and copies"
}

@test "a tool may take CUPTI when Penstock has it: Penstock leaves it, and both work" {
    requires sim cc
    local take how
    build_profiler
    for take in 1 2 5; do
        for how in dlsym v2; do
            profiled TAKE=$take HOW=$how
            equal $((12 * 8 * 2)) "$(report copies_seen)" "fills and copies"
        done
    done
    run_probe profiler PENSTOCK_BUDGET=$((6 * PROBE_SPAN)) TAKE=3 PENSTOCK_LOG=info
    contains "$output" 'CUPTI is left to another tool'
    build_profiler -DLINKED "-L$SIM" -l:libcupti.so.13
    profiled TAKE=3
    equal $((12 * 8 * 2)) "$(report copies_seen)" "fills and copies"
}

@test "a tool may take CUPTI between the first call and the start of tracing, and both work" {
    requires sim cc
    local take
    # The twelve spans are nearly twice the budget of auto. Tracing starts when three quarters of it
    # are held.
    build_profiler
    for take in 0 -1 2; do
        run_probe profiler TAKE=$take PENSTOCK_BUDGET=auto PENSTOCK_RESERVE=$((2 * PROBE_SPAN)) CUDASIM_MEMORY=$((9 * PROBE_SPAN))
        goes_on
        said
        contains "$output" '^take: 0$'
        contains "$output" '^told: ([1-9][0-9]*) of \1$'
        counted evictions
        equal hook "$(report tracer)" tracer
    done
    profiled TAKE=-1
    # Here nothing has to leave, and Penstock does not trace: the tool has CUPTI for itself.
    run_probe profiler TAKE=2 PENSTOCK_BUDGET=auto
    goes_on
    said
    contains "$output" '^told: ([1-9][0-9]*) of \1$'
    equal none "$(report tracer)" tracer
}

@test "a tool is refused CUPTI while launches are seen by CUPTI alone, and where the user chose cupti" {
    requires sim cc
    build_profiler
    run_probe profiler PENSTOCK_BUDGET=$((6 * PROBE_SPAN)) TAKE=3 PAST=1
    goes_on
    said 'another tool .* asked for CUPTI and was refused'
    contains "$output" '^take: 39$'
    sound untouched
    counted evictions
    equal cupti "$(report tracer)" tracer
    run_probe profiler PENSTOCK_BUDGET=$((6 * PROBE_SPAN)) TAKE=3 PENSTOCK_TRACER=cupti
    goes_on
    said
    contains "$output" '^take: 39$'
}

@test "with CUPTI taken and our functions reaching no caller, Penstock stands aside and reports it" {
    requires sim cc
    gcc -O2 -D_GNU_SOURCE -shared -fPIC -x c - -o libbefore.so <<'END_OF_C'
#include <dlfcn.h>

void *dlsym(void *handle, const char *name)
{
    void *(*real)(void *, const char *) = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    return real(handle, name); /* a jump, by which the real one knows its caller */
}
END_OF_C
    train CUDASIM_CUPTI_TAKEN=1 "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$WORK/libbefore.so:$PENSTOCK_SO"
    right_results
    said 'standing aside.*another tool .* has subscribed to CUPTI'
    train CUDASIM_CUPTI_TAKEN=1 PENSTOCK_TRACER=cupti
    right_results
    said 'another tool .* has subscribed to CUPTI.*PENSTOCK_TRACER=hook'
    train "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$WORK/libbefore.so:$PENSTOCK_SO"
    right_results
    said
    equal cupti "$(report tracer)" tracer
    counted evictions
}

@test "a program that is linked with the driver, or finds it by dlsym, is traced" {
    requires cc
    # The wheels' toolkit has no stub of the driver, so the simulated driver itself is linked.
    build_probe driver_calls "-L$SIM" -l:libcuda.so.1 <<'END_OF_C'
#include <dlfcn.h>

int main(void)
{
    enum { SPANS = 12, ROUNDS = 4 };
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*fill)(CUdeviceptr, unsigned char, size_t, CUstream) = (__typeof__(fill))dlsym(driver, "cuMemsetD8Async");
    CUresult (*copy)(CUdeviceptr, CUdeviceptr, size_t) = (__typeof__(copy))dlsym(driver, "cuMemcpy_ptds");
    void *span[SPANS], *other;

    EXPECT(fill && copy);
    CHECK(cudaMalloc(&other, span_size()));
    for (int i = 0; i < SPANS; i++) span[i] = new_span(i, NULL);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < SPANS; i++) {
            EXPECT(cuMemsetD8_v2((CUdeviceptr)other, 200, span_size()) == CUDA_SUCCESS);
            EXPECT(fill((CUdeviceptr)span[i], (unsigned char)(i + round), span_size(), NULL) == CUDA_SUCCESS);
            EXPECT(copy((CUdeviceptr)other, (CUdeviceptr)span[i], span_size()) == CUDA_SUCCESS);
            EXPECT(holds(other, i + round, NULL));
        }
    puts("ok");
    return 0;
}
END_OF_C
    local tracer seen=
    for tracer in cupti hook auto; do
        run_probe driver_calls PENSTOCK_TRACER=$tracer PENSTOCK_BUDGET=$((6 * PROBE_SPAN))
        goes_on
        sound untouched
        counted evictions
        [ -z "$seen" ] || equal "$seen" "$(report copies_seen)" "copies seen"
        seen=$(report copies_seen)
    done
    # Four calls in each turn, and each span's first.
    equal $((12 * 4 * 4 + 12)) "$seen" "copies and fills"
}

@test "batches of copies, volumes and values, and copies with attributes, are seen, in stream order or ahead of it" {
    requires sim cc
    build_probe batches "-I$ROOT" -include shim/cuda/newer_cuda.h "-L$SIM" -l:libcuda.so.1 <<'END_OF_C'
static cudaStream_t stream;
static CUmemcpySrcAccessOrder order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;

static void copy(void *to, void *from, size_t bytes)
{
    CUdeviceptr dsts[2] = {(CUdeviceptr)to, (CUdeviceptr)to + bytes / 2}, srcs[2] = {(CUdeviceptr)from, (CUdeviceptr)from + bytes / 2};
    size_t sizes[2] = {bytes / 2, bytes / 2}, first = 0;
    CUmemcpyAttributes attributes = {.srcAccessOrder = order};

    EXPECT(cuMemcpyBatchAsync_v2(dsts, srcs, sizes, 2, &attributes, &first, 1, stream) == CUDA_SUCCESS);
}

/* In two halves, the later one first; rows of 256 bytes. */
static void copy_volumes(void *to, void *from, size_t bytes)
{
    CUDA_MEMCPY3D_BATCH_OP op[2] = {0};

    for (int i = 0; i < 2; i++) {
        const size_t at = i ? 0 : bytes / 2;
        op[i].src.type = op[i].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        op[i].dst.op.ptr.ptr = (CUdeviceptr)to + at;
        op[i].src.op.ptr.ptr = (CUdeviceptr)from + at;
        op[i].src.op.ptr.rowLength = 256;
        op[i].extent = (CUextent3D){256, bytes / 1024, 2};
        op[i].srcAccessOrder = order;
    }
    EXPECT(cuMemcpy3DBatchAsync_v2(2, op, 0, stream) == CUDA_SUCCESS);
}

/* In CUDA 13.2 and later. */
static void copy_with_attributes(void *to, void *from, size_t bytes)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = order};

    EXPECT(cuMemcpyWithAttributesAsync((CUdeviceptr)to, (CUdeviceptr)from, bytes, &attributes, stream) == CUDA_SUCCESS);
}

static void copy_volume_with_attributes(void *to, void *from, size_t bytes)
{
    CUDA_MEMCPY3D_BATCH_OP op = {.extent = {bytes / 4, 2, 2}, .srcAccessOrder = order};

    op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    op.dst.op.ptr.ptr = (CUdeviceptr)to;
    op.src.op.ptr.ptr = (CUdeviceptr)from;
    EXPECT(cuMemcpy3DWithAttributesAsync(&op, 0, stream) == CUDA_SUCCESS);
}

static void set_ends(void *span, size_t bytes, uint64_t value)
{
    CUstreamBatchMemOpParams op[3] = {0};

    op[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    op[0].writeValue.address = (CUdeviceptr)span;
    op[0].writeValue.value64 = value;
    op[1].memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
    op[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op[2].writeValue.address = (CUdeviceptr)span + bytes - 4;
    op[2].writeValue.value = (uint32_t)value;
    EXPECT(cuStreamBatchMemOp_v2(stream, 3, op, 0) == CUDA_SUCCESS);
}

int main(void)
{
    enum { SPANS = 12, ROUNDS = 4 };
    void (*const how[ROUNDS])(void *, void *, size_t) = {copy_volumes, copy, copy_volume_with_attributes, copy_with_attributes};
    const size_t bytes = span_size();
    void *span[SPANS], *from;

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&from, bytes));
    for (int i = 0; i < SPANS; i++) span[i] = new_span(i, stream);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < SPANS; i++) {
            const unsigned char value = (unsigned char)(100 + i + round);
            CHECK(cudaMemsetAsync(from, value, bytes, stream));
            how[round](span[i], from, bytes);
            EXPECT(holds(span[i], value, stream));
        }
    /* Sources may be read ahead of the stream: no queued work uses them. */
    for (order = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL; order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY; order++)
        for (int round = 0; round < ROUNDS; round++)
            for (int i = 0; i < SPANS; i++) {
                how[round](from, span[i], bytes);
                EXPECT(holds(from, (unsigned char)(100 + i + ROUNDS - 1), stream));
            }
    for (int i = 0; i < SPANS; i++) set_ends(span[i], bytes, 0x0101010101010101 * (i + 1));
    for (int i = 0; i < SPANS; i++) {
        uint64_t first;
        uint32_t last;
        CHECK(cudaMemcpyAsync(&first, span[i], sizeof first, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaMemcpyAsync(&last, (char *)span[i] + bytes - 4, sizeof last, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(first == 0x0101010101010101ul * (unsigned)(i + 1) && last == 0x01010101u * (unsigned)(i + 1));
    }
    puts("ok");
    return 0;
}
END_OF_C
    local tracer guard seen=
    run_sim ./batches
    goes_on
    for tracer in cupti hook; do
        for guard in host unmap; do
            run_probe batches PENSTOCK_TRACER=$tracer PENSTOCK_BUDGET=$((6 * PROBE_SPAN)) PENSTOCK_GUARD=$guard
            { goes_on && sound untouched && counted evictions; } || { echo "$tracer, $guard" >&2 && return 1; }
            [ -z "$seen" ] || equal "$seen" "$(report copies_seen)" "copies seen"
            seen=$(report copies_seen)
        done
    done
    # With a CUPTI older than some of these functions, the functions in front of the driver's see
    # them.
    run_probe batches "PENSTOCK_CUPTI=$BUILD/sim12/libcupti.so.12" PENSTOCK_BUDGET=$((6 * PROBE_SPAN)) PENSTOCK_GUARD=unmap
    { goes_on && sound untouched && counted evictions; } || return 1
    equal "$seen cupti" "$(report copies_seen) $(report tracer)" "copies seen, both telling"
}

@test "the driver refuses a program's wrong calls, as without Penstock" {
    requires sim cc
    build_probe wrong_calls "-I$ROOT" -include shim/cuda/newer_cuda.h "-L$SIM" -l:libcuda.so.1 <<'END_OF_C'
#include <dlfcn.h>

int main(void)
{
    void *span = new_span(1, NULL), *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CUdeviceptr address = (CUdeviceptr)span, none[2] = {0};
    CUgraph graph;
    CUgraphExec made;
    size_t bytes = 4096, wrong = 0;

    CHECK(cudaStreamSynchronize(NULL));
    EXPECT(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    EXPECT(cuGraphInstantiateWithFlags(&made, graph, 0) == CUDA_SUCCESS);
#define REFUSED(name, ...) \
    do { \
        __typeof__(&name) function = (__typeof__(&name))dlsym(driver, #name); \
        CUresult result = function ? function(__VA_ARGS__) : CUDA_SUCCESS; \
        if (result == CUDA_SUCCESS) fprintf(stderr, "%s: not refused\n", #name), wrong++; \
    } while (0)
    REFUSED(cuMemcpy2D_v2, NULL);
    REFUSED(cuMemcpy2DAsync_v2, NULL, NULL);
    REFUSED(cuMemcpy3D_v2, NULL);
    REFUSED(cuMemcpy3DAsync_v2, NULL, NULL);
    REFUSED(cuMemcpy3DPeer, NULL);
    REFUSED(cuMemcpy3DPeerAsync, NULL, NULL);
    REFUSED(cuMemcpyHtoDAsync_v2, address, NULL, bytes, NULL);
    REFUSED(cuMemcpyAsync, 0, address, bytes, NULL);
    REFUSED(cuMemcpy, address, 0, bytes);
    REFUSED(cuLaunchKernelEx, NULL, (CUfunction)span, NULL, NULL);
    REFUSED(cuMemcpyBatchAsync_v2, NULL, &address, &bytes, 1, NULL, NULL, 0, NULL);
    REFUSED(cuMemcpyBatchAsync_v2, &address, NULL, &bytes, 1, NULL, NULL, 0, NULL);
    REFUSED(cuMemcpyBatchAsync_v2, &address, none, NULL, 1, NULL, NULL, 0, NULL);
    REFUSED(cuMemcpy3DBatchAsync_v2, 1, NULL, 0, NULL);
    REFUSED(cuMemcpyWithAttributesAsync, 0, address, bytes, NULL, NULL);
    REFUSED(cuMemcpy3DWithAttributesAsync, NULL, 0, NULL);
    REFUSED(cuStreamBatchMemOp_v2, NULL, 1, NULL, 0);
    REFUSED(cuMemBatchDecompressAsync, NULL, 1, 0, NULL, NULL);
    REFUSED(cuGraphExecKernelNodeSetParams_v2, made, NULL, NULL);
    REFUSED(cuGraphExecMemcpyNodeSetParams, made, NULL, NULL, NULL);
    REFUSED(cuGraphExecMemsetNodeSetParams, made, NULL, NULL, NULL);
    EXPECT(!wrong && holds(span, 1, NULL));
    puts("ok");
    return 0;
}
END_OF_C
    local tracer
    run_sim ./wrong_calls
    goes_on
    for tracer in cupti hook; do
        run_probe wrong_calls PENSTOCK_TRACER=$tracer
        goes_on
    done
}

@test "the program's own captures are seen by hooks as by CUPTI" {
    local case cases
    mapfile -t cases < <(with_device "$SAMPLES/hostile" --list | awk '/captur|graph/ { print $1 }')
    at_least 10 ${#cases[@]} "cases with captures or graphs"
    for case in "${cases[@]}"; do
        seen_by hook "$SAMPLES/hostile" "$case" 8 4
        seen_by auto "$SAMPLES/hostile" "$case" 8 4
    done
}

# --- dlsym ----------------------------------------------------------------------------------------
@test "a tool that clears LD_PRELOAD has Penstock inside the program, as scripts/gpu/programs runs it" {
    requires sim samples python plain
    # As Nsight Compute.
    printf '#!/bin/bash\necho "ncu: preloaded: ${LD_PRELOAD:-}"\nwhile [[ "$1" == -* ]]; do [ "$1" != --target-processes ] || shift; shift; done\nLD_PRELOAD= exec "$@"\n' >ncu
    chmod +x ncu
    local sample=(python3 -B "$ROOT/tests/gpu/sample.py")
    run_sim "${sample[@]}" ./ncu --target-processes all -- "${TRAINER[@]}"
    ended_with 0
    local plain
    plain=$(grep '^{' <<<"$output")
    [ ! -e "$REPORT" ]
    run_penstock PENSTOCK_MIN_SPAN="$SPAN_FROM" PENSTOCK_BUDGET="$(share 55)" "${sample[@]}" ./ncu --target-processes all -- "${TRAINER[@]}"
    ended_with 0
    equal "$plain" "$(grep '^{' <<<"$output")" "what it prints"
    contains "$output" '^ncu: preloaded: $'
    counted evictions
}

@test "dlsym works for its caller as without Penstock" {
    requires cc
    # The caller's place in the order of libraries decides which one is next, and the last error is
    # the caller's own.
    gcc -shared -fPIC -x c - -o libsecond.so <<<'const char *who(void) { return "second"; }'
    gcc -D_GNU_SOURCE -shared -fPIC -x c - -o libfirst.so <<'END_OF_C'
#include <dlfcn.h>
const char *who(void) { return "first"; }
const char *next(void) { const char *(*f)(void) = (const char *(*)(void))dlsym(RTLD_NEXT, "who"); return f ? f() : "nobody"; }
END_OF_C
    build_probe asks "-L$WORK" -Wl,--no-as-needed -lfirst -lsecond "-Wl,-rpath,$WORK" <<'END_OF_C'
#include <dlfcn.h>
extern const char *who(void), *next(void);

int main(void)
{
    void *library = dlopen("libm.so.6", RTLD_NOW);
    const char *error;

    dlerror();
    EXPECT(!strcmp(who(), "first") && !strcmp(next(), "second"));
    EXPECT(dlsym(RTLD_DEFAULT, "who") == (void *)who && dlsym(library, "cos"));
    EXPECT(!dlerror());
    EXPECT(!dlsym(library, "cuNoSuchThing") && (error = dlerror()) && strstr(error, "cuNoSuchThing"));
    EXPECT(!dlsym(library, "no_such_thing") && (error = dlerror()) && strstr(error, "no_such_thing"));
    EXPECT(!dlsym(RTLD_NEXT, "cuNoSuchThing") && dlerror());
    EXPECT(!dlerror());
    puts("ok");
    return 0;
}
END_OF_C
    local tracer
    for tracer in cupti hook; do
        run_penstock PENSTOCK_TRACER=$tracer "$WORK/asks"
        ended_with 0
        contains "$output" '^ok$'
    done
}
