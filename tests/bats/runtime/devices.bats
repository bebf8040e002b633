#!/usr/bin/env bats
# Several devices of one process. Each has its own budget, slab share, streams and plans, and copies
# between them are ordered. The sample is tests/samples/devices.cu.

load ../../lib/helper
load ../../lib/small_trainer
bats_require_minimum_version 1.5.0

setup() {
    helper_setup
    requires sim samples plain jq
    DEVICES=$SAMPLES/devices
    BUDGET=$((15 * SPAN))
}

SPAN=65536

# on_devices N [VARIABLE=VALUE]... [WORD]...: runs the sample on N devices, under Penstock with room
# for 15 of the 26 spans that each uses.
on_devices() {
    local count=$1 settings=()
    shift
    while [[ "${1:-}" == *=* ]]; do
        settings+=("$1")
        shift
    done
    run_penstock CUDASIM_DEVICES="${PRESENT:-$count}" PENSTOCK_MIN_SPAN="$SPAN_FROM" PENSTOCK_BUDGET=$BUDGET "${settings[@]}" "$DEVICES" "${STEPS:-30}" "$count" "$@"
}

# as_plain N [WORD]...: the last run printed the same as without Penstock.
as_plain() {
    local count=$1 printed
    shift
    printed=$(grep -v '^penstock: ' <<<"$output")
    ended_with 0 || return 1
    run_sim CUDASIM_DEVICES="${PRESENT:-$count}" CUDASIM_PEERS=1 "$DEVICES" "${STEPS:-30}" "$count" "$@"
    ended_with 0 || return 1
    equal "$output" "$printed" "what $count devices print ($*)"
}

# refused_nothing: the driver granted every request of Penstock's. An event of another context than
# its stream's, say, is refused.
refused_nothing() {
    equal 0 "$(report reload_errors)" "reloads that the driver refused" && equal 0 "$(report eviction_errors)" "evictions that it refused" &&
        at_most "$(quiet_or 5 0)" "$(report accesses_on_slot)" "accesses on slots"
}

# each KEY: prints a figure of each device, in their order.
each() { jq -c "[.devices[].$1]" "$REPORT"; }

@test "each device is managed: its budget holds, its spans move, and its step is planned" {
    on_devices 2
    ended_with 0
    said
    sound
    refused_nothing
    equal '[0,1]' "$(each device.ordinal)" devices
    equal "[$BUDGET,$BUDGET]" "$(each budget_bytes)" budgets
    jq -e --argjson budget $BUDGET 'all(.devices[]; .peak_resident_bytes <= $budget and .peak_resident_bytes >= $budget - 65536)' "$REPORT"
    jq -e --argjson budget $BUDGET 'all(.devices[]; .peak_demand_bytes >= $budget * 1.5)' "$REPORT"
    jq -e 'all(.devices[]; .slab.peak_used_bytes > 0 and .plan.steps >= 10 and .plan.evictions > 0 and .plan.reloads > 0)' "$REPORT"
    contains "$output" 'peak 960.00 KiB on the fullest of 2 devices, '
    equal "$(report budget_bytes)" "$BUDGET" "the first device's budget, at the top"
    as_plain 2
}

# plans_until_it_settles: checks the number of plans of a step that two devices share. Copies take
# as long as the launches of a step.
# A launch that needs pages evicts what the plan would evict. So the first timed steps wait less for
# the other device (65 ms without moves, formerly 84 to 121), and one more plan may be all.
plans_until_it_settles() {
    local plans rate
    rate=$(awk -v pace="${PACE:-1}" 'BEGIN { print 0.01 / pace }')
    slow=(CUDASIM_KERNEL_NS="$(paced 100000)" CUDASIM_D2H_GBPS="$rate" CUDASIM_H2D_GBPS="$rate" PENSTOCK_LOG=info)
    STEPS=12 on_devices 2 "${slow[@]}"
    goes_on || return 1
    plans=$(grep -oE 'planned a step of [0-9]+' <<<"$output" | sort | uniq -c | awk '{ print $1 }' | sort -n | tail -n 1)
    at_least 2 "$plans" "plans of one step ($(grep -c 'planned a step' <<<"$output") in all)" && at_most 7 "$plans" "plans of one step"
}

@test "where devices wait for each other, steps are planned again while they get shorter" {
    # While one device learns, its launches wait for the other's transfers too.
    local slow
    in_time plans_until_it_settles
    # On one device the step is timed once more, and then no more.
    STEPS=12 on_devices 1 "${slow[@]}"
    goes_on
    equal 2 "$(grep -c 'planned a step' <<<"$output")" "plans of the step on one device"
}

@test "threads, default streams and stream-ordered memory give the same results, on up to three devices" {
    local words
    for words in threads default "async threads" "async default" "threads default"; do
        # shellcheck disable=SC2086
        on_devices 3 $words
        ended_with 0
        sound
        refused_nothing
        equal '[0,1,2]' "$(each device.ordinal)" "devices ($words)"
        jq -e 'all(.devices[]; .peak_resident_bytes <= .budget_bytes and .slab.peak_used_bytes > 0)' "$REPORT"
        # shellcheck disable=SC2086
        as_plain 3 $words
    done
}

@test "copies between devices and work on each are right in every order that the devices take" {
    local seed words list=("" default async "threads async") policies=(plan lru)
    STEPS=12
    for ((seed = 1; seed <= $PENSTOCK_TEST_SEEDS / 20; seed++)); do
        words=${list[seed % 4]}
        # shellcheck disable=SC2086
        on_devices $((2 + seed % 2)) CUDASIM_SCHED=seeded CUDASIM_SEED=$seed PENSTOCK_GUARD=unmap PENSTOCK_POLICY=${policies[seed % 3 / 2]} $words
        ended_with 0
        sound untouched
        refused_nothing
        counted reloads
        # shellcheck disable=SC2086
        as_plain $((2 + seed % 2)) $words || { echo "seed $seed" >&2 && return 1; }
    done
}

@test "freed memory that another device still reads is not reused before that read is over" {
    build_probe reader <<'END'
#define TIMES 24

int main(void)
{
    cudaStream_t writer, reader;
    cudaEvent_t written;
    void *copy[TIMES];

    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&reader, cudaStreamNonBlocking));
    for (int i = 0; i < TIMES; i++) copy[i] = new_span(0xff, reader);
    CHECK(cudaSetDevice(1));
    CHECK(cudaStreamCreateWithFlags(&writer, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
    for (int i = 0; i < TIMES; i++) {
        void *span = new_span(i, writer);
        CHECK(cudaEventRecord(written, writer));
        CHECK(cudaStreamWaitEvent(reader, written, 0));
        CHECK(cudaMemcpyPeerAsync(copy[i], 0, span, 1, span_size(), reader));
        CHECK(cudaFree(span)); /* the next span is the same, and written on the other stream */
    }
    CHECK(cudaSetDevice(0));
    for (int i = 0; i < TIMES; i++) EXPECT(holds(copy[i], i, reader));
    puts("ok");
    return 0;
}
END
    local seed
    for seed in {1..12}; do
        run_probe reader CUDASIM_DEVICES=2 CUDASIM_SCHED=seeded CUDASIM_SEED=$seed
        goes_on
        refused_nothing
    done
}

@test "an evicted span of one device comes back when another device asks first" {
    build_probe asker <<'END'
#define SPANS 48 /* sixteen more than fit */

int main(void)
{
    cudaStream_t writer, reader;
    void *span[SPANS], *copy;

    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&reader, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&copy, span_size()));
    CHECK(cudaSetDevice(1));
    CHECK(cudaStreamCreateWithFlags(&writer, cudaStreamNonBlocking));
    for (int i = 0; i < SPANS; i++) span[i] = new_span(i, writer);
    CHECK(cudaStreamSynchronize(writer));
    CHECK(cudaSetDevice(0));
    for (int i = 0; i < SPANS; i++) {
        CHECK(cudaMemcpyPeerAsync(copy, 0, span[i], 1, span_size(), reader));
        EXPECT(holds(copy, i, reader));
    }
    puts("ok");
    return 0;
}
END
    run_probe asker CUDASIM_DEVICES=2
    goes_on
    at_least 16 "$(report demand_reloads)" "spans that came back"
    refused_nothing
}

@test "kernels of one device use another's spans once the program enables access, at any time" {
    local words seed
    while IFS=: read -r seed words; do
        # shellcheck disable=SC2086
        on_devices 3 CUDASIM_PEERS=1 CUDASIM_SCHED=seeded CUDASIM_SEED=$seed $words
        ended_with 0
        said
        sound untouched
        refused_nothing
        # shellcheck disable=SC2086
        as_plain 3 $words
    done < <(some_of 3 {1..4}:{peers,"peers async threads"})
}

@test "every call that enables peer access covers present and future spans, on the device and on their slots" {
    build_probe let_in -include dlfcn.h <<'END'
#include <cuda.h>

#define SPANS 40 /* eight more than fit */

static CUresult (*access_of)(unsigned long long *, const CUmemLocation *, CUdeviceptr);

static int lets_in(void *span, int device)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    unsigned long long flags = 0;

    return !access_of(&flags, &location, (CUdeviceptr)span) && flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

int main(void)
{
    const char *way = getenv("WAY");
    CUresult (*enable)(CUcontext, unsigned int);
    CUresult (*current)(CUcontext *);
    struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice, .id = 1}, .flags = cudaMemAccessFlagsProtReadWrite};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *span[SPANS];
    cudaMemPool_t pool;
    CUcontext owner;
    int inside = 0;

    access_of = dlsym(driver, "cuMemGetAccess");
    enable = dlsym(RTLD_DEFAULT, "cuCtxEnablePeerAccess");
    current = dlsym(driver, "cuCtxGetCurrent");
    EXPECT(way && access_of && enable && current);
    if (!strcmp(way, "before")) {
        CHECK(cudaSetDevice(1));
        CHECK(cudaDeviceEnablePeerAccess(0, 0));
    }
    CHECK(cudaSetDevice(0));
    for (int i = 0; i < SPANS / 2; i++) span[i] = new_span(i, NULL);
    EXPECT(lets_in(span[0], 0) && lets_in(span[0], 1) == !strcmp(way, "before"));
    EXPECT(!current(&owner) && owner);
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    if (!strcmp(way, "pool")) CHECK(cudaMemPoolSetAccess(pool, &access, 1));
    CHECK(cudaSetDevice(1));
    if (!strcmp(way, "runtime")) CHECK(cudaDeviceEnablePeerAccess(0, 0));
    if (!strcmp(way, "driver")) EXPECT(!enable(owner, 0));
    CHECK(cudaSetDevice(0));
    for (int i = 0; i < SPANS / 2; i++) inside += lets_in(span[i], 1);
    EXPECT(inside == SPANS / 2);
    for (int i = SPANS / 2; i < SPANS; i++) span[i] = new_span(i, NULL);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < SPANS; i++) EXPECT(holds(span[i], i, NULL) && lets_in(span[i], 1) && !lets_in(span[i], 2));
    puts("ok");
    return 0;
}
END
    local way
    for way in before runtime driver pool; do
        run_probe let_in CUDASIM_DEVICES=3 CUDASIM_PEERS=1 PENSTOCK_POLICY=lru WAY=$way
        goes_on
        said
        counted reloads
    done
}

@test "the host's memory is divided among the devices" {
    on_devices 2 PENSTOCK_HOST_BUDGET=$((40 * SPAN))
    ended_with 0
    equal "[$((20 * SPAN)),$((20 * SPAN))]" "$(each slab.limit_bytes)" "limits of the slabs"
    jq -e 'all(.devices[]; .slab.bytes <= .slab.limit_bytes)' "$REPORT"
    as_plain 2
}

@test "a device that the program doesn't use takes no share" {
    PRESENT=4
    on_devices 1
    ended_with 0
    said
    equal null "$(jq -c .devices "$REPORT")" "devices, where there is one"
    equal 1 "$(ledger calls.cuDevicePrimaryCtxRetain)" "contexts made"
    jq -e --argjson all $((26 * SPAN)) '.slab.limit_bytes > $all' "$REPORT"
    as_plain 1
}

@test "a device that can't be managed is left to CUDA, and one line reports it" {
    # The first five streams, and the program's own, are the first device's.
    on_devices 2 CUDASIM_FAULT=cuStreamCreateWithPriority:error@8
    ended_with 0
    struck
    said "device 1 is not managed, unlike the first one: copy streams can't be made"
    counted evictions
    at_least 26 "$(report passthrough.other_device)" "allocations on the second device"
    as_plain 2
}

@test "memory is queried and freed on its own device, whichever device is current" {
    build_probe elsewhere <<'END'
int main(void)
{
    struct cudaPointerAttributes attributes;
    size_t free_bytes[2], total;
    void *first, *second;

    CHECK(cudaSetDevice(1)); /* the first managed device is not device 0 */
    CHECK(cudaMalloc(&first, 4 * span_size()));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&second, span_size()));
    CHECK(cudaMemGetInfo(&free_bytes[0], &total));
    CHECK(cudaPointerGetAttributes(&attributes, first));
    EXPECT(attributes.device == 1 && attributes.type == cudaMemoryTypeDevice);
    CHECK(cudaPointerGetAttributes(&attributes, (char *)second + 8));
    EXPECT(attributes.device == 0);
    CHECK(cudaSetDevice(1));
    CHECK(cudaMemGetInfo(&free_bytes[1], &total));
    EXPECT(free_bytes[0] == 31 * span_size() && free_bytes[1] == 28 * span_size());
    CHECK(cudaFree(second));
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(first));
    EXPECT(cudaFree(first) == cudaErrorInvalidValue);
    CHECK(cudaMemGetInfo(&free_bytes[0], &total));
    EXPECT(free_bytes[0] == 32 * span_size());
    puts("ok");
    return 0;
}
END
    run_probe elsewhere CUDASIM_DEVICES=2
    goes_on
    said
    equal '[1,0]' "$(each device.ordinal)" devices
    equal "[$((4 * PROBE_SPAN)),$PROBE_SPAN]" "$(each peak_demand_bytes)" "bytes in spans"
}

@test "stream-ordered memory belongs to the device of the pool or stream, whichever device is current" {
    # The wheels' toolkit has no stub of the driver, so the simulated driver itself is linked.
    build_probe ordered "-L$SIM" -l:libcuda.so.1 <<'END'
static int device_of(void *address)
{
    struct cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, address));
    return attributes.device;
}
int main(void)
{
    void *memory;
    cudaStream_t stream;
    cudaMemPool_t pool;

    CHECK(cudaMalloc(&memory, span_size()));
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&memory, span_size()));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 1));
    for (int current = 0; current < 2; current++) {
        CHECK(cudaSetDevice(current));
        CHECK(cudaMallocAsync(&memory, span_size(), stream));
        printf("%d", device_of(memory));
        CHECK(cudaMallocFromPoolAsync(&memory, span_size(), pool, stream));
        printf("%d", device_of(memory));
        EXPECT(cuMemAllocAsync((CUdeviceptr *)&memory, span_size(), stream) == CUDA_SUCCESS);
        printf("%d", device_of(memory));
        EXPECT(cuMemAllocFromPoolAsync((CUdeviceptr *)&memory, span_size(), pool, stream) == CUDA_SUCCESS);
        printf("%d", device_of(memory));
        CHECK(cudaMemsetAsync(memory, 1, span_size(), stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMallocAsync(&memory, span_size(), NULL)); /* the query of the pool has not changed the current device */
    printf("%d\nok\n", device_of(memory));
    return 0;
}
END
    run_sim CUDASIM_DEVICES=2 PROBE_SPAN=$PROBE_SPAN ./ordered
    contains "$output" '^111111110$'
    run_probe ordered CUDASIM_DEVICES=2
    goes_on
    said
    contains "$output" '^111111110$'
    equal 4 "$(report passthrough.other_device)" "allocations of the device that was not current"
}
