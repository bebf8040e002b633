#!/usr/bin/env bats
# scripts/gpu/advice compares the predictions of `penstock advise`, and the cost of all output, with
# steps on a GPU. These tests check its judgement. Its results on a GPU are in tests/results.

load ../../lib/helper

setup() {
    helper_setup
    requires python jq cc
    make_stand_ins
}

# Stand-ins for the Python with torch and for the programs of the build; `penstock advise` is the
# tree's own. The peak is 20 GiB and a step takes 100 ms. Each GiB less costs 10 ms, as predicted.
# TEST_WRONG makes the Python misbehave.
make_stand_ins() {
    mkdir build bin
    echo 'int nothing;' | gcc -shared -fPIC -x c -o build/libpenstock.so -
    printf '#!/bin/bash\n' | tee build/penstock-settings >build/penstock-doctor
    cat >build/penstock-trade <<'END_OF_TRADE'
#!/bin/bash
jq -n --argjson least "${TEST_LEAST:-4}" --argjson unit "${TEST_UNIT:-1}" '
    def point: {budget_bytes: (. * 1073741824), predicted_ns: (1e8 + (if . < 20 then 20 - . else 0 end) * 1e7), evicted_bytes: 0, held_bytes: 0};
    {launches: 9, spans: 9, peak_bytes: (20 * 1073741824), plain_ns: 1e8, nothing_moves_bytes: (20.25 * 1073741824),
     nothing_lost_bytes: (20 * 1073741824), least_bytes: ($least * 1073741824),
     points: [20.25, range(20; $least; -$unit), $least | point], batch: null}'
END_OF_TRADE
    cat >bin/python <<'END_OF_PYTHON'
#!/bin/bash
[ -f "$1" ] || exit 1
if [ -n "${PENSTOCK_RECORDING:-}" ]; then
    [ "${TEST_WRONG:-}" != stuck ] && echo step >"$PENSTOCK_RECORDING"
    exec sleep 30 # longer than the recording takes, which ends it
fi
wrong=${TEST_WRONG:-} ms=100 loss=3.25
budget=$(((${PENSTOCK_BUDGET:-0}) / 107374182)) # in tenths of GiB
case ${PENSTOCK_BUDGET:-} in
48GiB) ms=120 ;;
?*) ms=$((300 - budget)) ;;
esac
case $wrong-$budget in
near-*) ms=$((ms * 1048 / 1000)) ;;
far-150) ms=159.1 ;;
far-130) loss=3.3 ;;
far-110) exit 4 ;;
esac
[ "$wrong" != slow ] || [ -z "${PENSTOCK_TRACE:-}" ] || ms=121.2
[ "$wrong" = report ] || [ -z "${PENSTOCK_REPORT:-}" ] || echo '{"plan": {"predicted_step_ns": 9e7}, "stands_aside": null}' >"$PENSTOCK_REPORT"
[ -z "${PENSTOCK_TRACE:-}" ] || echo '[]' >"$PENSTOCK_TRACE"
[ "$wrong" = metrics ] || [ -z "${PENSTOCK_METRICS:-}" ] || echo '{}' >"$PENSTOCK_METRICS"
if [ "${PENSTOCK_LIVE:-}" = 1 ] && [ "$wrong" != page ]; then
    mkdir -m 700 "$XDG_RUNTIME_DIR/penstock" && echo page >"$XDG_RUNTIME_DIR/penstock/$$"
    sleep "$TEST_PAGE_S"
fi
[ -z "${LD_PRELOAD:-}" ] || [ "$wrong" = silent ] || echo 'penstock: peak 1 GiB on the device, 2 GiB without; moved 1 GiB out and 1 GiB back' >&2
steps="[900, 500, 500, 500, $ms, $ms, $ms]"
case $1 in
*trainer.py)
    echo "steps $steps" >&2
    steps=7
    ;;
esac
echo "{\"ms\": $steps, \"loss\": [$loss], \"peakGiB\": 20}"
END_OF_PYTHON
    chmod +x build/penstock-* bin/python
    touch trainer.py
}

advice() {
    rm -rf out
    # A look at the live page leaves no trace to wait for. There is one each 0.2 s.
    run env TEST_PAGE_S="$(patience 5)e-1" timeout --kill-after=5 "$(patience 60)" python3 -B "$ROOT/scripts/gpu/advice" --trainer trainer.py --build build --out out --python "$PWD/bin/python" "$@"
}

of() { jq -r "$1" out/advice.json; }
# Prints the checks that failed.
failed() { of '[.checks[] | select(.ok != true).name] | join("; ")'; }

@test "steps that take the predicted time pass, and so does output that costs nothing" {
    advice --rounds 2 --trace
    ended_with 0
    equal "" "$(failed)" "what didn't hold"
    equal "plain advise 19.00GiB 17.00GiB 15.00GiB 13.00GiB 11.00GiB plain" "$(of '[.runs[] | select(.part == "yardstick").label] | join(" ")')" "order"
    equal "warm plain advise" "$(of '[.runs[] | select(.part == "compiled").label][:3] | join(" ")')" "order, compiled"
    equal "without with with without" "$(of '[.runs[] | select(.part == "shown").label] | join(" ")')" "order, shown"
    local row='.parts.cnn.rows[2]'
    equal "16106127360 0.75 150 150 1 1.5 1.5 90" "$(of "$row | [.budget_bytes, .of_peak, .predicted_ms, .measured_ms, .of_predicted,
        .predicted_of_plain, .measured_of_plain, .planned_ms] | join(\" \")")" "a row"
    equal "$(of .parts.cnn.rows)" "$(of .parts.yardstick.rows)" "steps told on stderr"
    equal 1 "$(of .parts.shown.of_without)" "with all on, of without"
    # With all outputs on, each file exists. Without them there is only the closing line.
    equal " 0" "$(of '.runs[] | select(.name == "shown-00-without").settings | "\(.PENSTOCK_REPORT) \(.PENSTOCK_LIVE)"')" "without"
    equal "USR2 1" "$(of '.runs[] | select(.name == "shown-01-with").settings | "\(.PENSTOCK_SIGNAL) \(.PENSTOCK_LIVE)"')" "with"
    local file
    for file in shown-01.trace.json shown-01.metrics.jsonl yardstick-13.00GiB.trace.json cnn.recording; do
        at_least 1 "$(wc -c <"out/$file")" "bytes of $file"
    done
    # The table is printed last.
    contains "$output" '^  15\.00GiB +75% +150\.0 +150\.0 +1\.000 +1\.500 +1\.500$'
    contains "$output" '^  without +ok +120\.00 +120\.0 120\.0 '
    equal "$(cat out/advice.txt)" "$(tail -n "$(wc -l <out/advice.txt)" <<<"$output")" "table"
}

@test "a step over 5 % from its prediction, or with other losses, is reported, and the other runs go on" {
    TEST_WRONG=near advice --parts cnn
    ended_with 0
    TEST_WRONG=far advice --parts cnn
    ended_with 1
    equal "prediction, cnn, 15.00GiB; losses, cnn, 13.00GiB; prediction, cnn, 11.00GiB; losses, cnn, 11.00GiB" "$(failed)" "what didn't hold"
    contains "$output" '^  prediction, cnn, 15\.00GiB +FAIL +150\.0 ms, give or take 5% +159\.1 ms, 1\.0607 of it$'
    contains "$output" '^  13\.00GiB +65% +170\.0 +no: losses +1\.000 '
    contains "$output" '^  11\.00GiB +55% +190\.0 +no: failed \(4\) +-'
}

@test "turning on every output must cost nothing, and every output must be there" {
    local wrong what
    while IFS=: read -r wrong what; do
        TEST_WRONG=$wrong advice --parts shown --rounds 1
        ended_with 1
        equal "$what" "$(failed)" "with a wrong $wrong"
    done <<'END_OF_WRONGS'
slow:step time, shown
metrics:what is shown
page:what is shown
report:step time, shown; what is shown
silent:step time, shown
END_OF_WRONGS
    contains "$output" 'not well: shown-00-without: no closing line: Penstock did not run'
}

@test "a part without advice fails, and the next part is run" {
    # Half of the limit is for the command's steps.
    TEST_WRONG=stuck advice --parts cnn --limit 8
    ended_with 1
    equal "advice, cnn" "$(failed)" "a command that is not advised on"
    equal "plain advise plain" "$(of '[.runs[].label] | join(" ")')" "runs"
    contains "$output" 'no step was recognised in 4 s'
    TEST_UNIT=9 TEST_LEAST=18 advice --parts cnn,shown --rounds 1
    ended_with 1
    equal cnn "$(failed)" "what could not be judged"
    contains "$output" 'ValueError: 5 budgets are wanted, and advise lists 3'
    equal 1 "$(of .parts.shown.of_without)" "the next part"
}

@test "no run is started that would not end in time, and unusable arguments are refused" {
    advice --parts cnn --deadline 15.5
    ended_with 1
    equal "not run: out of time" "$(of '.runs[-1].status')" "the last run"
    at_most 15 "$(of '.wall_s | ceil')" "seconds"
    advice --parts cnn,everything
    ended_with 2
    contains "$output" 'no such part: everything; there are yardstick, cnn, compiled, shown'
    advice --parts shown --trainer ''
    ended_with 2
    contains "$output" '--trainer: yardstick and shown need it'
    advice --set BUDGET
    ended_with 2
    contains "$output" 'BUDGET: expected NAME=VALUE'
    rm build/penstock-trade
    advice
    ended_with 2
    contains "$output" 'build: penstock-trade is not there'
}

# chosen ADVICE: prints the budgets, in GiB.
chosen() {
    python3 - "$ROOT" "$1" <<'END_OF_PYTHON'
import importlib.machinery, importlib.util, json, sys
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("advice", sys.argv[1] + "/scripts/gpu/advice")
advice = importlib.util.module_from_spec(importlib.util.spec_from_loader("advice", loader))
loader.exec_module(advice)
print(*(f"{point['budget_bytes'] / 2**30:g}" for point in advice.chosen(json.load(open(sys.argv[2])))))
END_OF_PYTHON
}

@test "five of the advised budgets are chosen, nearest to even shares of the peak, whatever the least one is" {
    requires plain
    TEST_LEAST=12 build/penstock-trade >facts
    equal "19 17 16 14 13" "$(chosen facts)" "above 12 GiB, which is more than 55 %"
    # With too few budgets in between, the ends are taken, too.
    TEST_LEAST=17 build/penstock-trade >facts
    equal "20.25 20 19 18 17" "$(chosen facts)" "above 17 GiB"
    # As advise lists them for a recorded step with a peak of 11.03 GiB.
    gzip -dc "$ROOT/tests/recordings/h200-resnet50-7GiB.gz" >recorded
    "$BUILD/penstock-trade" recorded >facts
    equal "10 9 8 7 6" "$(chosen facts)" "of ResNet-50"
}

@test "the table shows the newest figures of each part, from all runs" {
    local results=tree/tests/results
    mkdir -p tree/scripts/dev $results
    cp "$ROOT/scripts/dev/results-table" "$ROOT/scripts/dev/figures.py" tree/scripts/dev/
    printf '<!-- results: begin advice -->\n<!-- results: end -->\n' >$results/README.md
    TEST_WRONG=far advice --parts cnn,shown --rounds 1 --commit 0123456789
    jq '.date = "2026-01-02 10:00 UTC"' out/advice.json | tree/scripts/dev/results-table --add -
    jq '.date = "2026-01-02 11:00 UTC" | .commit = "fedcba9876" | del(.parts.cnn) | .parts.shown.of_without = 1.0042' out/advice.json | tree/scripts/dev/results-table --add -
    tree/scripts/dev/results-table --fix
    contains "$(cat $results/README.md)" '^\| convnet\.py 256 20 \| 15\.00GiB \| 75% \| 150\.0 \| 159\.1 \| 1\.061 \| 1\.500 \| 1\.591 \| 0123456 \|$'
    contains "$(cat $results/README.md)" '^\| convnet\.py 256 20 \| 13\.00GiB \| 65% \| 170\.0 \| no: losses \|'
    contains "$(tr '\n' ' ' <$results/README.md)" ' With trace.* `trainer\.py none 16 4096 4096 4 12` under 48GiB takes 1\.004 .* \(commit fedcba9\)\. '
    run tree/scripts/dev/results-table --check
    ended_with 0
}
