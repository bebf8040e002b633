# shellcheck shell=bash disable=SC2154 # status, output and the helper's names
# What the tests of faults, processes, report and interposition share: a trainer small enough for a hundred runs, what it prints without
# Penstock, and what must hold of the device afterwards. Loaded after `helper`.

# On the simulated device pages are 4 KiB, so that a few hundred kilobytes are as many spans as a real trainer's gigabytes.
if [ "$DEVICE" = sim ]; then
    export CUDASIM_GRANULARITY=4096
    SPAN_FROM=4096
    TRAINER=("$SAMPLES/mlp" --layers=6 --width=64 --batch=256 --steps=3)
else
    SPAN_FROM=2MiB
    TRAINER=("$SAMPLES/mlp" --layers=6 --width=64 --batch=65536 --steps=3)
fi

# Programs here end in the middle of their work. What is in use then is found through tables in mapped memory, which the leak checker does
# not read; leaks are counted by the device's ledger instead.
export ASAN_OPTIONS=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
# Some of them call exit() in a signal handler of their own, as programs do; some have many children, each of which would sleep a second.
export TSAN_OPTIONS=report_signal_unsafe=0:atexit_sleep_ms=0${TSAN_OPTIONS:+:$TSAN_OPTIONS}

# The line at the end, which is the only one when nothing goes wrong.
SIZE='[0-9.]+ (bytes|[KMGT]iB)'
HINT="(; each step lost [0-9.]+ ms waiting for copies, and would lose none with a budget of $SIZE)?"
CLOSING="^penstock: ([0-9]+ steps, )?peak $SIZE on the (device|fullest of [0-9]+ devices), $SIZE without; moved $SIZE out and $SIZE back; waited [0-9.]+ s$HINT\$"

# plain: what the trainer prints without Penstock, with its peak in the last line. Run once a file.
plain() {
    local kept=$BATS_FILE_TMPDIR/plain
    if [ ! -s "$kept" ]; then
        run_sim "${TRAINER[@]}" --memory
        ended_with 0 || return 1
        printf '%s\n' "$output" >"$kept"
    fi
    cat "$kept"
}

# share PERCENT: that share of what the trainer needs at its peak, in bytes
share() { plain | sed -nE 's/^allocated at the peak ([0-9]+) bytes.*/\1/p' | awk -v percent="$1" '{ printf "%d", $1 * percent / 100 }'; }

# train [VARIABLE=VALUE]...: the trainer under Penstock, with half of the device memory that it needs unless told otherwise
train() { run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$(share 55)" "$@" "${TRAINER[@]}"; }

# hostile CASE [VARIABLE=VALUE]...: a case of the hostile sample under Penstock, eight spans of 4 MiB with device memory for six
hostile() {
    local case=$1
    shift
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=24MiB "$@" "$SAMPLES/hostile" "$case" 8 4
}

# right_results: the last run ended well and printed what the trainer prints without Penstock
right_results() {
    ended_with 0 && equal "$(plain | grep -v '^allocated')" "$(grep -v '^penstock: ' <<<"$output")" "losses and gradients"
}

# goes_on: the last run of `hostile` ended well
goes_on() { ended_with 0 && contains "$output" '^ok$'; }

# said PATTERN...: beside the closing line, and what a machine that stands still for seconds makes it say, the last run said as many lines as there are
# patterns, one for each. Without any: nothing.
said() {
    local lines pattern slow='pinning host memory|host memory for idle tensors is pinned'
    [[ "$*" != *pinn* ]] || slow='^$'
    lines=$(grep '^penstock: ' <<<"$output" | grep -vE "$CLOSING|$slow" || true)
    equal $# "$(grep -c . <<<"$lines")" "lines said ($lines)" || return 1
    for pattern in "$@"; do
        contains "$lines" "$pattern" || return 1
    done
}

# said_with_room [PATTERN]...: as `said`; and a line tells of a graph that there was no room for, where there was none
said_with_room() {
    [ "$(report graph_launches)" -eq 0 ] || [ "$(report accesses_on_slot)" -eq 0 ] ||
        set -- "$@" 'a CUDA graph uses more at once than a budget of [0-9.]+ [a-zA-Z]+ has room for'
    said "$@"
}

# sound [untouched]: the device saw nothing that a program must not do, and what is still held at the end is what Penstock may keep.
# untouched: some spans may leave the device before anything was written to them, which copies poison and harms nothing.
sound() {
    [ "$DEVICE" = sim ] || return 0
    local poison unmapped deadlocks lacking state left
    # In one go: hundreds of runs are looked at like this.
    read -r poison unmapped deadlocks lacking state left < <(jq -er '[.poison_copied, .unmapped_accesses, .deadlocks, .not_supported_calls, .sticky_error,
        (.leaks | .plain + .pooled + .pinned)] | if any(. == null) then error("a key is not there") else map(tostring) | join(" ") end' "$LEDGER") || {
        echo "$LEDGER: not written, or not as it should be" >&2
        return 1
    }
    [ "${1:-}" = untouched ] || equal 0 "$poison" "poison that was copied" || return 1
    equal 0 "$unmapped" "unmapped accesses" &&
        equal 0 "$deadlocks" "deadlocks" &&
        equal 0 "$lacking" "calls that the simulated device lacks" &&
        equal CUDA_SUCCESS "$state" "the device's state" &&
        equal "$(small_blocks_kept)" "$left" "allocations left behind"
}

# small_blocks_kept: blocks that the program freed and Penstock keeps (shim/memory/small_cache.h), by the report
small_blocks_kept() {
    [ -s "$REPORT" ] || { echo 0 && return; }
    jq '[.small_kept - .small_reused - .small_given_back] | add // 0' "$REPORT"
}

# struck [AT_LEAST]: the faults that were asked for did happen
struck() { at_least "${1:-1}" "$(ledger faults_injected)" "faults that struck"; }

# counted KEY: the report's counter is not zero
counted() { at_least 1 "$(report "$1")" "$1"; }

# build_probe NAME [OPTION]...: a C program from standard input, linked with the CUDA runtime; fails with the compiler's words
build_probe() {
    local name=$1 flags=()
    shift
    case ${BUILD##*/} in
    asan) flags=(-fsanitize=address) ;;
    tsan) flags=(-fsanitize=thread) ;;
    esac
    gcc -std=gnu11 -D_GNU_SOURCE -g -Wall -Werror "${flags[@]}" "-I$TOOLKIT/include" "-I$TOOLKIT/extras/CUPTI/include" -include "$ROOT/tests/lib/probe.h" \
        -x c - -o "$name" -L"$TOOLKIT/lib64" -pthread "$@" -lcudart -ldl
}

# run_probe NAME [VARIABLE=VALUE]...: under Penstock with a budget of 32 of the probe's spans
run_probe() {
    local name=$1
    shift
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$((32 * PROBE_SPAN))" "$@" "PROBE_SPAN=$PROBE_SPAN" "$WORK/$name"
}
[ "$DEVICE" = sim ] && PROBE_SPAN=65536 || PROBE_SPAN=4194304

# in_time CHECK ARGUMENT...: a check of when copies are queued, by a thread that a busy or slow machine keeps from its processor now and then. What is too
# early, or wrong, is so in each run; what is late only for want of a processor is in time where launches come four or sixteen times as slowly: a check takes
# `paced NS` for what a launch takes.
in_time() { PACE=1 "$@" || PACE=4 "$@" || PACE=16 "$@"; }
paced() { echo $(($1 * ${PACE:-1})); }

# within_launches LAUNCHES: driver calls made within the last so many kernel launches of the trace, as "COUNT NAME", but for records, waits and queries,
# and the question which context the thread has, which is no more than a look at a variable of its own
within_launches() {
    tac trace | awk -v last="$1" '$2 == "call" && $3 == "cuLaunchKernel" && ++launches > last { exit }
        $2 == "call" && $5 == "in" && $6 == "cuLaunchKernel" && $3 !~ /^cu(EventRecord|StreamWaitEvent|EventQuery|CtxGetCurrent)$/ { n[$3]++ }
        END { for (name in n) print n[name], name }'
}
