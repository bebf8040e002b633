#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031 # what programs do is expanded by them; bats' run sets output in each test
# The storm: driver calls and allocations fail, limits are low and signals come, at places that a
# seed picks. The results are right, or the program ends as a CUDA program ends (scripts/dev/storm).
# The files faults and refusals have the single cases whose lines and counters are known.

load ../../lib/helper

setup() { helper_setup; requires sim samples jq plain cc python; }

# storm OPTION...: with the build under test; its seed and summary are shown
storm() {
    run "$ROOT/scripts/dev/storm" --build "$BUILD" --totals totals.json "$@"
    sed -n 's/^storm: [0-9]* runs/# &/p' <<<"$output" >&3
}

@test "whichever call fails, the results are right, or the program ends as CUDA programs end" {
    local seconds
    seconds=$(patience 12)
    is_short || seconds=240
    # Each commit has a seed of its own.
    storm --library "$PENSTOCK_SO" --seconds $seconds --seed "${PENSTOCK_TEST_TURN:-0}"
    ended_with 0
    contains "$output" '^storm: seed [0-9]+$'
    jq -e '.runs > 0 and .runs == .verdicts.right + (.verdicts.cuda // 0) and .findings == []' totals.json
}

# A copy counted as over when the driver refused the wait for it. No test of single faults had
# struck each such wait.
@test "the storm finds a failed wait that counts as the end of its copy" {
    requires release
    local storm=(--library "$ROOT/build/mutant/libpenstock.so")
    env -u MAKEFLAGS -u MAKELEVEL make -C "$ROOT" --no-print-directory "-j$(nproc)" MUTANT=1 build/mutant/libpenstock.so >&2
    # faults_need RULE OPTION...: with the rule taken away the storm finds something, and with it nothing
    faults_need() {
        local rule=$1
        shift
        PENSTOCK_TEST_DROP_RULE=$rule storm "${storm[@]}" --stop --runs 16 "$@"
        ended_with 1
        contains "$output" '^FOUND wrong: '
        grep -m 1 '^FOUND ' <<<"$output" | cut -c 1-150 | sed 's/^/# /' >&3
        storm "${storm[@]}" --runs 6 "$@"
        ended_with 0
    }
    faults_need REFUSED_WAIT_IS_NO_END --repeat 'mlp cuEventSynchronize:error@1+ CUDASIM_D2H_GBPS=0.05'
}

@test "threads that begin without memory launch nothing unseen" {
    local n trials=()
    # The threads of this workload begin behind some of these allocations.
    for n in 900 950 1000 1050 1100 1150; do trials+=(--repeat "transformer-threads malloc@$n+"); done
    storm --library "$PENSTOCK_SO" --runs 48 "${trials[@]}"
    ended_with 0
}

# beside FILE: adds a program that trains, and then runs the file if a call is to fail
beside() {
    cat >"$1"
    beside+=(--repeat "$1 cuEventCreate:delay@1" --program
        "$1=bash -c '$SAMPLES/mlp --layers=2 --width=32 --batch=64 --steps=1 && if [ -n \"\$CUDASIM_FAULT\" ]; then . $WORK/$1; fi'")
}

# told FILE VERDICT WHY: checks that the program was found with this verdict, and printed with the
# command that repeats it
told() {
    jq -e --arg name "$1 " --arg verdict "$2" '[.findings[] | select((.trial | startswith($name)) and .verdict == $verdict)] | length == 1' totals.json
    contains "$output" "^FOUND $2: $1 cuEventCreate:delay@1: .*$3"
    contains "$output" "^  .*scripts/dev/storm .*--program .*--repeat '$1 "
}

@test "the storm tells hangs, signals, other output, ends without a CUDA error, and things left behind" {
    local beside=() again
    beside hangs <<<'sleep 1000'
    beside crashes <<<'kill -SEGV $$'
    beside differs <<<'echo loss 7'
    beside ends <<<'echo out of luck >&2; exit 3'
    beside leaves-a-file <<<'touch unfinished.tmp'
    beside leaves-a-page <<<'mkdir -p "$XDG_RUNTIME_DIR/penstock" && touch "$XDG_RUNTIME_DIR/penstock/1-1"'
    beside leaves-a-process <<<'sleep 1000 & exit 0'
    beside is-well <<<'true'
    storm --library "$PENSTOCK_SO" --limit 3 "${beside[@]}"
    ended_with 1
    told hangs hung 'not done after'
    told crashes crashed SIGSEGV
    told differs wrong 'other output'
    told ends wrong 'status 3: out of luck'
    told leaves-a-file left unfinished.tmp
    told leaves-a-page left live/penstock/1-1
    told leaves-a-process left 'a process that goes on'
    jq -e '.runs == 8 and (.findings | length) == 7 and .verdicts.right == 1' totals.json
    again=$(grep -m 1 "^  .*--repeat 'differs " <<<"$output")
    run bash -c "$again"
    ended_with 1
    contains "$output" '^FOUND wrong: differs .*other output'
}
