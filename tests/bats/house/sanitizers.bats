#!/usr/bin/env bats
# Every workload of scripts/dev/seeds, and two devices, under Penstock, with library, simulated
# device and samples built for a sanitizer. The first report ends the run with its own status and
# fails the test. Debug checks of the invariants are on in these builds. By hand, each workload once:
#   scripts/dev/seeds --sanitizer address
#   scripts/dev/seeds --sanitizer thread

load ../../lib/helper

TESTS=6 # in this file; building for a sanitizer takes longest, so each commit runs one of them

setup() {
    helper_setup
    requires sim samples jq release
    by_turn $TESTS
}

# share EVERY ROUND NAME...: prints all names. In short runs (CI) it prints every EVERYth, and each
# round begins with another one.
share() {
    local every=$1 i=$(($2 % $1)) name
    shift 2
    for name; do
        if ! is_short || [ $((i % every)) -eq 0 ]; then echo "$name"; fi
        i=$((i + 1))
    done
}

# The number of times that each test of this file has had its turn.
ROUND=$((${PENSTOCK_TEST_TURN:-0} / TESTS))

# seeds SANITIZER OPTION...: runs scripts/dev/seeds with a build for the sanitizer, which makes what
# it needs. Its summary is shown.
seeds() {
    run "$ROOT/scripts/dev/seeds" --sanitizer "$1" --totals totals.json "${@:2}"
    ended_with 0 || return 1
    grep '^seeds: ' <<<"$output" | sed 's/^/# /' >&3
}

# trainers_are_clean SANITIZER: runs each trainer and variant once with most of its memory and once
# with little.
trainers_are_clean() {
    local percent all names budgets="55-55 15-15"
    ! is_short || budgets=15-15
    mapfile -t all < <("$ROOT/scripts/dev/seeds" --list | grep -E '^(mlp|transformer)')
    for percent in $budgets; do
        mapfile -t names < <(share 5 $ROUND "${all[@]}")
        seeds "$1" --percent $percent "${names[@]}" || return 1
        at_least $((${#names[@]} * 5)) "$(jq .evictions totals.json)" "evictions at $percent %"
    done
}

# runs_with_plans_are_clean SANITIZER: runs the workloads that follow plans, under two policies.
runs_with_plans_are_clean() {
    local policy all names policies="plan layers"
    ! is_short || policies=plan
    mapfile -t all < <("$ROOT/scripts/dev/seeds" --list | grep '^plan')
    for policy in $policies; do
        mapfile -t names < <(share 5 $ROUND "${all[@]}")
        seeds "$1" --percent 40-60 --policy $policy "${names[@]}" || return 1
        at_least $((${#names[@]} * 2)) "$(jq .plan_steps totals.json)" "$policy: steps that followed a plan"
        at_least $((${#names[@]} * 3)) "$(jq .plan_reloads totals.json)" "$policy: reloads by plans"
    done
}

# others_are_clean SANITIZER: runs each workload that is no trainer once. In a short run, workloads
# of one sample, at most twelve: building a sample takes longest.
others_are_clean() {
    local all samples sample names some
    all=$("$ROOT/scripts/dev/seeds" --commands | grep -vE '^(mlp|transformer|plan)')
    mapfile -t samples < <(awk '{ print $2 }' <<<"$all" | sort -u)
    at_least 7 ${#samples[@]} samples
    for sample in $(share ${#samples[@]} $ROUND "${samples[@]}"); do
        mapfile -t names < <(awk -v sample="$sample" '$2 == sample { print $1 }' <<<"$all")
        mapfile -t some < <(share $(((${#names[@]} + 11) / 12)) $((ROUND / ${#samples[@]})) "${names[@]}")
        seeds "$1" --percent 30-60 "${some[@]}" || return 1
    done
}

# A sanitizer that is missing would find nothing and pass all of this.
is_instrumented() { contains "$(nm -D "$ROOT/build/$1/libpenstock.so" "$ROOT/build/$1/sim/libcuda.so.1")" " U $2"; }
asan_is_there() {
    is_instrumented asan __asan_init
    is_instrumented asan __ubsan_handle
}
tsan_is_there() { is_instrumented tsan __tsan_init; }

# build SANITIZER VARIANT FILE...: builds these files of the variant, beside those of seeds.
build() {
    env -u MAKEFLAGS -u MAKELEVEL make -C "$ROOT" --no-print-directory "-j$(nproc)" "SAN=$1" "build/$2/libpenstock.so" sim "${@:3}" >&2
}

# options: sets for programs outside of seeds what that sets.
options() {
    export ASAN_OPTIONS=exitcode=66:detect_stack_use_after_return=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:exitcode=66
    printf 'race:%s\n' nvtxSetInitFunctionsToNoops_v3 nvtxRangePushA >suppressions # NVTX's own initialisation
    export TSAN_OPTIONS=halt_on_error=1:exitcode=66:atexit_sleep_ms=50:suppressions=$WORK/suppressions
}

directed_cases_are_clean() {
    local sanitizer=$1 variant=$2 seeds=8
    ! is_short || seeds=3
    build "$sanitizer" "$variant" "build/$variant/unit/test_orderings"
    options
    # Only the test's own limit applies. Beside busy neighbours each case takes several times as
    # long, and ends its child itself if it hangs.
    run env "LD_LIBRARY_PATH=$ROOT/build/$variant/sim" "$ROOT/build/$variant/unit/test_orderings" '' 1 $seeds
    ended_with 0
}

@test "AddressSanitizer and UndefinedBehaviorSanitizer report nothing for trainers, plans, and rare moments made on purpose" {
    trainers_are_clean address
    asan_is_there
    runs_with_plans_are_clean address
    directed_cases_are_clean address asan
}

@test "AddressSanitizer and UndefinedBehaviorSanitizer report nothing for the other workloads" {
    others_are_clean address
    asan_is_there
}

# Streams are threads here: under the seeded scheduler operations run one at a time.
@test "ThreadSanitizer reports nothing for the trainers" {
    trainers_are_clean thread
    tsan_is_there
}

@test "ThreadSanitizer reports nothing for the other workloads" {
    others_are_clean thread
    tsan_is_there
}

@test "ThreadSanitizer reports nothing for several devices" {
    local words
    build thread tsan build/tsan/samples/devices
    tsan_is_there
    options
    BUILD=$ROOT/build/tsan PENSTOCK_SO=$ROOT/build/tsan/libpenstock.so SIM=$ROOT/build/tsan/sim
    SANITIZER=$(readlink -f "$(gcc -print-file-name=libtsan.so)")
    for words in "async threads" default; do
        # shellcheck disable=SC2086
        run_penstock CUDASIM_DEVICES=2 CUDASIM_GRANULARITY=65536 PENSTOCK_MIN_SPAN=64KiB PENSTOCK_BUDGET=$((15 * 65536)) "$BUILD/samples/devices" 12 2 $words
        ended_with 0
        jq -e 'all(.devices[]; .slab.peak_used_bytes > 0)' "$REPORT"
    done
}

@test "ThreadSanitizer reports nothing for plans and for rare moments made on purpose" {
    runs_with_plans_are_clean thread
    tsan_is_there
    directed_cases_are_clean thread tsan
}
