#!/usr/bin/env bats
# A device that other processes use too, and one of which the process may have a part (a MIG slice,
# MPS). Budgets count the memory really available, and evictions make up for memory that others take
# later.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; }

MIB=1048576

build_one_span() {
    build_probe one_span <<'END'
int main(void)
{
    CHECK(cudaFree(new_span(1, NULL)));
    puts("ok");
    return 0;
}
END
}

@test "a budget in per cent is a share of what the process may have, and auto of what others leave" {
    requires sim cc
    build_one_span
    run_probe one_span PENSTOCK_BUDGET=50% CUDASIM_MEMORY=64MiB
    goes_on
    equal $((32 * MIB)) "$(report budget_bytes)" "half of the device"
    run_probe one_span PENSTOCK_BUDGET=50% CUDASIM_MEMORY=64MiB CUDASIM_LIMIT=24MiB
    goes_on
    equal $((12 * MIB)) "$(report budget_bytes)" "half of what may be had"
    run_probe one_span PENSTOCK_BUDGET=auto PENSTOCK_RESERVE=4MiB CUDASIM_MEMORY=64MiB CUDASIM_OTHERS=40MiB
    goes_on
    equal $((20 * MIB)) "$(report budget_bytes)" "what others leave, less the reserve"
    run_probe one_span PENSTOCK_BUDGET=auto PENSTOCK_RESERVE=4MiB CUDASIM_MEMORY=64MiB CUDASIM_OTHERS=40MiB CUDASIM_LIMIT=16MiB
    goes_on
    equal $((12 * MIB)) "$(report budget_bytes)" "what may be had, less the reserve"
    run_probe one_span PENSTOCK_BUDGET=auto CUDASIM_MEMORY=64MiB CUDASIM_LIMIT=32MiB
    goes_on
    equal $((32 * MIB - MIB / 2)) "$(report budget_bytes)" "all that may be had, less a 64th"
}

@test "a device half of which others use is enough" {
    requires sim
    local need
    need=$(share 100)
    run_sim CUDASIM_MEMORY=$((need * 13 / 10)) CUDASIM_OTHERS=$((need * 6 / 10)) "${TRAINER[@]}"
    contains "$output" 'out of memory|OutOfMemory|MemoryAllocation' # plain has no room
    train PENSTOCK_BUDGET=auto PENSTOCK_RESERVE=$((need / 10)) CUDASIM_MEMORY=$((need * 13 / 10)) CUDASIM_OTHERS=$((need * 6 / 10))
    right_results
    said
    sound
    counted evictions
}

@test "when another process takes memory later, spans leave and the program goes on" {
    requires sim
    local need from budget sched
    need=$(share 100)
    for budget in $((need * 12 / 10)) 90% auto; do
        for from in 10 25 40; do
            for sched in threads seeded; do
                train PENSTOCK_BUDGET=$budget PENSTOCK_RESERVE=0 CUDASIM_MEMORY=$((need * 13 / 10)) CUDASIM_OTHERS=$((need * 7 / 10)) \
                    CUDASIM_OTHERS_FROM=$from CUDASIM_SCHED=$sched CUDASIM_SEED=$from
                right_results
                said 'the device has no more memory although the budget has room'
                sound untouched
                counted evictions
                counted pages_refused
            done
        done
    done
}

@test "when the device is full, spans give way to small allocations by any function" {
    requires sim cc
    # The wheels' toolkit has no stub of the driver, so the simulated driver itself is linked.
    build_probe full "-L$SIM" -l:libcuda.so.1 <<'END'
int main(int count, char **ways)
{
    struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned, .location = {.type = cudaMemLocationTypeDevice}};
    void *span[15], *memory[6];
    struct cudaPitchedPtr pitched;
    cudaMemPool_t own;
    size_t pitch, bytes = 1536 << 10;

    CHECK(cudaMemPoolCreate(&own, &properties));
    for (int i = 0; i < 15; i++) span[i] = new_span(i, NULL);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; count > 1 && i < 6; i++) switch (atoi(ways[1])) {
        case 0: CHECK(cudaMalloc(&memory[i], bytes)); break;
        case 1: CHECK(cudaMallocPitch(&memory[i], &pitch, 1024, bytes / 1024)); break;
        case 2: CHECK(cudaMalloc3D(&pitched, (struct cudaExtent){1024, bytes / 2048, 2})); break;
        case 3: CHECK(cudaMallocAsync(&memory[i], bytes, NULL)); break;
        case 4: CHECK(cudaMallocFromPoolAsync(&memory[i], bytes, own, NULL)); break;
        case 5: EXPECT(cuMemAlloc((CUdeviceptr *)&memory[i], bytes) == CUDA_SUCCESS); break;
        case 6: EXPECT(cuMemAllocPitch((CUdeviceptr *)&memory[i], &pitch, 1024, bytes / 1024, 4) == CUDA_SUCCESS); break;
        default: EXPECT(cuMemAllocFromPoolAsync((CUdeviceptr *)&memory[i], bytes, own, NULL) == CUDA_SUCCESS);
        }
    EXPECT(cudaGetLastError() == cudaSuccess);
    for (int i = 0; i < 15; i++) EXPECT(holds(span[i], i, NULL));
    puts("ok");
    return 0;
}
END
    local way
    for way in 0 1 2 3 4 5 6 7; do
        run_penstock PENSTOCK_MIN_SPAN=2MiB CUDASIM_MEMORY=64MiB PROBE_SPAN=$((4 * MIB)) ./full $way
        goes_on || { echo "way $way" >&2 && return 1; }
        counted evictions
    done
}

@test "a plan is made for the available memory where that is less than the budget" {
    requires sim
    local need
    need=$(share 100)
    TRAINER+=(--steps=12)
    run_sim "${TRAINER[@]}"
    local wanted=$output
    train PENSTOCK_BUDGET=$((need * 12 / 10)) CUDASIM_MEMORY=$((need * 13 / 10)) CUDASIM_OTHERS=$((need * 7 / 10)) CUDASIM_OTHERS_FROM=25
    ended_with 0
    equal "$wanted" "$(grep -v '^penstock: ' <<<"$output")" "losses and gradients"
    at_least 5 "$(report plan.steps)" "steps under a plan"
    counted plan.evictions
    counted plan.reloads
}

@test "memory that another process takes once plans are followed is planned for, too" {
    requires sim
    local need moves
    need=$(share 100)
    TRAINER+=(--steps=40)
    run_sim "${TRAINER[@]}"
    local wanted=$output
    train PENSTOCK_BUDGET=$((need * 8 / 10)) CUDASIM_MEMORY=$((need * 13 / 10)) CUDASIM_OTHERS=$((need * 7 / 10)) CUDASIM_OTHERS_FROM=150 PENSTOCK_LOG=policy:info
    ended_with 0
    equal "$wanted" "$(grep -v '^penstock: ' <<<"$output")" "losses and gradients"
    contains "$output" 'the device has no more memory'
    # The last plan from before that line, and the last one after it.
    mapfile -t moves < <(awk '/the device has no more memory/ { print moves + 0; moves = "none" }
        /planned a step/ { sub(".*: ", ""); moves = $1 } END { print moves }' <<<"$output")
    equal 2 "${#moves[@]}" "plans before and behind (${moves[*]})"
    at_least $((moves[0] + 5)) "${moves[1]}" "moves of the plan for what is left"
}

@test "doctor notes a device that others use, and one of which less may be used" {
    requires sim
    run_command doctor
    lacks "$output" 'in use, mostly by others|may use'
    CUDASIM_MEMORY=1000MiB CUDASIM_OTHERS=600MiB run_command doctor
    contains "$output" '^note: device 0: 600 MiB are in use, mostly by others - .* below 400 MiB'
    CUDASIM_MEMORY=1000MiB CUDASIM_LIMIT=300MiB run_command doctor
    contains "$output" '^note: device 0: this process may use 300 MiB of it - '
}

@test "managed memory that moves to the device and back leaves spans right, takes no budget, and gives way" {
    requires sim cc
    build_probe beside_managed <<'END'
enum { SPANS = 15 };
static unsigned char *managed;
static size_t managed_bytes;
static cudaStream_t stream;

static void prefetch(enum cudaMemLocationType type)
{
    CHECK(cudaMemPrefetchAsync(managed, managed_bytes, (struct cudaMemLocation){.type = type, .id = 0}, 0, stream));
}

/* `early`: the managed memory is on the device before the first span is made. */
int main(int count, char **words)
{
    void *span[SPANS];
    const int early = count > 1 && !strcmp(words[1], "early");

    managed_bytes = 6 * span_size();
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMallocManaged((void **)&managed, managed_bytes, cudaMemAttachGlobal));
    memset(managed, 77, managed_bytes);
    if (early) prefetch(cudaMemLocationTypeDevice);
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < SPANS; i++) {
        span[i] = new_span(i, stream);
        if (i == 4) prefetch(cudaMemLocationTypeDevice);
        if (i == 4) CHECK(cudaStreamSynchronize(stream));
    }
    EXPECT(managed[managed_bytes - 1] == 77);
    for (int turn = 0; turn < 4; turn++) {
        prefetch(turn % 2 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice);
        for (int i = 0; i < SPANS; i++) {
            unsigned char *part = managed + i % 6 * span_size();
            CHECK(cudaMemcpyAsync(part, span[i], span_size(), cudaMemcpyDefault, stream));
            CHECK(cudaMemsetAsync(span[i], 99, span_size(), stream));
            CHECK(cudaMemcpyAsync(span[i], part, span_size(), cudaMemcpyDefault, stream));
            CHECK(cudaStreamSynchronize(stream));
            EXPECT(part[0] == i && part[span_size() - 1] == i);
        }
    }
    for (int i = 0; i < SPANS; i++) EXPECT(holds(span[i], i, stream));
    for (int i = 0; i < SPANS; i++) CHECK(cudaFree(span[i]));
    CHECK(cudaFree(managed));
    puts("ok");
    return 0;
}
END
    local when budget guard sched wanted
    run_sim CUDASIM_MEMORY=128MiB PROBE_SPAN=$((4 * MIB)) ./beside_managed late
    goes_on
    for guard in host unmap; do
        for sched in threads seeded; do
            # Managed pages that are there first are memory in use, as other processes' memory is.
            while read -r when budget wanted; do
                run_penstock PENSTOCK_MIN_SPAN=2MiB PENSTOCK_BUDGET=$budget PENSTOCK_RESERVE=4MiB PENSTOCK_GUARD=$guard \
                    PROBE_SPAN=$((4 * MIB)) CUDASIM_MEMORY=64MiB CUDASIM_SCHED=$sched CUDASIM_SEED=7 ./beside_managed $when
                goes_on || { echo "$when, $budget, $guard, $sched" >&2 && return 1; }
                sound
                [ "$wanted" = 60 ] || counted evictions # all spans fit in 60 MiB
                equal $((wanted * MIB)) "$(report budget_bytes)" "budget"
                at_most $((wanted * MIB)) "$(report peak_resident_bytes)" "bytes held"
                equal 0 "$(report pages_refused)" "refused pages"
                equal $((24 * MIB)) "$(ledger peak.managed)" "managed bytes on the device at their peak"
            done <<<"early auto 36
late auto 60
late 40MiB 40"
        done
    done
}
