#!/usr/bin/env bats
# Mappings beside evictions: while D2H copies follow each other without a gap, the device makes a mapping in a time slice of theirs. A gate in front of each
# piece of a D2H lets mappings pass. And what the program copies itself has its turn between pieces, which unit/test_turns shows.

load helper
load small_trainer

setup() {
    helper_setup
    requires sim samples plain jq
}

# train VARIABLE=VALUE...: a training of which much moves, on a device whose link is slow and whose time slice is an H200's
train() {
    run_penstock CUDASIM_SLICE_NS=1060000 CUDASIM_D2H_GBPS=0.2 CUDASIM_H2D_GBPS=0.2 CUDASIM_GRANULARITY=4096 PENSTOCK_MIN_SPAN=65536 \
        PENSTOCK_BUDGET=12MiB PENSTOCK_LOG=info "$@" "$SAMPLES/mlp" --layers=12 --width=64 --batch=4096 --steps=6
}

@test "with a gate few mappings take a time slice; without one many do, and one line says so" {
    run_sim "$SAMPLES/mlp" --layers=12 --width=64 --batch=4096 --steps=6
    ended_with 0
    local plain=$output
    train CUDASIM_FAULT=cuStreamWaitValue32_v2:notsupported@1
    ended_with 0
    contains "$output" '^penstock: residency: no stream can wait for a word in host memory here'
    equal "$plain" "$(grep -v '^penstock: ' <<<"$output")" "losses and gradients"
    local without
    without=$(ledger slices)
    at_least 40 "$without" "time slices without a gate"
    train
    ended_with 0
    lacks "$output" 'no stream can wait'
    equal "$plain" "$(grep -v '^penstock: ' <<<"$output")" "losses and gradients"
    # One for each piece either way: of eight pages out, sixteen in.
    local pieces=$(($(report evicted_bytes) / (8 * 4096) + $(report reloaded_bytes) / (16 * 4096)))
    at_least $((pieces * 9 / 10)) "$(ledger calls.cuStreamWaitValue32_v2)" "looks, with $pieces pieces moved"
    at_most $((without / 4)) "$(ledger slices)" "time slices with a gate, of $without without"
    sound
}

@test "a look that the driver refuses is left out, and the copy is made" {
    run_sim "$SAMPLES/mlp" --layers=12 --width=64 --batch=4096 --steps=6
    ended_with 0
    local plain=$output
    train CUDASIM_FAULT=cuStreamWaitValue32_v2:error@20+
    ended_with 0
    equal "$plain" "$(grep -v '^penstock: ' <<<"$output")" "losses and gradients"
    struck 20
    counted evictions
    equal 0 "$(report eviction_errors)" "evictions that failed"
}
