#!/usr/bin/env bats
# Programs of several streams whose order is right by CUDA's rules (tests/samples/orders.cu): under Penstock they compute the same, nothing waits that does not
# wait without it, and nothing hangs. Memory plentiful and short, small blocks and large ones, in real time and in the orders that seeds find.

load helper

setup() {
    helper_setup 60
    requires samples
}

# What a wait for a gate may take on the simulated device, before it says that this is a deadlock: longer than the sample waits.
PATIENCE=CUDASIM_PATIENCE_MS=60000

cases() { "$SAMPLES/orders" --list | awk '{ print $1 }' | grep -E "^($1)\$"; }

# Settings by name. Blocks of so many KiB: a short budget is eight of them.
settings_of() {
    case $1 in
    default) echo PENSTOCK_LIVE=0 ;;
    named) echo PENSTOCK_BUDGET=1GiB ;;
    named-host) echo PENSTOCK_BUDGET=1GiB PENSTOCK_GUARD=host ;;
    named-hook) echo PENSTOCK_BUDGET=1GiB PENSTOCK_TRACER=hook ;;
    pieces) echo PENSTOCK_BUDGET=1GiB PENSTOCK_RULES=pieces ;;
    short) echo PENSTOCK_BUDGET="$((8 * $2))KiB" PENSTOCK_POLICY=lru ;;
    short-host) echo PENSTOCK_BUDGET="$((8 * $2))KiB" PENSTOCK_POLICY=lru PENSTOCK_GUARD=host ;;
    short-unmap) echo PENSTOCK_BUDGET="$((8 * $2))KiB" PENSTOCK_POLICY=lru PENSTOCK_GUARD=unmap ;;
    short-pieces) echo PENSTOCK_BUDGET="$((8 * $2))KiB" PENSTOCK_POLICY=lru PENSTOCK_RULES=pieces ;;
    short-plan) echo PENSTOCK_BUDGET="$((8 * $2))KiB" PENSTOCK_POLICY=plan ;;
    *) return 1 ;;
    esac
}

# right CASE ARGUMENT...: the last run ended well
right() {
    [ "$status" -eq 0 ] && grep -qx ok <<<"$output" && lacks "$output" 'no eviction and no use of freed memory has ended' && return 0
    printf '%s: status %s:\n%s\n' "$*" "$status" "$output" >&2
    WRONG=$((WRONG + 1))
}

# all_right KIB CASES SETTINGS... [-- ARGUMENT...]: every case with blocks of so many KiB, with each of the settings, in real time and with some seeds
all_right() {
    local kib=$1 names=$2 name way seed settings ways=()
    shift 2
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        ways+=("$1")
        shift
    done
    [ $# = 0 ] || shift
    WRONG=0
    for name in $(cases "$names"); do
        for way in "${ways[@]}"; do
            read -ra settings <<<"$(settings_of "$way" "$kib")"
            run_penstock "${settings[@]}" $PATIENCE "$SAMPLES/orders" "$name" "$kib" "$@"
            right "$name $kib $*, ${settings[*]}"
            [ "$DEVICE" = sim ] || continue
            for seed in $(some_of 3 1 2 3 4 5 6); do
                run_penstock "${settings[@]}" $PATIENCE CUDASIM_SCHED=seeded CUDASIM_SEED="$seed" "$SAMPLES/orders" "$name" "$kib" "$@"
                right "$name $kib $*, ${settings[*]}, seed $seed"
            done
        done
    done
    equal 0 $WRONG "runs that went wrong"
}

@test "without Penstock every case is right, in every order" {
    local name kib seed
    WRONG=0
    for name in $(cases '.*'); do
        for kib in 8192 1024; do
            run_sim $PATIENCE "$SAMPLES/orders" "$name" "$kib"
            right "$name $kib"
            [ "$DEVICE" = sim ] || continue
            for seed in $(some_of 3 1 2 3 4 5 6); do
                run_sim $PATIENCE CUDASIM_SCHED=seeded CUDASIM_SEED="$seed" "$SAMPLES/orders" "$name" "$kib"
                right "$name $kib, seed $seed"
            done
        done
        run_sim $PATIENCE "$SAMPLES/orders" "$name" 8192 pool
        right "$name 8192 pool"
    done
    equal 0 $WRONG "runs that went wrong"
}

@test "the command line of the sample is checked" {
    local words
    for words in '' 'no-such-case' 'legacy-free 0' 'legacy-free 8192 x' 'legacy-free 8192 1 2 3'; do
        # shellcheck disable=SC2086 # words
        run_sim "$SAMPLES/orders" $words
        ended_with 2
    done
}

@test "what is freed and taken on the default stream lies between what blocking streams do before and after" {
    all_right 8192 'legacy-(free|take).*' default named named-host short short-unmap
}

@test "the same for small blocks, blocks in pieces, and blocks of a pool of the program's own" {
    all_right 1024 'legacy-(free|take).*' default named
    all_right 8192 'legacy-(free|take).*' pieces short-pieces
    all_right 8192 'legacy-(free|take).*' default short -- pool
    all_right 1024 'legacy-free' default -- pool
}
