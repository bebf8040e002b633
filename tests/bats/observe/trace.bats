#!/usr/bin/env bats
# PENSTOCK_TRACE: events as they happened, for Perfetto and chrome://tracing; NVTX ranges for
# Nsight; probes for bpftrace. tests/lib/timeline.py checks what every trace must fulfil.

load ../../lib/helper
load ../../lib/small_trainer

setup() {
    helper_setup 60
    requires sim samples jq python
    TRACE=$WORK/trace.json
    LONGER=("${TRAINER[@]/--steps=3/--steps=10}")
}

# Kills a process that a failed test has left.
teardown() { [ -z "${pid:-}" ] || kill -KILL "$pid" 2>/dev/null || true; }

# traced [VARIABLE=VALUE]...: runs ten steps of the trainer in half of its memory, with a trace.
traced() {
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$(share 55)" "PENSTOCK_TRACE=$TRACE" "$@" "${LONGER[@]}"
    ended_with 0
}

# judged [OPTION]...: the trace passes timeline.py's checks. `told KEY` prints one of its figures
# then.
judged() {
    TOLD=$(python3 "$ROOT/tests/lib/timeline.py" "$@") || return 1
    echo "$TOLD"
}
told() { jq -er ".\"$1\" | tostring" <<<"$TOLD"; }

# --- contents of the trace ------------------------------------------------------------------------
@test "the trace has each event that the report counts, and is a valid trace" {
    traced CUDASIM_LAUNCH_NS=100000
    said
    jq -e 'type == "array"' "$TRACE" >/dev/null
    judged "$TRACE" "$REPORT"
    at_least 100 "$(told evict)" evictions
    at_least 20 "$(told planned)" "evictions by the plan"
    at_least 20 "$(told on_demand)" "reloads on demand"
    at_least 5 "$(told steps)" steps
    at_least 50 "$(told layers)" layers
    at_least 1 "$(told 'plan in force')" "times that a plan came into force"
    at_least 1 "$(told stalls)" "times that the program's stream stood still"
    equal '["budget","copies queued","held","live","slab in use"]' "$(told counters)" counters
    # Found without markers, by the plan alone.
    contains "$(told layer_names)" 'layer 0 forward.*layer 5 backward|layer 5 backward.*layer 0 forward'
    equal 0 "$(told dropped)" dropped
    right_results_of "${LONGER[@]}"
}

# right_results_of TRAINER...: the last run printed the same as that trainer without Penstock.
right_results_of() {
    local under=$output
    run_sim "$@"
    equal "$output" "$(grep -v '^penstock: ' <<<"$under")" "losses and gradients"
}

@test "layers follow the markers where they exist; without a plan the trace has layers, moves and waits" {
    traced 'PENSTOCK_LAYERS=nvtx:layer *' PENSTOCK_POLICY=lru
    judged "$TRACE" "$REPORT"
    at_least 100 "$(told layers)" layers
    equal 0 "$(told steps)" "steps, which are not looked for"
    equal 0 "$(told planned)" "evictions by a plan"
    at_least 1 "$(told waits)" waits
    at_least $(($(told evict) / 2)) "$(told in_layers)" "moves that know their layer"
    contains "$(told layer_names)" '"layer 3 backward"'
}

copies_take_what_the_link_takes() {
    local byte
    byte=$(paced 20) # ns a byte: 0.05 GB/s
    traced CUDASIM_D2H_GBPS="$(jq -n "1 / $byte")" CUDASIM_H2D_GBPS="$(jq -n "1 / $byte")"
    judged "$TRACE" "$REPORT" || return 1
    # On a busy machine the simulated device may be slow to reach the first event by which the
    # clocks are compared.
    at_least "$((($(told evict) + $(told void) + $(told reload)) * 9 / 10))" "$(told timed)" "moves whose times are the device's" &&
        at_most "$(paced 3000000)" "$(told clock_error_ns)" "ns by which they may be wrong" || return 1
    # Only larger copies, for which the delay of a simulated device's thread matters little.
    jq -e --argjson byte "$byte" --argjson most "$(quiet_or 10 1.5)" '[.[] | select((.name == "evict" or .name == "reload") and .args.bytes >= 65536 and (.args.times | not)) |
        .dur * 1000 / (.args.bytes * $byte)] | sort |
        length > 100 and .[0] > 0.99 and .[length / 2 | floor] < $most' "$TRACE"
}

@test "the times of copies are the device's: as long as the link takes, one after the other" {
    in_time copies_take_what_the_link_takes
}

@test "cancelled evictions and failed allocations are in the trace at their times" {
    requires cc
    build_probe spender <<'END'
int main(void)
{
    cudaStream_t stream;
    void *span[64], *large;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < 64; i++) span[i] = new_span(i, stream);
    for (int round = 0; round < 30; round++)
        for (int i = 0; i < 34; i++) CHECK(cudaMemsetAsync(span[i], i, span_size(), stream));
    EXPECT(cudaMalloc(&large, 1000 * span_size()) == cudaErrorMemoryAllocation);
    puts("ok");
    return 0;
}
END
    run_probe spender "PENSTOCK_TRACE=$TRACE" PENSTOCK_GRACE=0 PENSTOCK_HOST_BUDGET=$((64 * PROBE_SPAN))
    goes_on
    judged "$TRACE" "$REPORT"
    at_least 1 "$(told 'out of memory')" "times out of memory"
    equal "$(report evictions_cancelled)" "$(told 'eviction cancelled')" "cancelled evictions"
}

@test "without PENSTOCK_TRACE, without CUDA, and where Penstock stands aside there is no trace" {
    run_penstock "PENSTOCK_TRACE=$TRACE" true
    ended_with 0
    run_penstock "PENSTOCK_TRACE=$TRACE" "${TRAINER[0]}" --help
    ended_with 0
    train PENSTOCK_TRACE=
    right_results
    equal 0 "$(report trace_events)" "events told"
    train "PENSTOCK_TRACE=$TRACE" CUDASIM_VMM=0
    right_results
    [ ! -e "$TRACE" ]
}

@test "a device reset ends the trace before the context is destroyed" {
    hostile reset "PENSTOCK_TRACE=$TRACE"
    goes_on
    said 'the program resets the device'
    judged "$TRACE"
}

# --- files ----------------------------------------------------------------------------------------
@test "an unwritable path gives one line before anything runs" {
    mkdir here
    local path
    for path in "$WORK/nowhere/trace.json" "$WORK/here"; do
        run env "PENSTOCK_TRACE=$path" "$BUILD/penstock-settings" check
        ended_with 2
        contains "$output" "^penstock: PENSTOCK_TRACE=$path: expected the path of a file that can be written to \\("
        train "PENSTOCK_TRACE=$path"
        right_results
        said "^penstock: PENSTOCK_TRACE=$path: expected .*; correct it, or unset it; going on without it"
    done
    mkfifo unread # it has no reader
    train "PENSTOCK_TRACE=$WORK/unread"
    right_results
    said "^penstock: PENSTOCK_TRACE=$WORK/unread: the trace could not be opened \\([A-Z]"
}

@test "a relative path counts from the program's first directory, and an existing trace is replaced" {
    head -c 3000000 /dev/zero | tr '\0' x >mine.json
    traced PENSTOCK_TRACE=mine.json
    judged mine.json "$REPORT"
    [ -z "$SANITIZER" ] || return 0 # the command preloads only the library
    run_command run --min-span $SPAN_FROM --budget "$(share 55)" --trace mine.json --report "$REPORT" -- "${LONGER[@]}"
    ended_with 0
    judged mine.json "$REPORT"
}

@test "a process killed by any signal leaves a trace that can be loaded" {
    local environment size
    mapfile -t environment < <(device_environment)
    for size in 20000 200000; do
        env "${environment[@]}" "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$PENSTOCK_SO" "PENSTOCK_TRACE=$TRACE" PENSTOCK_MIN_SPAN=$SPAN_FROM \
            PENSTOCK_BUDGET="$(share 55)" "${TRAINER[@]/--steps=3/--steps=100000}" >said.txt 2>&1 3>&- &
        pid=$!
        wait_until 20 eval "[ \$(stat -c %s $TRACE 2>/dev/null || echo 0) -gt $size ]"
        kill -KILL $pid
        wait $pid || true
        judged --cut "$TRACE"
        at_least 10 "$(told evict)" evictions
        rm "$TRACE"
    done
    # A signal that can be caught ends the trace. If it interrupts its thread in the driver, the
    # writer waits for the driver's locks, and the trace is cut off as well.
    env "${environment[@]}" "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$PENSTOCK_SO" "PENSTOCK_TRACE=$TRACE" \
        PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$(share 55)" "${TRAINER[@]/--steps=3/--steps=100000}" >said.txt 2>&1 3>&- &
    pid=$!
    wait_until 20 eval "[ \$(stat -c %s $TRACE 2>/dev/null || echo 0) -gt 20000 ]"
    kill -TERM $pid
    wait $pid || status=$?
    equal 143 "$status" status
    judged "$TRACE" || judged --cut "$TRACE"
}

# tests/unit/observe/test_trace_file.c checks that a file is cut at a whole event.
@test "a full disk ends the trace with one line, and has no other effect" {
    train PENSTOCK_TRACE=/dev/full
    right_results
    said "^penstock: PENSTOCK_TRACE=/dev/full: the trace could not be written \\(No space left on device\\) and ends here"
}

@test "each process of a job has its own trace, and so has a process that inherits another's path" {
    requires cc
    traced RANK=1 WORLD_SIZE=2
    [ ! -e "$TRACE" ]
    judged trace.rank1.json report.rank1.json
    build_probe several <<'END'
#include <sys/wait.h>

int main(void)
{
    int status, up[2], down[2];
    char byte = 0;

    EXPECT(pipe(up) == 0 && pipe(down) == 0);
    pid_t child = fork(); /* before the first CUDA call: each process is independent */
    void *span = new_span(1, NULL);
    EXPECT(holds(span, 1, NULL));
    /* Neither process ends before both have begun. */
    EXPECT(write(child ? down[1] : up[1], &byte, 1) == 1);
    EXPECT(read(child ? up[0] : down[0], &byte, 1) == 1);
    if (child == 0)
        exit(0);
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    puts("ok");
    return 0;
}
END
    run_probe several "PENSTOCK_TRACE=$TRACE"
    goes_on
    judged "$TRACE"
    local first
    first=$(told pid)
    judged "$(compgen -G "$TRACE.[0-9]*")"
    [ "$first" != "$(told pid)" ]
}

@test "forked children write no part of the trace, however they end" {
    requires cc
    build_probe parent <<'END'
#include <signal.h>
#include <sys/wait.h>

int main(void)
{
    cudaStream_t stream;
    void *span[64];
    int status;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < 64; i++) span[i] = new_span(i, stream);
    for (int how = 0; how < 24; how++) {
        for (int i = 0; i < 64; i++) CHECK(cudaMemsetAsync(span[i], i, span_size(), stream)); /* the trace is written meanwhile */
        pid_t child = fork();
        if (child == 0) {
            cudaFree(span[0]);
            if (how % 4 == 0) exit(0);
            if (how % 4 == 1) raise(SIGTERM);
            if (how % 4 == 2) execl("/bin/true", "true", NULL);
            _exit(0);
        }
        EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    }
    EXPECT(holds(span[9], 9, stream));
    puts("ok");
    return 0;
}
END
    run_probe parent "PENSTOCK_TRACE=$TRACE"
    goes_on
    judged "$TRACE" "$REPORT"
    at_least 100 "$(told evict)" evictions
}

# --- more than can be written ---------------------------------------------------------------------
@test "events without room are dropped and counted in trace and report, and the program does not wait" {
    requires cc
    build_probe hasty <<'END'
#include <fcntl.h>

int main(int argc, char **argv)
{
    cudaStream_t stream;
    void *span[64];

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < 64; i++) span[i] = new_span(i, stream);
    for (int round = 0; round < 80; round++)
        for (int i = 0; i < 64; i++) CHECK(cudaMemsetAsync(span[i], i, span_size(), stream));
    EXPECT(holds(span[9], 9, stream));
    EXPECT(close(open(getenv("PENSTOCK_TEST_WORKED"), O_WRONLY | O_CREAT, 0666)) == 0);
    puts("ok");
    return 0;
}
END
    PROBE_SPAN=4096
    mkfifo pipe
    # The reader begins when the work is done.
    (
        exec 3<>pipe # opened for both directions, it opens at once
        wait_until 50 test -e worked
        exec 4<pipe 3>&-
        cat <&4 >"$TRACE"
    ) &
    local reader=$!
    wait_until 5 eval "ls -l /proc/$reader/fd 2>/dev/null | grep -q pipe"
    run_probe hasty "PENSTOCK_TRACE=$WORK/pipe" PENSTOCK_TEST_WORKED="$WORK/worked"
    goes_on
    said
    wait $reader
    counted trace_events_dropped
    judged "$TRACE"
    equal "$(report trace_events_dropped)" "$(told dropped)" "dropped, by report and trace"
    equal "$(report trace_events)" "$(told events)" "not dropped"
    equal "$(told dropped) events were dropped" "$(jq -r '.[] | select(.name == "process_labels").args.labels' "$TRACE")" "the process's label"
    # A reader that never reads delays the program's end only for a limited time.
    exec 5<>pipe
    SECONDS=0
    traced PENSTOCK_TRACE="$WORK/pipe"
    exec 5>&-
    said "^penstock: PENSTOCK_TRACE=$WORK/pipe: the end of the trace could not be written in time"
    at_most 20 $SECONDS seconds
}

# --- NVTX -----------------------------------------------------------------------------------------
@test "copies have NVTX ranges when a tool takes them, and no library is loaded for them otherwise" {
    requires cc nvcc
    cat >tool.c <<'END'
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char penstock; /* its address is the domain */
static unsigned long pushed[2], bytes[2], popped, deep;
static __thread int depth;

static nvtxDomainHandle_t create(const char *name)
{
    return strcmp(name, "penstock") ? NULL : (nvtxDomainHandle_t)(void *)&penstock;
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *range)
{
    int i = !strcmp(range->message.ascii, "reload");
    if ((void *)domain != &penstock || (!i && strcmp(range->message.ascii, "evict"))) return 0;
    __atomic_fetch_add(&pushed[i], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&bytes[i], range->payload.ullValue, __ATOMIC_RELAXED);
    if (depth) __atomic_fetch_add(&deep, 1, __ATOMIC_RELAXED);
    return depth++;
}

static int pop(nvtxDomainHandle_t domain)
{
    __atomic_fetch_add(&popped, 1, __ATOMIC_RELAXED);
    return --depth;
}

__attribute__((destructor)) static void tell(void)
{
    FILE *file = fopen(getenv("TOOL_SAYS"), "w");
    fprintf(file, "%lu %lu %lu %lu %lu %lu\n", pushed[0], bytes[0], pushed[1], bytes[1], popped, deep);
    fclose(file);
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of)
{
    const NvtxExportTableCallbacks *callbacks = table_of(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;

    if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) || size <= NVTX_CBID_CORE2_DomainCreateA) return 0;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
    return 1;
}
END
    gcc -shared -fPIC "-I$TOOLKIT/include" -o tool.so tool.c
    local evictions evicted reloads reloaded popped deep
    train "NVTX_INJECTION64_PATH=$WORK/tool.so" "TOOL_SAYS=$WORK/said"
    right_results
    said
    read -r evictions evicted reloads reloaded popped deep <said
    at_least 20 "$evictions" "ranges around evictions"
    at_least "$(($(report evictions)))" "$evictions" "ranges, of which evictions"
    at_most "$(($(report evictions) + $(report evictions_cancelled) + 5))" "$evictions" "ranges around evictions"
    at_least "$(report evicted_bytes)" "$evicted" "bytes"
    equal "$(report reloads) $(report reloaded_bytes)" "$reloads $reloaded" "ranges around reloads, and their bytes"
    equal "$((evictions + reloads)) 0" "$popped $deep" "ends, and ranges within others"
    # Without CUDA no tool is searched.
    rm said
    run_penstock "NVTX_INJECTION64_PATH=$WORK/tool.so" "TOOL_SAYS=$WORK/said" true
    ended_with 0
    [ ! -e said ]
    # A library that is missing, or is no tool, does no harm.
    local path
    for path in "$WORK/nothing.so" "$SIM/libcuda.so.1" ""; do
        train "NVTX_INJECTION64_PATH=$path"
        right_results
        said
    done
    # With Penstock as the tool the program's ranges arrive, and Penstock makes none: only the
    # program's copy of NVTX has loaded it.
    ln -s "$PENSTOCK_SO" alias.so
    for path in "$PENSTOCK_SO" "$WORK/alias.so"; do
        train PENSTOCK_LOG=info 'PENSTOCK_LAYERS=nvtx:layer *' "NVTX_INJECTION64_PATH=$path"
        right_results
        equal 1 "$(grep -c 'NVTX ranges mark layers' <<<"$output")" "copies of NVTX that loaded Penstock"
    done
}

# --- probes ---------------------------------------------------------------------------------------
# The probes and their numbers of arguments, as in the manual's table (scripts/manual/trace.md).
PROBES='eviction_begin 4|eviction_end 3|plan 4|reload_begin 4|reload_end 3|step 4|wait_begin 2|wait_end 3'

@test "each probe is in the library with its arguments, and in the manual" {
    requires sdt
    local found
    found=$(readelf -n "$PENSTOCK_SO" | awk '$1 == "Provider:" { p = $2 } $1 == "Name:" { n = $2 } $1 == "Arguments:" && p == "penstock" { print n, NF - 1 }' | sort)
    equal "${PROBES//|/$'\n'}" "$found" "probes and their arguments"
    found=$(sed -nE 's/^\| `(\w+)` \| (`[^|]*) \|$/\1 \2/p' "$ROOT/scripts/manual/trace.md" | grep -E "^(${PROBES// [0-9]/})  *" |
        awk '{ n = gsub(/`/, "`") / 2; print $1, n }' | sort)
    equal "${PROBES//|/$'\n'}" "$found" "probes and their arguments in the manual"
    # The manual's command names only existing probes and arguments.
    found=$(grep -oE 'usdt:[^ ]*:penstock:\w+ [^}]*' "$ROOT/scripts/manual/trace.md")
    contains "$found" 'usdt:'
    local line name args
    while read -r line; do
        name=$(sed -E 's/.*:penstock:(\w+) .*/\1/' <<<"$line")
        args=$(tr '|' '\n' <<<"$PROBES" | awk -v name="$name" '$1 == name { print $2 }')
        at_least 1 "${args:-0}" "arguments of $name"
        at_most "$args" "$(grep -oE 'arg[0-9]' <<<"$line" | tr -dc '0-9\n' | awk '{ if ($1 + 1 > m) m = $1 + 1 } END { print m + 0 }')" "arguments of $name that are used"
    done <<<"$found"
}

@test "a probe's values match the report" {
    requires sdt gdb release
    cat >commands <<'END'
set pagination off
set breakpoint pending on
set startup-with-shell off
break main
run
break -probe-stap penstock:eviction_end
commands
silent
printf "left %d bytes %d\n", $_probe_arg2, $_probe_arg1
continue
end
continue
END
    run with_device timeout "$(patience 60)" gdb -q -batch -ex "set environment LD_PRELOAD $PENSTOCK_SO" -ex "set environment PENSTOCK_REPORT $REPORT" \
        -ex "set environment PENSTOCK_MIN_SPAN $SPAN_FROM" -ex "set environment PENSTOCK_BUDGET $(share 55)" -x commands --args "${TRAINER[@]}"
    [ -s "$REPORT" ] || skip "gdb can't run programs here"
    equal "$(report evictions) $(report evicted_bytes)" \
        "$(awk '$1 == "left" && $2 == 1 { n++; bytes += $4 } END { print n, bytes }' <<<"$output")" "evictions and their bytes, at the probe"
}
