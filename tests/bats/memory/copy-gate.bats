#!/usr/bin/env bats
# Mappings beside our copies. While copies of one direction follow each other without a gap, the
# device makes a mapping in one of their time slices. A gate in front of each piece of such a copy
# lets mappings pass. A measurement tells which direction's copies delay mappings. The program's own
# copies get their turn between pieces, which unit/test_turns shows.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup; requires sim samples plain jq; by_turn 4; }

MODEL=("$SAMPLES/mlp" --layers=12 --width=64 --batch=4096)

# train STEPS VARIABLE=VALUE...: runs a training in which many bytes move, on a device with a slow
# link and an H200's time slice.
train() {
    run_penstock CUDASIM_SLICE_NS=1060000 CUDASIM_D2H_GBPS=0.2 CUDASIM_H2D_GBPS=0.2 CUDASIM_GRANULARITY=4096 PENSTOCK_MIN_SPAN=65536 \
        PENSTOCK_BUDGET=12MiB PENSTOCK_LOG=info "${@:2}" "${MODEL[@]}" --steps="$1"
}

@test "with a gate few mappings take a time slice; without one many do, and one line reports it" {
    run_sim "${MODEL[@]}" --steps=6
    ended_with 0
    local plain=$output
    train 6 CUDASIM_FAULT=cuStreamWaitValue32_v2:notsupported@1
    ended_with 0
    contains "$output" "^penstock: residency: streams can't wait for a word in host memory on this device"
    equal "$plain" "$(grep -v '^penstock: ' <<<"$output")" "losses and gradients"
    local without
    without=$(ledger slices)
    at_least 40 "$without" "time slices without a gate"
    # The line has what was measured once, early in the run: a pause of the machine then is in it.
    local line='^penstock: residency: mappings wait for copies to the host: one takes [0-9]{1,3} us alone, and [0-9]{4} us during copies to the host$'
    for _ in 1 2 3; do
        train 6
        ended_with 0
        ! grep -qE "$line" <<<"$output" || break
    done
    lacks "$output" "streams can't wait"
    contains "$output" "$line"
    equal "$plain" "$(grep -v '^penstock: ' <<<"$output")" "losses and gradients"
    # One wait for each piece in either direction: eight pages out, sixteen in.
    local pieces=$(($(report evicted_bytes) / (8 * 4096) + $(report reloaded_bytes) / (16 * 4096)))
    at_least $((pieces * $(quiet_or 5 9) / 10)) "$(ledger calls.cuStreamWaitValue32_v2)" "looks, with $pieces pieces moved"
    # On a busy machine mappings come late, with a gate and without.
    at_most $((without * $(quiet_or 6 1) / 4)) "$(ledger slices)" "time slices with a gate, of $without without"
    sound
}

@test "when mappings wait for copies to the device, that is measured and those copies get the gate" {
    run_sim "${MODEL[@]}" --steps=12
    ended_with 0
    local plain=$output
    train 12 CUDASIM_SLICE_WAY=in CUDASIM_FAULT=cuStreamWaitValue32_v2:notsupported@1
    ended_with 0
    local without
    without=$(ledger slices)
    at_least 200 "$without" "time slices without a gate"
    train 12 CUDASIM_SLICE_WAY=in
    ended_with 0
    contains "$output" '^penstock: residency: mappings wait for copies to the device: one takes [0-9]{1,3} us alone, and [0-9]{1,3} us during copies to the host$'
    equal "$plain" "$(grep -v '^penstock: ' <<<"$output")" "losses and gradients"
    at_most $((without / 3)) "$(ledger slices)" "time slices with a gate, of $without without"
    sound
}

@test "a gate that the driver refuses is left out, and the copy is made" {
    run_sim "${MODEL[@]}" --steps=6
    ended_with 0
    local plain=$output
    train 6 CUDASIM_FAULT=cuStreamWaitValue32_v2:error@20+
    ended_with 0
    equal "$plain" "$(grep -v '^penstock: ' <<<"$output")" "losses and gradients"
    struck 20
    counted evictions
    equal 0 "$(report eviction_errors)" "evictions that failed"
}

@test "a measurement that the driver refuses in part or whole does no harm and leaves nothing behind" {
    run_sim "${MODEL[@]}" --steps=2
    ended_with 0
    local plain=$output fault
    # Calls of the measurement. It comes before any other call of its kind, except for the gate's
    # own memory.
    for fault in $(some_of 4 cuMemHostRegister_v2:error@2 cuMemcpyAsync:error@1 cuMemcpyAsync:error@30 cuMemCreate@device:oom@1 cuMemMap:error@1 \
        cuMemSetAccess:error@1 cuMemSetAccess:error@3 cuEventRecord:error@1 cuEventSynchronize:error@1 cuStreamSynchronize:error@1 cuMemAddressReserve:oom@2); do
        run_penstock CUDASIM_FAULT="$fault" CUDASIM_GRANULARITY=4096 PENSTOCK_MIN_SPAN=65536 PENSTOCK_BUDGET=12MiB PENSTOCK_LOG=info "${MODEL[@]}" --steps=2
        ended_with 0
        struck 1
        equal "$plain" "$(grep -v '^penstock: ' <<<"$output")" "losses and gradients with $fault"
        lacks "$output" 'mappings wait for copies to the host'
        counted evictions
        sound
    done
}
