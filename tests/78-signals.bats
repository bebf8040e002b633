#!/usr/bin/env bats
# PENSTOCK_SIGNAL: a report upon a signal, while the program runs.

load helper
load small_trainer
load live_loop

@test "a signal writes the report, and the program goes on as if nothing had been" {
    requires cc
    build_loop
    local name
    for name in USR2 HUP SIGUSR1; do
        rm -f "$REPORT"
        loop_waits PENSTOCK_SIGNAL=$name read
        kill "-$name" "$PID"
        wait_until 5 test -s "$REPORT"
        cp "$REPORT" early.json
        jq -e '.allocations == 64 and .frees == 0 and .evictions > 0' early.json
        kill "-$name" "$PID"
        loop_ends
        contains "$output" '^ok, own handler: 0$' # its read() was not interrupted
        said
        equal 1 "$(grep -cE "$CLOSING" <<<"$output")" "closing lines"
        at_least "$(($(jq .copies_seen early.json) + 128))" "$(report copies_seen)" "what was seen until the end ($name)"
    done
}

@test "signals in the midst of training change no loss" {
    local environment i
    plain >expected
    mapfile -t environment < <(device_environment)
    in_background trainer PENSTOCK_REPORT="$REPORT" PENSTOCK_SIGNAL=USR2 PENSTOCK_BUDGET="$(share 55)" "${TRAINER[@]}"
    wait_until 10 eval "[ \"\$(json '.processes[0].devices | length' $PID)\" = 1 ]"
    for i in {1..40}; do
        kill -USR2 "$PID" 2>/dev/null || break
        sleep 0.02
    done
    at_least 2 "$i" "signals sent"
    wait "$PID"
    equal "$(grep -v '^allocated' expected)" "$(grep -v '^penstock: ' trainer.txt)" "losses and gradients"
    equal 1 "$(grep -c '^penstock: ' trainer.txt)" "lines said"
    jq -e '.steps == 10' "$REPORT"
    equal "report.json" "$(ls report*)" "files left"
}

@test "the signal ends nobody: not before the first CUDA call, not where Penstock stands aside, not children" {
    requires cc
    build_loop
    loop_waits PENSTOCK_SIGNAL=USR2 early
    kill -USR2 "$PID"
    sleep 0.2
    loop_ends
    contains "$output" '^ok, own handler: 0$'
    said
    rm -f "$REPORT"
    loop_waits PENSTOCK_SIGNAL=USR2 CUDASIM_VMM=0 ''
    kill -USR2 "$PID"
    wait_until 5 jq -e '.stands_aside | length > 0' "$REPORT"
    loop_ends
    contains "$output" '^ok, own handler: 0$'
    rm -f "$REPORT"
    loop_waits PENSTOCK_SIGNAL=USR2 children
    kill -USR2 -- "-$PID"
    wait_until 5 test -s "$REPORT"
    loop_ends
    contains "$output" '^ok, own handler: 0$'
    said
}

@test "a handler of the program's own stays, and is told of" {
    requires cc
    build_loop
    local how
    for how in handled ignored; do
        loop_waits PENSTOCK_SIGNAL=USR2 $how
        kill -USR2 "$PID"
        loop_ends
        said 'PENSTOCK_SIGNAL=USR2: the program handles or ignores this signal itself; that stays, and no report is written for it'
        [ $how = ignored ] || contains "$output" '^ok, own handler: 12$'
    done
    loop_waits PENSTOCK_SIGNAL=USR2 handled-late
    wait_until 5 grep -q 'PENSTOCK_SIGNAL=USR2: the program has taken this signal for itself; no report is written for it any more' loop.txt
    kill -USR2 "$PID"
    loop_ends
    contains "$output" '^ok, own handler: 12$'
    loop_waits PENSTOCK_REPORT= PENSTOCK_SIGNAL=USR1 ''
    loop_ends
    said 'PENSTOCK_SIGNAL=USR1: PENSTOCK_REPORT names no file to write; the signal is left alone'
}
