#!/usr/bin/env bats
# `penstock advise`: the cost of each budget, from a recorded step and from a command that is
# watched for some steps.

load ../../lib/helper
load ../../lib/small_trainer

RECORDING=$ROOT/tests/recordings/h200-llama-56GiB.gz

setup() {
    helper_setup
    requires sim samples jq python plain
    by_turn 2
    LONG=("$SAMPLES/mlp" --layers=6 --width=64 --batch=256 --steps=1000000)
}

# advise OPTION...: advises on the recorded Llama.
advise() {
    [ -e recorded ] || gzip -dc "$RECORDING" >recorded
    run_command advise --recording recorded "$@"
}

# fact FILTER: prints a figure of the last `--json`.
fact() { jq -er "$1" <<<"$output"; }

# told PATTERN: the last run ended with advice, and a line of it matches.
told() { ended_with 0 && contains "$output" "$1"; }

# --- from a recording -----------------------------------------------------------------------------
@test "advise prints the table, the drawing, and the command to use" {
    advise -- python train.py --name "a b"
    told '^A step is 1516 launches, takes 692\.7 ms when nothing moves, and has 66\.33 GiB of tensors at its peak\.$'
    contains "$output" '^ +48GiB +72% +8[0-9]{2}\.[0-9] +1\.[12][0-9]{2} +18\.9[0-9] GiB$'
    contains "$output" '^ +[3-4]\.[0-9]{2} \|o'
    contains "$output" '^ +1\.00 \| .*o$'
    contains "$output" "^    $PENSTOCK run --library $PENSTOCK_SO --budget 5[0-9.]+GiB -- python train\\.py --name 'a b'\$"
    equal 12 "$(grep -cE '^ +[0-9]\.[0-9]{2} \|' <<<"$output")" "lines of the drawing"
    at_most 80 "$(grep -E '^ ' <<<"$output" | grep -vF "$PENSTOCK" | awk '{ print length }' | sort -n | tail -n 1)" "columns of table and drawing"
}

@test "predictions match penstock plan's, with a run's margin" {
    advise --json
    ended_with 0
    local advice=$output budget predicted
    while read -r budget predicted; do
        run_command plan recorded --budget $((budget - (budget / 64 < 640 << 20 ? budget / 64 : 640 << 20)))
        [ "$status" -le 1 ]
        equal "$(awk -v ns="$predicted" 'BEGIN { printf "%.3f", ns / 1e6 }')" "$(awk '$1 == "predicted" { print $2 }' <<<"$output")" "under $budget"
    done < <(jq -r '.points[] | "\(.budget_bytes) \(.predicted_ns)"' <<<"$advice")
    output=$advice
    # Less memory never costs less. From nothing_lost_bytes on it costs nothing, and below that it
    # does.
    fact '[.points[].predicted_ns] | . == sort' || fact '[.points[].predicted_ns] as $p | [range(1; $p | length) | select($p[.] < $p[. - 1] * 0.99)] | length == 0'
    fact '.plain_ns as $plain | .nothing_lost_bytes as $free | all(.points[]; .budget_bytes < $free or .predicted_ns <= $plain * 1.006)'
    fact '.plain_ns as $plain | .nothing_lost_bytes as $free | all(.points[] | select(.budget_bytes < $free * 0.97); .predicted_ns > $plain * 1.005)'
    fact '.least_bytes <= .nothing_lost_bytes and .nothing_lost_bytes <= .nothing_moves_bytes'
    run_command plan recorded --budget $(($(fact .least_bytes) * 9 / 10))
    ended_with 1
}

@test "mappings that cost time under each budget are no reason to name a budget larger than the step" {
    # Sixty tensors of sixty sizes, one after the other. None serves another's size, so each is
    # given new pages unless there are pages for all.
    {
        printf 'penstock-recording 1\nlinks 54000000000 55000000000 49000000000 52000000000 150000 250000 85000\nbudget %d\ns %d parameter\n' $((8 << 30)) $((1 << 30))
        for i in {1..60}; do echo "s $(((60 + i) << 20)) activation"; done
        for i in {1..60}; do printf 'a %d\nl 60000 0 %d\nl 60000 %d\nf %d\n' "$i" "$i" "$i" "$i"; done
    } >sizes
    run_command advise --recording sizes --json
    ended_with 0
    fact '.nothing_lost_bytes <= .nothing_moves_bytes and .points[0].predicted_ns > 1.2 * .plain_ns'
    fact '.batch | .fits_plain.thousandths <= .loses_nothing.thousandths'
    run_command advise --recording sizes
    ended_with 0
    contains "$output" '^Nothing moves from '
}

@test "advise names the batch that fits without moving, at no loss, and at all" {
    advise --json
    fact '.batch | .fits_plain.thousandths < .loses_nothing.thousandths and .loses_nothing.thousandths < .fits_at_all.thousandths'
    # 66.33 GiB at the peak, where there are 55.1 GiB. Most of the peak grows with the batch.
    fact '.batch.fits_plain.thousandths >= 700 and .batch.fits_plain.thousandths <= 830'
    fact '.batch.fits_plain | .plain_ns == .predicted_ns'
    # For a recording that names no memory there is no advice on the batch.
    sed '/^budget/d' recorded >unlimited
    run_command advise --recording unlimited --json
    fact '.batch == null'
}

@test "unusable arguments are named, and nothing is run" {
    run_command advise
    ended_with 2
    contains "$output" 'advise: no command given'
    run_command advise --seconds soon -- true
    ended_with 2
    contains "$output" '--seconds soon: expected a whole number'
    run_command advise --report there.json -- true
    ended_with 2
    run_command advise --keep "$WORK" -- true
    ended_with 2
    contains "$output" "--keep $WORK: this file can't be written"
    run_command advise --budget unlimited -- true
    ended_with 2
    contains "$output" 'PENSTOCK_BUDGET=unlimited: no step is learnt'
    echo nothing >wrong
    run_command advise --recording wrong
    ended_with 2
    contains "$output" '^penstock: wrong: |^penstock: wrong:1: '
    for wrong in text.gz cut.gz nowhere.gz; do
        echo nothing >text.gz
        head -c 2000 "$RECORDING" >cut.gz
        run_command advise --recording $wrong
        ended_with 2
        equal 1 "${#lines[@]}" lines
        contains "$output" "^penstock: $wrong: (not a complete gzip file|No such file or directory); expected a file that PENSTOCK_RECORDING named"
    done
    run_command advise --recording "$WORK/nowhere"
    ended_with 2
    contains "$output" "nowhere: can't read"
}

@test "a failing standard output is reported in one line" {
    advise --json
    ended_with 0
    refuses_failing_output advise --library "$PENSTOCK_SO" --recording recorded
    refuses_failing_output advise --library "$PENSTOCK_SO" --recording recorded --json
}

@test "the command to use is called like this one, by name where the name leads there" {
    ln -s "$PENSTOCK" penstock
    advise --json
    equal "$PENSTOCK run --library" "$(fact .command | cut -d' ' -f 1-3)"
    run env PATH="$WORK:$PATH" penstock advise --library "$PENSTOCK_SO" --recording recorded --json
    equal "penstock run --library" "$(fact .command | cut -d' ' -f 1-3)"
    ln -s "$(dirname "$PENSTOCK")" 'the scripts'
    run "the scripts/penstock" advise --set RULES='exclude class=optimizer' --library="$PENSTOCK_SO" --budget 60GiB --set BUDGET=50GiB --recording recorded --json
    contains "$(fact .command)" "^the\\\\ scripts/penstock run --set 'RULES=exclude class=optimizer' --library=$PENSTOCK_SO --budget 5[0-9.]+GiB -- COMMAND\$"
}

# left_behind: lists the files that the last call left in its temporary directory.
left_behind() { find temporary -mindepth 1; }

@test "the recording is kept where asked, and no other file is left" {
    mkdir temporary
    export TMPDIR=$WORK/temporary
    advise --keep recorded
    ended_with 0
    equal "$(gzip -dc "$RECORDING" | cksum)" "$(cksum <recorded)" "the recording that was to be kept where it is"
    local told=$output
    run_command advise --recording "$RECORDING" --keep plain
    ended_with 0
    equal "$told" "$output" "advice from what gzip has made smaller"
    cmp plain recorded
    run bash -c '"$0" advise --library "$1" --recording recorded | head -n 1' "$PENSTOCK" "$PENSTOCK_SO"
    equal 1 "${#lines[@]}" lines
    equal '' "$(left_behind)" "left behind"
    requires root
    mknod full c 1 7 || skip "no nodes can be made here"
    advise --keep full
    ended_with 2
    equal "$told" "$(grep -v '^penstock: ' <<<"$output")" "advice, with nowhere to keep the step"
    equal "penstock: --keep full: the recorded step can't be kept: No space left on device; make room, or name another file" "${lines[-1]}"
    run bash -c '"$0" advise --library "$1" --recording recorded >full' "$PENSTOCK" "$PENSTOCK_SO"
    ended_with 2
    equal "penstock: standard output can't be written: No space left on device; make room, or redirect it" "$output"
    equal '' "$(left_behind)" "left behind"
}

# --- from a command -------------------------------------------------------------------------------
@test "a command is watched for some steps and ended, and the advice then comes true" {
    run_command advise --set MIN_SPAN=4096 --keep kept --json -- "${LONG[@]}"
    ended_with 0
    local advice budget
    advice=$(sed -n '/^{/,$p' <<<"$output")
    equal "" "$(pgrep -f "${LONG[*]}" || true)" "what is left of the command"
    equal 0 "$(ledger leaks.vmm_mappings 2>/dev/null || echo 0)" "mappings left"
    equal "$(jq .points <<<"$advice")" "$(run_command advise --recording kept --json && jq .points <<<"$output")" "points from the recording that was kept"
    # Each launch has its device time, stretched to whole steps, and its host time, which is more
    # than nothing and excludes waits.
    equal "$(jq .launches <<<"$advice")" "$(grep -cE '^l [0-9]+\+[1-9][0-9]*( |$)' kept)" "launches with the host's time"
    equal "" "$(awk '$1 == "l" { split($2, ns, "+"); if (ns[2] > 1000000) print }' kept)" "launches that the host took longer for than a millisecond"
    # With half of its peak: the predicted bytes leave in a step.
    budget=$(($(jq .peak_bytes <<<"$advice") / 2))
    run_command plan kept --budget $((budget - budget / 64)) --moves
    local moved
    moved=$(awk '$1 == "evicted" { printf "%d", $2 * ($3 == "MiB" ? 1048576 : 1024) }' <<<"$output")
    run_penstock PENSTOCK_MIN_SPAN=4096 PENSTOCK_BUDGET=$budget "${LONG[@]/--steps=*/--steps=30}"
    ended_with 0
    local each
    each=$(report 'evicted_bytes / 30 | floor')
    at_least $((moved * 3 / 4)) $each "bytes that leave in a step, of $moved predicted"
    at_most $((moved * 4 / 3)) $each "bytes that leave in a step, of $moved predicted"
}

# step_of EVICTIONS STEP...: prints advise's time of a step when the launches take 54 ms and the
# latest steps took these times, the last one first.
step_of() {
    run env PYTHONPATH="$ROOT/scripts/command" PYTHONDONTWRITEBYTECODE=1 python3 - "$@" <<'PYTHON'
import importlib.machinery, importlib.util, sys
loader = importlib.machinery.SourceFileLoader("advise", sys.path[1] + "/penstock-advise")
advise = importlib.util.module_from_spec(importlib.util.spec_from_loader("advise", loader))
loader.exec_module(advise)
evictions, *steps = map(int, sys.argv[1:])
print(advise.plain_step_ns({"evictions": evictions, "learning": {"recent_steps": [{"ns": ns} for ns in steps]}}, "recording"))
PYTHON
    [ "$status" = 0 ] || { echo "$output" >&2 && return 1; }
}

@test "the time of a step is the mean of consecutive watched steps, since each ends when the host reaches it" {
    printf 'l 50+9 0\nl 4\n' >recording
    step_of 0 52 62 47 63 50 56 53 57 # an H200's times for a CNN, in ms
    equal 55 "$output" "of eight"
    step_of 0 300 50 62 150 52 62 47 63
    equal 56 "$output" "of the most that no other step came between"
    step_of 0 52 50 51
    equal 54 "$output" "of launches that take longer, each for itself"
    step_of 1 52 62 47
    equal None "$output" "where something left"
    step_of 0 300 12
    equal None "$output" "where no step is like it"
}

host_is_not_kept() {
    run_penstock PENSTOCK_MIN_SPAN=4096 PENSTOCK_BUDGET=$(share 30) PENSTOCK_RECORDING="$WORK/recording" "${LONG[@]/--steps=*/--steps=60}"
    ended_with 0 && at_least 200 "$(report evictions)" evictions || return 1
    local waited
    waited=$(report 'host_wait_ns / .steps | floor')
    # Waits that count as the host's would be as much as was waited, and the host's own time beside.
    at_least 3000000 $waited "ns that a step waited for pages" &&
        at_most $((waited * 9 / 10)) "$(awk '$1 == "l" { split($2, ns, "+"); sum += ns[2] } END { printf "%d", sum }' "$WORK/recording")" "ns of the host's in a step"
}

@test "time that the program waits for Penstock does not count as the host's" {
    in_time host_is_not_kept
}

@test "the printed command works as it stands, under the settings that were judged" {
    run_command advise --set MIN_SPAN=4KiB --host-budget 100MiB --set RULES='exclude class=optimizer' --seconds=60 -- "${LONG[@]/--steps=*/--steps=30}"
    ended_with 0
    local line=${lines[-1]}
    contains "$line" "^    $PENSTOCK run --library $PENSTOCK_SO --set MIN_SPAN=4KiB --host-budget 100MiB --set 'RULES=exclude class=optimizer' --budget [0-9.]+[KM]iB -- $SAMPLES/mlp "
    run with_device bash -c "${line/ -- / --report \"$REPORT\" -- }"
    ended_with 0
    contains "$output" '^step (29|30) '
    at_least 1 "$(report evictions)" evictions
    equal $((100 << 20)) "$(report slab.limit_bytes)" "the slab's limit"
}

@test "the user's own files are not written, and a signal of the user's has no report" {
    PENSTOCK_METRICS=$WORK/metrics PENSTOCK_PROMETHEUS=$WORK/own.prom PENSTOCK_TRACE=$WORK/trace PENSTOCK_RECORDING=$WORK/recording PENSTOCK_SIGNAL=USR2 \
        PENSTOCK_REPORT=$WORK/own.json run_command advise --set MIN_SPAN=4096 --verbose -- sh -c 'env | grep ^PENSTOCK; exec "$@"' sh "${LONG[@]}"
    ended_with 0
    contains "$output" '^PENSTOCK_METRICS=$'
    contains "$output" '^PENSTOCK_SIGNAL=$'
    equal '' "$(find . -name metrics -o -name 'own.*' -o -name trace -o -name recording)" "files of the user's"
}

@test "a script without an interpreter's line runs in sh, and a command that can't start gives one line" {
    bats_require_minimum_version 1.5.0
    printf 'exec %q --layers=6 --width=64 --batch=256 --steps=1000000\n' "$SAMPLES/mlp" >bare
    printf '#!/nowhere/python\n' >lost
    head -c 64 /dev/zero >zeros
    chmod +x bare lost zeros
    run_command advise --set MIN_SPAN=4096 -- ./bare
    ended_with 0
    local subcommand
    for subcommand in advise verify; do
        run_command $subcommand -- ./lost
        ended_with 126
        equal "penstock: ./lost: can't be started: the interpreter that it names does not exist; expected a program, or a script whose first line names an existing program" "${lines[-1]}"
        run_command $subcommand -- ./zeros
        ended_with 126
        contains "${lines[-1]}" "^penstock: \./zeros: can't be started: Exec format error; "
        lacks "$output" Traceback
    done
}

@test "a long watch reports the reason for its wait and its counts so far" {
    run_command advise --seconds 6 -- sleep 10
    ended_with 3
    contains "$output" '^penstock: 5 of at most 6 s: waiting for a step that comes three times$'
    # With steps that take seconds each.
    run_command advise --set MIN_SPAN=4096 --seconds 16 -- "$SAMPLES/mlp" --layers=6 --width=128 --batch=65536 --steps=1000000
    contains "$output" '^penstock: 1?5 of at most 16 s: waiting for a step that comes three times; [1-9][0-9,]* launches and [0-9,]+ whole steps seen so far$'
    run_command verify --seconds 6 -- sleep 10
    ended_with 3
    contains "$output" '^penstock: 5 of at most 6 s: waiting for run 1 to fault, or to finish its task$'
}

@test "a job that does not fit gets advice under auto" {
    run_sim "${LONG[@]/--steps=*/--steps=2}" --memory
    local peak
    peak=$(sed -nE 's/^allocated at the peak ([0-9]+) bytes.*/\1/p' <<<"$output")
    CUDASIM_MEMORY=$((peak * 7 / 10)) run_command advise --set MIN_SPAN=4096 --set RESERVE=0 --json -- "${LONG[@]}"
    ended_with 0
    output=$(sed -n '/^{/,$p' <<<"$output")
    at_least $((peak * 9 / 10)) "$(fact .peak_bytes)" "bytes at the peak"
    fact ".batch.fits_plain.thousandths < 1000"
}

@test "of several processes the one that needs most memory gets the advice" {
    cat >job <<END
#!/bin/bash
RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 "$SAMPLES/mlp" --layers=4 --width=64 --batch=256 --steps=1000000 &
RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 "$SAMPLES/mlp" --layers=8 --width=64 --batch=256 --steps=1000000
END
    chmod +x job
    run_command advise --set MIN_SPAN=4096 -- ./job
    told '^2 processes were watched; this is for the one that needs most memory\.$'
    equal "" "$(pgrep -f 'samples/mlp --layers=[48] --width=64 --batch=256 --steps=1000000' || true)" "what is left of the command"
}

@test "without a step there is no advice, and the reason is given" {
    run_command advise --set MIN_SPAN=4096 -- "$SAMPLES/mlp" --layers=6 --width=64 --batch=256 --steps=5 --shapes=5
    ended_with 3
    contains "$output" 'there is no advice: the command ended with status 0 before a step was recognised, in [0-9]+ launches'
    run_command advise -- sh -c 'echo broken >&2; exit 7'
    ended_with 3
    contains "$output" '^    broken$'
    contains "$output" 'the command ended with status 7 before a step was recognised: it did not use the device'
    run_command advise --seconds 1 -- sleep 60
    ended_with 3
    contains "$output" 'no step was recognised in 1 s'
}
