# shellcheck shell=bash disable=SC2154 # status and output are set by bats' run
# The functions that all bats files share. Each file begins with `load ../../lib/helper`. A setup()
# of its own must call helper_setup first.
#
# Names: ROOT is the tree, BUILD the build under test, SIM the folder of the simulated device's
# libraries, SAMPLES that of the sample trainers, PENSTOCK_SO the library, PENSTOCK the command, and
# WORK the working directory of the test. DEVICE is sim or gpu: the same files run on both.

ROOT=$(dirname "$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")")
BUILD=${PENSTOCK_TEST_BUILD:-build/release}
[[ "$BUILD" == /* ]] || BUILD=$ROOT/$BUILD
DEVICE=${PENSTOCK_TEST_DEVICE:-sim}
STRICT=${PENSTOCK_TEST_STRICT:-}
# The pace of this run: a number from 1, which scripts/dev/test raises where the machine is slow.
PACE=1
[ ! -s "${PENSTOCK_TEST_PACE:-}" ] || read -r PACE <"$PENSTOCK_TEST_PACE"
: "${PENSTOCK_TEST_SEEDS:=$((80 / PACE))}" # make test-all: 2000
SIM=$BUILD/sim
SAMPLES=$BUILD/samples
PENSTOCK_SO=$BUILD/libpenstock.so
PENSTOCK=$ROOT/scripts/command/penstock
# bats reads this file for each test, so the toolkit that setup_suite.bash found is taken.
TOOLKIT=${PENSTOCK_TEST_TOOLKIT-$("$ROOT/scripts/dev/cuda-home" || true)}

# shellcheck source=tests/lib/patience.bash
source "$ROOT/tests/lib/patience.bash"
# bats reads this limit for each test, before the test's time begins.
if [ -n "${PENSTOCK_TEST_TIMEOUT:-}" ]; then
    BATS_TEST_TIMEOUT=$(patience "$PENSTOCK_TEST_TIMEOUT")
    export BATS_TEST_TIMEOUT
fi

# The user's own settings must not reach a program under test. PENSTOCK_TEST_ names stay: bats reads
# a file more than once, in separate processes, and no setting has such a name.
for name in $(compgen -A export PENSTOCK_) $(compgen -A export CUDASIM_); do
    [[ $name == PENSTOCK_TEST_* ]] || unset "$name"
done
unset LD_PRELOAD PYTHONUNBUFFERED PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF CUDA_INJECTION64_PATH NVTX_INJECTION64_PATH

setup() { helper_setup "$@"; }

# helper_setup [SECONDS]: prepares one test. Each of its programs may take SECONDS (120).
helper_setup() {
    WORK=$BATS_TEST_TMPDIR
    cd "$WORK" || return 1
    [ $# = 0 ] || LIMIT=$1
    # For one program; a test that runs several programs sets these for each.
    LEDGER=$WORK/ledger.json
    REPORT=$WORK/report.json
}

# is_short: succeeds for `make test` and CI, which have little time; `make test-all` runs everything
is_short() { [ "$PENSTOCK_TEST_SEEDS" -lt 1000 ]; }

# some_of N WORD...: prints all words. In a short run it prints every Nth word; the commit decides
# which ones (PENSTOCK_TEST_TURN, setup_suite.bash).
some_of() {
    local every=$1 turn=$((${PENSTOCK_TEST_TURN:-0} % $1)) word
    shift
    for word; do
        if ! is_short || [ $turn -eq 0 ]; then
            echo "$word"
        fi
        turn=$(((turn + 1) % every))
    done
}

# by_turn N: in a short run, skips all but every Nth test of a file; the commit decides which ones
# run. On a slow machine more are skipped.
by_turn() { ! is_short || [ $(((BATS_TEST_NUMBER + ${PENSTOCK_TEST_TURN:-0}) % ($1 * PACE))) -eq 0 ] || skip "its turn is with another commit"; }

# --- requirements of a test -----------------------------------------------------------------------
# requires WORD...: skips this test unless every word holds. Only this function lists the words; an
# unknown word fails the test. In strict mode a word fails instead of skipping if a machine without
# a GPU can satisfy it: all but gpu, gpu2, torch and the tools that set-up does not install. On a
# GPU machine, gpu fails too. `sim` always skips on a GPU: such a test needs the simulated device.
requires() {
    local word
    for word in "$@"; do
        case $word in
        sim)
            [ "$DEVICE" = sim ] || skip "only for the simulated device"
            [ -e "$SIM/libcuda.so.1" ] || lacking "$word" "the simulated device is not built"
            ;;
        samples) compgen -G "$SAMPLES/*" >/dev/null || lacking "$word" "no samples are built" ;;
        gpu)
            if [ "$DEVICE" != gpu ]; then
                [ "$STRICT" = all ] && lacking "$word" "PENSTOCK_TEST_DEVICE is not gpu"
                skip "needs a GPU"
            fi
            nvidia-smi -L >/dev/null 2>&1 || lacking "$word" "nvidia-smi sees no GPU"
            ;;
        gpu2)
            requires gpu
            [ "$(nvidia-smi -L | wc -l)" -ge 2 ] || lacking "$word" "needs two GPUs"
            ;;
        torch) python3 -c 'import torch' 2>/dev/null || lacking "$word" "python3 has no torch" ;;
        python) command -v python3 >/dev/null || lacking "$word" "no python3" ;;
        nvcc) [ -n "$TOOLKIT" ] || lacking "$word" "no CUDA toolkit" ;;
        chromium) compgen -c | grep -qxE 'chromium(-headless-shell|-browser)?' || lacking "$word" "no headless Chromium" ;;
        sdt) [ -e /usr/include/sys/sdt.h ] || compgen -G '/usr/include/*/sys/sdt.h' >/dev/null || lacking "$word" "no sys/sdt.h" ;;
        root) [ "$(id -u)" = 0 ] || lacking "$word" "not root" ;;
        release) [ "${BUILD##*/}" = release ] || skip "only for the release build" ;;
        plain) [[ "${BUILD##*/}" != *san ]] || skip "not for a sanitizer's build" ;;
        cc | clang | jq | gdb | glpsol | patch | strace | shellcheck | cppcheck | clang-format | clang-tidy)
            command -v "${word/#cc/gcc}" >/dev/null || lacking "$word" "no $word"
            ;;
        # Set-up does not install these tools, which read our packages, man pages and completions.
        pip) grep -q -- --python <<<"$(python3 -m pip --help 2>/dev/null)" || lacking optional "python3 has no pip that installs for another Python" ;;
        man | mandoc | zsh | fish | pkg-config | dpkg-deb | dpkg-shlibdeps | lintian) command -v "$word" >/dev/null || lacking optional "no $word" ;;
        *)
            echo "requires: $word: no such word in tests/lib/helper.bash" >&2
            return 1
            ;;
        esac
    done
}

# lacking WORD WHY: skips the test, or fails it if strict mode says that this machine must have
# WORD.
lacking() {
    case $STRICT:$1 in
    '':*) skip "$2" ;;
    all:*) ;;
    *:torch | *:gpu2 | *:optional) skip "$2" ;;
    *:gpu) [ "$DEVICE" = gpu ] || skip "$2" ;;
    esac
    echo "requires $1: $2, and a skip is a failure in strict mode" >&2
    exit 1
}

# --- running programs -----------------------------------------------------------------------------
# A sanitizer's runtime must be the first library of a process. Preloaded libraries come before
# those that the program is linked with, so the runtime is preloaded too.
case ${BUILD##*/} in
asan) SANITIZER=$(gcc -print-file-name=libasan.so) ;;
tsan) SANITIZER=$(gcc -print-file-name=libtsan.so) ;;
*) SANITIZER= ;;
esac
[ -z "$SANITIZER" ] || SANITIZER=$(readlink -f "$SANITIZER")

# device_environment: prints assignments, one a line. LD_LIBRARY_PATH leads to the simulated device,
# or on a GPU to the toolkit's runtime. The simulated device writes its ledger to $LEDGER.
device_environment() {
    if [ "$DEVICE" = sim ]; then
        echo "LD_LIBRARY_PATH=$SIM"
        echo "CUDASIM_LEDGER=${CUDASIM_LEDGER:-$LEDGER}"
    else
        echo "LD_LIBRARY_PATH=$TOOLKIT/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    fi
}

# with_device COMMAND...: runs the command with the device's libraries in its path. Assignments may
# stand before the command, as with env(1).
with_device() {
    local environment
    mapfile -t environment < <(device_environment)
    env "${environment[@]}" "$@"
}

# run_sim COMMAND...: runs the command on the device without Penstock. Sets status and output, as
# bats' run does.
run_sim() { run with_device timeout --kill-after=5 "$(patience "${LIMIT:-120}")" env "$@"; }

# run_penstock COMMAND...: the same with Penstock preloaded. VARIABLE=VALUE may stand before the
# command.
run_penstock() {
    run with_device timeout --kill-after=5 "$(patience "${LIMIT:-120}")" env "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$PENSTOCK_SO" \
        "PENSTOCK_REPORT=$REPORT" "$@"
}

# run_command ARGUMENT...: runs the `penstock` command of this tree, with the library under test.
run_command() {
    local subcommand=$1
    shift
    run with_device timeout --kill-after=5 "$(patience "${LIMIT:-120}")" "$PENSTOCK" "$subcommand" --library "$PENSTOCK_SO" "$@"
}

# --- reading ledger and report --------------------------------------------------------------------
# ledger KEY: prints a value of the simulated device's ledger, by jq path without the leading dot.
# Fails if there is no such key.
ledger() { json_value "$LEDGER" "$1"; }

# report KEY: the same for Penstock's report.
report() { json_value "$REPORT" "$1"; }

json_value() {
    [ -s "$1" ] || { echo "$1: not written" >&2 && return 1; }
    jq -er ".$2 | if . == null then error(\"no such key\") elif . == false then \"false\" else . end" "$1" || {
        echo "$1: no $2" >&2
        return 1
    }
}

# --- comparing ------------------------------------------------------------------------------------
# equal EXPECTED ACTUAL [WHAT]
equal() {
    [ "$1" = "$2" ] && return 0
    printf '%s: expected "%s", got "%s"\n' "${3:-value}" "$1" "$2" >&2
    return 1
}

# at_most LIMIT ACTUAL [WHAT], at_least LIMIT ACTUAL [WHAT]: whole numbers
at_most() {
    [ "$2" -le "$1" ] && return 0
    printf '%s: %s is above %s\n' "${3:-value}" "$2" "$1" >&2
    return 1
}
at_least() {
    [ "$2" -ge "$1" ] && return 0
    printf '%s: %s is below %s\n' "${3:-value}" "$2" "$1" >&2
    return 1
}

# contains TEXT PATTERN: an extended regular expression, matched line by line
contains() {
    grep -qE -- "$2" <<<"$1" && return 0
    printf 'no line matches /%s/ in:\n%s\n' "$2" "$1" >&2
    return 1
}

# lacks TEXT PATTERN
lacks() {
    ! grep -E -- "$2" <<<"$1" >&2 && return 0
    printf 'the lines above match /%s/\n' "$2" >&2
    return 1
}

# ended_with STATUS: checks the status of the last run; if it differs, prints the output
ended_with() {
    [ "$status" -eq "$1" ] && return 0
    printf 'expected status %s, got %s:\n%s\n' "$1" "$status" "$output" >&2
    return 1
}

# refuses_failing_output WORD...: where standard output is closed or full, this command of Penstock
# ends with status 2 and one line.
refuses_failing_output() {
    run bash -c '"$@" >&-' bash "$PENSTOCK" "$@"
    ended_with 2
    equal 'penstock: standard output is closed; redirect it, for example with >/dev/null' "$output"
    requires root
    [ -e full ] || mknod full c 1 7 || skip "no nodes can be made here"
    run bash -c '"$@" 2>errors >full' bash "$PENSTOCK" "$@"
    ended_with 2
    equal "penstock: standard output can't be written: No space left on device; make room, or redirect it" "$(tail -n 1 errors)"
    lacks "$(<errors)" 'Traceback|Exception'
}

# --- documents ------------------------------------------------------------------------------------
# broken_links DIRECTORY: prints each link in the Markdown files there that leads to no file.
broken_links() {
    local document link
    while read -r document; do
        while read -r link; do
            [ -z "${link%%#*}" ] || [ -e "${document%/*}/${link%%#*}" ] || echo "${document#"$1"/}: $link"
        done < <(grep -oE '\]\([^):]+\)' "$document" | sed -E 's/^\]\((.*)\)$/\1/')
    done < <(find "$1" -name '*.md')
}

# --- waiting --------------------------------------------------------------------------------------
# wait_until SECONDS COMMAND...: waits until the command succeeds, and tries it every 50 ms. Fails
# when the time is over.
wait_until() {
    local end=$((SECONDS + $(patience "$1")))
    shift
    until "$@"; do
        if [ $SECONDS -ge "$end" ]; then
            echo "waited in vain for: $*" >&2
            return 1
        fi
        sleep 0.05
    done
}

# wait_for_exit SECONDS PID: waits until the process is gone.
wait_for_exit() { wait_until "$1" eval "! kill -0 $2 2>/dev/null"; }
