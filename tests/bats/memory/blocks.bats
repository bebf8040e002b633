#!/usr/bin/env bats
# Allocations that move in pieces: programs that take one large block and carve it up themselves.
# Their results stay the same whatever sizes Penstock believes their tensors have. Less than the
# block moves, and the program sees one allocation. The sample is tests/samples/arena.cu.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; requires sim samples jq; by_turn 2; }

BLOCK=$((104 * 16384))  # of the training
OTHER=$((64 * 16384))   # of the cases without a training

# arena PERCENT [VARIABLE=VALUE]... -- ARGUMENT...: runs the sample with PERCENT of its block on the
# device, the block in pieces unless a setting says otherwise.
arena() {
    local settings=("PENSTOCK_BUDGET=$(($1 * BLOCK / 100))" PENSTOCK_MIN_SPAN=$SPAN_FROM "PENSTOCK_RULES=pieces size>=1MiB")
    shift
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    shift
    run_penstock "${settings[@]}" "$SAMPLES/arena" "$@"
}

# as_plain ARGUMENT...: the last run of the sample printed the same as without Penstock.
as_plain() {
    local seen=$output
    ended_with 0 || return 1
    run_sim "$SAMPLES/arena" "$@"
    ended_with 0 && diff <(echo "$output") <(grep -v '^penstock: ' <<<"$seen")
}

# out_in PERCENT STEPS WORD...: prints the bytes that left the device in STEPS steps.
out_in() {
    local percent=$1
    shift
    arena "$percent" -- "$@" && ended_with 0 && report evicted_bytes
}

# --- results, and the bytes that move -------------------------------------------------------------
@test "a training in its own block gives the same results under every budget, and the block is one allocation" {
    local percent words
    while IFS=: read -r percent words; do
        # shellcheck disable=SC2086 # several words
        arena $percent -- 8 $words
        # shellcheck disable=SC2086
        LEDGER=$WORK/plain.json as_plain 8 $words
        sound untouched
        equal 1 "$(report blocks)" blocks
        equal 1 "$(report allocations)" allocations
        equal 1 "$(report frees)" frees
        equal $BLOCK "$(report peak_demand_bytes)" "bytes at the peak"
        at_most $((percent * BLOCK / 100)) "$(ledger peak.vmm)" "bytes on the device"
        # With most of the block on the device no launch waits for pages. Helper threads alone
        # decide then what moves, and it may be nothing.
        [ "$percent" = 90 ] || at_least 5 "$(report evictions)" "evictions, $words at $percent %"
        at_least 1 "$(report spans_born_on_slot)" "pieces that no pages could be had for"
    done < <(some_of 2 {90,60,30}:{,streams,threads,grows,'streams grows'})
}

@test "pieces move, and less than the block in each step: pieces believed untouched stay where they are" {
    local percent most few more each
    while read -r percent most; do
        few=$(out_in "$percent" 12)
        more=$(out_in "$percent" 36)
        each=$(((more - few) / 24))
        echo "# $each of $BLOCK bytes leave in each step, with $percent % on the device" >&3
        at_least 16384 $each "bytes that leave in each step"
        at_most $((most * BLOCK / 100)) $each "bytes that leave in each step"
        equal 0 "$(report accesses_on_slot)" "accesses to what no pages could be had for"
    done <<<$'90 50\n76 75'
}

@test "the plan of a training in a block is followed" {
    arena 80 -- 16
    as_plain 16
    counted plan.steps
    counted plan.evictions
}

@test "a training in a block computes the same in every seed" {
    run "$ROOT/scripts/dev/seeds" --build "$BUILD" --library "$PENSTOCK_SO" --seeds $(($PENSTOCK_TEST_SEEDS / 4)) --percent 10-100 \
        blocks blocks-streams blocks-threads blocks-grows blocks-plan blocks-plan-streams
    ended_with 0
    tail -n 1 <<<"$output" | sed "s/^/# /" >&3
}

# Without the workloads of orders, in which the device waits for the host: there a piece waits 5 s
# for pages before it stays on its slot.
@test "other programs compute the same with their memory in pieces, in every seed" {
    local workloads
    mapfile -t workloads < <("$ROOT/scripts/dev/seeds" --list | grep -v ^orders)
    at_least 60 ${#workloads[@]} workloads
    run "$ROOT/scripts/dev/seeds" --build "$BUILD" --library "$PENSTOCK_SO" --seeds $(($PENSTOCK_TEST_SEEDS / 8)) --first 5001 --pieces "${workloads[@]}"
    ended_with 0
    tail -n 1 <<<"$output" | sed "s/^/# /" >&3
}

@test "a pointer table in pieces that is freed ahead of its kernel stays for that kernel" {
    run "$ROOT/scripts/dev/seeds" --build "$BUILD" --library "$PENSTOCK_SO" --seeds 12 --first 5001 --pieces hostile-freed-table
    ended_with 0
}

# --- believed sizes of tensors --------------------------------------------------------------------
@test "a tensor larger than its uses suggest is right under host and auto, and faults under unmap" {
    local guard
    for guard in host auto; do
        arena 60 PENSTOCK_GUARD=$guard PENSTOCK_POLICY=lru -- 0 wrong
        goes_on
        sound untouched
        counted evictions
    done
    arena 60 PENSTOCK_GUARD=unmap PENSTOCK_POLICY=lru -- 0 wrong
    ended_with 1
    at_least 1 "$(ledger unmapped_accesses)" "accesses to what is away"
}

@test "old carvings are forgotten: a larger tensor in their place is reloaded as a whole" {
    arena 60 PENSTOCK_GUARD=unmap PENSTOCK_POLICY=lru -- 0 stale
    goes_on
    sound untouched
    counted evictions
    equal 0 "$(report accesses_on_slot)" "accesses to what no pages could be had for"
}

@test "the unused half of a block leaves only once" {
    local run left least=
    # A helper thread that finds memory free may reload some of it before any launch, in vain. By
    # its timing this happens in one run of five, and beside busy neighbours in most.
    for run in {1..15}; do
        arena 50 PENSTOCK_GRACE=0 -- 0 idle
        goes_on
        sound untouched
        left=$(report evicted_bytes)
        [ "$(report early_reloads)" -gt 0 ] || at_most $((OTHER + OTHER / 2)) "$left" "bytes that left"
        [ "${least:-$left}" -lt "$left" ] || least=$left
        [ "$least" -gt $((OTHER + OTHER / 2)) ] || break
    done
    at_most $((OTHER + OTHER / 2)) "$least" "bytes that left, in the best of $run runs"
}

# --- one allocation -------------------------------------------------------------------------------
@test "queries treat a block like any allocation, and only its start address frees it" {
    run_sim "$SAMPLES/arena" 0 asks
    ended_with 0
    local guard
    for guard in host unmap; do
        arena 40 PENSTOCK_GUARD=$guard -- 0 asks
        goes_on
        sound untouched
        equal 5 "$(report blocks)" blocks
        at_least 19 "$(report bad_frees)" "frees that were refused"
        equal $OTHER "$(report peak_demand_bytes | awk '{ print $1 - 262144 }')" "bytes at the peak, beside a copy"
    done
}

@test "rules for sizes and order apply to the whole block" {
    local rule
    for rule in 'exclude size>=1MiB' 'exclude nth=0 size>=1MiB'; do
        arena 60 PENSTOCK_RULES="pieces size>=1MiB; $rule" -- 6
        as_plain 6
        equal 0 "$(report evictions)" "evictions with $rule"
    done
    for rule in 'exclude size<=512KiB' 'exclude nth=1-1000'; do
        arena 60 PENSTOCK_RULES="pieces size>=1MiB; $rule" -- 6
        as_plain 6
        counted evictions
    done
}

@test "size, budget, stream order and rules decide which allocations are made in pieces" {
    requires cc
    build_probe asking <<'END_OF_C'
int main(int argc, char **argv)
{
    void *memory = NULL;
    size_t bytes = strtoull(argv[1], NULL, 10);

    if (argc > 2)
        CHECK(cudaMallocAsync(&memory, bytes, NULL));
    else
        CHECK(cudaMalloc(&memory, bytes));
    CHECK(cudaMemset((char *)memory + bytes - 4096, 1, 4096));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(memory));
    puts("ok");
    return 0;
}
END_OF_C
    local expected arguments
    while read -r expected budget rules arguments; do
        # shellcheck disable=SC2086 # several words
        run_penstock PENSTOCK_BUDGET="$budget" PENSTOCK_RULES="${rules//,/ }" ./asking $arguments
        goes_on
        sound untouched
        equal "$expected" "$(report blocks)" "blocks, $budget $rules $arguments"
    done <<END_OF_CASES
1 512MiB include 67108865
0 512MiB include 67108864
0 64MiB include 67104768
1 64MiB include 67108864
0 512MiB include 67108865 ordered
0 64MiB include 67108864 ordered
1 64MiB include 67108865 ordered
0 16MiB include 67104768 ordered
0 unlimited include 67108865
0 unlimited pieces 67108865
1 512MiB pieces,size>=32MiB 33554432
0 512MiB pieces,size>=32MiB 33550336
1 512MiB pieces,size>=32MiB 33554432 ordered
0 512MiB pieces;plain,size>=32MiB 33554432
1 16MiB include 67108864
0 512MiB pieces 4096
END_OF_CASES
}

# recurrent STEPS [VARIABLE=VALUE]...: runs the sample in 20 MiB; its steps use at most 21.3 MiB.
recurrent() {
    local steps=$1
    shift
    run_penstock PENSTOCK_BUDGET=20MiB PENSTOCK_MIN_SPAN=$SPAN_FROM "$@" "$SAMPLES/recurrent" "$steps"
    goes_on && sound untouched
}

@test "when launches use more in parts than there is room for, large allocations are made in pieces from then on" {
    local few more each
    recurrent 2
    few=$(report evicted_bytes)
    recurrent 10 PENSTOCK_LOG=info
    more=$(report evicted_bytes)
    contains "$output" 'from now on such allocations are made in pieces'
    each=$(((more - few) / 8))
    echo "# $each bytes leave in each step, $few in the first two" >&3
    counted blocks
    at_most $((21 * 1048576)) $each "bytes that leave in each step"
    at_most $((16 * 21 * 1048576)) "$few" "bytes that leave in the first two"
    at_most "$(quiet_or 4000 1600)" "$(report accesses_on_slot)" "accesses to what no pages could be had for, of 13,000 launches"
    diff <(with_device "$SAMPLES/recurrent" 10) <(grep -v '^penstock: ' <<<"$output")
}

@test "with room for everything no allocation is made in pieces" {
    recurrent 4 PENSTOCK_BUDGET=26MiB
    equal 0 "$(report blocks)" blocks
    equal 0 "$(report evictions)" evictions
}

@test "a launch that finds no room evicts nothing that would not make room for it" {
    requires cc
    build_probe no_room <<'END_OF_C'
/*
 * Copies name both ends. The two large allocations don't fit together, and the small one is used in
 * between.
 */
int main(int argc, char **argv)
{
    char *large, *larger, *small;
    const size_t unit = 1 << 20;

    (void)argc, (void)argv;
    CHECK(cudaMalloc((void **)&large, 8 * unit));
    CHECK(cudaMalloc((void **)&larger, 10 * unit));
    CHECK(cudaMalloc((void **)&small, 4 * unit));
    for (int i = 0; i < 40; i++) {
        CHECK(cudaMemsetAsync(small, i, 4 * unit, NULL));
        CHECK(cudaMemcpyAsync(larger, small, 4 * unit, cudaMemcpyDeviceToDevice, NULL));
        CHECK(cudaMemcpyAsync(larger + 4 * unit, large, 4 * unit, cudaMemcpyDeviceToDevice, NULL));
    }
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END_OF_C
    run_penstock PENSTOCK_BUDGET=16MiB PENSTOCK_MIN_SPAN=$SPAN_FROM ./no_room
    goes_on
    sound untouched
    echo "# $(report evictions) evictions, $(report accesses_on_slot) accesses on slots" >&3
    at_most 12 "$(report evictions)" "evictions of 120 copies"
}

@test "of two allocations used in turn that don't fit together, the larger one stays on its slot" {
    requires cc
    build_probe in_turn <<'END_OF_C'
int main(int argc, char **argv)
{
    char *large, *other, got[2];
    const size_t unit = 1 << 20;

    (void)argc, (void)argv;
    CHECK(cudaMalloc((void **)&large, 12 * unit));
    CHECK(cudaMalloc((void **)&other, 6 * unit));
    for (int i = 0; i < 60; i++) {
        CHECK(cudaMemsetAsync(large + i % 12 * unit, i, unit, NULL));
        CHECK(cudaMemsetAsync(other, i, 6 * unit, NULL));
        CHECK(cudaMemcpy(&got[0], large + i % 12 * unit + 77, 1, cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(&got[1], other + i, 1, cudaMemcpyDeviceToHost));
        EXPECT(got[0] == i && got[1] == i);
    }
    puts("ok");
    return 0;
}
END_OF_C
    run_penstock PENSTOCK_BUDGET=16MiB PENSTOCK_MIN_SPAN=$SPAN_FROM ./in_turn
    goes_on
    sound untouched
    echo "# $(report evictions) evictions, $(report accesses_on_slot) accesses on slots" >&3
    at_most 16 "$(report evictions)" "evictions of 240 copies and fills"
}

# As XLA allocates for a jitted function.
@test "the used parts of one stream-ordered buffer for all temporaries, larger than the budget, come to the device" {
    requires cc
    build_probe temporaries <<'END_OF_C'
int main(int argc, char **argv)
{
    enum { STEPS = 4, PARTS = 20 };
    const size_t part = 4 << 20;
    cudaStream_t stream;
    unsigned char first, *got = malloc(part);

    (void)argc, (void)argv;
    CHECK(cudaStreamCreate(&stream));
    for (int step = 0; step < STEPS; step++) {
        char *all;
        CHECK(cudaMallocAsync((void **)&all, PARTS * part, stream));
        for (int i = 0; i < PARTS; i++)
            CHECK(cudaMemsetAsync(all + i * part, step * PARTS + i, part, stream));
        for (int i = PARTS - 1; i >= 0; i--) {
            CHECK(cudaMemcpyAsync(got, all + i * part, part, cudaMemcpyDeviceToHost, stream));
            CHECK(cudaStreamSynchronize(stream));
            first = (unsigned char)(step * PARTS + i);
            EXPECT(got[0] == first && !memcmp(got, got + 1, part - 1));
        }
        CHECK(cudaFreeAsync(all, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    puts("ok");
    return 0;
}
END_OF_C
    run_penstock PENSTOCK_BUDGET=67108864 ./temporaries
    goes_on
    sound untouched
    equal 4 "$(report blocks)" "blocks"
    counted evictions
    at_most 67108864 "$(ledger peak.vmm)" "bytes on the device"
    echo "# $(report accesses_on_slot) accesses on slots, $(report evictions) evictions" >&3
    at_most 40 "$(report accesses_on_slot)" "accesses on slots, of 160"
}

@test "a block is pinned as a whole, by any address in it" {
    requires cc
    build_probe pinned "-I$ROOT/include" <<'END_OF_C'
#include <penstock/penstock.h>

int main(int argc, char **argv)
{
    char *block = NULL;
    void *span[32];

    (void)argv;
    CHECK(cudaMalloc((void **)&block, 4 << 20));
    CHECK(cudaMemset(block, 7, 4 << 20));
    if (argc > 1) EXPECT(penstock_pin(block + 3700001) == 0);
    for (int round = 0; round < 4; round++)
        for (int i = 0; i < 32; i++) {
            if (!round) span[i] = new_span(i, NULL);
            EXPECT(holds(span[i], i, NULL));
        }
    if (argc > 1) EXPECT(penstock_unpin(block) == 0 && penstock_unpin(block) != 0);
    EXPECT(holds(block + 65536 * 3, 7, NULL));
    puts("ok");
    return 0;
}
END_OF_C
    run_probe pinned PENSTOCK_BUDGET=$((5 * 1048576)) "PENSTOCK_RULES=pieces size>=1MiB"
    goes_on
    at_least $(($(report evictions) * PROBE_SPAN + 1)) "$(report evicted_bytes)" "bytes that left, pieces among them, which are larger"
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=$((5 * 1048576)) "PENSTOCK_RULES=pieces size>=1MiB" PROBE_SPAN=$PROBE_SPAN ./pinned pin
    goes_on
    counted evictions
    equal $(($(report evictions) * PROBE_SPAN)) "$(report evicted_bytes)" "bytes that left, in spans alone"
    equal 1 "$(report user_pins)" pins
}

# --- memory that is refused -----------------------------------------------------------------------
@test "a block larger than device and budget stays partly on its slots" {
    local percent
    for percent in 0 3 12; do
        arena $percent -- 4
        as_plain 4
        sound untouched
        at_least 1 "$(report spans_born_on_slot)" "pieces born on slots, $percent %"
        at_most $((percent * BLOCK / 100)) "$(ledger peak.vmm)" "bytes on the device"
    done
}

@test "a launch in the block that waits for a later one blocks no other: later ones run on the slots" {
    run_penstock PENSTOCK_BUDGET=1075000 PENSTOCK_MIN_SPAN=$SPAN_FROM 'PENSTOCK_RULES=pieces size>=1MiB; exclude size<=512KiB' "$SAMPLES/arena" 0 waits
    goes_on
    sound untouched
    at_least 1 "$(report spans_born_on_slot)" "pieces born on slots"
    counted accesses_on_slot
    equal 0 "$(report reload_errors)" "reloads that the driver refused"
    said
}

@test "after a fault while a block is made the program goes on, and nothing leaks" {
    requires cc
    build_probe after_fault <<'END_OF_C'
int main(void)
{
    enum { SPANS = 28 };
    char *block = NULL;
    void *span[SPANS];
    cudaError_t result = cudaMalloc((void **)&block, 1 << 20);

    EXPECT(result == cudaSuccess || result == cudaErrorMemoryAllocation);
    printf("%s\n", result == cudaSuccess ? "given" : "refused");
    cudaGetLastError();
    if (!result) {
        CHECK(cudaMemset(block, 3, 1 << 20));
        EXPECT(holds(block + 5 * span_size(), 3, NULL));
        CHECK(cudaFree(block));
    }
    /*
     * Allocates all of the budget again, except the bytes kept free ahead. Leaked memory would have
     * to be evicted for it.
     */
    for (int i = 0; i < SPANS; i++) span[i] = new_span(i, NULL);
    for (int i = 0; i < SPANS; i++) EXPECT(holds(span[i], i, NULL));
    for (int i = 0; i < SPANS; i++) CHECK(cudaFree(span[i]));
    puts("ok");
    return 0;
}
END_OF_C
    local fault
    for fault in cuMemCreate@device:error@20 cuMemCreate@device:oom@20 cuMemMap:error@20 cuMemSetAccess:error@20; do
        run_probe after_fault PENSTOCK_RULES='pieces size>=1MiB' CUDASIM_FAULT=$fault
        goes_on
        struck
        sound untouched
        contains "$output" '^given$'
        # Refused pages are taken for a full device: spans may leave for that.
        [[ $fault == *oom* ]] || equal 0 "$(report evictions)" "evictions for want of pages, after $fault"
        equal 0 "$(report out_of_memory)" "allocations that failed"
        at_most $((32 * PROBE_SPAN)) "$(ledger peak.vmm)" "bytes on the device"
    done
    # With neither pages nor slots the allocation fails, and the memory taken for it is released.
    run_probe after_fault PENSTOCK_RULES='pieces size>=1MiB' PENSTOCK_BUDGET=$((8 * PROBE_SPAN)) PENSTOCK_HOST_BUDGET=$((4 * PROBE_SPAN))
    ended_with 1
    contains "$output" '^refused$'
    equal 2 "$(report out_of_memory)" "allocations that failed"
    run_probe after_fault PENSTOCK_RULES='pieces size>=1MiB' PENSTOCK_BUDGET=$((8 * PROBE_SPAN)) PENSTOCK_HOST_BUDGET=$((26 * PROBE_SPAN))
    goes_on
    contains "$output" '^given$'
    sound untouched
}
