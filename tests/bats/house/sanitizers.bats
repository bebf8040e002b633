#!/usr/bin/env bats
# Every trainer and variant, and NCCL's callers, under Penstock, with library, simulated device and
# trainers built for a sanitizer. The first report ends the run with its own status and fails the
# test. Debug checks of the invariants are on in these builds.

load ../../lib/helper

setup() {
    helper_setup
    requires sim samples jq release
    by_turn 5 # building for a sanitizer takes longest
}

# Builds only what one variant needs.
build_variant() {
    local sanitizer=$1 variant=$2
    env -u MAKEFLAGS -u MAKELEVEL make -C "$ROOT" --no-print-directory "-j$(nproc)" "SAN=$sanitizer" "build/$variant/libpenstock.so" \
        sim "build/$variant/samples/mlp" "build/$variant/samples/transformer" "build/$variant/unit/test_orderings" >build.log 2>&1 ||
        { cat build.log >&2 && return 1; }
}

# share NUMBER NAME...: prints all names. In short runs (CI) it prints every fifth, from that number
# on.
share() {
    local number=$1 i=0 name
    shift
    for name; do
        if ! is_short || [ $((i % 5)) -eq "$number" ]; then echo "$name"; fi
        i=$((i + 1))
    done
}

# trainers_are_clean VARIANT OPTION...: runs each trainer and variant once with most of its memory
# and once with little.
trainers_are_clean() {
    local variant=$1 percent all names number=0 budgets="55-55 15-15"
    shift
    ! is_short || budgets=15-15
    mapfile -t all < <("$ROOT/scripts/dev/seeds" --list | grep -E '^(mlp|transformer)')
    for percent in $budgets; do
        mapfile -t names < <(share $number "${all[@]}")
        number=1
        run "$ROOT/scripts/dev/seeds" --build "$ROOT/build/$variant" --seeds ${#names[@]} --percent $percent --limit 60 --totals totals.json "$@" \
            "${names[@]}"
        ended_with 0 || return 1
        at_least $((${#names[@]} * 5)) "$(jq .evictions totals.json)" "evictions at $percent %"
        tail -n 1 <<<"$output" | sed "s/^/# $percent %: /" >&3
    done
}

# runs_with_plans_are_clean OPTION...: runs, after trainers_are_clean, the workloads that follow
# plans, under two policies.
runs_with_plans_are_clean() {
    local variant=$1 policy all names number=0 policies="plan layers"
    shift
    ! is_short || policies=plan
    mapfile -t all < <("$ROOT/scripts/dev/seeds" --list | grep '^plan')
    for policy in $policies; do
        mapfile -t names < <(share $number "${all[@]}")
        number=1
        run "$ROOT/scripts/dev/seeds" --build "$ROOT/build/$variant" --seeds ${#names[@]} --percent 40-60 --limit 60 --totals totals.json \
            --policy $policy "$@" "${names[@]}"
        ended_with 0 || return 1
        at_least $((${#names[@]} * 2)) "$(jq .plan_steps totals.json)" "$policy: steps that followed a plan"
        at_least $((${#names[@]} * 3)) "$(jq .plan_reloads totals.json)" "$policy: reloads by plans"
        tail -n 1 <<<"$output" | sed "s/^/# $policy: /" >&3
    done
}

# A sanitizer that is missing would find nothing and pass all of this.
is_instrumented() { contains "$(nm -D "$ROOT/build/$1/libpenstock.so" "$ROOT/build/$1/sim/libcuda.so.1")" " U $2"; }

directed_cases_are_clean() {
    local seeds=8
    ! is_short || seeds=3
    # Only the test's own limit applies. Beside busy neighbours each case takes several times as
    # long, and ends its child itself if it hangs.
    run env "LD_LIBRARY_PATH=$ROOT/build/$1/sim" "$ROOT/build/$1/unit/test_orderings" '' 1 $seeds
    ended_with 0
}

@test "AddressSanitizer and UndefinedBehaviorSanitizer report nothing" {
    build_variant address asan
    is_instrumented asan __asan_init
    is_instrumented asan __ubsan_handle
    export ASAN_OPTIONS=exitcode=66:detect_stack_use_after_return=1
    export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:exitcode=66
    trainers_are_clean asan
    runs_with_plans_are_clean asan
    directed_cases_are_clean asan
}

# Streams are threads here: under the seeded scheduler operations run one at a time.
prepare_thread_sanitizer() {
    build_variant thread tsan
    is_instrumented tsan __tsan_init
    # Suppresses the reads of a D2H (tests/cudasim/cuda/operations.c gives the reason), and NVTX's
    # own initialisation, which races.
    printf 'race:%s\n' nvtxSetInitFunctionsToNoops_v3 nvtxRangePushA >suppressions
    # Without it each of the many short runs would sleep a whole second at its end.
    export TSAN_OPTIONS=halt_on_error=1:exitcode=66:atexit_sleep_ms=50:suppressions=$WORK/suppressions
}

@test "ThreadSanitizer reports nothing for the trainers" {
    prepare_thread_sanitizer
    trainers_are_clean tsan --scheduler threads
}

# threads_are_clean PATTERN SAMPLE...: runs the workloads whose names match, which use these
# samples.
threads_are_clean() {
    local pattern=$1 names
    shift
    env -u MAKEFLAGS -u MAKELEVEL make -C "$ROOT" --no-print-directory "-j$(nproc)" SAN=thread "${@/#/build/tsan/samples/}" >&2
    mapfile -t names < <("$ROOT/scripts/dev/seeds" --list | grep "$pattern")
    mapfile -t names < <(share 0 "${names[@]}")
    run "$ROOT/scripts/dev/seeds" --build "$ROOT/build/tsan" --seeds ${#names[@]} --percent 20-60 --limit 60 --scheduler threads "${names[@]}"
    ended_with 0 || return 1
    tail -n 1 <<<"$output" | sed "s/^/# $pattern: /" >&3
}

@test "ThreadSanitizer reports nothing for NCCL's calls and for memory that programs map themselves" {
    prepare_thread_sanitizer
    threads_are_clean ^nccl collectives
    threads_are_clean ^mapp arena mapped
}

@test "ThreadSanitizer reports nothing for several devices" {
    local words
    prepare_thread_sanitizer
    env -u MAKEFLAGS -u MAKELEVEL make -C "$ROOT" --no-print-directory "-j$(nproc)" SAN=thread build/tsan/samples/devices >&2
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
    prepare_thread_sanitizer
    runs_with_plans_are_clean tsan --scheduler threads
    directed_cases_are_clean tsan
}
