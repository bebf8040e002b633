#!/usr/bin/env bats
# Device memory that programs make themselves by CUDA's virtual memory management. XLA makes a
# mapping for each tensor; torch's expandable segments have one range whose handles come and go. It
# moves like any other memory, and the calls behave as without Penstock. The samples are
# tests/samples/mapped.cu, and tests/samples/arena.cu with the words mapped and segments.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; requires sim samples jq; by_turn 2; }

# plainly SAMPLE ARGUMENT...: runs it without Penstock; sets PEAK, the bytes that it held at its
# peak.
plainly() {
    local sample=$1
    shift
    LEDGER=$WORK/plain.json run_sim "$SAMPLES/$sample" "$@"
    ended_with 0 || return 1
    printf '%s\n' "$output" >"$WORK/plain"
    PEAK=$(jq .peak.vmm "$WORK/plain.json")
    equal 0 "$(jq '.leaks | .handles + .mappings + .reservations' "$WORK/plain.json")" "left behind without Penstock"
}

# managed PERCENT [VARIABLE=VALUE]... -- SAMPLE ARGUMENT...: runs it with PERCENT of PEAK on the
# device; allocations larger than one tensor are in pieces.
managed() {
    local settings=("PENSTOCK_BUDGET=$(($1 * PEAK / 100))" PENSTOCK_MIN_SPAN=$SPAN_FROM "PENSTOCK_RULES=pieces size>=512KiB") sample
    shift
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    sample=$2
    shift 2
    run_penstock "${settings[@]}" "$SAMPLES/$sample" "$@"
}

# as_plain: the last run ended well and printed the same as the last plain one.
as_plain() { ended_with 0 && diff "$WORK/plain" <(grep -v '^penstock: ' <<<"$output"); }

# moved_within PERCENT: spans were evicted, and the device held no more than that share.
moved_within() {
    counted evictions && at_most $(($1 * PEAK / 100)) "$(ledger peak.vmm)" "bytes on the device"
}

# --- trainings ------------------------------------------------------------------------------------
# under_budgets SAMPLE ARGUMENTS PERCENT...: the results are the same with each share on the device,
# and spans moved.
under_budgets() {
    local sample=$1 words=$2 percent
    shift 2
    # shellcheck disable=SC2086 # several words
    plainly "$sample" $words
    for percent; do
        # shellcheck disable=SC2086
        managed "$percent" -- "$sample" $words
        as_plain
        sound untouched
        moved_within "$percent"
        at_least 5 "$(report evictions)" "evictions, $sample $words at $percent %"
    done
}

@test "a mapping for each tensor gives the same results under every budget, in each way to make and free it" {
    under_budgets mapped 6 90 60 30
    equal "$PEAK" "$(report peak_demand_bytes)" "bytes at the peak"
    equal "$(report allocations)" "$(report frees)" frees
    under_budgets mapped '6 reserve-first' 60
    under_budgets mapped '6 release-early' 60
    under_budgets mapped '6 keep-range' 60
    equal "$PEAK" "$(report peak_demand_bytes)" "bytes at the peak"
    under_budgets mapped '6 streams entry-point' 40
    under_budgets mapped '6 reserve-first release-early keep-range streams' 30
    equal "$PEAK" "$(report peak_demand_bytes)" "bytes at the peak"
    equal "$(report allocations)" "$(report frees)" frees
}

@test "one handle, or handles that tensors straddle, give the same results as an allocation, under every budget" {
    under_budgets arena '6 mapped' 60
    diff "$WORK/plain" <(with_device "$SAMPLES/arena" 6)
    under_budgets arena '6 segments' 90 60 30
    diff "$WORK/plain" <(with_device "$SAMPLES/arena" 6)
    under_budgets arena '6 mapped streams' 30
    under_budgets arena '6 segments streams' 40
    under_budgets arena '6 segments threads' 60
    under_budgets arena '6 segments shrinks' 60 30
    diff "$WORK/plain" <(with_device "$SAMPLES/arena" 6)
    under_budgets arena '6 segments shrinks grows streams' 40
    diff "$WORK/plain" <(with_device "$SAMPLES/arena" 6 grows)
}

@test "own mappings work under both policies, and the plan is followed" {
    local policy words
    for words in 'mapped 16' 'mapped 16 release-early streams' 'arena 16 segments'; do
        # shellcheck disable=SC2086 # several words
        plainly $words
        for policy in lru plan; do
            # shellcheck disable=SC2086
            managed 80 PENSTOCK_POLICY=$policy -- $words
            as_plain
            sound untouched
            moved_within 80
        done
        counted plan.steps
        counted plan.evictions
    done
}

@test "under the unmap guard each access to a mapping of the program's own is seen" {
    local words
    for words in '6' '6 keep-range streams' '0 swaps' '0 threads'; do
        # shellcheck disable=SC2086 # several words
        plainly mapped $words
        # shellcheck disable=SC2086
        managed 50 PENSTOCK_GUARD=unmap -- mapped $words
        as_plain
        sound untouched
        moved_within 50
        equal 0 "$(report accesses_on_slot)" "accesses to what no pages could be had for"
    done
}

@test "trainings on own mappings compute the same in every seed" {
    run "$ROOT/scripts/dev/seeds" --build "$BUILD" --library "$PENSTOCK_SO" --seeds $(($PENSTOCK_TEST_SEEDS / 20 + 13)) --percent 20-100 \
        mapped mapped-segments mapped-segments-streams mapped-shrinks mapped-moves mapped-range mappings mappings-streams mappings-keep-range \
        mappings-release-early mappings-swaps mappings-threads mappings-plan
    ended_with 0
    tail -n 1 <<<"$output" | sed "s/^/# /" >&3
}

@test "in handles, too, tensors that are larger than they seem are right under host" {
    local words
    for words in 'wrong segments' 'wrong mapped'; do
        # shellcheck disable=SC2086 # several words
        plainly arena 0 $words
        # shellcheck disable=SC2086
        managed 60 PENSTOCK_GUARD=host PENSTOCK_POLICY=lru -- arena 0 $words
        as_plain
        sound untouched
        counted evictions
    done
}

# --- memory that is left alone --------------------------------------------------------------------
@test "with enough memory, handles below the least span, or Penstock switched off, nothing moves" {
    local setting
    plainly mapped 4 streams
    for setting in PENSTOCK_BUDGET=unlimited PENSTOCK_MIN_SPAN=2MiB PENSTOCK_DISABLE=1; do
        rm -f "$REPORT"
        managed 50 $setting -- mapped 4 streams
        as_plain
        sound
        [ ! -e "$REPORT" ] || equal 0 "$(report evicted_bytes)" "bytes that left, $setting"
    done
}

# --- uses of handles ------------------------------------------------------------------------------
@test "handles that move, swap, come and go in one range, or belong to two threads keep their bytes" {
    local word percent
    while read -r word percent; do
        plainly mapped 0 "$word"
        managed "$percent" -- mapped 0 "$word"
        as_plain
        sound untouched
        moved_within "$percent"
    done <<<$'moves 70\nmoves 30\nswaps 40\nrange 70\nrange 30\nthreads 40'
}

@test "a handle has exactly its size, though larger freed spans serve allocations" {
    plainly mapped 0 lengths
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=2GiB "$SAMPLES/mapped" 0 lengths
    as_plain
    sound untouched
    equal 0 "$(report larger_reused)" "larger freed spans that served"
}

@test "a handle at two addresses, or exported as a descriptor, stays one memory after evictions" {
    local word percent
    for word in twice export; do
        for percent in 70 40; do
            plainly mapped 0 $word
            managed $percent -- mapped 0 $word
            as_plain
            sound untouched
            counted evictions
        done
    done
}

@test "tensors that begin in a handle at two addresses, and reach into others beside it, keep their bytes" {
    local percent seed
    plainly mapped 0 holes
    for percent in 70 50 30; do
        for seed in 1 2 3 4; do
            managed $percent CUDASIM_SCHED=seeded CUDASIM_SEED=$seed -- mapped 0 holes
            as_plain
            sound untouched
            counted evictions
        done
    done
}

@test "a table in device memory leads to a tensor that begins in a handle at two addresses" {
    local budget
    for budget in 600000 800000; do
        run_penstock CUDASIM_GRANULARITY=4096 PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=unmap \
            "$SAMPLES/mapped" 0 hole-table
        goes_on || { echo "with $budget" >&2 && return 1; }
        sound untouched
        counted evictions
    done
}

@test "a tensor that begins in another device's handle names the handles behind it" {
    local budget
    for budget in 600000 1000000; do
        run_penstock CUDASIM_DEVICES=2 CUDASIM_PEERS=1 CUDASIM_GRANULARITY=4096 PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=$budget \
            PENSTOCK_GUARD=unmap "$SAMPLES/mapped" 0 far
        goes_on || { echo "with $budget" >&2 && return 1; }
        sound untouched
        counted evictions
    done
}

@test "a handle that is exported while another thread captures leaves the capture valid" {
    local percent
    for percent in 70 40; do
        plainly mapped 0 export-beside
        managed $percent -- mapped 0 export-beside
        as_plain
        sound untouched
        counted evictions
    done
}

@test "queries of addresses and handles, and wrong calls, are answered as without Penstock" {
    local word
    for word in errors hint part asks; do
        plainly mapped 0 $word
        managed 40 PENSTOCK_GUARD=unmap -- mapped 0 $word
        as_plain
        sound untouched
        [[ $word != [ah]* ]] || counted evictions
    done
    plainly mapped 0 errors entry-point
    managed 40 -- mapped 0 errors entry-point
    as_plain
}

@test "memory bound to a multicast object or a logical endpoint keeps its bytes" {
    plainly mapped 0 multicast
    managed 50 -- mapped 0 multicast
    as_plain
    equal 12 "$(report passthrough.mapped)" "mappings that became CUDA's own, two by each function"
    counted evictions
    equal 0 "$(ledger unmapped_accesses)" "unmapped accesses"
}

# --- a full device --------------------------------------------------------------------------------
@test "more fits than the device has, and as much again after all of it was released" {
    local without with
    CUDASIM_MEMORY=2MiB plainly mapped 0 full
    without=$(sed -n 's/^tensors //p' "$WORK/plain")
    managed 90 CUDASIM_MEMORY=2MiB PENSTOCK_HOST_BUDGET=4MiB -- mapped 0 full
    goes_on
    sound untouched
    with=$(sed -n 's/^tensors //p' <<<"$output")
    at_least $((without + 32)) "$with" "tensors, of which $without fit into the device"
    counted out_of_memory
    moved_within 90
}

@test "when the driver refuses pages, evictions make up for them" {
    local words
    for words in 'mapped 6' 'arena 6 segments'; do
        # shellcheck disable=SC2086 # several words
        plainly $words
        # shellcheck disable=SC2086
        managed 90 CUDASIM_FAULT=cuMemCreate@device:oom@12 -- $words
        as_plain
        struck
        sound untouched
    done
}
