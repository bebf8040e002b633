#!/usr/bin/env bats
# What must hold when something fails: the program goes on with the same results, or gets the CUDA error that it would have had; one clear
# line; nothing lost, nothing hung.

load ../../lib/helper
load ../../lib/small_trainer

setup() {
    # A fault makes a program slower at most; a minute is a hang.
    helper_setup 20
    requires samples jq
    by_turn 2
}

# with_libraries NAME...: a copy of the simulated device's libraries, in ./sim and used from now on, without the named ones
with_libraries() {
    local name
    cp -rL "$SIM" sim
    SIM=$WORK/sim
    for name in "$@"; do rm "sim/$name"; done
}

# --- memory that can't be had ----------------------------------------------------------------------------------------------------------------
@test "device pages refused once: something gives way, and the program goes on" {
    requires sim
    train CUDASIM_FAULT=cuMemCreate@device:oom@5
    right_results
    struck
    sound untouched # with pages for four spans a gradient's may have to go before it is first written
    equal 1 "$(report pages_refused)" "refusals"
    said 'the device has no more memory although the budget has room'
}

@test "device pages refused always: the program runs on host memory" {
    requires sim
    train CUDASIM_FAULT=cuMemCreate@device:oom@1+
    right_results
    struck 2
    sound
    equal 0 "$(ledger peak.vmm)" "bytes on the device"
    said 'the device has no more memory'
}

@test "a driver error instead of pages: the real allocator is asked, and it is said" {
    requires sim
    train CUDASIM_FAULT=cuMemCreate@device:error@5
    right_results
    struck
    sound
    counted passthrough.no_addresses
    said 'driver'
}

@test "a slab refused once: the program goes on with what there is" {
    requires sim
    local fault
    for fault in cuMemCreate@host:oom@1 cuMemCreate@host:error@2; do
        train CUDASIM_FAULT=$fault
        right_results
        struck
        sound untouched # who waits for a slot the longer for it may take one that was just born: 1 in 75 runs on a busy machine, before and after 7c60104
        said 'the host refused .* of pinned memory'
    done
}

@test "a slab that takes seconds to make: a line when it does, and one at the end" {
    requires sim plain
    # Each slot takes 20 ms, so that some hundred of them take seconds, as tens of GiB do on a machine. Then the trainer goes on.
    TRAINER=("$SAMPLES/mlp" --layers=20 --width=64 --batch=128 --steps=16)
    BATS_FILE_TMPDIR=$WORK # what this one prints is another matter
    train CUDASIM_FAULT=cuMemCreate@host:delay@1+
    right_results
    sound untouched
    at_least 101 "$(ledger faults_injected)" "slots of 20 ms"
    said '^penstock: pinning host memory for idle tensors: [0-9.]+ [KM]iB in [2-4]\.[0-9] s so far, [0-9.]+ [MGT]iB at most \(PENSTOCK_HOST_BUDGET\)$' \
        '^penstock: host memory for idle tensors is pinned: [0-9.]+ [KM]iB in [2-4]\.[0-9] s$'
}

@test "a slab refused always: spans stay on the device while they fit" {
    requires sim
    train CUDASIM_FAULT=cuMemCreate@host:oom@1+ PENSTOCK_BUDGET="$(share 110)"
    right_results
    sound
    said
    equal 0 "$(report evictions)" "evictions"
}

@test "a slab refused always and too little memory: out of memory, with the line that says why" {
    requires sim
    train CUDASIM_FAULT=cuMemCreate@host:oom@1+
    ended_with 1
    contains "$output" 'cudaMalloc.*: cudaErrorMemoryAllocation'
    said 'the host refused' 'out of memory: .* asked for, .* in use by the program, device budget .*, slab .*PENSTOCK_HOST_BUDGET'
}

@test "a slab that has no addresses is a slab refused, at once" {
    requires sim
    train CUDASIM_FAULT=cuMemAddressReserve:error@2+
    ended_with 1
    contains "$output" 'cudaMalloc.*: cudaErrorMemoryAllocation'
    at_most 5000000000 "$(report host_wait_ns)" "time waited"
}

# Evictions were begun, and called off, again and again, for half a minute: nothing told that the host would have room if other sizes gave way.
@test "once the host refuses more, free slots of other sizes give way" {
    requires sim cc
    build_probe sizes <<'END'
#define LARGE (1u << 20)
#define SMALL (384u << 10)

int main(void)
{
    void *span[20];

    for (int i = 0; i < 11; i++) {
        CHECK(cudaMalloc(&span[i], LARGE));
        CHECK(cudaMemset(span[i], i, LARGE));
    }
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 11; i++) CHECK(cudaFree(span[i]));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 20; i++) {
        cudaError_t result = cudaMalloc(&span[i], SMALL);
        if (result == cudaErrorMemoryAllocation) puts("out of memory");
        if (result != cudaSuccess) return 1;
        CHECK(cudaMemset(span[i], i, SMALL));
    }
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
    run_probe sizes CUDASIM_GRANULARITY=65536 CUDASIM_HOST_MEMORY=8MiB PENSTOCK_HOST_BUDGET=64MiB PENSTOCK_BUDGET=4MiB
    goes_on
    sound untouched
    said 'the host refused .* of pinned memory'
    at_most 5000000000 "$(report host_wait_ns)" "time waited"
    at_most 1000 "$(ledger made.handles)" "pages made"
    # A refusal that stays ends soon, too.
    run_probe sizes CUDASIM_GRANULARITY=65536 CUDASIM_FAULT=cuMemCreate@host:oom@8+ PENSTOCK_HOST_BUDGET=64MiB PENSTOCK_BUDGET=4MiB
    ended_with 1
    contains "$output" '^out of memory$'
    at_most 5000000000 "$(report host_wait_ns)" "time waited"
}

@test "a full slab: spans stay on the device, and nothing is lost" {
    requires sim
    train PENSTOCK_BUDGET="$(share 85)" PENSTOCK_HOST_BUDGET="$(share 40)"
    right_results
    sound
    said
    counted evictions
    at_most "$(share 40)" "$(report slab.bytes)" "bytes of the slab"
}

@test "slab and device too small for the program: out of memory, with demand, budget and slab" {
    local kept=$((2 * 1048576))
    [ "$DEVICE" = sim ] || kept=$(share 30)
    train PENSTOCK_BUDGET="$(share 55)" PENSTOCK_HOST_BUDGET=$((kept / 8))
    ended_with 1
    contains "$output" 'cudaMalloc.*: cudaErrorMemoryAllocation'
    said 'out of memory: .* asked for, .* in use by the program, device budget .*, slab .*PENSTOCK_HOST_BUDGET'
    equal 1 "$(report out_of_memory)" "allocations that failed"
}

@test "no device memory at all: the slots serve, and are used again" {
    train PENSTOCK_BUDGET=0
    right_results
    sound
    said
    equal 0 "$(report peak_resident_bytes)" "bytes of spans on the device"
    [ "$DEVICE" != sim ] || equal 0 "$(ledger peak.vmm)" "device pages made"
    at_most $((2 * $(report peak_demand_bytes))) "$(report slab.bytes)" "bytes of the slab"
}

# --- calls that fail -------------------------------------------------------------------------------------------------------------------------
@test "a copy refused once, out or back, or always: nothing is lost" {
    requires sim
    # The first ones are made to look through small memory for tables: without them less is known.
    train CUDASIM_FAULT=cuMemcpyAsync:error@2
    right_results
    struck
    sound
    said
    train CUDASIM_FAULT=cuMemcpyAsync:error@32
    right_results
    struck
    sound
    said 'the driver refused a (copy to the host|reload)'
    train CUDASIM_FAULT=cuMemcpyAsync:error@9,cuMemcpyAsync:error@20,cuMemcpyAsync:error@40,cuMemcpyAsync:error@41
    right_results
    struck 4
    sound
    train CUDASIM_FAULT=cuMemcpyAsync:error@30+
    right_results
    struck 2
    sound
    said 'the driver refused a copy to the host' 'the driver refused a reload'
}

@test "mappings refused: one is tried again, and for more the real allocator is asked, and it is said once" {
    requires sim
    local fault
    for fault in cuMemMap:error@9 cuMemSetAccess:error@7 cuMemSetAccess:oom@7; do
        train CUDASIM_FAULT=$fault
        right_results
        struck
        sound
        said
    done
    for fault in cuMemMap:error@1+ cuMemMap:error@9,cuMemMap:error@10; do
        train CUDASIM_FAULT=$fault
        right_results
        struck
        sound
        said '.'
    done
}

@test "mappings that can't be taken away: nothing is lost and nothing hangs" {
    requires sim
    train CUDASIM_FAULT=cuMemUnmap:error@3
    right_results
    struck
    sound
    said '.'
    # Again and again: an eviction whose slot somebody else took, unseen by the thread that makes slots, waited for nothing in one of twenty.
    for _ in $(some_of 3 {1..12}); do
        train CUDASIM_FAULT=cuMemUnmap:error@1+
        right_results
        struck
        sound
        at_most 5000000000 "$(report host_wait_ns)" "time waited"
    done
}

@test "pages that can't be given back: said once" {
    requires sim
    train CUDASIM_FAULT=cuMemRelease:error@2
    right_results
    struck
    sound
    said 'the driver could not release device pages'
}

# The hostile sample's own calls wait for streams, never for events: every event is Penstock's.
@test "events refused: an access finds its bytes all the same" {
    requires sim
    local fault
    for fault in cuEventRecord:error@1+ cuEventRecord:error@7 cuStreamWaitEvent:error@1+ cuEventCreate:error@1 cuEventCreate:error@9; do
        hostile views CUDASIM_FAULT=$fault
        goes_on
        struck
        sound
        at_most 5000000000 "$(report host_wait_ns)" "time waited with $fault"
    done
}

@test "events refused: memory is used again only when its last use is over" {
    requires sim
    local fault case seed
    for fault in cuEventRecord:error@1+ cuEventCreate:error@1+ cuEventQuery:error@1+; do
        for case in free-in-use free-while-read free-async-in-use; do
            for seed in 1 2; do
                hostile $case CUDASIM_SCHED=seeded CUDASIM_SEED=$seed CUDASIM_FAULT=$fault
                goes_on
                struck
                sound
            done
        done
    done
}

@test "a kernel that faults: the program hears of it soon, whoever waits for pages" {
    requires sim
    # Pages of freed spans, whose last use nobody can tell the end of any more, were waited for, for 30 s: under one seed of twelve.
    local seed faults=0
    for seed in {1..24}; do
        run_penstock CUDASIM_SCHED=seeded CUDASIM_SEED=$seed PENSTOCK_MIN_SPAN=4096 PENSTOCK_BUDGET=$((9 * 65536)) PENSTOCK_GUARD=unmap PENSTOCK_GRACE=0 \
            "$SAMPLES/hidden" 40 table
        if [ "$status" -ne 0 ]; then # now and then all that is away is back in time
            ended_with 1
            contains "$output" cudaErrorIllegalAddress
            faults=$((faults + 1))
        fi
        at_most 5000000000 "$(report host_wait_ns)" "time waited under seed $seed"
    done
    at_least 18 $faults "runs in which a kernel faulted"
}

@test "events that can't be asked after: nothing hangs" {
    requires sim
    train CUDASIM_FAULT=cuEventQuery:error@1+
    right_results
    struck
    sound
    at_most 5000000000 "$(report host_wait_ns)" "time waited"
}

# --- what the machine lacks ------------------------------------------------------------------------------------------------------------------
# stands_aside PATTERN: the last run was that of the plain program, one line says why, and so does the report
stands_aside() {
    right_results && said "standing aside, the program runs as without Penstock: .*$1" && sound &&
        contains "$(report stands_aside)" "$1"
}

@test "without CUPTI the program runs as it would" {
    requires sim cc
    with_libraries libcupti.so.13
    # One with nothing in it, before any that the machine may have.
    gcc -shared -fPIC -Wl,-soname,libcupti.so.13 -x c /dev/null -o sim/libcupti.so.13
    train PENSTOCK_TRACER=cupti
    stands_aside 'CUPTI \(libcupti.so.13 or .12\) was not found; PENSTOCK_CUPTI names the file'
    equal none "$(report tracer)" "tracer"
    train
    right_results
    said
    equal hook "$(report tracer)" "tracer under auto"
    counted evictions
}

@test "with a CUPTI that refuses, the program runs as it would" {
    requires sim cc
    with_libraries libcupti.so.13
    gcc -shared -fPIC -Wl,-soname,libcupti.so.13 -x c - -o sim/libcupti.so.13 <<<'
        int cuptiSubscribe(void **a, void *b, void *c) { return a && b && c ? 999 : 999; }
        int cuptiUnsubscribe(void *a) { return a != 0; }
        int cuptiEnableCallback(unsigned a, void *b, int c, unsigned d) { return a && b && c && d; }
        int cuptiGetResultString(int a, const char **b) { *b = "refused"; return a == 0; }'
    train PENSTOCK_TRACER=cupti
    stands_aside 'CUPTI refused the subscription'
    train
    right_results
    said
    equal hook "$(report tracer)" "tracer under auto"
}

@test "with CUPTI taken by another tool the program runs as it would" {
    requires sim cc
    build_probe taker.so -shared -fPIC <<'END'
#include <cupti.h>
#include <dlfcn.h>

static void CUPTIAPI nothing(void *data, CUpti_CallbackDomain domain, CUpti_CallbackId call, const void *about) {}

__attribute__((constructor)) static void take(void)
{
    CUpti_SubscriberHandle subscriber;
    void *cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_GLOBAL);
    __typeof__(&cuptiSubscribe) subscribe = cupti ? (__typeof__(subscribe))dlsym(cupti, "cuptiSubscribe") : NULL;

    EXPECT(subscribe && subscribe(&subscriber, (CUpti_CallbackFunc)nothing, NULL) == CUPTI_SUCCESS);
}
END
    train "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$PENSTOCK_SO:$WORK/taker.so" PENSTOCK_TRACER=cupti
    stands_aside 'another tool \(a profiler, a sanitizer\) has subscribed to CUPTI'
}

@test "a PENSTOCK_CUPTI that is none is named, and the one that is there used" {
    requires sim
    touch none.so
    train "PENSTOCK_CUPTI=$WORK/none.so"
    right_results
    sound
    said "PENSTOCK_CUPTI=$WORK/none.so can't be opened"
    equal cupti "$(report tracer)" tracer
}

@test "without libelf the driver's layouts are used; without those too every launch holds all spans" {
    requires sim
    with_libraries
    echo "not a library" >sim/libelf.so.1
    train
    right_results
    sound
    equal 0 "$(report layouts_from_cubin)" "layouts from cubins"
    counted layouts_from_driver
    counted evictions
    train CUDASIM_FAULT=cuKernelGetParamInfo:notsupported@1+,cuFuncGetParamInfo:notsupported@1+
    right_results
    sound
    equal "$(report launches)" "$(report launches_without_layout)" "launches without layout"
    said "a kernel's parameters can't be read"
}

@test "without a driver the program gets the error that it would have had" {
    requires sim
    ! ldconfig -p | grep -q 'libcuda\.so\.1' || skip "this machine has a driver"
    local alone
    SIM=$TOOLKIT/lib64
    run_sim "${TRAINER[@]}"
    ended_with 1
    alone=$output
    contains "$alone" 'cudaErrorInsufficientDriver'
    train PENSTOCK_BUDGET=1MiB
    ended_with 1
    equal "$alone" "$(grep -v '^penstock: ' <<<"$output")"
    at_most 1 "$(grep -c '^penstock: ' <<<"$output")" "lines said"
}

@test "without a device the program gets the error that it would have had" {
    requires sim
    run_sim CUDASIM_NO_DEVICE=1 "${TRAINER[@]}"
    ended_with 1
    local alone=$output
    train CUDASIM_NO_DEVICE=1
    ended_with 1
    equal "$alone" "$(grep -v '^penstock: ' <<<"$output")"
    at_most 1 "$(grep -c '^penstock: ' <<<"$output")" "lines said"
}

@test "on a device without what Penstock needs the program runs as it would" {
    requires sim
    train CUDASIM_VMM=0
    stands_aside 'the device has no virtual memory management'
    train CUDASIM_HOST_VMM=0
    stands_aside "the device can't map host memory"
    train CUDASIM_FAULT=cuMemAddressReserve:error@1+
    stands_aside "the address space for spans can't be reserved"
    train CUDASIM_FAULT=cuStreamCreateWithPriority:error@1
    stands_aside "copy streams can't be made"
}

@test "standing aside, cudaMemGetInfo tells the device's own figures" {
    requires sim cc
    build_probe figures <<'END'
int main(void)
{
    size_t free_bytes, total;
    void *span;

    CHECK(cudaMalloc(&span, span_size()));
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    printf("%zu of %zu\n", free_bytes, total);
    return 0;
}
END
    run_sim "PROBE_SPAN=$PROBE_SPAN" ./figures
    local plain_figures=$output
    run_probe figures CUDASIM_FAULT=cuStreamCreateWithPriority:error@1
    equal "$plain_figures" "$(grep -v '^penstock: ' <<<"$output")"
}

# --- programs that do what they must not -----------------------------------------------------------------------------------------------------
@test "frees of what is no allocation's start get CUDA's error, and harm nothing" {
    local case
    for case in interior-free unknown-free double-free; do
        hostile $case
        goes_on
        sound
        said
        [ $case = unknown-free ] || counted bad_frees
    done
}

@test "a stream-ordered free for the second time gets CUDA's error" {
    requires cc
    build_probe twice <<'END'
int main(void)
{
    void *span, *beside;

    CHECK(cudaMallocAsync(&span, span_size(), NULL));
    CHECK(cudaMallocAsync(&beside, span_size(), NULL));
    CHECK(cudaMemsetAsync(beside, 7, span_size(), NULL));
    CHECK(cudaFreeAsync(span, NULL));
    EXPECT(cudaFreeAsync(span, NULL) == cudaErrorInvalidValue);
    EXPECT(cudaFreeAsync((char *)beside + 8, NULL) == cudaErrorInvalidValue);
    cudaGetLastError();
    EXPECT(holds(beside, 7, NULL));
    CHECK(cudaFreeAsync(beside, NULL));
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
    run_probe twice
    goes_on
    sound
    said
    equal 2 "$(report bad_frees)" "frees that were none"
}

@test "an allocation larger than device and slab gets CUDA's error, and the line that says why" {
    hostile huge PENSTOCK_HOST_BUDGET=64MiB
    goes_on
    sound
    said 'out of memory: .* asked for'
    at_least 3 "$(report out_of_memory)" "allocations that failed"
}

@test "64 threads allocate at once, with room for a few of them" {
    hostile threads
    goes_on
    sound untouched
    said
    counted evictions
}

@test "a thread whose first CUDA call is an allocation has the device like any other" {
    requires cc
    build_probe fresh <<'END'
#include <pthread.h>

#define COUNT 24

static void *work(void *nothing)
{
    void *span[COUNT];

    for (int i = 0; i < COUNT; i++) CHECK(cudaMalloc(&span[i], span_size()));
    for (int i = 0; i < COUNT; i++) CHECK(cudaFree(span[i]));
    return nothing;
}

int main(void)
{
    pthread_t thread;
    void *span[COUNT];

    for (int i = 0; i < COUNT; i++) span[i] = new_span(i, NULL);
    for (int turn = 0; turn < 5; turn++) {
        EXPECT(!pthread_create(&thread, NULL, work, NULL));
        pthread_join(thread, NULL);
    }
    for (int i = 0; i < COUNT; i++) EXPECT(holds(span[i], i, NULL));
    puts("ok");
    return 0;
}
END
    run_probe fresh
    goes_on
    said
    # The thread writes to none of its spans, and they leave where a busy machine's spans of the main thread are all away or just on their way back: 8 runs of
    # 480, eight at a time on two processors.
    sound untouched
    counted evictions
    equal 0 "$(report eviction_errors)" "evictions that failed"
}

# An access takes a span back whose copy to the host is on its way; then the program frees the span, and has the pages released.
@test "memory freed while a copy that was called off still reads it" {
    requires sim cc
    build_probe called-off <<'END'
#define BUDGET 32

int main(void)
{
    void *span[BUDGET + 3];
    cudaMemPool_t pool;
    cudaStream_t stream;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    for (int i = 0; i < BUDGET; i++) span[i] = new_span(i, stream);
    CHECK(cudaStreamSynchronize(stream));
    /* Three must leave for these, and two more leave ahead of need. */
    for (int i = 0; i < 3; i++) CHECK(cudaMalloc(&span[BUDGET + i], span_size()));
    for (int i = 3; i < 8; i++) CHECK(cudaMemsetAsync(span[i], 1, 1, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 3; i < 8; i++) CHECK(cudaFree(span[i]));
    CHECK(cudaMemPoolTrimTo(pool, 0));
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
    local rate
    for rate in 0.001 0.002 0.01; do
        run_probe called-off PENSTOCK_GRACE=0 CUDASIM_D2H_GBPS=$rate
        goes_on
        said
        equal 0 "$(ledger unmapped_accesses)" "unmapped accesses at $rate GB/s"
        counted evictions_cancelled
    done
}

# --- other ways to be told what to do ----------------------------------------------------------------------------------------------------------
@test "under the unmap guard no access goes where nothing is" {
    train PENSTOCK_GUARD=unmap
    right_results
    sound
    said
    counted evictions
    equal unmap "$(report guard)" guard
}

@test "unlimited moves nothing" {
    train PENSTOCK_BUDGET=unlimited
    right_results
    sound
    said
    equal 0 "$(report 'evicted_bytes + .reloaded_bytes + .slab.bytes')" "bytes moved or set aside"
    equal null "$(jq .budget_bytes "$REPORT")" budget
}

@test "a share of the device is that share" {
    requires sim
    train CUDASIM_MEMORY=16MiB PENSTOCK_BUDGET=10%
    right_results
    sound
    said
    equal $((16 * 1048576 / 10)) "$(report budget_bytes)" budget
    at_most "$(report budget_bytes)" "$(report peak_resident_bytes)" "peak on the device"
}

@test "PENSTOCK_DISABLE=1 leaves everything to the real functions" {
    train PENSTOCK_DISABLE=1
    right_results
    sound
    said
    lacks "$output" '^penstock:'
    [ "$DEVICE" != sim ] || equal 0 "$(ledger made.handles)" "pages made"
    [ ! -e "$REPORT" ]
}
