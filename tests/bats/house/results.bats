#!/usr/bin/env bats
# Measured figures: the tables of both READMEs match the figures, runs become rows, and no figure of
# a table is lost on the way. The script of the acceptance run judges, and survives failing runs.

load ../../lib/helper

setup() {
    helper_setup
    by_turn 2
}

results=tree/tests/results

# Makes a tree that holds only the files that scripts/dev/results-table reads and writes.
make_tree() {
    local table
    mkdir -p tree/scripts/dev $results
    cp "$ROOT/scripts/dev/results-table" "$ROOT/scripts/dev/figures.py" tree/scripts/dev/
    {
        echo before
        for table in cost median planned reacting launches advice programs processor; do
            printf '<!-- results: begin %s (made) -->\n<!-- results: end -->\n' $table
        done
        echo after
    } >$results/README.md
}

# added FILE [OPTION...]: runs scripts/dev/results-table --add.
added() { tree/scripts/dev/results-table --add "$@" >/dev/null; }

# costs DATE NS: adds a run of scripts/dev/bench.
costs() {
    jq -n --arg date "$1" --argjson ns "$2" '{format: "penstock-costs/1", date: $date, command: "scripts/dev/bench", commit: "0123456789abcdef",
        machine: {cores: 2, cpu: "a CPU", kernel: "6.1"},
        rows: [{what: "malloc+free", cost_ns: $ns, low_ns: 40, driver_calls: 0, target_ns: 300}]}' >"$1.json"
    added "$1.json"
}

@test "the tables of both READMEs match the figures, which fit into 400 KB" {
    requires python
    run "$ROOT/scripts/dev/results-table" --check
    ended_with 0
}

@test "every figure has its run, date, commit, card and command, and every run its command and machine" {
    requires jq
    local kind
    for kind in yardstick programs advice costs by-hand; do
        equal "" "$(jq -r 'select(has("check") or has("not_well") | not) | select((has("commit") and has("card") and .date and .command) | not)' \
            "$ROOT/tests/results/$kind.jsonl")" "figures of $kind without them"
    done
    equal "" "$(jq -r 'select((.machine and .command and .format and .date) | not).run' "$ROOT/tests/results/runs.jsonl")" "runs without them"
}

@test "every place in tests/results/README.md that code names exists, and so does every run that the notes name" {
    local named
    named=$(grep -rhoE 'tests/results/README\.md#[a-z0-9-]+' "$ROOT"/{README.md,include,policy,scripts,shim,tests} | sed 's/.*#//' | sort -u)
    at_least 5 "$(wc -l <<<"$named")" "places"
    equal "" "$(comm -23 - <(sed -n 's/^##* //p' "$ROOT/tests/results/README.md" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9\n-' | sort -u) <<<"$named")" "places that are none"
    named=$(grep -oE '`20[0-9]{2}-[0-9]{2}-[0-9]{2}-[a-z0-9-]+`' "$ROOT/tests/results/README.md" | tr -d '`' | sort -u)
    equal "" "$(comm -23 - <(sed -E 's/^\{"run":"([^"]+)".*/\1/' "$ROOT/tests/results/runs.jsonl" | sort -u) <<<"$named")" "runs that are none"
}

@test "the newest figures go into the table, and a figure changed by hand is detected" {
    requires python jq
    make_tree
    costs 2026-01-02 51.4
    costs 2026-01-03 77.7
    run tree/scripts/dev/results-table --check
    ended_with 1
    tree/scripts/dev/results-table --fix
    run tree/scripts/dev/results-table --check
    ended_with 0
    contains "$(cat $results/README.md)" '^\| malloc\+free \| 78 \| 300 \|$'
    contains "$(cat $results/README.md)" '^Run: `2026-01-03-costs`'
    lacks "$(cat $results/README.md)" '51'
    contains "$(cat $results/README.md)" '^before$'
    contains "$(cat $results/README.md)" '^after$'
    contains "$(tree/scripts/dev/results-table 2026-01-02-costs)" 'malloc\+free .* 51 '
    sed -i 's/| 78 |/| 7 |/' $results/README.md
    run tree/scripts/dev/results-table --check
    ended_with 1
    contains "$output" '^-\| malloc\+free \| 7 \|'
    tree/scripts/dev/results-table --fix
    sed -i 's/77.7/7.7/' $results/costs.jsonl
    run tree/scripts/dev/results-table --check
    ended_with 1
    contains "$output" '^\+\| malloc\+free \| 8 \|'
    # Rows in another order, or in a format other than --add's.
    sed -i 's/7.7/77.7/; s/,"/, "/' $results/costs.jsonl
    run tree/scripts/dev/results-table --check
    ended_with 1
    contains "$output" '^tests/results/costs.jsonl: not as scripts/dev/results-table --add writes it'
}

@test "a table is written to the top README as well, and figures beyond 400 KB are refused" {
    requires python jq
    make_tree
    costs 2026-01-02 51.4
    printf '# Top\n<!-- results: begin processor -->\nold\n<!-- results: end -->\n' >tree/README.md
    tree/scripts/dev/results-table --fix
    contains "$(cat tree/README.md)" '^\| malloc\+free \| 51 \| 300 \|$'
    contains "$(cat $results/README.md)" '^\| malloc\+free \| 51 \| 300 \|$'
    lacks "$(cat tree/README.md)" '^old$'
    run tree/scripts/dev/results-table --check
    ended_with 0
    jq -nc '{run: "2026-01-02-costs", date: "2026-01-02", commit: null, card: null, what: ("x" * 400000), command: ""}' >>$results/costs.jsonl
    run tree/scripts/dev/results-table --check
    ended_with 1
    contains "$output" 'bytes of figures; at most 400000'
}

@test "a run is added once, under its own name" {
    requires python jq
    make_tree
    costs 2026-01-02 51.4
    equal 2026-01-02-costs "$(jq -r .run $results/runs.jsonl)" "name"
    run tree/scripts/dev/results-table --add 2026-01-02.json
    ended_with 2
    contains "$output" 'is there already, as 2026-01-02-costs'
    jq '.rows[0].cost_ns = 60' 2026-01-02.json >again.json
    added again.json
    jq '.rows[0].cost_ns = 70' 2026-01-02.json | added - --as 2026-01-02-by-night
    equal "2026-01-02-by-night 2026-01-02-costs 2026-01-02-costs-2" "$(jq -rs 'map(.run) | join(" ")' $results/runs.jsonl)" "names, sorted"
    equal "70 51.4 60" "$(jq -rs 'map(.cost_ns) | join(" ")' $results/costs.jsonl)" "figures in that order"
    jq '.rows[0].cost_ns = 80' 2026-01-02.json >more.json
    run tree/scripts/dev/results-table --add more.json --as 2026-01-02-costs-2
    ended_with 2
    contains "$output" 'there is a run 2026-01-02-costs-2 already'
}

# rows_of DATE COMMIT WAY=RATIO...: adds a run of real programs with one row in these ways; RATIO
# none: its time ran out.
rows_of() {
    local date=$1 commit=$2 ways='{}' each
    shift 2
    for each; do
        ways=$(jq --arg way "${each%=*}" --arg ratio "${each#*=}" '.[$way] = if $ratio == "none" then {ok: false, of_plain: null,
            checks: [["not run: out of time", false]]} else {ok: true, of_plain: ($ratio | tonumber), checks: [["losses", true]]} end' <<<"$ways")
    done
    jq -n --arg date "$date" --arg commit "$commit" --argjson ways "$ways" '{format: "penstock-programs/1", date: $date, command: "scripts/gpu/programs",
        commit: $commit, machine: {gpu: "NVIDIA A1 80GB, 580, 1 MiB", gpus: 2, torch: "2", python: "3", kernel: "6", cores: 2, cpu: "a CPU", memory_gib: 1},
        share: 0.6, runs: [{row: "eager", way: "tight", name: "eager-tight-0", status: "ok", report: {slab: {peak_used_bytes: 3145728}}}],
        rows: [{name: "eager", title: "torch eager", command: "transformer.py", status: "ok", ways: $ways, peak_gib: 10, plain_ms: 100}]}' >"$date.json"
    added "$date.json"
}

@test "each way of a program shows its newest run, with the commits" {
    requires python jq
    make_tree
    rows_of 2026-01-02 1111111 tight=1.5 auto=1.001
    rows_of 2026-01-03 2222222 tight=1.25 hook=1.4
    rows_of 2026-01-04 3333333 tight=none
    tree/scripts/dev/results-table --fix
    contains "$(cat $results/README.md)" '^\| torch eager \| 10\.0 \| 100 \| 1\.250 \| 1\.400 \| 1\.001 \| - \| 2222222, 1111111 \|$'
    contains "$(cat $results/README.md)" '^\| A1 x2 \| 1 \| 0 \| 1 \| 1\.25 \| 1\.25 \| 1\.25 \|$'
    equal 2026-01-04-a1-x2-programs "$(jq -rs '.[-1].run' $results/programs.jsonl)" "name"
    # A way that was not reached keeps its verdict; host memory comes from the single run's report.
    equal "NOT: not run: out of time" "$(jq -rs '.[-1].ways.tight.checks[]' $results/programs.jsonl)" "verdict"
    equal 3 "$(jq -rs '.[-1].ways.tight.host_peak_mib' $results/programs.jsonl)" "MiB of host memory"
    local date
    for date in 2026-01-02 2026-01-04; do
        equal "$(tree/scripts/dev/results-table $date.json)" "$(tree/scripts/dev/results-table $date-a1-x2-programs)" "table of $date"
    done
}

@test "runs of another format, and a README without the marks, are refused" {
    requires python jq
    make_tree
    echo '{"format": "other/1"}' >other.json
    run tree/scripts/dev/results-table --add other.json
    ended_with 2
    contains "$output" "format 'other/1'"
    run tree/scripts/dev/results-table nothing
    ended_with 2
    contains "$output" 'nothing: no run of that name, and no file'
    costs 2026-01-02 51.4
    echo nothing >$results/README.md
    run tree/scripts/dev/results-table --check
    ended_with 2
    contains "$output" 'the marks of processor are missing'
    echo '<!-- results: begin prices -->' >$results/README.md
    echo '<!-- results: end -->' >>$results/README.md
    run tree/scripts/dev/results-table --check
    ended_with 2
    contains "$output" 'no table is called prices'
}

# --- the acceptance run, with stand-ins for the trainer, the GPU's tool and the library -----------
# The trainer prints llama.py's lines and writes a report where Penstock would. It misbehaves under
# the budgets named in its environment.
make_stand_ins() {
    mkdir bin
    cat >bin/nvidia-smi <<'END'
#!/bin/bash
case "$*" in
*timestamp*) while sleep 0.05; do date +"%Y/%m/%d %H:%M:%S.%3N, 31000" && echo "$EPOCHREALTIME" >>sampled; done ;;
*) echo "A GPU, 1.2, 143771 MiB" ;;
esac
END
    chmod +x bin/nvidia-smi
    touch sampled
    cat >trainer.py <<'END'
import json, os, sys, time
hidden, sequence = int(sys.argv[3]), int(sys.argv[4])
budget, det = os.environ.get("PENSTOCK_BUDGET"), os.environ.get("DET")
# A run's peak is that of the samples from 0.3 s after its start on (SETTLING_S in measure.py).
counts_from = time.time() + 0.3
while sum(float(line) > counts_from for line in open("sampled")) < 3:
    time.sleep(0.05)
if sequence > 60000 and not budget and sys.argv[1] == "none":
    sys.exit("torch.OutOfMemoryError: CUDA out of memory.")
if budget == "1GiB":
    time.sleep(60) # longer than the run may take
if budget == "2GiB":
    sys.exit(3)
if budget == "48GiB":
    print("penstock: policy: the link: 50000 MB/s out, 50000 in, at once 45000 and 45000", file=sys.stderr)
if budget:
    moved = 0 if budget == "auto" else 8 << 30
    report = dict(steps=8, evicted_bytes=moved, reloaded_bytes=moved, host_wait_ns=0, stands_aside=None)
    if "TEST_LATE" in os.environ:
        print("penstock: policy: planned a step of 9 launches\n" * int(os.environ.get("TEST_PLANS", 1)), file=sys.stderr)
        # 1.8 GiB more than the budget. The exposed time is given as a whole and layer by layer.
        late, exposed = float(os.environ["TEST_LATE"]), int(os.environ["TEST_EXPOSED"])
        layers = [dict(evicted_bytes=1 << 30, exposed_ns=exposed * 250000), dict(evicted_bytes=1 << 30, exposed_ns=exposed * 750000)]
        report.update(peak_demand_bytes=(48 << 30) + 1932735283, plan=dict(
            steps=int(os.environ["TEST_PLANNED"]), evictions=9, predicted_step_ns=108000000, exposed_ns=exposed * 1000000, layers=layers))
    json.dump(report, open(os.environ["PENSTOCK_REPORT"], "w"))
off = 0.5 if budget == os.environ.get("TEST_WRONG") else 0
if "TEST_LATE" in os.environ:
    steps = [400, 300, 300, 200] + [float(os.environ["TEST_LATE"])] * (int(sys.argv[6]) - 4) if budget else [100] * int(sys.argv[6])
    print("steps", steps, file=sys.stderr)
print(json.dumps(dict(ms=101 if budget else 100, peakGiB=20 if hidden > 1000 else 30, loss=[3.25 + off], chk=7.5 + off if det else 0)))
END
    echo 'int nothing;' | gcc -shared -fPIC -x c -o library.so -
}

yardstick() {
    run env PATH="$PWD/bin:$PATH" timeout --kill-after=5 "$(patience 100)" python3 -B "$ROOT/scripts/gpu/yardstick" --trainer trainer.py \
        --library library.so --out out --python "$(command -v python3)" "$@"
}

judged() { jq -r --arg name "$1" '.checks[] | select(.name == $name) | .ok' out/yardstick.json; }
status_of() { jq -r --arg name "$1" '.runs[] | select(.name == $name) | .status' out/yardstick.json; }

@test "the acceptance run measures in turn and compares each promise with its measurements" {
    requires python jq cc
    make_stand_ins
    TEST_WRONG=none yardstick --parts speed,det,long --budgets 48GiB --det-budgets 48GiB --pairs 2
    ended_with 0
    equal "tiny plain auto 48GiB auto plain" "$(jq -r '[.runs[] | select(.part == "speed").label] | join(" ")' out/yardstick.json)" "order"
    equal true "$(jq '[.checks[].ok] | all' out/yardstick.json)" "checks"
    equal 31000 "$(jq '.parts.speed.rows[2].smi_peak_mib' out/yardstick.json)" "peak"
    equal 1.01 "$(jq '.parts.speed.rows[1].of_plain' out/yardstick.json)" "of plain"
    equal 1073741824 "$(jq '.parts.speed.rows[2].evicted_bytes_a_step' out/yardstick.json)" "bytes moved a step"
    equal "out of memory" "$(status_of long-00-plain)" "plain, long"
    # The table is printed last.
    contains "$output" '^  long sequence, auto  +ok '
    equal "$(cat out/yardstick.txt)" "$(tail -n "$(wc -l <out/yardstick.txt)" <<<"$output")" "table"
}

@test "the acceptance run fails when values differ, or the peak is above the budget" {
    requires python jq cc
    make_stand_ins
    TEST_WRONG=28GiB yardstick --parts speed,det --budgets 28GiB --det-budgets 28GiB --pairs 2
    ended_with 1
    equal false "$(judged "losses, 28GiB")" "losses"
    equal false "$(judged "bit-identical, 28GiB")" "checksum"
    equal true "$(judged "bit-identical, auto")" "checksum"
    equal false "$(judged "peak, 28GiB")" "peak"
}

@test "a run that hangs or fails is a row of the table, and the other runs go on" {
    requires python jq cc
    make_stand_ins
    TEST_WRONG=48GiB yardstick --parts speed,guard --budgets 1GiB,2GiB,48GiB,56GiB --pairs 1 --limit 2 --guard-budget 48GiB
    ended_with 1
    equal "killed after 2 s" "$(status_of speed-03-1GiB)" "a run that hangs"
    equal "failed (3)" "$(status_of speed-04-2GiB)" "a run that fails"
    equal ok "$(status_of speed-05-48GiB)" "the next"
    equal ok "$(status_of guard-01-unmap)" "the next part"
    contains "$output" '^  1GiB: killed after 2 s '
    # One plain run can't tell how far two plain runs differ, so losses that differ from it are not
    # judged. Equal losses are right.
    equal null "$(judged "losses, 48GiB")" "other losses"
    equal true "$(judged "losses, 56GiB")" "the same losses"
}

@test "the acceptance run starts nothing that would not end in time" {
    requires python jq cc
    make_stand_ins
    TEST_WRONG=none yardstick --parts det --det-budgets 48GiB --deadline 16
    ended_with 1
    contains "$output" 'not run: out of time'
    yardstick --parts fast
    ended_with 2
    contains "$output" 'no such part: fast'
}

@test "planned steps after the fourth are judged against the link's limit, and exposed time against lost time" {
    requires python jq cc
    make_stand_ins
    export TEST_WRONG=none
    TEST_LATE=110.5 TEST_EXPOSED=11 TEST_PLANNED=8 yardstick --parts plan,ckpt65k --budgets 48GiB --plan-rounds 2 --pair-rounds 1
    # Only the stand-in's checkpointed step does not lose the exposed time.
    ended_with 1
    equal "exposed time, ckpt65k, 34GiB" "$(jq -r '.checks[] | select(.ok != true).name' out/yardstick.json)" "what failed"
    equal "tiny plain 48GiB plain 48GiB" "$(jq -r '[.runs[] | select(.part == "plan").label] | join(" ")' out/yardstick.json)" "order"
    local row='.parts.plan.rows[1]'
    equal 1.105 "$(jq "$row.of_plain" out/yardstick.json)" "of plain"
    # 38.65 ms for 1.8 GiB at 50 GB/s, where forward alone takes 30.5 ms. Backward, which hides the
    # way back, and the rest stay the same.
    equal 1.0815 "$(jq "$row.limit_of_plain" out/yardstick.json)" "limit"
    equal "11 11 10.5" "$(jq -r "$row | [.exposed_ms, .exposed_in_layers_ms, .lost_ms] | join(\" \")" out/yardstick.json)" "exposed and lost"
    equal $((2 << 30)) "$(jq "$row.planned_bytes_a_step" out/yardstick.json)" "planned bytes"
    equal true "$(judged "step time, plan, 48GiB")" "step time"
    equal true "$(judged "planned by the fourth step, plan, 48GiB")" "planned in time"
    equal true "$(judged "exposed time, plan, 48GiB")" "exposed time"
    equal true "$(judged "losses, 48GiB")" "losses"
    contains "$output" '^  48GiB +110\.5 +1\.105 +1\.081 +1\.270 +108\.0 +11\.0 +10\.5 +30\.27 +2\.0 +50\.0$'
    # None of four steps comes after the fourth. The trainer's own figure counts, and 1.01 of plain
    # is just met.
    equal 1.01 "$(jq '.parts.ckpt65k.rows[1].of_plain' out/yardstick.json)" "of plain, no late steps"
    equal true "$(judged "step time, ckpt65k, 34GiB")" "step time, checkpointed"
    make_tree
    added out/yardstick.json --as a-run
    tree/scripts/dev/results-table --fix
    equal "$(<out/yardstick.txt)" "$(tree/scripts/dev/results-table a-run)" "table, from the figures"
    contains "$(cat $results/README.md)" '^\| 48GiB \| 110\.5 \| 1\.105 \| 1\.081 \| 11\.0 \| 10\.5 \|'
    contains "$(tr '\n' ' ' <$results/README.md)" 'budget 34GiB: 101 ms a step, 1\.010 of plain \(100 ms\)'
}

@test "a plan that is slow, late or loses time without reporting it fails the acceptance run" {
    requires python jq cc
    make_stand_ins
    export TEST_WRONG=none
    TEST_LATE=130 TEST_EXPOSED=11 TEST_PLANNED=7 yardstick --parts plan --budgets 48GiB --plan-rounds 1
    ended_with 1
    equal false "$(judged "step time, plan, 48GiB")" "step time"
    equal false "$(judged "planned by the fourth step, plan, 48GiB")" "planned in time"
    equal false "$(judged "exposed time, plan, 48GiB")" "exposed time"
    # Seven of twelve steps are enough when the plan was rebuilt in one of them.
    TEST_LATE=130 TEST_EXPOSED=11 TEST_PLANNED=7 TEST_PLANS=2 yardstick --parts plan --budgets 48GiB --plan-rounds 1
    equal true "$(judged "planned by the fourth step, plan, 48GiB")" "planned anew"
    # The stand-in's 65,536 is out of memory without Penstock, and its long steps are short.
    TEST_LATE=101 TEST_EXPOSED=1 TEST_PLANNED=2 yardstick --parts seq32k,seq65k --pair-rounds 1
    equal true "$(judged "step time, seq32k, 74GiB")" "seq32k"
    equal true "$(judged "step time, seq65k, auto")" "seq65k"
    equal true "$(judged "planned by the fourth step, seq65k, auto")" "planned, seq65k"
    ended_with 0
}
