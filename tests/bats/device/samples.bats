#!/usr/bin/env bats
# The sample trainers without Penstock. Every later test that runs them under Penstock rests on
# these tests.

load ../../lib/helper

# Small enough for milliseconds. The width is no multiple of a kernel's tile, and the batch splits
# unevenly into halves and chunks.
small=(--layers 3 --width 20 --batch 150 --seq 6 --heads 2 --vocab 13 --steps 5 --verify)

# train MODEL OPTION...: prints the trainer's output; fails when the trainer fails.
train() {
    local model=$1
    shift
    run_sim "$SAMPLES/$model" "${small[@]}" "$@"
    ended_with 0 || return 1
    printf '%s\n' "$output"
}

# differ ONE OTHER WHAT: both texts are non-empty, and they differ.
differ() {
    [ -n "$1" ] && [ -n "$2" ] && [ "$1" != "$2" ] && return 0
    printf '%s: expected two different texts, got "%s" and "%s"\n' "$3" "$1" "$2" >&2
    return 1
}

# hostile_cases [SPANS MIB]: runs every case of `hostile`; fails if one ends otherwise than it
# should.
hostile_cases() {
    local names name expected wrong=0
    run_sim "$SAMPLES/hostile" --list
    ended_with 0
    names=$(awk '{ print $1 }' <<<"$output")
    at_least 25 "$(wc -l <<<"$names")" "cases"
    for name in $names; do
        case $name in
        signal) expected=143 ;;
        *) expected=0 ;;
        esac
        run_sim "$SAMPLES/hostile" "$name" "$@"
        if [ "$status" -ne "$expected" ] || ! grep -qx ok <<<"$output"; then
            printf '%s: status %s, expected %s:\n%s\n' "$name" "$status" "$expected" "$output" >&2
            wrong=$((wrong + 1))
        fi
    done
    equal 0 "$wrong" "cases that went wrong"
}

# losses TEXT: prints the numbers alone.
losses() { sed -nE 's/^step [0-9]+ loss ([^ ]+) .*/\1/p' <<<"$1"; }

# close_to TOLERANCE EXPECTED ACTUAL: compares two lists number by number; TOLERANCE is relative to
# the expected one.
close_to() {
    paste <(printf '%s\n' "$2") <(printf '%s\n' "$3") | awk -v tolerance="$1" '
        NF != 2 { print "not as many numbers: " $0; bad = 1; next }
        { d = $1 - $2; if (d < 0) d = -d; m = $1 < 0 ? -$1 : $1; if (d > tolerance * m) { print $1 " and " $2 " differ"; bad = 1 } }
        END { exit bad || NR == 0 }' >&2
}

@test "gradients and loss match a reference in double precision" {
    requires samples
    local model ways
    for model in mlp transformer; do
        for ways in "" "--skew" "--streams 2 --threads 2 --alloc async" "--halves 2 --streams 2" "--layers 1 --width 16 --heads 1"; do
            # shellcheck disable=SC2086 # several words
            run_sim "$SAMPLES/$model" --layers 3 --width 10 --heads 2 --batch 7 --seq 5 --vocab 11 $ways --gradcheck
            ended_with 0
            contains "$output" '^gradcheck: [1-9][0-9]* gradients of [1-9][0-9]* parameters, worst error [0-9.e-]+, 0 wrong$'
        done
    done
}

@test "the gradient check detects a wrong backward pass" {
    requires samples nvcc
    mkdir -p tests/cudasim
    cp -r "$ROOT/tests/samples" tests/
    cp "$ROOT/tests/cudasim/kernel_abi.h" tests/cudasim/
    sed -i 's/grad_in\[i\] = 2\.0f \*/grad_in[i] = 1.99f */' tests/samples/layers.h
    run cmp tests/samples/layers.h "$ROOT/tests/samples/layers.h"
    ended_with 1
    "$TOOLKIT/bin/nvcc" -std=c++17 -O1 -cudart shared -arch=sm_90 -Xcompiler -rdynamic -o wrong tests/samples/mlp.cu
    run_sim ./wrong --layers 2 --width 8 --batch 8 --gradcheck
    ended_with 1
    contains "$output" 'weight1\[[0-9]+\]: gradient .*, expected'
}

@test "the loss falls during training" {
    requires samples
    local model all
    for model in mlp transformer; do
        all=$(losses "$(train "$model" --steps 40)")
        awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(NR == 40 && last < 0.7 * first) }' <<<"$all" || {
            printf '%s: the losses were\n%s\n' "$model" "$all" >&2
            return 1
        }
    done
}

@test "two runs print the same bits, and another seed prints others" {
    requires samples
    local model once
    for model in mlp transformer; do
        once=$(train "$model")
        equal "$once" "$(train "$model")" "$model once more"
        equal 5 "$(grep -cE '^step [0-9]+ loss [0-9.]+ gradients [0-9a-f]{16}$' <<<"$once")" "lines of steps"
        contains "$once" '^parameters [0-9a-f]{16}$'
        differ "$once" "$(train "$model" --seed 1)" "another seed"
        # Every step has its own gradients, so its own hash.
        equal 5 "$(sed -nE 's/^step.*gradients //p' <<<"$once" | sort -u | wc -l)" "different hashes"
    done
}

@test "threads, streams, allocators and markers change no bit of the results" {
    requires samples
    local model base ways sizes
    for model in mlp transformer; do
        for sizes in "" "--skew"; do
            # shellcheck disable=SC2086 # several words
            base=$(train "$model" $sizes)
            for ways in "--alloc=async" "--streams=2" "--threads=2" "--markers=none" "--print=end" \
                "--alloc=async --streams=2" "--alloc=async --streams=2 --threads=2 --print=end"; do
                # shellcheck disable=SC2086
                equal "$base" "$(train "$model" $sizes $ways)" "$model $ways"
            done
        done
    done
}

@test "halves of the batch in two threads give the same losses, and the same bits each time" {
    requires samples
    local model base halves
    for model in mlp transformer; do
        base=$(train "$model")
        halves=$(train "$model" --halves 2)
        close_to 1e-4 "$(losses "$base")" "$(losses "$halves")"
        equal "$halves" "$(train "$model" --halves 2)" "$model once more"
        equal "$halves" "$(train "$model" --halves 2 --threads 2 --streams 2 --alloc async)" "$model with everything"
    done
}

@test "evaluation passes don't change training, and skipped updates don't change the parameters" {
    requires samples
    local model base evaluated
    for model in mlp transformer; do
        base=$(train "$model")
        evaluated=$(train "$model" --eval-every 2)
        equal 2 "$(grep -c '^eval' <<<"$evaluated")" "evaluations"
        equal "$base" "$(grep -v '^eval' <<<"$evaluated")" "$model beside evaluations"
        equal "$(train "$model" --steps 0)" "$(train "$model" --skip-every 1 | grep '^parameters')" "parameters without updates"
        differ "$(grep '^parameters' <<<"$base")" "$(train "$model" --skip-every 5 | grep '^parameters')" "one update less"
        differ "$base" "$(train "$model" --shapes 3)" "other shapes"
    done
}

@test "every order that the seeded scheduler allows gives the same bits" {
    requires samples sim
    local model base ways seed
    for model in mlp transformer; do
        for ways in "--alloc=async --streams=2 --threads=2 --print=end --eval-every 2" "--halves=2 --streams=2 --shapes 2"; do
            # shellcheck disable=SC2086 # several words
            base=$(train "$model" --steps 3 $ways)
            for seed in 1 2 3 4 5 6 7 8 9 10; do
                # shellcheck disable=SC2086
                equal "$base" "$(CUDASIM_SCHED=seeded CUDASIM_SEED=$seed train "$model" --steps 3 $ways)" "$model $ways, seed $seed"
                equal seeded "$(ledger scheduler)" "scheduler"
            done
        done
    done
}

@test "a trainer releases everything that it allocates" {
    requires samples sim jq
    local model
    for model in mlp transformer; do
        # shellcheck disable=SC2034 # for the helper
        LEDGER=$WORK/$model.json
        train "$model" --halves 2 --streams 2 --alloc async --eval-every 2
        at_least 10 "$(ledger made.pooled)" "allocations made"
        equal 0 "$(ledger 'leaks | add')" "$model: things left at the end"
        equal 0 "$(ledger not_supported_calls)" "calls that the simulated device lacks"
        equal 0 "$(ledger unmapped_accesses)" "unmapped accesses"
        equal 0 "$(ledger poison_copied)" "poison that was copied"
    done
}

@test "layers are marked by NVTX ranges, unless markers are off" {
    requires samples nvcc cc
    local model
    cat >ranges.c <<'END'
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>

static int depth;

static int push(const char *name)
{
    fprintf(stderr, "range %d %s\n", depth, name);
    return depth++;
}

static int pop(void)
{
    return --depth;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of)
{
    const NvtxExportTableCallbacks *callbacks = table_of(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;

    if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) || size <= NVTX_CBID_CORE_RangePop)
        return 0;
    *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
END
    gcc -shared -fPIC -I"$TOOLKIT/include" -o ranges.so ranges.c
    for model in mlp transformer; do
        NVTX_INJECTION64_PATH=$PWD/ranges.so train "$model" --steps 2 --threads 2
        equal 2 "$(grep -cx 'range 0 layer 0 forward' <<<"$output")" "$model: ranges of the first layer's forward"
        equal 2 "$(grep -cx 'range 0 layer 2 backward' <<<"$output")" "$model: ranges of the last layer's backward"
        # Every range ends before the next begins: none is nested in another.
        lacks "$output" '^range [1-9]'
        NVTX_INJECTION64_PATH=$PWD/ranges.so train "$model" --steps 2 --markers none
        lacks "$output" '^range'
    done
}

@test "--memory prints the bytes at the peak" {
    requires samples
    local peak parameters
    run_sim "$SAMPLES/mlp" --layers 4 --width 8 --batch 1000 --steps 2 --memory
    ended_with 0
    peak=$(sed -nE 's/^allocated at the peak ([0-9]+) bytes, of which parameters [0-9]+$/\1/p' <<<"$output")
    parameters=$(sed -nE 's/^allocated at the peak [0-9]+ bytes, of which parameters ([0-9]+)$/\1/p' <<<"$output")
    # Value, two moments and gradient of 8 + 8 * 8 + 8 + 8 * 8 + 8 floats a layer.
    equal $((4 * 4 * 4 * (8 + 64 + 8 + 64 + 8))) "$parameters" "bytes of parameters"
    # At least what four layers keep: four rows of eight floats, the norm's scale, eight bytes of
    # dropout.
    at_least $((4 * 1000 * (4 * 32 + 4 + 8) + parameters)) "$peak" "peak"
    at_most $((2 * 4 * 1000 * (4 * 32 + 4 + 8) + parameters)) "$peak" "peak"
}

@test "a CUDA error ends the trainer with the name of the call" {
    requires samples sim
    CUDASIM_FAULT="cuMemcpyAsync:error@3,cuMemcpyHtoDAsync:error@3" run_sim "$SAMPLES/mlp" "${small[@]}"
    ended_with 1
    contains "$output" 'cudaMemcpyAsync\(.*: cudaError'
}

@test "wrong options are refused with status 2" {
    requires samples
    run_sim "$SAMPLES/mlp" --help
    ended_with 0
    contains "$output" '--alloc=sync\|async'
    run_sim "$SAMPLES/mlp" --layer 3
    ended_with 2
    contains "$output" 'unknown option --layer'
    run_sim "$SAMPLES/mlp" --streams 3
    ended_with 2
    contains "$output" '--streams takes a number from 1 to 2'
    run_sim "$SAMPLES/mlp" --batch 1e5
    ended_with 2
    run_sim "$SAMPLES/transformer" --width 16 --heads 3
    ended_with 2
    run_sim "$SAMPLES/hostile" no-such-case
    ended_with 2
}

@test "hostile programs get what CUDA promises them" {
    requires samples
    hostile_cases
}

@test "hostile programs get what CUDA promises them under the seeded scheduler" {
    requires samples sim
    CUDASIM_SCHED=seeded CUDASIM_SEED=7 hostile_cases 8 4
}
