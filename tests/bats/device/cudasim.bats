#!/usr/bin/env bats
# The simulated device itself: its libraries meet a loader's and a program's expectations, its
# settings take effect, and its ledger and trace can be read. tests/unit/test_cudasim_*.c check its
# calls.

load ../../lib/helper

setup() {
    helper_setup
    requires sim
}

# Small enough to run in some tens of milliseconds.
tiny_mlp() { run_sim "$@" "$SAMPLES/mlp" --layers=3 --batch=64 --width=16 --steps=3; }

@test "the libraries carry NVIDIA's names and depend on each other as NVIDIA's do" {
    local library
    for library in libcuda.so.1 libcudart.so.13 libcupti.so.13; do
        contains "$(readelf -d "$SIM/$library")" "SONAME.*\[$library\]"
    done
    lacks "$(readelf -d "$SIM/libcudart.so.13")" 'NEEDED.*\[libcuda.so.1\]' # it opens libcuda at run time, as NVIDIA's does
    contains "$(readelf -d "$SIM/libcupti.so.13")" 'NEEDED.*\[libcuda.so.1\]'
}

@test "every driver call that cuda.h declares is exported" {
    requires cc nvcc
    local declared exported missing
    declared=$(echo '#include <cuda.h>' | gcc -E -P -I "$TOOLKIT/include" -x c - | grep -oE 'CUresult +cu[A-Z][A-Za-z0-9_]* *\(' |
        grep -oE 'cu[A-Z][A-Za-z0-9_]*' | sort -u)
    exported=$(nm -D --defined-only "$SIM/libcuda.so.1" | awk '{ print $3 }' | sort -u)
    at_least 400 "$(wc -l <<<"$declared")" "declared calls"
    missing=$(comm -23 <(echo "$declared") <(echo "$exported"))
    equal '' "$missing" "declared but not exported"
}

@test "libcuda exports nothing but driver calls, the runtime's hooks and functions that kernels call" {
    requires plain
    local others
    others=$(nm -D --defined-only "$SIM/libcuda.so.1" | awk '{ print $3 }' | grep -vE '^cu[A-Z]' | sort | tr '\n' ' ')
    equal 'cudasim_count_runtime_call cudasim_graph_launch cudasim_graph_set_conditional cudasim_register_image cudasim_register_kernel cudasim_set_callback_sink cudasim_texture cudasim_variable ' "$others" "other exports"
}

@test "a trainer computes the same under both schedulers and any seed" {
    requires samples
    tiny_mlp
    ended_with 0
    local expected=$output seed
    contains "$expected" '^step 2 loss '
    for seed in {1..12}; do
        tiny_mlp CUDASIM_SCHED=seeded CUDASIM_SEED="$seed"
        ended_with 0
        equal "$expected" "$output" "seed $seed"
        equal seeded "$(ledger scheduler)"
        equal "$seed" "$(ledger seed)"
    done
}

@test "the ledger of a clean run adds up" {
    requires samples jq
    tiny_mlp
    ended_with 0
    equal 0 "$(ledger unmapped_accesses)" "unmapped accesses"
    equal 0 "$(ledger not_supported_calls)" "calls not supported"
    equal CUDA_SUCCESS "$(ledger sticky_error)"
    equal 0 "$(ledger 'leaks | add')" "leaks"
    equal 0 "$(ledger held.device)" "device bytes held at exit"
    at_least 1 "$(ledger peak.device)" "peak"
    equal "$(ledger kernels_run)" "$(ledger 'kernels | add')" "kernels by name"
    equal "$(ledger kernels_run)" "$(ledger calls.cuLaunchKernel)" "launches"
    equal "$(ledger calls.cuMemAlloc_v2)" "$(ledger made.plain)" "allocations"
}

@test "the trace numbers calls and operations in one sequence" {
    requires samples
    tiny_mlp CUDASIM_TRACE="$WORK/trace"
    ended_with 0
    local trace
    trace=$(cat "$WORK/trace")
    contains "$trace" '^[0-9]+ call cuLaunchKernel 0$'
    contains "$trace" '^[0-9]+ queued [0-9]+:[0-9]+ cuLaunchKernel kernel=matmul'
    contains "$trace" '^[0-9]+ end [0-9]+:[0-9]+ cuMemcpyDtoHAsync_v2 copy=d2h '
    equal "$(wc -l <"$WORK/trace")" "$(awk '$1 == NR' "$WORK/trace" | wc -l)" "lines numbered in order"
}

@test "copies take the time that their rate implies" {
    requires samples plain
    local quick slow
    tiny_mlp
    ended_with 0
    quick=$(ledger bytes.d2h)
    # On a link this slow the copies alone take a second.
    local start=$EPOCHREALTIME
    tiny_mlp CUDASIM_D2H_GBPS="$(awk -v bytes="$quick" 'BEGIN { printf "%.9f", bytes / 1e9 }')"
    ended_with 0
    slow=$(awk -v start="$start" -v now="$EPOCHREALTIME" 'BEGIN { printf "%d", (now - start) * 1000 }')
    at_least 950 "$slow" "milliseconds"
}

@test "the longest chain counts kernels that wait for one another" {
    requires samples jq
    run_sim "$SAMPLES/orders" turns # 10 kernels on each of two streams
    ended_with 0
    equal 20 "$(ledger kernels_run)" "kernels"
    equal 10 "$(ledger longest_chain)" "longest chain"
    tiny_mlp # all on one stream
    ended_with 0
    equal "$(ledger kernels_run)" "$(ledger longest_chain)" "longest chain"
}

@test "event records take the configured time" {
    requires samples jq plain
    local start=$EPOCHREALTIME took
    tiny_mlp CUDASIM_EVENT_NS=100000000
    ended_with 0
    took=$(awk -v start="$start" -v now="$EPOCHREALTIME" 'BEGIN { printf "%d", (now - start) * 1000 }')
    at_least 1 "$(ledger calls.cuEventRecord)" "records"
    at_least $(($(ledger calls.cuEventRecord) * 100)) "$took" "milliseconds"
}

@test "an injected failure reaches the program as a CUDA error" {
    requires samples
    tiny_mlp CUDASIM_FAULT=cuMemAlloc_v2:oom@5
    [ "$status" -ne 0 ]
    contains "$output" 'out of memory|cudaErrorMemoryAllocation'
    equal 1 "$(ledger faults_injected)"
}

@test "a device that is too small refuses memory" {
    requires samples
    tiny_mlp CUDASIM_MEMORY=16KiB
    [ "$status" -ne 0 ]
    contains "$output" 'out of memory|cudaErrorMemoryAllocation'
}

@test "a machine without a device reports that it has none" {
    requires samples
    tiny_mlp CUDASIM_NO_DEVICE=1
    [ "$status" -ne 0 ]
    contains "$output" 'no CUDA-capable device|cudaErrorNoDevice'
}

@test "a setting that can't be parsed is named" {
    requires samples
    tiny_mlp CUDASIM_SCHED=random CUDASIM_MEMORY=lots CUDASIM_FAULT=cuNoSuchCall:oom@1
    ended_with 0
    contains "$output" 'CUDASIM_SCHED=random is not threads or seeded'
    contains "$output" 'CUDASIM_MEMORY=lots is not a number of bytes'
    contains "$output" "CUDASIM_FAULT: 'cuNoSuchCall:oom@1' is not"
}

@test "a process that never calls the driver leaves no ledger" {
    run_sim "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$SIM/libcuda.so.1" true
    ended_with 0
    [ ! -e "$LEDGER" ]
}
