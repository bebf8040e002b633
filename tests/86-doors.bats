#!/usr/bin/env bats
# What others can do to us, and we to the program, by way of files: limits on them, names that others know, links, and what a terminal obeys.

load helper
load small_trainer

setup() {
    helper_setup 60
    requires sim samples jq plain
    XDG_RUNTIME_DIR=$(mktemp -d /dev/shm/penstock-test.XXXXXX)
    export XDG_RUNTIME_DIR
}

teardown() { rm -rf "$XDG_RUNTIME_DIR"; }

# under_limit KIB [VARIABLE=VALUE]...: the trainer, where no file may be larger, and the signal of one that is ends the program
under_limit() {
    local kib=$1 budget
    budget=$(share 55)
    shift
    run bash -c 'ulimit -S -f "$0" && exec "$@"' "$kib" env --default-signal=XFSZ LD_LIBRARY_PATH="$SIM" LD_PRELOAD="$PENSTOCK_SO" \
        PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$budget" "$@" "${TRAINER[@]}"
}

# nothing_left: of a file that was begun, here or in memory
nothing_left() { equal '' "$(find "$WORK" "$XDG_RUNTIME_DIR" -name '*.tmp' -o -path '*/penstock/*')" "files left"; }

# --- files and the program's limits ----------------------------------------------------------------------------------------------------------
@test "a limit on the size of files ends no program: what has no room is left out, and nothing of it stays" {
    local kib what
    for kib in 0 1 8; do
        under_limit $kib
        right_results
        nothing_left
    done
    for what in REPORT RECORDING PROMETHEUS METRICS TRACE; do
        under_limit 0 PENSTOCK_$what="$WORK/file"
        right_results
        contains "$output" "^penstock: PENSTOCK_$what="
        nothing_left
        [ ! -s file ]
        rm -f file
    done
    # In the middle of the file.
    under_limit 1 PENSTOCK_REPORT="$WORK/report.json"
    right_results
    contains "$output" '^penstock: PENSTOCK_REPORT=.*the report could not be written \(File too large\)'
    nothing_left
    [ ! -e report.json ]
}
