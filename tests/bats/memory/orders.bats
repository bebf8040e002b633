#!/usr/bin/env bats
# Programs of several streams whose order is right by CUDA's rules (tests/samples/orders.cu). Under
# Penstock they compute the same, nothing waits that does not wait without it, and nothing hangs.
# Memory is plentiful or short, blocks are small or large, and runs are in real time or in the
# orders of seeds.

load ../../lib/helper

setup() {
    helper_setup 60
    requires samples
    by_turn 5
    WRONG=0
}

# How long a wait for a gate may take on the simulated device before it reports a deadlock: longer
# than the sample waits.
PATIENCE=CUDASIM_PATIENCE_MS=60000

cases() { with_device "$SAMPLES/orders" --list | awk '{ print $1 }' | grep -E "^($1)\$"; }

# settings_of NAME KIB: prints the settings of that name. A short budget is eight blocks of KIB KiB.
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
    short-fine) echo PENSTOCK_BUDGET="$((8 * $2))KiB" PENSTOCK_POLICY=lru PENSTOCK_RULES=pieces CUDASIM_GRANULARITY=4096 ;;
    short-plan) echo PENSTOCK_BUDGET="$((8 * $2))KiB" PENSTOCK_POLICY=plan ;;
    *) return 1 ;;
    esac
}

# right CASE ARGUMENT...: the last run ended well. The first failures are printed.
right() {
    if [ "$status" -eq 0 ] && grep -qx ok <<<"$output"; then
        # When nothing can leave and all freed memory is in use, a span begins on a slot after some
        # seconds, and a line reports it.
        [[ $1 == *-all* || $1 == all-wait* ]] && return 0
        grep -q 'no eviction and no use of freed memory ended within' <<<"$output" || return 0
    fi
    WRONG=$((WRONG + 1))
    [ $WRONG -gt 12 ] || printf '%s: status %s:\n%s\n' "$*" "$status" "$output" >&2
    [ -z "${PENSTOCK_TEST_STOP:-}" ] # set by scripts/dev/defects: the first failure is enough
}

# seeds_for N: prints seeds for the Nth run.
seeds_for() { [ "$DEVICE" != sim ] || some_of 2 $((2 * $1 + 1)) $((2 * $1 + 2)); }

# all_right KIB CASES SETTINGS... [-- ARGUMENT...]: runs every case with blocks of KIB KiB, with
# each of the settings, in real time and with seeds.
all_right() {
    local kib=$1 names=$2 name way seed settings seconds ways=() runs=0
    shift 2
    seconds=$(patience 10) # after which the sample reports that it hangs
    [ "$seconds" -le 50 ] || seconds=50
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        ways+=("$1")
        shift
    done
    [ $# = 0 ] || shift
    for name in $(cases "$names"); do
        for way in "${ways[@]}"; do
            read -ra settings <<<"$(settings_of "$way" "$kib")"
            runs=$((runs + 1))
            run_penstock "${settings[@]}" $PATIENCE "$SAMPLES/orders" "$name" "$kib" "$seconds" "$@"
            right "$name $kib $*, ${settings[*]}"
            for seed in $(seeds_for $runs); do
                run_penstock "${settings[@]}" $PATIENCE CUDASIM_SCHED=seeded CUDASIM_SEED="$seed" "$SAMPLES/orders" "$name" "$kib" "$seconds" "$@"
                right "$name $kib $*, ${settings[*]}, seed $seed"
            done
        done
    done
    at_least 1 $runs "runs"
}

none_wrong() { equal 0 $WRONG "runs that went wrong"; }

@test "without Penstock every case is right, in every order" {
    local name kib seed runs=0
    for name in $(cases '.*'); do
        for kib in 2048 1024; do
            runs=$((runs + 1))
            run_sim $PATIENCE "$SAMPLES/orders" "$name" "$kib"
            right "$name $kib"
            for seed in $(seeds_for $runs); do
                run_sim $PATIENCE CUDASIM_SCHED=seeded CUDASIM_SEED="$seed" "$SAMPLES/orders" "$name" "$kib"
                right "$name $kib, seed $seed"
            done
        done
        run_sim $PATIENCE "$SAMPLES/orders" "$name" 2048 pool
        right "$name 2048 pool"
    done
    none_wrong
}

@test "the sample refuses a wrong command line" {
    local words
    for words in '' 'no-such-case' 'legacy-free 0' 'legacy-free 8192 x' 'legacy-free 8192 1 2 3'; do
        # shellcheck disable=SC2086 # words
        run_sim "$SAMPLES/orders" $words
        ended_with 2
    done
}

# --- one owner after the other --------------------------------------------------------------------

@test "frees and allocations on the default stream are ordered with the work of blocking streams" {
    all_right 2048 'legacy-(free|take).*' default named named-host short short-unmap
    none_wrong
}

@test "frees and allocations on the default stream are ordered for small blocks, pieces and other pools too" {
    all_right 1024 'legacy-(free|take).*' default named
    all_right 8192 'legacy-(free|take).*' pieces short-pieces
    all_right 2048 'legacy-(free|take).*' default short -- pool
    all_right 1024 'legacy-free' default -- pool
    none_wrong
}

@test "memory freed while a kernel reads it is reused after that kernel, through any number of owners" {
    all_right 2048 'free-(on|twice|then).*' default named named-host named-hook short
    all_right 1024 'free-(on|twice|then).*' default named
    all_right 8192 'free-(on|twice|then).*' pieces
    none_wrong
}

@test "pages freed while a kernel reads them are reused after that kernel, in spans of any size" {
    all_right 2048 'free-for-larger' default named short short-host short-unmap
    all_right 8192 'free-for-larger' short short-pieces
    none_wrong
}

@test "cudaFree waits for a kernel that reads by an address that no parameter shows" {
    all_right 2048 'free-unseen' default named-host short-host
    none_wrong
}

# --- no more waits than without Penstock ----------------------------------------------------------

@test "streams that take and free blocks in turn run side by side" {
    all_right 2048 'meeting.*' default named short
    all_right 8192 'meeting.*' default pieces
    all_right 1024 'meeting.*' default
    all_right 2048 'meeting.*' default -- pool
    none_wrong
}

@test "kernels that may overlap without Penstock may overlap with it" {
    requires sim jq
    local name plain way settings
    for name in $(cases 'turns.*'); do
        run_sim "$SAMPLES/orders" "$name" 2048
        plain=$(ledger longest_chain)
        equal 10 "$plain" "kernels in $name's longest chain"
        for way in default named named-hook pieces; do
            read -ra settings <<<"$(settings_of $way)"
            run_penstock "${settings[@]}" "$SAMPLES/orders" "$name" 2048
            ended_with 0
            equal "$plain" "$(ledger longest_chain)" "$name's longest chain, ${settings[*]}"
            run_penstock "${settings[@]}" CUDASIM_SCHED=seeded CUDASIM_SEED=3 "$SAMPLES/orders" "$name" 2048
            ended_with 0
            equal "$plain" "$(ledger longest_chain)" "$name's longest chain, ${settings[*]}, seed 3"
        done
        run_penstock "$SAMPLES/orders" "$name" 1024
        ended_with 0
        equal "$plain" "$(ledger longest_chain)" "$name's longest chain, small blocks"
        run_penstock "$SAMPLES/orders" "$name" 2048 pool
        ended_with 0
        equal "$plain" "$(ledger longest_chain)" "$name's longest chain, blocks of a pool of its own"
    done
}

@test "a stream-ordered request waits for no freed block whose last use waits for the requester" {
    all_right 8192 'async-behind-wait.*' default named
    all_right 2048 'async-behind-wait.*' default named named-hook pieces short
    all_right 1024 'async-behind-wait.*' default
    all_right 2048 'async-behind-wait.*' default -- pool
    none_wrong
}

@test "cudaMalloc waits for no freed block whose last use waits for the requester" {
    all_right 8192 'malloc-behind-wait.*' default named
    all_right 2048 'malloc-behind-wait.*' default named named-hook pieces short short-plan
    all_right 1024 'malloc-behind-wait.*' named
    all_right 2048 'free-behind-wait' default named short
    none_wrong
}

@test "a second stream does not wait for a block that the only stream was given after a free" {
    all_right 2048 'second-stream-.*' named named-hook short short-host
    all_right 8192 'second-stream-.*' named pieces
    none_wrong
}

@test "work on the default stream's behalf puts no order between blocking streams" {
    all_right 2048 'legacy-barrier.*' default named short short-host short-plan
    all_right 8192 'legacy-barrier.*' default short short-pieces
    none_wrong
}

@test "nothing hangs when memory is short" {
    all_right 2048 'scarce.*' named short short-host short-unmap
    all_right 8192 'scarce.*' short short-pieces
    none_wrong
}

@test "a reload does not wait for a launch that waits for it" {
    all_right 2048 'reload-behind-wait' short short-host short-unmap short-plan
    all_right 8192 'reload-behind-wait' short-pieces short-fine
    none_wrong
}

@test "the reload of a span that several streams read waits for none of them" {
    all_right 2048 'reload-for-another.*' short short-plan
    all_right 2048 'reload-for-another(|-behind|-early|-steps)' short-host short-unmap
    all_right 8192 'reload-for-another(|-third)' short-pieces short-fine
    none_wrong
}

# --- memory that is available at once -------------------------------------------------------------

@test "memory freed beside a capture is free once the device is idle, even if events take time" {
    settings_of() { echo PENSTOCK_BUDGET="$((8 * $2))KiB" PENSTOCK_POLICY=lru CUDASIM_EVENT_NS="$1"; }
    all_right 2048 'free-beside-capture.*' 0 5000
    none_wrong
    requires sim jq
    local name
    # It is taken, so nothing leaves for the request.
    for name in $(cases 'free-beside-capture.*'); do
        run_penstock PENSTOCK_BUDGET=16MiB PENSTOCK_POLICY=lru CUDASIM_EVENT_NS=5000 "$SAMPLES/orders" "$name" 2048
        ended_with 0
        equal 0 "$(report evictions)" "evictions of $name"
    done
}

@test "while a thread waits for the device, another thread gets memory" {
    settings_of() { echo PENSTOCK_BUDGET="$((8 * $2))KiB" PENSTOCK_POLICY=lru CUDASIM_D2H_GBPS="$1"; }
    all_right 2048 'device-wait.*|(stream|event)-wait' 0 0.05
    none_wrong
}

@test "spans that can leave do so while others can't yet" {
    all_right 2048 'oldest-wait.*|all-wait' named short short-host short-plan
    all_right 8192 'oldest-wait.*|all-wait' short-pieces
    none_wrong
}

@test "a device that waits for the program in each step is soon waited for less" {
    all_right 2048 'all-wait-steps' short short-host
    none_wrong
}

@test "nothing is given up while the whole program is stopped for a while" {
    requires sim
    # Each copy to the host takes half a second. Eight runs are stopped during different copies, for
    # longer than a wait for the device may stand still. These times are what is tested.
    run_sim PENSTOCK_BUDGET=16MiB PENSTOCK_POLICY=lru PENSTOCK_LIVE=0 CUDASIM_D2H_GBPS=0.004 $PATIENCE \
        bash -c 'for at in 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1.0; do
            (LD_PRELOAD=$0 "$@" & sleep $at; kill -STOP $!; sleep 6; kill -CONT $!; wait $!) &
        done; wait' "${SANITIZER:+$SANITIZER:}$PENSTOCK_SO" "$SAMPLES/orders" oldest-waits 2048 60
    equal 8 "$(grep -cx ok <<<"$output")" "runs that ended well"
    lacks "$output" 'no eviction and no use of freed memory ended within'
}

@test "while a thread stands in its launch, other threads' launches do not end a grace" {
    requires sim
    settings_of() { echo PENSTOCK_BUDGET="$((8 * $2))KiB" PENSTOCK_POLICY=lru CUDASIM_QUEUE=16 PENSTOCK_GUARD="$1"; }
    all_right 2048 'launch-stands' host unmap
    none_wrong
}

@test "no launch uses the stand-ins that the driver is shown" {
    requires sim
    settings_of() {
        echo PENSTOCK_BUDGET="$((8 * $2))KiB" PENSTOCK_POLICY=lru PENSTOCK_GRACE=64 CUDASIM_FAULT=cuGraphInstantiateWithFlags:delay@1+ PENSTOCK_GUARD="$1"
    }
    all_right 2048 'look-beside-table' host unmap
    none_wrong
}

@test "freed spans that are not in use are found behind any number that are" {
    all_right 2048 'freed-wait-many' short short-host short-plan
    all_right 8192 'freed-wait-many' short-pieces short-fine
    none_wrong
}
