#!/usr/bin/env bats
# The simulated runtime, libcudart.so.13: its exports, and that programs built by nvcc run on it as
# they do on a GPU.
# tests/cudasim/selftest.cu and selftest_special.cu do the checking. Here they are built in the ways
# that programs are, and run under both schedulers.

load ../../lib/helper

# NVIDIA's installers keep CUPTI's headers in a directory of their own; the wheels put them with the
# rest.
cupti_include() { [ ! -d "$TOOLKIT/extras/CUPTI/include" ] || echo "-I$TOOLKIT/extras/CUPTI/include"; }

# compile PROGRAM OUTPUT OPTION...: compiles tests/cudasim/PROGRAM.cu with nvcc.
compile() {
    local program=$1 output=$2
    shift 2
    # shellcheck disable=SC2046 # one word or none
    "$TOOLKIT/bin/nvcc" -std=c++17 -O1 -g -cudart shared -arch=sm_90 $(cupti_include) "$@" -o "$output" \
        "$ROOT/tests/cudasim/$program.cu" -ldl
}

setup_file() {
    requires nvcc
    local sanitizer=()
    case ${BUILD##*/} in
    asan) sanitizer=(-Xcompiler -fsanitize=address -Xcompiler -fsanitize=undefined) ;;
    tsan) sanitizer=(-Xcompiler -fsanitize=thread) ;;
    esac
    local options=(-compress-mode none -Xcompiler -rdynamic -Xcompiler -Wall "${sanitizer[@]}")
    export SELFTEST=$BATS_FILE_TMPDIR/selftest
    compile selftest "$SELFTEST" "${options[@]}"
    compile selftest "$SELFTEST-per-thread" --default-stream per-thread "${options[@]}"
    compile selftest_special "$SELFTEST-special" "${options[@]}"
    compile ending "$SELFTEST-ending" "${options[@]}" -lpthread
}

# selftest_passes WORD...: the command exits with 0, made at least one check, and no check failed.
selftest_passes() {
    run_sim "$@"
    ended_with 0
    contains "$output" '^selftest: [1-9][0-9]* checks, 0 failed$'
}

@test "it exports exactly what NVIDIA's library exports, under the same version" {
    requires sim nvcc
    local real
    real=$(find -L "$TOOLKIT/lib64" "$TOOLKIT/lib" "$TOOLKIT/targets/x86_64-linux/lib" -name libcudart.so.13 2>/dev/null | head -n 1)
    [ -n "$real" ]
    exported() { nm --dynamic --defined-only "$1" | awk '$2 == "T" { print $3 }' | sed 's/@@/@/' | sort; }
    exported "$real" >real.txt
    exported "$SIM/libcudart.so.13" >simulated.txt
    [ "$(wc -l <real.txt)" -gt 300 ]
    # unsupported.def follows CUDA 13.0; another 13.x may have more or fewer names.
    diff real.txt simulated.txt
    contains "$(readelf -d "$SIM/libcudart.so.13")" 'SONAME.*\[libcudart\.so\.13\]'
    # Both libraries open the driver only when it is needed.
    lacks "$(readelf -d "$SIM/libcudart.so.13" "$real")" 'NEEDED.*\[libcuda\.so\.1\]'
}

@test "a program runs as on a GPU with the threads scheduler" {
    selftest_passes "$SELFTEST"
    [ "$DEVICE" = gpu ] && return
    equal 0 "$(ledger 'leaks | add // 0')" leaks
}

@test "a program runs as on a GPU with a default stream per thread" {
    selftest_passes "$SELFTEST-per-thread"
}

@test "a program runs as on a GPU under twenty seeds of the adversarial scheduler, with both default streams" {
    requires sim
    local seed
    for seed in $(seq 20); do
        selftest_passes CUDASIM_SCHED=seeded CUDASIM_SEED="$seed" "$SELFTEST"
        selftest_passes CUDASIM_SCHED=seeded CUDASIM_SEED="$seed" "$SELFTEST-per-thread"
    done
}

@test "a thread that launches while another one calls exit is told that the runtime is unloading" {
    local times
    for ((times = 0; times < 10; times++)); do
        run_sim "$SELFTEST-ending"
        ended_with 0
        equal '4 4 4 4 4 ok' "$output" "what it is told"
    done
}

@test "a CUPTI subscriber is shown the cubin that nvcc made, once" {
    selftest_passes "$SELFTEST-special" cubin
}

@test "kernels of a compressed fatbinary run too; a subscriber is shown no cubin" {
    requires sim plain
    compile selftest_special compressed -compress-mode size -Xcompiler -rdynamic
    run_sim ./compressed cubin
    # The sums are right; only the checks of the cubin fail.
    ended_with 2
    contains "$output" 'not so: cubin_describes_saxpy'
    contains "$output" 'not so: cubins_loaded >= 1'
}

@test "kernels of a shared object opened with RTLD_LOCAL are found, and found again after it was closed" {
    requires sim plain nvcc python
    compile selftest plugin.so -Xcompiler -fPIC -shared
    run_sim python3 - <<'PYTHON'
import _ctypes
import ctypes

runtime = ctypes.CDLL("libcudart.so.13")  # stays, so that only the plugin goes
for turn in range(2):
    plugin = ctypes.CDLL("./plugin.so")
    failed = plugin.run_selftest()
    assert failed == 0, failed
    _ctypes.dlclose(plugin._handle)
PYTHON
    ended_with 0
    equal 2 "$(grep -c '^selftest: [1-9][0-9]* checks, 0 failed$' <<<"$output")" "self-tests passed"
}

@test "an illegal address is reported, and the error is sticky" {
    selftest_passes "$SELFTEST-special" illegal-address
}

@test "an illegal address is reported, and the error is sticky, under the seeded scheduler" {
    requires sim
    selftest_passes CUDASIM_SCHED=seeded CUDASIM_SEED=3 "$SELFTEST-special" illegal-address
}

@test "a kernel without a host version fails by name" {
    requires sim
    selftest_passes "$SELFTEST-special" missing
    contains "$output" '^cudasim: kernel device_only has no host version'
}

@test "a call that is not simulated returns cudaErrorNotSupported and is counted" {
    requires sim
    selftest_passes "$SELFTEST-special" unsupported
    contains "$(cat "$LEDGER")" cudaMallocArray
    contains "$(cat "$LEDGER")" cudaMallocMipmappedArray
}

@test "without a device every call reports cudaErrorNoDevice" {
    requires sim
    run_sim CUDASIM_NO_DEVICE=1 "$SELFTEST"
    ended_with 1
    contains "$output" 'cudaErrorNoDevice'
}
