#!/usr/bin/env bats
# `penstock verify` finds, names and cures accesses that no parameter shows, and tells other
# failures apart. The sample is tests/samples/hidden.cu.

load ../../lib/helper
load ../../lib/small_trainer
bats_require_minimum_version 1.5.0

setup() {
    helper_setup
    requires sim samples plain python jq
    by_turn 2
    HIDDEN=$SAMPLES/hidden
}

SPAN=65536

# verify [OPTION]... [-- WORD...]: runs the command on a training of far more steps than verify
# looks at, with memory for half of its eighteen spans.
verify() {
    local options=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift || true
    run_command verify --min-span "$SPAN_FROM" --budget "${ROOM:-$((9 * SPAN))}" "${options[@]}" -- "$HIDDEN" "${STEPS:-20000}" "$@"
}

# rules: prints the PENSTOCK_RULES that the last verify printed.
rules() { sed -nE "s/^PENSTOCK_RULES='(.*)'\$/\1/p" <<<"$output"; }

# hidden [VARIABLE=VALUE]... WORD...: runs the training itself, for enough steps that a plan is
# followed in most. The guard shows each access to a span that is away. There is no grace, because
# some of the hidden uses lie in one.
hidden() {
    local settings=()
    while [[ "${1:-}" == *=* ]]; do
        settings+=("$1")
        shift
    done
    run_penstock PENSTOCK_MIN_SPAN="$SPAN_FROM" PENSTOCK_BUDGET="${ROOM:-$((9 * SPAN))}" PENSTOCK_GUARD=unmap PENSTOCK_GRACE=0 "${settings[@]}" "$HIDDEN" "${SHORT:-40}" "$@"
}

# cured RULES WORD...: without the rules the training fails under `unmap`. With them its output is
# the same as without Penstock, to the bit, and spans move.
cured() {
    local rules=$1 try
    shift
    # Helper threads evict the spans that must be away by then, and a busy machine may delay them.
    for try in 1 2 3 4 5; do
        hidden "$@"
        [ "$status" -eq 0 ] || break
    done
    ended_with 1
    at_least 1 "$(ledger unmapped_accesses)" "unmapped accesses without the rules"
    run_sim "$HIDDEN" "${SHORT:-40}" "$@"
    ended_with 0
    local plain=$output
    hidden "PENSTOCK_RULES=$rules" "$@"
    ended_with 0
    equal "$plain" "$(grep -v '^penstock: ' <<<"$output")" "what it prints with $rules"
    sound
    counted evictions
}

@test "a training without hidden accesses passes, and is ended after some steps" {
    verify --verbose
    ended_with 0
    contains "$output" '^penstock: nothing faulted in [0-9]+ launches and 3 steps under a plan, with [1-9][0-9]* evictions$'
    contains "$output" '^penstock: nothing faulted in [1-9][0-9]* launches with all idle spans away$'
    lacks "$output" '^(found|rule|PENSTOCK_RULES)'
    lacks "$output" '^ok$'
    # A plan is in force from the fourth step on, or somewhat later on a busy machine.
    at_most 400 "$(grep -c '^step ' <<<"$output")" "steps that were run"
    verify --steps 6
    ended_with 0
    contains "$output" ' and 6 steps under a plan'
}

@test "an access through a table is found, named, and cured by the rule" {
    verify --output "$WORK/rules" --set 'LAYERS=kernel:*ward' -- table
    ended_with 1
    contains "$output" '^found: kernel peek, layer 6 \(backward\), uses without naming it the span of 64KiB that is allocation 0 of layer 2 \(forward\) in each step \(activation\); a pointer '
    contains "$output" '^rule:  exclude layer=2 birth=0 size>=64KiB size<=64KiB$'
    equal 'exclude layer=2 birth=0 size>=64KiB size<=64KiB' "$(rules)"
    equal "$(rules)" "$(cat rules)" "the file of --output"
    PENSTOCK_LAYERS='kernel:*ward' cured "$(rules)" table
}

@test "without markers of layers the rule cures too" {
    verify -- table
    ended_with 1
    equal 1 "$(grep -c '^found: kernel peek, ' <<<"$output")" findings
    cured "$(rules)" table
}

@test "an access whose pointer is not found in memory is found by halving" {
    verify -- masked
    ended_with 1
    equal 1 "$(grep -c '^found: kernel peek, ' <<<"$output")" findings
    lacks "$output" 'a pointer in the memory'
    cured "$(rules)" masked
}

@test "a graph that faults is named as a graph" {
    verify -- table graph
    ended_with 1
    contains "$output" '^found: kernel \(graph\), .* allocation 2 of '
    cured "$(rules)" table graph
}

@test "spans that outlive the step are named by their order, and stay from the start" {
    verify -- weights
    ended_with 1
    equal 'exclude nth=1 size>=64KiB size<=64KiB; exclude nth=3 size>=64KiB size<=64KiB' "$(rules)"
    contains "$output" '^found: kernel peek_at_weights, .* allocation 3 of that size \(parameter, older than the step\)'
    cured "$(rules)" weights
}

@test "accesses right after an immediate eviction by a plan are checked right away" {
    # A state that only torch's kernels are given has no grace. Four launches after its last visible
    # use would be too late for the check.
    verify -- state
    ended_with 0
    verify -- soon
    ended_with 1
    equal 1 "$(grep -c '^found: kernel peek, ' <<<"$output")" findings
    # Eight weights were allocated before the states.
    equal 'exclude nth=9 size>=64KiB size<=64KiB' "$(rules)"
}

# A command that writes the same events as Penstock would: which of the two comes first is a matter
# of microseconds.
@test "a fault counts even if a thread that waits for a copy meets it before the launch does" {
    cat >says <<'END'
#!/bin/bash
[ -n "${PENSTOCK_VERIFY:-}" ] || exit 1
printf '{\n"event": "aside", "why": "nobody can tell"\n}\n' >>"$PENSTOCK_VERIFY.seen"
[ "$1" = aside ] || sleep 0.3
[ "$1" = aside ] || printf '{\n"event": "fault", "kernel": "peek", "occurrence": 1, "queued_before": true, "alone": true, "error": 700, "layer": {"number": null,
    "name": null, "direction": null}, "launches": 1, "launches_idle_unmapped": 0, "steps": 0, "steps_followed": 0, "evictions": 1, "spans": []\n}\n' >>"$PENSTOCK_VERIFY.seen"
exec sleep 20
END
    chmod +x says
    run_command verify -- ./says fault
    ended_with 3
    contains "$output" 'work queued before launch 1 of peek faulted'
    run_command verify -- ./says aside
    ended_with 3
    contains "$output" "no result: Penstock stands aside: nobody can tell"
}

@test "two faults are both found" {
    verify -- masked weights
    ended_with 1
    contains "$output" '^found: kernel peek, '
    contains "$output" '^found: kernel peek_at_weights, '
    cured "$(rules)" masked weights
}

@test "spans that this budget does not move are checked as well" {
    ROOM=1GiB
    verify -- masked weights
    ended_with 1
    lacks "$output" 'with [1-9][0-9]* evictions'
    contains "$(rules)" 'exclude nth=1 size>=64KiB size<=64KiB; exclude nth=3 size>=64KiB size<=64KiB'
    contains "$(rules)" 'exclude birth=2 size>=64KiB size<=64KiB|exclude layer=2 birth=0 '
    ROOM=1GiB verify --moved-only -- masked weights
    ended_with 3
    contains "$output" 'nothing was moved, .* smaller --budget'
}

@test "threads and streams hide no access" {
    run_command verify --min-span "$SPAN_FROM" --set BUDGET="$(share 55)" -- "${TRAINER[@]}" --steps=5000 --streams=2 --threads=2
    ended_with 0
    contains "$output" 'in [1-9][0-9]* launches with all idle spans away$'
}

@test "a fault before any step is known is cured" {
    ROOM=$((7 * SPAN))
    verify -- early
    ended_with 1
    equal 'exclude nth=1 size>=64KiB size<=64KiB; exclude nth=3 size>=64KiB size<=64KiB' "$(rules)"
    cured "$(rules)" early
}

@test "the user's rules stay, and come first" {
    PENSTOCK_RULES='exclude size>=1GiB;' verify -- weights
    ended_with 1
    contains "$(rules)" '^exclude size>=1GiB; exclude nth=1 size>=64KiB size<=64KiB; exclude nth=3 '
    # An access that they cure already is no finding.
    PENSTOCK_RULES='exclude nth=1-3 size<=64KiB' verify -- weights
    ended_with 0
}

@test "rules are printed in shell syntax, and are no more than the library accepts" {
    local users="exclude layer=it's*"
    PENSTOCK_RULES=$users verify -- weights
    ended_with 1
    (
        eval "$(grep '^PENSTOCK_RULES=' <<<"$output")"
        equal "$users; exclude nth=1 size>=64KiB size<=64KiB; exclude nth=3 size>=64KiB size<=64KiB" "$PENSTOCK_RULES"
    )
    users=$(printf 'exclude size>=1GiB;%.0s' {1..31})
    PENSTOCK_RULES=$users verify -- weights
    ended_with 1
    equal "$users exclude size>=64KiB size<=64KiB" "$(rules)" "31, and all of a size in the last one"
    PENSTOCK_RULES="$users exclude size>=2GiB" verify --output "$WORK/rules" -- weights
    ended_with 3
    contains "${lines[-1]}" "^penstock: no result: PENSTOCK_RULES holds 32 rules, of which 32 are yours; rules for 1 more sizes of spans are needed\$"
    lacks "$output" Traceback
    equal "$users exclude size>=2GiB" "$(cat rules)" "the rules that there is room for"
}

@test "the user's own files are not written, and rules that can't be written are reported" {
    PENSTOCK_METRICS=$WORK/metrics PENSTOCK_PROMETHEUS=$WORK/own.prom PENSTOCK_TRACE=$WORK/trace PENSTOCK_RECORDING=$WORK/recording PENSTOCK_SIGNAL=USR2 verify -- weights
    ended_with 1
    equal '' "$(find . -name metrics -o -name 'own.*' -o -name trace -o -name recording)" "files of the user's"
    requires root
    mknod full c 1 7 || skip "no nodes can be made here"
    verify --output "$WORK/full" -- weights
    ended_with 2
    contains "${lines[-1]}" "^penstock: --output $WORK/full: the rules can't be written: No space left on device; copy them from above\$"
}

@test "what comes after a run has done its task does not count" {
    # The command is ended a second late, as on a busy machine. It faults meanwhile, and Penstock stands aside.
    mkdir site
    cat >site/sitecustomize.py <<'END'
import time

asked = time.sleep
time.sleep = lambda seconds: asked(max(seconds, 1))
END
    PYTHONPATH=$PWD/site verify -- wide
    ended_with 1
    equal 'exclude nth=0-7 size>=64KiB size<=64KiB' "$(rules)"
}

@test "under a policy that never plans, all spans of a size stay" {
    verify --set POLICY=lru -- table
    ended_with 1
    equal 'exclude size>=64KiB size<=64KiB' "$(rules)"
    contains "$output" 'with these rules nothing is moved'
}

@test "the other tracer finds the same accesses" {
    verify --set TRACER=hook -- weights
    ended_with 1
    equal 'exclude nth=1 size>=64KiB size<=64KiB; exclude nth=3 size>=64KiB size<=64KiB' "$(rules)"
}

@test "a whole table is found at once" {
    verify -- wide
    ended_with 1
    equal 'exclude nth=0-7 size>=64KiB size<=64KiB' "$(rules)"
    equal 8 "$(grep -c '^found: kernel peek_at_weights, ' <<<"$output")" findings
}

@test "scripts/gpu/programs' row trains as plain with the written rules, and fails where nothing was found" {
    local of_row=(python3 -B "$ROOT/tests/gpu/verify.py" "$HIDDEN" 30 table weights)
    run_sim "${of_row[@]}"
    ended_with 0
    local plain
    plain=$(grep '^{' <<<"$output")
    equal 60 "$(jq '.loss | length' <<<"$plain")" "hashes of weights and of what was read through tables"
    run_penstock PENSTOCK_MIN_SPAN="$SPAN_FROM" PENSTOCK_BUDGET=$((9 * SPAN)) "${of_row[@]}"
    ended_with 0
    equal "$plain" "$(grep '^{' <<<"$output")" "what it prints"
    sound
    counted evictions
    run_penstock PENSTOCK_MIN_SPAN="$SPAN_FROM" PENSTOCK_BUDGET=$((9 * SPAN)) PENSTOCK_RULES='exclude nth=1; exclude nth=3' "${of_row[@]}"
    ended_with 1
    contains "$output" "^verify ended with 1 and found \['peek'\], not \['peek', 'peek_at_weights'\]\$"
}

@test "a command that fails by itself is no finding" {
    STEPS=12
    for word in wild quits; do
        verify -- $word
        ended_with 3
        contains "$output" '^penstock: no result: the command fails by itself: without Penstock it ended with status [13] '
        lacks "$output" '^(found|rule|PENSTOCK_RULES)'
    done
    run_command verify -- sh -c 'echo no such data set; exit 4'
    ended_with 3
    contains "$output" '^    no such data set$'
    contains "$output" 'without Penstock it ended with status 4'
    run bash -c '"$@" >&-' bash "$PENSTOCK" verify --library "$PENSTOCK_SO" -- touch started
    ended_with 2
    contains "$output" '^penstock: standard output is closed; '
    [ ! -e started ]
}

@test "runs that differ are reported, with the candidates" {
    for word in table masked; do
        verify -- $word differs
        ended_with 3
        contains "$output" '^penstock: no result: its runs differ: '
        contains "$output" '^candidates: kernel peek uses one of these without naming it:$'
        contains "$output" '^    exclude nth=[0-9]+ size>=64KiB size<=64KiB$'
        lacks "$output" '^found'
    done
}

@test "a run that shows nothing does not pass" {
    run_command verify -- true
    ended_with 3
    contains "$output" 'saw no allocation of device memory'
    # One span, in use all the time.
    build_probe single <<'END'
int main(void)
{
    void *span;

    CHECK(cudaMalloc(&span, span_size()));
    for (int i = 0; i < 4; i++) CHECK(cudaMemset(span, i, span_size()));
    puts("ok");
}
END
    PROBE_SPAN=$PROBE_SPAN run_command verify --min-span "$SPAN_FROM" -- ./single
    ended_with 3
    contains "$output" 'nothing was moved, so nothing could fault: '
    run_command verify --seconds 1 -- sleep 60
    ended_with 3
    contains "$output" 'longer than --seconds 1'
    CUDASIM_VMM=0 verify -- table
    ended_with 3
    contains "$output" 'stands aside'
}

@test "no process or directory of the command is left" {
    verify --verbose --seconds 60 -- table
    ended_with 1
    run pgrep -f "^$HIDDEN 20000"
    ended_with 1
    equal "" "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'penstock-verify.*' -user "$(id -u)" -newer "$LEDGER" 2>/dev/null)" "directories left"
}

@test "wrong arguments give one line and status 2" {
    for arguments in '' '--' '--steps' '--steps none -- true' '--steps=0 -- true' '--findings -1 -- true' '--frobnicate -- true' '--guard host -- true' \
        '--report r.json -- true' '--output /nonexistent/rules -- true' '--budget lots -- true' '--set RULES=nonsense -- true' '--set DISABLE=1 -- true'; do
        # shellcheck disable=SC2086 # words
        run_command verify $arguments
        ended_with 2
        equal 1 "${#lines[@]}" "lines for: penstock verify $arguments"
        contains "$output" '^penstock: '
    done
    run -127 with_device "$PENSTOCK" verify --library "$PENSTOCK_SO" -- no-such-command
    run "$PENSTOCK" verify --help
    ended_with 0
    contains "$output" '^usage: penstock verify'
}

@test "an unusable task is reported, and the program runs as usual" {
    SHORT=20
    echo 'guard soft' >task
    hidden PENSTOCK_VERIFY="$WORK/task"
    ended_with 0
    contains "$output" "^penstock: PENSTOCK_VERIFY=$WORK/task: expected the path of a file .* \\(Invalid argument\\); nothing is checked"
    contains "$output" '^step 20 '
    [ ! -e task.seen ]
    # Of several processes the first is checked, and of several ranks rank 0.
    printf 'guard unmap\nlaunches 20\n' >task
    RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 hidden PENSTOCK_VERIFY="$WORK/task"
    ended_with 0
    [ ! -e task.seen ]
    hidden PENSTOCK_VERIFY="$WORK/task"
    ended_with 0
    contains "$(cat task.seen)" '"event": "done"'
    cp task.seen before
    hidden PENSTOCK_VERIFY="$WORK/task"
    ended_with 0
    cmp task.seen before
}
