#!/usr/bin/env bats
# The `penstock` command: its checks, the started programs, and doctor's findings.

load ../../lib/helper

# A sanitizer's library can't be preloaded into the plain programs that stand for trainers here.
setup() {
    helper_setup
    requires plain
}

# --- help and versions ----------------------------------------------------------------------------

@test "help is on stdout, for the command and each subcommand" {
    local arguments
    for arguments in --help -h help 'help --help' 'run --help' 'verify --help' 'doctor --help' 'plan --help' 'summary --help' 'summary --json -h' \
        'help run' 'help verify' 'help doctor' 'help plan' 'help summary'; do
        # shellcheck disable=SC2086 # words
        run "$PENSTOCK" $arguments
        ended_with 0
        contains "${lines[0]}" "^usage: penstock $(grep -oE 'run|verify|doctor|plan|summary' <<<"$arguments")"
    done
}

@test "help settings lists every setting of the table" {
    requires release # the command's own
    run "$PENSTOCK" help settings
    ended_with 0
    equal "$("$BUILD/penstock-settings" list | cut -f1)" "$(grep -E '^PENSTOCK_' <<<"$output")" "names"
    equal '' "$(awk 'length > 80' <<<"$output")" "lines of more than 80 columns"
    # Empty fields shift no others: a setting without a unit, and one without a default.
    contains "$(grep -A 20 -x PENSTOCK_GUARD <<<"$output")" '^      auto, host or unmap; default auto$'
    contains "$(grep -A 20 -x PENSTOCK_CUPTI <<<"$output")" '^      the absolute path of libcupti\.so, or its name for the loader to find$'
}

@test "the version is that of the header" {
    run "$PENSTOCK" --version
    ended_with 0
    contains "$(cat "$ROOT/include/penstock/version.h")" "\"${output#penstock }\""
}

@test "wrong arguments give one line and status 2" {
    for arguments in '' 'frobnicate' 'run' 'run --' 'run --frobnicate' 'run --budget' 'run --set nonsense -- true' 'doctor now' \
        'help nonsense' 'help run plan'; do
        # shellcheck disable=SC2086 # words
        run "$PENSTOCK" $arguments
        ended_with 2
        equal 1 "${#lines[@]}" "lines for: penstock $arguments"
        contains "$output" '^penstock: '
    done
}

# refused PATTERN ARGUMENT...: the command is refused in one line, with status 2.
refused() {
    local pattern=$1
    shift
    run "$PENSTOCK" "$@"
    ended_with 2 && equal 1 "${#lines[@]}" "lines for: penstock $*" && contains "$output" "^penstock: $pattern"
}

@test "a missing value or an invalid file is named, with the help to read" {
    local words
    for words in 'run --budget' 'run --library' 'verify --steps' 'advise --keep' 'doctor --library' 'doctor --kernels' 'top --library' 'plan --library' 'plan recording --budget' \
        'plan recording --policy' 'report -o' 'report --output'; do
        # shellcheck disable=SC2086 # words
        refused "${words##* }: a value is missing; see penstock ${words%% *} --help\$" $words
    done
    refused 'summary: no report given; usage: penstock summary ' summary
    refused '--foo: no such option; see penstock summary --help' summary --foo
    refused '--foo: no such option; see penstock plan --help' plan recording --foo
    gzip -c "$PENSTOCK" | head -c 2000 >cut.gz
    refused 'cut\.gz: not a complete gzip file; expected a file that PENSTOCK_RECORDING named' plan cut.gz
    echo text >text.gz
    refused 'text\.gz: not a complete gzip file' plan text.gz
    equal "$("$PENSTOCK" --help)" "$("$PENSTOCK" help help)" "help of help"
}

# --- run: settings --------------------------------------------------------------------------------

@test "a bad option is named, and the command is not started" {
    local option
    for option in --budget=lots --budget=-1 --host-budget=none --min-span=small --guard=dog --log=loud --set=FROBNICATE=1 \
        --report=/nonexistent/report.json; do
        rm -f started
        run_command run "$option" -- touch started
        ended_with 2
        equal 1 "${#lines[@]}" "lines for $option"
        contains "$output" '^penstock: PENSTOCK_[A-Z_]+'
        contains "$output" "${option##*=}|FROBNICATE"
        [ ! -e started ]
    done
}

@test "a bad setting in the environment also stops the command" {
    PENSTOCK_BUDGET=lots run_command run -- touch started
    ended_with 2
    contains "$output" 'PENSTOCK_BUDGET=lots'
    [ ! -e started ]
}

@test "every bad setting is named, one a line" {
    PENSTOCK_GUARD=dog run_command run --budget lots -- true
    ended_with 2
    equal 2 "${#lines[@]}" lines
}

@test "options become variables and override the environment" {
    PENSTOCK_BUDGET=1GiB run_command run --budget 2GiB --host-budget=3GiB --min-span 4MiB --guard unmap --report "$WORK/r.json" \
        --log info --set GRACE=5 --set PENSTOCK_RESERVE=1GiB -- env
    ended_with 0
    for pair in BUDGET=2GiB HOST_BUDGET=3GiB MIN_SPAN=4MiB GUARD=unmap "REPORT=$WORK/r.json" LOG=info GRACE=5 RESERVE=1GiB; do
        contains "$output" "^PENSTOCK_$pair\$"
    done
}

@test "an empty option is an error, not the default" {
    run_command run --budget '' -- touch started
    ended_with 2
    [ ! -e started ]
}

# --- run: the command -----------------------------------------------------------------------------

@test "arguments are passed on unchanged" {
    run_command run -- printf '<%s>\n' 'two words' '*' '' '--budget' "quote'd"
    ended_with 0
    equal "<two words>
<*>
<>
<--budget>
<quote'd>" "$output"
}

@test "the command's status is passed on" {
    run_command run -- sh -c 'exit 7'
    ended_with 7
    # A shell in between would show 128 + 9.
    run with_device bash -c '"$0" run --library "$1" -- sh -c "kill -9 \$\$"; echo "status $?"' "$PENSTOCK" "$PENSTOCK_SO"
    contains "$output" 'status 137'
}

@test "the command replaces the launcher's process" {
    run with_device bash -c 'echo $$; exec "$0" run --library "$1" -- sh -c "echo \$\$"' "$PENSTOCK" "$PENSTOCK_SO"
    ended_with 0
    equal "${lines[0]}" "${lines[1]}" "process id"
}

@test "a missing command gives status 127" {
    bats_require_minimum_version 1.5.0
    run -127 with_device "$PENSTOCK" run --library "$PENSTOCK_SO" -- ./no-such-trainer
    equal 1 "${#lines[@]}" lines
    contains "$output" 'no-such-trainer: command not found'
}

@test "the library is appended to LD_PRELOAD, once" {
    requires cc
    gcc -x c -shared -fPIC -o other.so - <<<'int penstock_test_other;'
    LD_PRELOAD=$WORK/other.so run_command run -- sh -c 'echo "$LD_PRELOAD"'
    ended_with 0
    equal "$WORK/other.so:$PENSTOCK_SO" "$output"
    LD_PRELOAD="$PENSTOCK_SO:$WORK/other.so" run_command run -- sh -c 'echo "$LD_PRELOAD"'
    equal "$PENSTOCK_SO:$WORK/other.so" "$output"
}

@test "a missing library is reported" {
    run "$PENSTOCK" run --library "$WORK/nowhere.so" -- touch started
    ended_with 1
    contains "$output" 'nowhere.so: no such library'
    [ ! -e started ]
}

@test "a library path that LD_PRELOAD can't carry is refused" {
    mkdir 'a place'
    cp "$PENSTOCK_SO" "$BUILD/penstock-settings" "$BUILD/penstock-doctor" 'a place/'
    run "$PENSTOCK" run --library "$WORK/a place/libpenstock.so" -- touch started
    ended_with 1
    contains "$output" 'space or a colon'
    [ ! -e started ]
}

@test "with Nsight Compute in front of the program one line warns that it runs without Penstock" {
    local tool
    mkdir -p 'the bin'
    for tool in ncu nv-nsight-cu-cli; do
        # Like the real one it clears LD_PRELOAD for the program that it runs.
        printf '#!/bin/bash\nwhile [[ "${1:-}" == -* ]]; do [ "$1" != --target-processes ] || shift; shift; done\nLD_PRELOAD= exec "$@"\n' >"the bin/$tool"
        chmod +x "the bin/$tool"
        run_command run -- "the bin/$tool" sh -c 'echo "preloaded: $LD_PRELOAD"'
        ended_with 0
        equal 2 "${#lines[@]}" lines
        contains "$output" "^penstock: $tool removes LD_PRELOAD from the environment of the program, even if it is set inside: the program runs without Penstock\$"
        contains "$output" '^preloaded: $'
    done
}

# --- run: CUPTI -----------------------------------------------------------------------------------

@test "CUPTI is left to the loader when the loader finds one" {
    requires sim
    run_command run -- sh -c 'echo "cupti=$PENSTOCK_CUPTI"'
    equal 'cupti=' "$output"
}

@test "CUPTI is taken from the toolkit when the loader finds none" {
    requires sim
    # Files that are not libraries: the loader searches no further, whatever this machine has
    # installed.
    mkdir -p path home/extras/CUPTI/lib64
    touch path/libcupti.so.12 path/libcupti.so.13
    ln -s "$SIM/libcuda.so.1" "$SIM/libcudart.so.13" path/
    cp "$SIM/libcupti.so.13" home/extras/CUPTI/lib64/
    run env LD_LIBRARY_PATH="$WORK/path" CUDA_HOME="$WORK/home" "$PENSTOCK" run --library "$PENSTOCK_SO" -- sh -c 'echo "$PENSTOCK_CUPTI"'
    ended_with 0
    equal "$WORK/home/extras/CUPTI/lib64/libcupti.so.13" "$output"
    # The user's choice stays.
    run env LD_LIBRARY_PATH="$WORK/path" CUDA_HOME="$WORK/home" PENSTOCK_CUPTI="$SIM/libcupti.so.13" \
        "$PENSTOCK" run --library "$PENSTOCK_SO" -- sh -c 'echo "$PENSTOCK_CUPTI"'
    equal "$SIM/libcupti.so.13" "$output"
}

@test "a Python program gets the CUPTI of its own wheels" {
    requires python
    mkdir -p site/nvidia/cu13/lib
    touch site/nvidia/cu13/lib/libcupti.so.13
    PYTHONPATH=$WORK/site run_command run -- python3 -c 'import os; print(os.environ.get("PENSTOCK_CUPTI"))'
    ended_with 0
    equal "$WORK/site/nvidia/cu13/lib/libcupti.so.13" "${lines[-1]}"
}

# wheel DIRECTORY: makes a CUPTI in it, laid out as in NVIDIA's wheels.
wheel() {
    mkdir -p "$1/nvidia/x/lib"
    touch "$1/nvidia/x/lib/libcupti.so.13"
}

# cupti_of COMMAND...: sets `found` to the library that the command would be given.
cupti_of() {
    run_command run -- "$@" -c 'import os; print(os.environ.get("PENSTOCK_CUPTI"))'
    ended_with 0 && found=${lines[-1]}
}

@test "no library or module is taken from the current directory" {
    requires python
    wheel .
    wheel "$WORK/site"
    cupti_of python3
    lacks "$found" 'nvidia/x'
    printf 'open("imported", "w")\n' >glob.py
    cupti_of python3
    # Nor when an empty word of the path, or the directory's own name, leads here.
    PYTHONPATH=":$WORK:.:" cupti_of python3
    lacks "$found" 'nvidia/x'
    [ ! -e imported ]
    # A script has only its own modules; torchrun and the like start one.
    printf '#!/bin/bash\necho "$PENSTOCK_CUPTI"\n' >torchrun
    chmod +x torchrun
    run_command run -- ./torchrun
    lacks "$output" 'nvidia/x'
    PYTHONPATH=":$WORK/site" cupti_of python3
    equal "$WORK/site/nvidia/x/lib/libcupti.so.13" "$found" "the one of the path"
    [ ! -e imported ]
}

@test "of several CUPTIs the one that Python finds first is taken" {
    requires python
    wheel "$WORK/first"
    wheel "$WORK/second"
    PYTHONPATH="$WORK/first:$WORK/second" cupti_of python3
    equal "$WORK/first/nvidia/x/lib/libcupti.so.13" "$found"
    PYTHONPATH="$WORK/second:$WORK/first" cupti_of python3
    equal "$WORK/second/nvidia/x/lib/libcupti.so.13" "$found"
}

@test "no library is loaded from a toolkit that is named by a relative path" {
    requires sim
    mkdir -p path home/lib64
    touch path/libcupti.so.12 path/libcupti.so.13
    ln -s "$SIM/libcuda.so.1" "$SIM/libcudart.so.13" path/
    cp "$SIM/libcupti.so.13" home/lib64/
    run env LD_LIBRARY_PATH="$WORK/path" CUDA_HOME=home "$PENSTOCK" run --library "$PENSTOCK_SO" -- sh -c 'echo "cupti=$PENSTOCK_CUPTI"'
    ended_with 0
    lacks "$output" 'cupti=home'
}

@test "a relative library path counts from the command's directory, or is refused" {
    requires sim
    mkdir -p elsewhere
    touch policy.so libcupti.so.13
    run_command run --set POLICY=./policy.so --set CUPTI=./libcupti.so.13 -- sh -c 'cd elsewhere && echo "$PENSTOCK_POLICY $PENSTOCK_CUPTI"'
    ended_with 0
    equal "$WORK/./policy.so $WORK/./libcupti.so.13" "$output"
    # Without the command that directory is unknown.
    run env PENSTOCK_POLICY=./policy.so PENSTOCK_CUPTI=x/libcupti.so.13 "$BUILD/penstock-settings" check
    ended_with 2
    contains "$output" 'PENSTOCK_POLICY=\./policy\.so: expected plan, layers, lru or the absolute path of a shared object'
    contains "$output" 'PENSTOCK_CUPTI=x/libcupti\.so\.13: expected the absolute path of libcupti\.so'
    PENSTOCK_CUPTI=./libcupti.so.13 run with_device "$BUILD/penstock-doctor" --cupti
    ended_with 1
}

@test "a program is started only once, whatever its name" {
    local name
    for name in python_job.sh python-trainer pythonic python2x python3.x python3. python31 pythonw3.11; do
        printf '#!/bin/bash\necho "ran with $#" >>runs\n' >"$name"
        chmod +x "$name"
        run_command run -- "./$name" one two
        ended_with 0
        equal 'ran with 2' "$(cat runs)" "runs of $name"
        rm runs
    done
}

@test "a Python that does not answer is not waited for" {
    LIMIT=60
    printf '#!/bin/bash\n[ "$1" != -c ] || sleep 1000\ncat; echo started\n' >python3
    chmod +x python3
    run_command run -- ./python3 train.py <<<'the input is the program'"'"'s'
    ended_with 0
    equal $'the input is the program\'s\nstarted' "$output"
}

# --- doctor ---------------------------------------------------------------------------------------

# doctor_says STATUS PATTERN: doctor's output has that finding, and only findings.
doctor_says() {
    ended_with "$1"
    contains "$output" "$2"
    lacks "$(grep -vE '^(ok|note|problem): ' <<<"$output")" .
}

@test "doctor: the simulated device is usable" {
    requires sim
    run_command doctor
    doctor_says 0 '^ok: device 0: virtual memory management works'
    for what in library settings driver CUPTI libelf subscriber 'host memory' 'locked memory' 'host-backed addresses work'; do
        contains "$output" "^(ok|note): .*$what"
    done
    contains "$output" '^note: passed through: allocations under '
    lacks "$output" '^problem'
}

@test "doctor: every problem and note names a remedy" {
    requires sim
    CUDASIM_VMM=0 CUDASIM_CUPTI_TAKEN=1 PENSTOCK_BUDGET=lots run_command doctor
    doctor_says 1 '^problem: '
    lacks "$(grep -E '^(problem|note): ' <<<"$output" | grep -v ' - ')" .
}

@test "doctor: a driver newer than Penstock knows is a note" {
    requires sim
    CUDASIM_DRIVER_VERSION=13050 run_command doctor
    doctor_says 0 '^ok: driver: CUDA version 13\.5$'
    CUDASIM_DRIVER_VERSION=14010 run_command doctor
    doctor_says 0 '^note: driver: its CUDA version is 14\.1, and this Penstock knows functions up to 13\.5 - '
}

@test "doctor leaves nothing on the device" {
    requires sim
    run_command doctor
    ended_with 0
    equal 0 "$(ledger 'leaks | add')"
}

@test "doctor: a missing driver is a problem" {
    requires sim
    mkdir path
    : >path/libcuda.so.1 # not a library: the loader searches no further
    run env LD_LIBRARY_PATH="$WORK/path" "$PENSTOCK" doctor --library "$PENSTOCK_SO"
    doctor_says 1 '^problem: driver: '
}

@test "doctor: a missing device is a problem" {
    requires sim
    CUDASIM_NO_DEVICE=1 run_command doctor
    doctor_says 1 '^problem: (driver|device)'
}

@test "doctor: a device without virtual memory management is a problem" {
    requires sim
    CUDASIM_VMM=0 run_command doctor
    doctor_says 1 '^problem: device 0: no virtual memory management'
}

@test "doctor: a driver without host-backed addresses is a problem" {
    requires sim
    CUDASIM_HOST_VMM=0 run_command doctor
    doctor_says 1 '^problem: device 0: host-backed addresses'
}

@test "doctor: CUPTI taken by another subscriber is a problem only under PENSTOCK_TRACER=cupti" {
    requires sim
    CUDASIM_CUPTI_TAKEN=1 run_command doctor
    doctor_says 0 '^note: CUPTI: another subscriber .* hooks the driver'
    CUDASIM_CUPTI_TAKEN=1 PENSTOCK_TRACER=cupti run_command doctor
    doctor_says 1 '^problem: CUPTI: another subscriber .*unset PENSTOCK_TRACER'
    CUDASIM_CUPTI_TAKEN=1 PENSTOCK_TRACER=hook run_command doctor
    doctor_says 0 '^ok: CUPTI: not used'
}

@test "doctor: a tool announced in the environment is a problem only under PENSTOCK_TRACER=cupti" {
    requires sim
    CUDA_INJECTION64_PATH=/opt/tool.so run_command doctor
    doctor_says 0 '^note: subscriber: CUDA_INJECTION64_PATH=/opt/tool.so'
    CUDA_INJECTION64_PATH=/opt/tool.so PENSTOCK_TRACER=cupti run_command doctor
    doctor_says 1 '^problem: subscriber: CUDA_INJECTION64_PATH=/opt/tool.so'
    NSYS_PROFILING_SESSION_ID=1 run_command doctor
    doctor_says 0 '^note: subscriber: NSYS_PROFILING_SESSION_ID is set'
    NSYS_PROFILING_SESSION_ID=1 PENSTOCK_TRACER=cupti run_command doctor
    doctor_says 1 '^problem: subscriber: NSYS_PROFILING_SESSION_ID is set'
    NVTX_INJECTION64_PATH=/opt/tool.so run_command doctor
    doctor_says 0 '^note: subscriber: NVTX_INJECTION64_PATH=/opt/tool.so'
}

@test "doctor: a bad setting is a problem" {
    requires sim
    PENSTOCK_BUDGET=lots run_command doctor
    doctor_says 1 '^problem: settings: PENSTOCK_BUDGET=lots'
}

@test "doctor: PENSTOCK_DISABLE=1 is mentioned" {
    requires sim
    PENSTOCK_DISABLE=1 run_command doctor
    doctor_says 0 '^note: passed through: everything'
}

@test "doctor: this GPU is usable" {
    requires gpu
    run_command doctor
    doctor_says 0 '^ok: device 0: virtual memory management works'
}
