#!/usr/bin/env bats
# Penstock's output: one closing line, and the JSON report that PENSTOCK_REPORT asks for.

load ../../lib/helper
load ../../lib/small_trainer

setup() {
    helper_setup 60
    requires samples jq
}

# --- the report -----------------------------------------------------------------------------------
# The fields that the manual promises (scripts/manual/report.md), each with its type.
SHAPE='(.version | type == "string" and test("^[0-9]+\\.[0-9]+")) and (.command | type == "string") and
    has("rank") and (.processes | type == "number") and
    (.device | (.name | type == "string" and length > 0) and (.total_bytes > 0)) and
    (.budget_bytes | type == "number" or . == null) and (.guard | IN("auto", "host", "unmap")) and (.tracer | . == "cupti" or . == "none") and
    ([.peak_resident_bytes, .peak_demand_bytes, .evictions, .evicted_bytes, .reloads, .reloaded_bytes, .demand_reloads, .host_wait_ns,
        .launches, .launches_without_layout, .steps, .slab.bytes, .slab.peak_used_bytes, .slab.rows] | all(type == "number" and . >= 0)) and
    (.passthrough | type == "object" and length > 0 and all(.[]; type == "number"))'

@test "the report has every field, with its documented type" {
    train
    right_results
    jq -e "$SHAPE" "$REPORT"
    # Each field is required: without any one of them the shape does not match.
    local field
    for field in version command rank processes device budget_bytes guard tracer peak_resident_bytes peak_demand_bytes evictions evicted_bytes reloads \
        reloaded_bytes demand_reloads host_wait_ns launches launches_without_layout slab passthrough; do
        equal true "$(jq "has(\"$field\")" "$REPORT")" "$field is there"
        run jq -e "del(.$field) | $SHAPE" "$REPORT"
        [ $field = budget_bytes ] || [ "$status" -ne 0 ]
    done
}

@test "the report's figures match the run" {
    train
    right_results
    equal "${TRAINER[*]}" "$(report command)" command
    equal "$(share 55)" "$(report budget_bytes)" budget
    equal 3 "$(report steps)" steps
    at_most "$(share 55)" "$(report peak_resident_bytes)" "peak on the device"
    at_least "$(share 90)" "$(report peak_demand_bytes)" "what it would have been"
    at_least "$(report peak_resident_bytes)" "$(report peak_demand_bytes)" "demand against what was on the device"
    at_least "$(report demand_reloads)" "$(report reloads)" "reloads, of which on demand"
    equal "$(report allocations)" "$(report frees)" "allocations and frees"
    at_most "$(report slab.bytes)" "$(report slab.peak_used_bytes)" "slots in use, of those made"
    if [ "$DEVICE" = sim ]; then
        equal "$(ledger 'calls | .cuLaunchKernel + (.cuLaunchKernelEx // 0)')" "$(report launches)" launches
        # Pages are counted from before they are made until after they are released.
        at_least "$(ledger peak.vmm)" "$(report peak_resident_bytes)" "peak on the device"
        # Beside the slab the link measurement holds host memory for a moment: a 64th of the budget
        # each way.
        at_least "$(report slab.bytes)" "$(ledger peak.host_handles)" "host memory held at the peak, against the slab"
        at_most $(($(report slab.bytes) + $(share 55) / 32)) "$(ledger peak.host_handles)" "host memory held at the peak"
        equal "$(ledger made.plain)" "$(report passthrough.small)" "allocations left to the real allocator"
        at_least "$(report evicted_bytes)" "$(ledger bytes.d2h)" "bytes copied to the host"
        at_least "$(report reloaded_bytes)" "$(ledger bytes.h2d)" "bytes copied to the device"
    fi
}

# The same for learning and plans, once there is one.
PLANNED='(.learning | ([.launches, .launches_in_patterns, .steps, .patterns_lost, .until_plan.launches, .until_plan.ns, .until_plan.host_wait_ns] |
        all(type == "number")) and
        (.patterns | length > 0 and all(.launches > 0 and .rounds >= 0))) and
    (.plan | ([.steps, .plain_step_ns, .predicted_step_ns, .predicted_mapping_ns, .exposed_ns, .nothing_lost_bytes, .evictions, .reloads, .corrections, .evictions_put_off, .spans_made_ahead,
            .allocations_without_one] | all(type == "number" and . >= 0)) and
        (.reload_waits | all([.launch, .reloads, .predicted_ns, .actual_ns, .launches_earlier] | all(type == "number" and . >= 0))) and
        (.layers | length > 0 and all((.number | type == "number" or . == null) and (.direction | IN("none", "forward", "backward")) and
            ([.device_ns, .born_bytes, .evicted_bytes, .reloaded_bytes, .exposed_ns, .first_launch, .begin_ns] | all(type == "number" and . >= 0)))) and
        (.profile | .step_ns > 0 and ([.demand_bytes, .held_bytes, .out_bytes, .in_bytes] | all(length == 200 and all(type == "number"))) and
            (.spans | length > 0 and all(.bytes > 0 and (.class | type == "string") and has("layer") and has("born_ns") and has("freed_ns") and (.uses >= 0) and
                (.moves >= 0) and (.gaps | all([.from_ns, .to_ns] | all(type == "number")))))))'

@test "the fields of learning and plans are complete, and the layers add up" {
    by_turn 2
    local whole=("${TRAINER[@]}") path
    TRAINER=("${TRAINER[@]/--steps=3/--steps=30}")
    train
    TRAINER=("${whole[@]}")
    ended_with 0
    jq -e "$SHAPE and $PLANNED" "$REPORT"
    for path in learning.launches learning.launches_in_patterns learning.steps learning.patterns_lost learning.until_plan learning.patterns plan.steps \
        plan.plain_step_ns plan.predicted_step_ns plan.predicted_mapping_ns plan.exposed_ns plan.nothing_lost_bytes plan.evictions plan.reloads plan.corrections plan.reload_waits plan.layers plan.profile; do
        equal true "$(jq ".${path%.*} | has(\"${path#*.}\")" "$REPORT")" "$path is there"
        run jq -e "del(.$path) | $PLANNED" "$REPORT"
        [ "$status" -ne 0 ]
    done
    equal "$(jq .plan.exposed_ns "$REPORT")" "$(jq '[.plan.layers[].exposed_ns] | add' "$REPORT")" "exposed time, by layers"
    counted plan.evictions
    counted plan.reloads
    at_least 1 "$(jq '[.plan.layers[].evicted_bytes] | add' "$REPORT")" "bytes that leave in a step"
    at_least "$(jq .plan.evictions "$REPORT")" "$(report evictions)" "evictions, of which by plans"
    # Thirty steps take no longer than a few plannings here, so the number of steps under a plan is
    # luck.
    at_least 1 "$(jq .plan.steps "$REPORT")" "steps that ended under a plan"
    at_least 1 "$(jq .learning.until_plan.ns "$REPORT")" "ns until the first plan"
    at_least 1 "$(jq .learning.until_plan.launches "$REPORT")" "launches until then"
    at_most "$(report host_wait_ns)" "$(jq .learning.until_plan.host_wait_ns "$REPORT")" "ns waited until then"
    at_least "$(jq .plan.steps "$REPORT")" "$(jq .learning.steps "$REPORT")" "complete steps, of which planned"
    # The six layers are found without markers, forward and backward.
    equal "backward forward" "$(jq -r '[.plan.layers[] | select(.number != null).direction] | unique | join(" ")' "$REPORT")" directions
    # The manual describes exactly these fields. Some are in some reports only.
    jq -r '[paths[] | strings] | unique[]' "$REPORT" | sort >fields
    sed -n '/^## Fields/,/^## [^F]/p' "$ROOT/scripts/manual/report.md" >described
    equal '' "$(comm -23 fields <(grep -oE '`[a-z_0-9]+`' described | tr -d '`' | sort -u))" "fields that the manual doesn't describe"
    equal '' "$(sed -nE 's/^\| (`[^|]*) \|.*/\1/p' described | grep -oE '`[a-z_0-9]+`' | tr -d '`' | sort -u | comm -23 - fields |
        grep -vxE 'devices|launch|layer|reloads|bytes|(predicted|actual)_ns|launches_earlier|largest_bytes|class|name')" "fields that the manual describes, and no report has"
}

@test "the report and doctor tell which kernels were used, and which are proved" {
    train
    right_results
    jq -e '.kernels | (.list | length > 3 and all(.[]; (.name | type == "string") and .uses > 0 and has("doubt"))) and
        .used == (.list | length) and .uses == ([.list[].uses] | add) and
        .proved == ([.list[] | select(.doubt == null)] | length) and .proved > 3 and
        .uses_of_proved == ([.list[] | select(.doubt == null).uses] | add) and .is_whole and (.some_unseen | not)' "$REPORT"
    equal "$(report launches)" "$(report kernels.uses)" uses
    run_command doctor --kernels "$REPORT"
    ended_with 0
    equal "$((2 + $(report kernels.used)))" "${#lines[@]}" lines
    contains "${lines[0]}" '^[0-9,]+ of [0-9,]+ uses are of proved kernels: [0-9]+ of [0-9]+ kernels$'
    contains "$output" '^ +[0-9,]+  proved  '
    # Tracing begins late, or no cubin was read.
    train PENSTOCK_BUDGET=auto CUDASIM_MEMORY=$(share 80)
    equal true "$(report kernels.some_unseen)" "cubins unseen"
    equal 0 "$(report kernels.proved)" "proved kernels"
    run_command doctor --kernels "$REPORT"
    contains "${lines[1]}" '^some cubins were not seen'
    train PENSTOCK_TRACER=hook
    equal 0 "$(report kernels.proved)" "proved kernels"
    run_command doctor --kernels "$REPORT"
    contains "${lines[0]}" '^0 of [0-9,]+ uses are of proved kernels'
    contains "$output" '^ +[0-9,]+  no code that can be read  '
    jq 'del(.kernels)' "$REPORT" >old.json
    run_command doctor --kernels old.json
    ended_with 2
    contains "$output" '^penstock: old\.json: an older version wrote this report'
    jq '.kernels.list[0].name = 7' "$REPORT" >wrong.json
    run_command doctor --kernels=wrong.json
    ended_with 2
    contains "$output" '^penstock: wrong\.json: not a complete Penstock report'
}

@test "without a limit the budget is null in the report" {
    train PENSTOCK_BUDGET=unlimited
    right_results
    jq -e "$SHAPE and .budget_bytes == null" "$REPORT"
}

@test "a command line with quotes, newlines and bytes that are not UTF-8 is still JSON" {
    run_penstock "PENSTOCK_REPORT=$WORK/odd.json" "PENSTOCK_MIN_SPAN=$SPAN_FROM" bash -c 'exec -a "$0" "$@"' $'a "b"\\\n\tc\xff\xe2\x82' "${TRAINER[@]}"
    right_results
    jq -e "$SHAPE" odd.json
    contains "$(jq -r .command odd.json)" '^a "b"'
}

@test "the report is renamed into place, so no reader sees half of it" {
    requires strace plain
    train strace -f -qq -o trace.txt -e trace=openat,rename,renameat,renameat2,unlink || true
    [ "$status" -eq 0 ] || skip "strace can't trace here"
    grep -q 'rename.*report.json"' trace.txt
    lacks "$(cat trace.txt)" 'openat\([^,]*, "[^"]*report\.json"'
    equal report.json "$(ls report*)" "files left"
}

@test "an existing report is replaced as a whole" {
    head -c 100000 /dev/zero | tr '\0' x >report.json
    train
    right_results
    jq -e "$SHAPE" "$REPORT"
}

@test "a report that can't be written at the end gives one line, and the program's status stays" {
    requires cc
    build_probe leaver <<'END'
int main(void)
{
    void *span = new_span(1, NULL);

    EXPECT(holds(span, 1, NULL));
    EXPECT(system("rm -r out") == 0);
    return 3;
}
END
    mkdir out
    run_probe leaver "PENSTOCK_REPORT=$WORK/out/report.json"
    ended_with 3
    said "PENSTOCK_REPORT=$WORK/out/report.json: the report could not be written"
}

@test "a relative path counts from the directory where the program started" {
    requires cc
    build_probe mover <<'END'
int main(void)
{
    EXPECT(chdir("/") == 0);
    void *span = new_span(1, NULL);
    EXPECT(holds(span, 1, NULL));
    puts("ok");
    return 0;
}
END
    mkdir out
    run_probe mover PENSTOCK_REPORT=out/mine.json
    goes_on
    said
    jq -e "$SHAPE" out/mine.json
    run_probe mover PENSTOCK_REPORT=here.json
    goes_on
    said
    jq -e "$SHAPE" here.json
}

@test "children write no report, and their ends don't touch the parent's" {
    requires cc
    build_probe parent <<'END'
#include <signal.h>
#include <sys/wait.h>

int main(void)
{
    void *span = new_span(1, NULL);
    int status;

    for (int how = 0; how < 3; how++) {
        pid_t child = fork();
        if (child == 0) {
            if (how == 0) exit(0);
            if (how == 1) raise(SIGTERM);
            if (how == 2) execl("/bin/true", "true", NULL);
        }
        EXPECT(child > 0 && waitpid(child, &status, 0) == child);
        EXPECT(access(getenv("PENSTOCK_REPORT"), F_OK) != 0);
    }
    EXPECT(holds(span, 1, NULL));
    puts("ok");
    return 0;
}
END
    run_probe parent
    goes_on
    equal 1 "$(grep -cE "$CLOSING" <<<"$output")" "closing lines"
    jq -e "$SHAPE" "$REPORT"
}

@test "a report without any content is not written" {
    run_penstock true
    ended_with 0
    run_penstock "${TRAINER[0]}" --help
    ended_with 0
    [ ! -e "$REPORT" ]
}

# --- lines on stderr ------------------------------------------------------------------------------
# heard [VARIABLE=VALUE]...: sets $output to the trainer's lines on stderr under Penstock.
heard() {
    train "$@"
    right_results
    output=$(grep '^penstock: ' <<<"$output" || true)
}

@test "the closing line names a budget that avoids waits, and under that budget the plan has none" {
    local whole=("${TRAINER[@]}") enough
    TRAINER=("${TRAINER[@]/--steps=3/--steps=16}")
    run_sim "${TRAINER[@]}" --memory
    local peak
    peak=$(sed -nE 's/^allocated at the peak ([0-9]+) bytes.*/\1/p' <<<"$output")
    train PENSTOCK_BUDGET=$((peak * 20 / 100))
    ended_with 0
    contains "$output" "$CLOSING"
    contains "$output" '; each step lost [0-9]+\.[0-9]{3} ms waiting for copies, and would lose none with a budget of [0-9.]+ [KM]iB$'
    enough=$(report plan.nothing_lost_bytes)
    at_least $((peak * 20 / 100 + 1)) "$enough" "the budget that is advised"
    at_most $((peak + peak / 32)) "$enough" "the budget that is advised"
    # A little more, because durations vary. The plan's simulated time counts. The cost of mappings,
    # which the simulated driver makes at once, comes on top of it. On a busy machine a step that is
    # measured may be slow, so it has a few tries.
    for _ in 1 2 3 4; do
        train PENSTOCK_BUDGET=$((enough + peak / 16))
        ended_with 0
        [ "$(report plan.profile.step_ns)" -gt $(($(report plan.plain_step_ns) * 102 / 100)) ] || break
    done
    at_most $(($(report plan.plain_step_ns) * 102 / 100)) "$(report plan.profile.step_ns)" "ns of a planned step, $(report plan.plain_step_ns) plain, with a budget of $enough bytes and $((peak / 16)) more"
    # With enough memory, and without a plan, nothing is advised.
    train PENSTOCK_BUDGET=$((peak * 2))
    lacks "$output" 'each step lost'
    equal 0 "$(report plan.nothing_lost_bytes)" "the budget that is advised"
    TRAINER=("${whole[@]}")
}

@test "by default there is one line, the closing line" {
    heard
    equal 1 "$(grep -c . <<<"$output")" lines
    contains "$output" "$CLOSING"
    contains "$output" '^penstock: 3 steps, '
    # The sizes in it are the report's.
    equal "$(report 'evictions > 0')" true evictions
    [[ "$output" == *"waited $(report host_wait_ns | awk '{ ms = int($1 / 1000000); printf "%d.%03d", ms / 1000, ms % 1000 }') s" ]]
}

# near BYTES SIZE UNIT: the printed size is that number of bytes, cut to two decimals.
near() {
    awk -v want="$1" -v size="$2" -v unit="$3" 'BEGIN {
        n = index("bytes KiB   MiB   GiB   TiB", unit); got = size * 1024 ^ int(n / 6); d = got - want; if (d < 0) d = -d
        if (d > 0.011 * 1024 ^ int(n / 6)) { print size " " unit " is not " want " bytes" > "/dev/stderr"; exit 1 } }'
}

@test "the closing line's sizes are the report's" {
    heard
    local words
    read -r -a words <<<"$(sed -nE "s/^.*peak ([0-9.]+) ([A-Za-z]+) on the device, ([0-9.]+) ([A-Za-z]+) without; moved ([0-9.]+) ([A-Za-z]+) out and ([0-9.]+) ([A-Za-z]+) back.*/\1 \2 \3 \4 \5 \6 \7 \8/p" <<<"$output")"
    equal 8 "${#words[@]}" "words in the line"
    near "$(report peak_resident_bytes)" "${words[0]}" "${words[1]}"
    near "$(report peak_demand_bytes)" "${words[2]}" "${words[3]}"
    near "$(report evicted_bytes)" "${words[4]}" "${words[5]}"
    near "$(report reloaded_bytes)" "${words[6]}" "${words[7]}"
}

@test "nothing goes to stdout, and PENSTOCK_LOG=error silences all other lines" {
    heard PENSTOCK_LOG=error
    equal '' "$output" "lines"
    with_device env "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$PENSTOCK_SO" PENSTOCK_MIN_SPAN="$SPAN_FROM" "${TRAINER[@]}" >out.txt 2>err.txt
    lacks "$(cat out.txt)" penstock
    equal 1 "$(grep -c . err.txt)" "lines on stderr"
}

@test "info and debug print more lines, each with its module" {
    heard PENSTOCK_LOG=info
    at_least 2 "$(grep -c . <<<"$output")" lines
    contains "$output" '^penstock: process: managing .*: budget .* of '
    equal '' "$(grep -vE "^penstock: [a-z]+: |$CLOSING" <<<"$output" || true)" "lines of another shape"
}

@test "a program that closed its stderr is not disturbed" {
    run_penstock "PENSTOCK_MIN_SPAN=$SPAN_FROM" sh -c '"$@" 2>&-' sh "${TRAINER[@]}"
    right_results
    jq -e "$SHAPE" "$REPORT"
}

@test "a program whose stderr is a pipe without a reader is not disturbed, and its output is complete" {
    mkfifo gone
    # stdio keeps the output until the program's end, where Penstock writes its line.
    run_penstock "PENSTOCK_MIN_SPAN=$SPAN_FROM" PENSTOCK_BUDGET="$(share 55)" sh -c ': <gone & exec 2>gone; wait $!; exec "$@"' sh "${TRAINER[@]}"
    right_results
    jq -e "$SHAPE" "$REPORT"
}

# --- special files --------------------------------------------------------------------------------
# train_into REPORT RECORDING PROMETHEUS: trains with the report, the recording and Prometheus' text
# in these files.
train_into() { train "PENSTOCK_REPORT=$1" "PENSTOCK_RECORDING=$2" "PENSTOCK_PROMETHEUS=$3"; }

# whole_files REPORT RECORDING PROMETHEUS: each file is complete.
whole_files() {
    jq -e "$SHAPE" "$1" && grep -q '^penstock-recording 1' "$2" && grep -q '^penstock_reloads_total{' "$3"
}

@test "a file behind a symbolic link is replaced, and the link stays" {
    local name
    mkdir there
    echo old >there/report
    chmod 640 there/report
    for name in report recording; do ln -s there/$name $name.link; done
    ln -s "$WORK/chain" prometheus.link
    ln -s there/prometheus chain
    train_into report.link recording.link prometheus.link
    right_results
    said
    for name in *.link chain; do [ -L "$name" ]; done
    whole_files there/report there/recording there/prometheus
    equal "prometheus recording report" "$(ls there | paste -sd' ')" "files"
    # Links to the program's own descriptors are not replaced.
    ln -s /proc/self/fd/2 own
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$(share 55)" PENSTOCK_REPORT=own sh -c 'echo before >&2; exec "$@"' sh "${TRAINER[@]}" 2>all.txt
    [ -L own ]
    jq -e "$SHAPE" <<<"$(sed -n '/^{/,/^}/p' <<<"$output")"
    contains "$output" '^before$'
}

@test "a device or a pipe is written to, and is not replaced" {
    local name reader
    for name in report recording prometheus; do
        mknod node.$name c 1 3 2>/dev/null || skip "no node can be made here"
        mkfifo pipe.$name
    done
    { : >node.report; } 2>/dev/null || skip "a node can't be opened here"
    train_into node.report node.recording node.prometheus
    right_results
    said
    for name in node.*; do equal "character special file" "$(stat -c %F "$name")" "what $name is"; done
    # The report is written once, so its reader sees an end.
    timeout "$(patience 30)" sh -c 'cat <pipe.report >read.json' 3>&- &
    reader=$!
    train_into pipe.report node.recording node.prometheus
    right_results
    said
    wait "$reader"
    jq -e "$SHAPE" read.json
    # Without a reader each file gives one line, and the program is not delayed.
    train_into pipe.report pipe.recording pipe.prometheus
    right_results
    said 'PENSTOCK_REPORT=.*/pipe.report: the report could not be written \(No such device or address\)' \
        'PENSTOCK_RECORDING=.*/pipe.recording: a step could not be written \(No such device or address\)' \
        'PENSTOCK_PROMETHEUS=.*/pipe.prometheus: the figures could not be written \(No such device or address\)'
    for name in pipe.*; do equal fifo "$(stat -c %F "$name")" "what $name is"; done
    mknod full c 1 7
    train_into full node.recording node.prometheus
    right_results
    said 'PENSTOCK_REPORT=.*/full: the report could not be written \(No space left on device\)'
    train_into node.report full node.prometheus
    right_results
    said 'PENSTOCK_RECORDING=.*/full: a step could not be written \(No space left on device\)'
    equal '' "$(compgen -G '*.tmp')" "files left"
}
