# shellcheck shell=bash disable=SC2154 # status, output and the helper's names
# The functions for tests of faults, processes, report and interposition: a trainer that is small
# enough for a hundred runs, its output without Penstock, and checks of the device afterwards.
# Loaded after `helper`.

# Pages of the simulated device have 4 KiB, so that a few hundred kilobytes are as many spans as the
# gigabytes of a real trainer.
if [ "$DEVICE" = sim ]; then
    export CUDASIM_GRANULARITY=4096
    SPAN_FROM=4096
    TRAINER=("$SAMPLES/mlp" --layers=6 --width=64 --batch=256 --steps=3)
else
    SPAN_FROM=2MiB
    TRAINER=("$SAMPLES/mlp" --layers=6 --width=64 --batch=65536 --steps=3)
fi

# Programs here end in the middle of their work. Only tables in mapped memory lead to the memory in
# use then, and the leak checker does not read these. The device's ledger counts leaks instead.
export ASAN_OPTIONS=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
# Some programs call exit() in a signal handler of their own. Some have many children, each of which
# would sleep a second at exit.
export TSAN_OPTIONS=report_signal_unsafe=0:atexit_sleep_ms=0${TSAN_OPTIONS:+:$TSAN_OPTIONS}

# The closing line, the only line of a run in which nothing goes wrong.
SIZE='[0-9.]+ (bytes|[KMGT]iB)'
HINT="(; each step lost [0-9.]+ ms waiting for copies, and would lose none with a budget of $SIZE)?"
CLOSING="^penstock: ([0-9]+ steps, )?peak $SIZE on the (device|fullest of [0-9]+ devices), $SIZE without; moved $SIZE out and $SIZE back; waited [0-9.]+ s$HINT\$"

# plain: prints the trainer's output without Penstock, with its peak in the last line. The trainer
# runs once a file.
plain() {
    local kept=$BATS_FILE_TMPDIR/plain
    if [ ! -s "$kept" ]; then
        run_sim "${TRAINER[@]}" --memory
        ended_with 0 || return 1
        printf '%s\n' "$output" >"$kept"
    fi
    cat "$kept"
}

# share PERCENT: prints this share of the trainer's peak, in bytes
share() { plain | sed -nE 's/^allocated at the peak ([0-9]+) bytes.*/\1/p' | awk -v percent="$1" '{ printf "%d", $1 * percent / 100 }'; }

# train [VARIABLE=VALUE]...: runs the trainer under Penstock, by default with 55 % of its peak as
# the budget
train() { run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$(share 55)" "$@" "${TRAINER[@]}"; }

# hostile CASE [VARIABLE=VALUE]...: runs a case of the hostile sample under Penstock, with eight
# spans of 4 MiB and device memory for six
hostile() {
    local case=$1
    shift
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=24MiB "$@" "$SAMPLES/hostile" "$case" 8 4
}

# right_results: checks that the last run ended well and printed the same as `plain`
right_results() {
    ended_with 0 && equal "$(plain | grep -v '^allocated')" "$(grep -v '^penstock: ' <<<"$output")" "losses and gradients"
}

# goes_on: checks that the last run of `hostile` ended well
goes_on() { ended_with 0 && contains "$output" '^ok$'; }

# said [PATTERN]...: checks that the last run printed one line of Penstock for each pattern, and no
# others. The closing line does not count, nor do lines about slow pinning, which a machine that
# stands still for seconds causes.
said() {
    local lines pattern slow='pinning host memory|host memory for idle tensors is pinned'
    [[ "$*" != *pinn* ]] || slow='^$'
    lines=$(grep '^penstock: ' <<<"$output" | grep -vE "$CLOSING|$slow" || true)
    equal $# "$(grep -c . <<<"$lines")" "lines said ($lines)" || return 1
    for pattern in "$@"; do
        contains "$lines" "$pattern" || return 1
    done
}

# said_with_room [PATTERN]...: as `said`. If a graph does not fit the budget, each of its launches
# meets a slot, and one more line must say so. A few accesses to slots need no such line: beside busy
# neighbours a launch may stop waiting for pages that come too late.
said_with_room() {
    local launches accesses misfit='a CUDA graph uses more at once than a budget of [0-9.]+ [a-zA-Z]+ has room for'
    launches=$(report graph_launches) accesses=$(report accesses_on_slot)
    if [ "$launches" -gt 0 ] && [ "$accesses" -gt 0 ]; then
        { [ "$accesses" -lt "$launches" ] && ! grep -qE "$misfit" <<<"$output"; } || set -- "$@" "$misfit"
    fi
    said "$@"
}

# sound [untouched]: checks that the device saw no forbidden action, and that only memory that
# Penstock may keep is left at the end. untouched: spans may leave the device before the program
# writes to them, so copies of poison are allowed; they do no harm.
sound() {
    [ "$DEVICE" = sim ] || return 0
    local poison unmapped deadlocks lacking state left
    # One call of jq reads all keys, because this checks hundreds of runs.
    read -r poison unmapped deadlocks lacking state left < <(jq -er '[.poison_copied, .unmapped_accesses, .deadlocks, .not_supported_calls, .sticky_error,
        (.leaks | .plain + .pooled + .pinned + .managed)] | if any(. == null) then error("a key is not there") else map(tostring) | join(" ") end' "$LEDGER") || {
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

# small_blocks_kept: prints the number of blocks that the program freed and Penstock keeps
# (shim/memory/small_cache.h), by the report
small_blocks_kept() {
    [ -s "$REPORT" ] || { echo 0 && return; }
    jq '[.small_kept - .small_reused - .small_given_back] | add // 0' "$REPORT"
}

# struck [AT_LEAST]: checks that at least this many injected faults happened (1)
struck() { at_least "${1:-1}" "$(ledger faults_injected)" "faults that struck"; }

# counted KEY: checks that the report's counter is not zero
counted() { at_least 1 "$(report "$1")" "$1"; }

# build_probe NAME [OPTION]...: builds a C program from standard input, linked with the CUDA
# runtime. If it fails, the compiler prints why.
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

# run_probe NAME [VARIABLE=VALUE]...: runs the program under Penstock, with a budget of 32 of its
# spans
run_probe() {
    local name=$1
    shift
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$((32 * PROBE_SPAN))" "$@" "PROBE_SPAN=$PROBE_SPAN" "$WORK/$name"
}
[ "$DEVICE" = sim ] && PROBE_SPAN=65536 || PROBE_SPAN=4194304

# in_time CHECK ARGUMENT...: runs a check of when a thread queues copies. A busy machine may keep
# that thread from its processor. A copy that is wrong or too early is so in each run. A copy that
# is late only for want of a processor is in time if launches come four or sixteen times as slowly.
# The check uses `paced NS` as the time of a launch.
in_time() { PACE=1 "$@" || PACE=4 "$@" || PACE=16 "$@"; }
paced() { echo $(($1 * ${PACE:-1})); }

# within_launches LAUNCHES: prints the driver calls made inside the last LAUNCHES kernel launches of
# the trace, as "COUNT NAME". Event records, waits and queries do not count, nor do
# cuCtxGetCurrent and cuThreadExchangeStreamCaptureMode. These two only read or set a variable of
# the thread (8 ns each, a query 155 ns, on an H200).
within_launches() {
    tac trace | awk -v last="$1" '$2 == "call" && $3 == "cuLaunchKernel" && ++launches > last { exit }
        $2 == "call" && $5 == "in" && $6 == "cuLaunchKernel" && $3 !~ /^cu(EventRecord|StreamWaitEvent|EventQuery|CtxGetCurrent|ThreadExchangeStreamCaptureMode)$/ { n[$3]++ }
        END { for (name in n) print n[name], name }'
}
