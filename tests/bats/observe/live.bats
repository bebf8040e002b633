#!/usr/bin/env bats
# Figures while a program runs: the live page and `penstock top`, lines of metrics and Prometheus'
# text.

load ../../lib/helper
load ../../lib/small_trainer
load ../../lib/live_loop

# --- the page -------------------------------------------------------------------------------------
@test "a page exists while a program trains, shows the report's final figures, and is removed" {
    requires cc
    build_pause
    touch wait
    PAUSE=$WORK/pause.so in_background trainer PENSTOCK_REPORT="$REPORT" PENSTOCK_BUDGET="$(share 55)" "${TRAINER[@]}"
    wait_until 10 eval "[ \$(pages) = 1 ]"
    equal "700 600" "$(stat -c %a "$PAGES" "$PAGES"/* | xargs)" "who may enter and read"
    wait_until 20 test -e paused
    told '.processes[0]' >page.json
    kill -TERM "$PID"
    wait "$PID" || true
    equal 0 "$(pages)" "pages at the end"
    local key
    for key in allocations evictions evicted_bytes reloads reloaded_bytes demand_reloads host_wait_ns launches; do
        equal "$(report "$key")" "$(jq ".$key" page.json)" "$key"
    done
    # The same figures under the report's names.
    jq -e --slurpfile report "$REPORT" '.devices[0] as $d | $report[0] as $r |
        [$d.step, $d.planned_steps, $d.budget_bytes, $d.peak_resident_bytes, $d.peak_demand_bytes, $d.slab_bytes] ==
        [$r.learning.steps, $r.plan.steps, $r.budget_bytes, $r.peak_resident_bytes, $r.peak_demand_bytes, $r.slab.bytes]
        or error("\($d) is not what the report has: \($r)")' page.json
    # The report's exposed time counts only waits under the plan now in force.
    at_least "$(report plan.exposed_ns)" "$(jq '.devices[0].exposed_ns' page.json)" "ns that the stream stood still in the last step"
    jq -e '.evictions > 100 and (.devices[0] | .step >= 6 and .doing == "planned" and (.recent_step_ns | length >= 6 and all(. > 0)) and
        .recent_step_ns[0] == .step_ns and .held_bytes > 0 and .held_bytes <= .budget_bytes and .live_bytes <= .peak_demand_bytes and
        .slab_used_bytes <= .slab_bytes and .slab_bytes <= .slab_limit_bytes)' page.json
    jq -e '.pid > 0 and .rank == null and .processes == 1 and .tracer == "cupti" and .stands_aside == null and (.command | endswith("--steps=10"))' page.json
}

@test "a killed process's page is removed, and with no process left one line reports that" {
    requires cc
    build_loop
    loop_waits ''
    equal 1 "$(pages)" pages
    kill -KILL "$PID"
    top --once # the process may still exist, or be gone but not reaped
    wait "$PID" || true
    top --once
    ended_with 1
    equal "penstock: top: nothing runs under Penstock" "$output"
    equal 0 "$(pages)" "pages left"
    top --json
    ended_with 1
    equal 0 "$("$PENSTOCK" top --json --library "$PENSTOCK_SO" 2>/dev/null | jq '.processes | length')" "processes, as JSON"
    # The next process that starts removes such pages, too.
    loop_waits ''
    kill -KILL "$PID"
    wait "$PID" || true
    loop_waits ''
    equal 1 "$(pages)" "pages, with one killed and one alive"
    loop_ends
    equal 0 "$(pages)" pages
}

@test "children leave the parent's page alone, and have their own when they execute another program" {
    requires cc
    build_loop
    local how expected
    for how in fork:1 child-exec:2 read:1; do
        loop_waits "${how%:*}"
        expected=${how#*:}
        wait_until 10 eval "[ \$(pages) = $expected ] && [ \$(json '.processes | length') = $expected ]"
        equal "$PID" "$(json ".processes[] | select(.pid == $PID).pid")" "the parent ($how)"
        loop_ends
        equal 0 "$(pages)" "pages at the end ($how)"
    done
}

@test "a process that has become another program is no longer shown" {
    requires cc
    build_loop
    touch wait
    in_background loop "$WORK/loop" exec
    wait_until 10 eval '[ "$(cat /proc/$PID/comm)" = sh ]'
    equal 1 "$(pages)" "pages, of a program that is no more"
    top
    ended_with 1
    equal 0 "$(pages)" "pages"
    rm wait
    wait "$PID"
}

@test "PENSTOCK_LIVE=0 makes no page and no thread, and an untrusted directory gets no more than an info line" {
    requires cc
    build_loop
    loop_waits PENSTOCK_LIVE=0 ''
    [ ! -e "$PAGES" ]
    lacks "$(cat /proc/"$PID"/task/*/comm)" penstock-live
    top "$PID"
    ended_with 1
    equal "penstock: top: $PID: has no page: it runs without Penstock or with PENSTOCK_LIVE=0, or has allocated no device memory yet" "$output"
    loop_ends
    mkdir -m 755 "$PAGES"
    loop_waits PENSTOCK_LOG=info ''
    # The other directory is used where it exists.
    contains "$(cat /proc/"$PID"/maps)" "/dev/shm/penstock-$(id -u)/$PID-"
    top "$PID"
    contains "$output" "^penstock: $PAGES: other users may write here; its pages are ignored$"
    contains "$output" "^ *$PID "
    loop_ends
}

@test "a page shows that Penstock stands aside" {
    requires cc
    build_loop
    touch wait
    in_background loop CUDASIM_FAULT=cuMemAddressReserve:error@1+ "$WORK/loop"
    wait_until 10 grep -q waiting loop.txt
    contains "$(json '.processes[0].stands_aside')" 'address space'
    top
    ended_with 0
    contains "$output" "^ *$PID +- +- +- .*aside"
    loop_ends
    equal 0 "$(pages)" pages
}

@test "a wait counts while it lasts, and one thread never waits more than all the time" {
    requires cc
    build_loop
    # A copy of a span takes 1.6 s.
    in_background loop env PENSTOCK_REPORT="$REPORT" PENSTOCK_SIGNAL=USR2 CUDASIM_D2H_GBPS=0.00004 CUDASIM_H2D_GBPS=0.00004 "$WORK/loop"
    wait_until 10 eval "[ \$(json '.processes[0].evictions' $PID) -gt 0 ]"
    local i samples=()
    for i in {1..12}; do
        samples+=("$(told .processes[0].host_wait_ns_per_second)")
    done
    kill -USR2 "$PID"
    wait_until 5 test -s "$REPORT"
    # Each figure is a snapshot, so a second is exact only to a few thousandths.
    for i in "${samples[@]}"; do
        at_least 10000000 "$i" "ns waited a second (${samples[*]})"
        at_most 1020000000 "$i" "ns waited a second (${samples[*]})"
    done
    at_least "$((12 * 200000000))" "$(report host_wait_ns)" "ns waited in the report"
}

# --- penstock top ---------------------------------------------------------------------------------
@test "top shows each rank of a job, and each device of a process" {
    requires cc
    build_loop
    local pids rank
    touch wait
    for rank in 0 1; do
        in_background "loop$rank" RANK=$rank WORLD_SIZE=2 "$WORK/loop"
        pids[rank]=$PID
    done
    in_background devices CUDASIM_DEVICES=2 PENSTOCK_BUDGET=$((15 * 65536)) "$SAMPLES/devices" 4000 2
    wait_until 10 eval '[ "$(cat loop?.txt | grep -c waiting)" = 2 ] && [ "$(json "[.processes[].devices[] | select(.step > 2)] | length")" = 2 ]' 2>/dev/null
    top # without a terminal it works as with --once
    ended_with 0
    equal 5 "${#lines[@]}" "lines: a heading, two ranks, two devices"
    contains "$output" '^ +PID RANK DEV +STEP +TIME +DEVICE +SLAB OUT/s +IN/s WAIT STATE +COMMAND$'
    for rank in 0 1; do
        contains "$output" "^ *${pids[rank]} +$rank +0 +- +- +[0-9.]+[BKM]/2\.0M \[#{9,10}\.?\] +[0-9.]+[BKMG]/[0-9.]+[MG] +[0-9.]+[BKM] +[0-9.]+[BKM] +[0-9]+% learning +$WORK/loop\$"
        equal $rank "$(json ".processes[] | select(.pid == ${pids[rank]}).rank")" "rank"
    done
    equal 2 "$(grep -cE "^ *$PID +- +[01] +[0-9]+ +[0-9.]+ ms .*(learning|planned)" <<<"$output")" "devices"
    lacks "$output" $'\033'
    top "${pids[1]}"
    equal 2 "${#lines[@]}" "lines, for one process"
    kill "$PID"
    wait "$PID" || true
    rm wait
    wait "${pids[@]}"
}

@test "top shows control characters as question marks, in any encoding" {
    requires cc
    build_loop
    loop_waits $'x\x9b31m|\xc2\x9b31m|\xe0\x82\x9b|\xe2\x80\xae|\x1b[2J'
    top "$PID"
    ended_with 0
    contains "$(LC_ALL=C tr '\340' '!' <<<"$output")" '/loop x\?31m\|\?31m\|!\?\?\|\?\|\?\[2J$'
    "$BUILD/penstock-top" --json "$PID" >page.json
    equal 0 "$(LC_ALL=C grep -cP '\x9b|\x1b' page.json)" "control characters in the JSON"
    loop_ends
}

@test "top explains pages it can't show: no such process, another user, another version, another container" {
    requires python cc
    build_loop
    top 4194304
    ended_with 1
    equal "penstock: top: 4194304: no such process" "$output"
    if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
        setpriv --reuid=65534 --clear-groups sleep 20 3>&- &
        wait_until 5 eval "[ \$(stat -c %u /proc/$!) = 65534 ]"
        top $!
        ended_with 1
        contains "$output" "^penstock: top: $!: belongs to another user \([a-z]+\), who alone can read its page$"
        kill $!
    fi
    mkdir -m 700 "$PAGES"
    sleep 20 3>&- &
    python3 - "$PAGES" $! <<'END'
import os, struct, sys
mine = os.stat("/proc/self/ns/pid").st_ino
for pid, space, version in ((sys.argv[2], mine, 9), (sys.argv[2], mine + 1, 1)):
    with open(f"{sys.argv[1]}/{pid}-{space}", "wb") as page:
        page.write(b"PENSTOCK" + struct.pack("II", version, 16384) + bytes(16368))
END
    top
    ended_with 0
    equal 2 "${#lines[@]}" lines
    contains "$output" "^ *$! .*\(its page has version 9; this command reads version 1\)$"
    equal 9 "$(json '.processes[0].page_version')" "version"
    rm "$PAGES/$!-$(stat -Lc %i /proc/self/ns/pid)"
    top
    ended_with 1
    equal "penstock: top: nothing runs under Penstock here; pages in other containers: 1" "$output"
    equal 1 "$(pages)" "another container's page is not ours to remove"
    kill $!
}

@test "a page that shrinks while it is read counts as missing" {
    requires python cc
    mkdir -m 700 "$PAGES"
    sleep 20 3>&- &
    STARTED+=($!)
    python3 - "$PAGES" $! <<'END'
import os, struct, sys
pid, space = int(sys.argv[2]), os.stat("/proc/self/ns/pid").st_ino
with open(f"/proc/{pid}/stat") as file:
    fields = file.read().rpartition(")")[2].split()
page = bytearray(16384)
struct.pack_into("8sIIQQQQ", page, 0, b"PENSTOCK", 1, 16384, pid, space, int(fields[19]), int(fields[25]))
struct.pack_into("Q", page, 4096, 2)
with open(f"{sys.argv[1]}/{pid}-{space}", "wb") as file:
    file.write(page)
END
    gcc -x c -shared -fPIC -o cut.so - <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int fstat(int fd, struct stat *status)
{
    char path[64], file[4096] = "";
    int result = (int)syscall(SYS_fstat, fd, status);

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, file, sizeof file - 1) > 0 && strstr(file, getenv("ONLY_IN")) && truncate(file, atoi(getenv("BYTES"))) == 0)
        fputs("cut\n", stderr);
    return result;
}
END
    top $!
    ended_with 0
    equal 2 "${#lines[@]}" "lines, of a whole page"
    local bytes
    for bytes in 100 4200 0; do
        run env LD_PRELOAD="$WORK/cut.so" BYTES=$bytes ONLY_IN="$PAGES/" "$BUILD/penstock-top" --once $!
        ended_with 1
        contains "$output" '^cut$'
        contains "$output" "^penstock: top: $!: has no page"
        truncate -s 16384 "$PAGES"/*
    done
    kill $!
}

@test "top refuses wrong arguments in one line with status 2, and its help fits a terminal" {
    local arguments
    for arguments in --frobnicate '-d' '-d 0' '-d nan' '-d 1s' '-d 4000' 0 12x -5 99999999999; do
        # shellcheck disable=SC2086 # words
        top $arguments
        ended_with 2
        equal 1 "${#lines[@]}" "lines for: penstock top $arguments"
        contains "$output" '^penstock: top: .*; see penstock top --help$'
    done
    run "$PENSTOCK" top --help
    ended_with 0
    contains "$output" '^usage: penstock top'
    at_most 40 "${#lines[@]}" lines
    equal '' "$(awk 'length > 80' <<<"$output")" "lines that are too long"
}

@test "in a terminal the table is drawn in place, follows its size, and leaves the terminal as it was" {
    requires cc python
    build_loop
    loop_waits ''
    run timeout "$(patience 25)" python3 -B "$ROOT/tests/lib/top_terminal.py" "$PENSTOCK" top --library "$PENSTOCK_SO"
    ended_with 0
    # The view of a named process ends when the process ends.
    run timeout "$(patience 20)" python3 -B - "$PENSTOCK" top --library "$PENSTOCK_SO" "$PID" <<'END'
import os, pty, select, subprocess, sys
master, slave = pty.openpty()
top = subprocess.Popen(sys.argv[1:] + ["-d", "0.1"], stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=dict(os.environ, TERM="xterm"))
def read():
    return os.read(master, 65536) if select.select([master], [], [], 0.05)[0] else b""
drawn = b""
while b"\x1b[H" not in drawn:
    assert top.poll() is None
    drawn += read()
os.unlink("wait")
while top.poll() is None:
    read() # a full terminal would stop it
assert top.returncode == 0
assert top.stderr.read().decode().endswith("penstock: top: the process has ended\n")
END
    ended_with 0
    wait "$PID"
}

# --- metrics --------------------------------------------------------------------------------------
METRICS='all(.[]; (.planned | type == "boolean") and ([.t_ns, .device, .step, .step_ns, .exposed_ns, .held_bytes, .live_bytes, .budget_bytes,
    .slab_bytes, .slab_used_bytes, .evictions, .evicted_bytes, .reloads, .reloaded_bytes, .host_wait_ns, .planned_steps] | all(type == "number" and . >= 0)))'

@test "metrics have a complete line for each step, in order, and the figures add up" {
    echo '{"step":0}' >before.jsonl
    cp before.jsonl metrics.jsonl
    train PENSTOCK_METRICS=metrics.jsonl
    right_results
    said
    cmp before.jsonl <(head -n 1 metrics.jsonl) # appended to, not replaced
    sed -i 1d metrics.jsonl
    equal "$(report learning.steps)" "$(wc -l <metrics.jsonl)" "lines"
    equal "$(report learning.steps)" "$(jq -c . metrics.jsonl | wc -l)" "lines that are JSON"
    jq -es "$METRICS" metrics.jsonl
    jq -es '[.[].step] == [range(1; length + 1)]' metrics.jsonl
    local key
    for key in t_ns evictions evicted_bytes reloads reloaded_bytes host_wait_ns planned_steps; do
        jq -es "[.[].$key] | . == sort" metrics.jsonl
        [ $key = t_ns ] || [ $key = planned_steps ] || at_least "$(jq -s "last.$key" metrics.jsonl)" "$(report $key)" "$key at the end"
    done
    # A step begins where the one before it ended, and its length is the time since. jq has 53 bits
    # for a number.
    jq -es '[range(1; length) as $i | .[$i].t_ns - .[$i - 1].t_ns - .[$i].step_ns | fabs < 1000] | all' metrics.jsonl
    equal "$(report plan.steps)" "$(jq -s 'map(select(.planned)) | length' metrics.jsonl)" "steps that followed a plan"
    jq -es 'all(.[]; .exposed_ns <= .step_ns * 2)' metrics.jsonl
    at_least 1 "$(jq -s 'map(.exposed_ns) | add' metrics.jsonl)" "ns that the stream stood still"
}

@test "each rank and each device has metrics of its own, and a job's files have their own names" {
    run_penstock CUDASIM_DEVICES=2 PENSTOCK_MIN_SPAN="$SPAN_FROM" PENSTOCK_BUDGET=$((15 * 65536)) RANK=1 WORLD_SIZE=2 \
        PENSTOCK_REPORT="$WORK/report.json" PENSTOCK_METRICS="$WORK/metrics.jsonl" PENSTOCK_PROMETHEUS="$WORK/penstock.prom" "$SAMPLES/devices" 30 2
    ended_with 0
    [ ! -e metrics.jsonl ] && [ ! -e penstock.prom ]
    equal "$(jq -c '[.devices[].learning.steps]' report.rank1.json)" \
        "$(jq -sc 'group_by(.device) | map(length)' metrics.rank1.jsonl)" "lines of each device"
    contains "$(cat penstock.rank1.prom)" '^penstock_steps_total\{pid="[0-9]+",rank="1",device="1"\} [0-9]+$'
}

@test "metrics that can't be written are counted, reported once, and don't slow the program" {
    train PENSTOCK_METRICS=/dev/full
    right_results
    said 'PENSTOCK_METRICS=/dev/full: a line could not be written \(No space left on device\); the number of such lines is reported at the end' \
        "PENSTOCK_METRICS=/dev/full: $(report learning.steps) steps have no line"
    # A pipe without a reader delays no process, either.
    mkfifo pipe
    train PENSTOCK_METRICS=pipe
    right_results
    said 'PENSTOCK_METRICS=.*/pipe: a line could not be written' "PENSTOCK_METRICS=.*/pipe: $(report learning.steps) steps have no line"
    train PENSTOCK_BUDGET=unlimited PENSTOCK_METRICS=none.jsonl
    right_results
    said 'PENSTOCK_METRICS=.*/none.jsonl: no step was learnt, so there is no line'
}

# --- Prometheus -----------------------------------------------------------------------------------
@test "Prometheus' text follows its format, and the figures are the report's" {
    requires python
    train PENSTOCK_PROMETHEUS=penstock.prom
    right_results
    said
    equal 'penstock.prom' "$(ls penstock.prom*)" "files left"
    cat >parse.py <<'END'
import json, math, re, sys
text, report = open(sys.argv[1]).read(), json.load(open(sys.argv[2]))
assert text.endswith("\n") and "\r" not in text
values, kind, told, now = {}, {}, set(), None
for line in text[:-1].split("\n"):
    if head := re.fullmatch(r"# HELP ([a-z_]+) ([A-Z][^\\]*\.)", line):
        now = head[1]
        assert now not in kind and now not in told, f"{now} comes twice"
        told.add(now)
    elif head := re.fullmatch(r"# TYPE ([a-z_]+) (counter|gauge)", line):
        assert head[1] == now, "TYPE belongs behind its HELP"
        kind[now] = head[2]
    else:
        sample = re.fullmatch(r'([a-z_]+)\{pid="[0-9]+",rank="[0-9]*"(,device="[0-9]+")?\} ([0-9]+(?:\.[0-9]{9})?|\+Inf)', line)
        assert sample and sample[1] == now and kind.get(now), f"not a sample of {now}: {line}"
        assert now not in values, "one process on one device has one of each"
        values[now] = float(sample[3])
for name in kind:
    assert name.startswith("penstock_") and name in values
    # Only base units, at the end of the name except for _total, which counters have and gauges have
    # not.
    assert name.endswith("_total") == (kind[name] == "counter"), name
    assert not re.search("_(ns|ms|us|kb|mib|gib|millis|percent)(_|$)", name)
for name, value in (("steps_total", report["learning"]["steps"]), ("planned_steps_total", report["plan"]["steps"]),
                    ("device_budget_bytes", report["budget_bytes"]), ("device_peak_held_bytes", report["peak_resident_bytes"]),
                    ("slab_bytes", report["slab"]["bytes"]), ("launches_total", report["launches"])):
    assert values["penstock_" + name] == value, name
assert abs(values["penstock_host_wait_seconds_total"] - report["host_wait_ns"] / 1e9) < 1e-6
assert values["penstock_device_budget_bytes"] < math.inf
END
    run python3 -B parse.py penstock.prom "$REPORT"
    ended_with 0
    ! command -v promtool >/dev/null || promtool check metrics <penstock.prom
    # The parser detects a wrong text.
    sed 's/^# TYPE.*//' penstock.prom >bad.prom
    run python3 -B parse.py bad.prom "$REPORT"
    ended_with 1
    train PENSTOCK_BUDGET=unlimited PENSTOCK_PROMETHEUS=penstock.prom
    contains "$(cat penstock.prom)" '^penstock_device_budget_bytes\{.*\} \+Inf$'
}

@test "Prometheus' text exists while the program runs, and a failed write is reported once" {
    requires cc
    build_loop
    loop_waits PENSTOCK_PROMETHEUS="$WORK/penstock.prom" ''
    wait_until 5 grep -q '^penstock_steps_total' penstock.prom
    loop_ends
    mkdir -p out/taken
    loop_waits PENSTOCK_PROMETHEUS="$WORK/out/penstock.prom" ''
    rm -rf out
    loop_ends
    said "PENSTOCK_PROMETHEUS=$WORK/out/penstock.prom: the figures could not be written \\(No such file or directory\\)"
}

# --- settings -------------------------------------------------------------------------------------
@test "unusable values and paths are named with the accepted ones" {
    local setting
    mkdir here
    for setting in LIVE=yes:'expected 0 or 1' SIGNAL=KILL:'expected USR1, USR2 or HUP' SIGNAL=12:'expected USR1, USR2 or HUP' \
        METRICS=$WORK/here:'expected the path of a file that can be appended to \(Is a directory\)' \
        METRICS=$WORK/nowhere/m:'expected the path of a file that can be appended to \(No such file' \
        PROMETHEUS=$WORK/nowhere/p.prom:'expected the path of a file in a directory that can be written to \(No such file'; do
        run env "PENSTOCK_${setting%%:*}" "$BUILD/penstock-settings" check
        ended_with 2
        equal 1 "${#lines[@]}" lines
        contains "$output" "^penstock: PENSTOCK_${setting%%:*}: ${setting#*:}"
    done
    touch there.jsonl
    run env PENSTOCK_METRICS="$WORK/there.jsonl" PENSTOCK_PROMETHEUS="$WORK/p.prom" PENSTOCK_SIGNAL= PENSTOCK_LIVE=1 "$BUILD/penstock-settings" check
    ended_with 0
}

# --- costs ----------------------------------------------------------------------------------------
@test "turning on all live outputs adds no driver call" {
    local calls
    train PENSTOCK_BUDGET=auto PENSTOCK_LIVE=0
    right_results
    calls=$(ledger 'calls | tojson')
    train PENSTOCK_BUDGET=auto PENSTOCK_METRICS=metrics.jsonl PENSTOCK_PROMETHEUS=penstock.prom PENSTOCK_SIGNAL=USR2
    right_results
    equal "$calls" "$(ledger 'calls | tojson')" "calls to the driver"
}

planned_launches_call_nothing_else() {
    local trainer=("$SAMPLES/mlp" --layers=10 --width=32 --batch=256 --steps=12) peak launches
    run_sim "${trainer[@]}"
    ended_with 0 || return 1
    peak=$(ledger peak.device)
    run_penstock CUDASIM_TRACE="$WORK/trace" CUDASIM_LAUNCH_NS="$(paced 500000)" PENSTOCK_MIN_SPAN=4096 PENSTOCK_GRACE=0 PENSTOCK_TRACER=cupti PENSTOCK_SIGNAL=USR2 \
        PENSTOCK_METRICS=metrics.jsonl PENSTOCK_PROMETHEUS=penstock.prom PENSTOCK_BUDGET=$((peak * 60 / 100)) "${trainer[@]}"
    ended_with 0 || return 1
    launches=$(grep -c ' call cuLaunchKernel 0$' trace)
    at_least 1 "$(grep -c ' call cuEventRecord 0 in cuLaunchKernel$' trace)" "calls seen within launches" &&
        equal '' "$(within_launches $((launches / 4)))" "other driver calls within the launches of the last three steps"
}

@test "with all live outputs on, a planned step's launch makes no driver calls but event records and waits" {
    in_time planned_launches_call_nothing_else
}

@test "the thread of the live page makes no system calls but sleeps" {
    requires strace cc
    build_loop
    loop_waits ''
    local task
    task=$(grep -l penstock-live /proc/"$PID"/task/*/comm)
    task=${task%/comm}
    timeout 1.3 strace -qq -o calls -p "${task##*/}" || [ $? = 124 ] || skip "strace can't trace here"
    at_least 10 "$(grep -c futex calls)" "turns"
    equal '' "$(grep -vE 'futex|restart_syscall|^---|<detached' calls)" "other system calls"
    loop_ends
}
