#!/usr/bin/env bats
# Harm that others could do to us, and we to the program, through files: limits on them, known
# names, links, and control characters for a terminal.

load ../../lib/helper
load ../../lib/small_trainer

setup() {
    helper_setup 60
    requires sim samples jq plain
    XDG_RUNTIME_DIR=$(mktemp -d /dev/shm/penstock-test.XXXXXX)
    export XDG_RUNTIME_DIR
}

teardown() { rm -rf "$XDG_RUNTIME_DIR"; }

# under_limit KIB [VARIABLE=VALUE]...: runs the trainer with that limit on the size of files; the
# limit's signal would end the program.
under_limit() {
    local kib=$1 budget
    budget=$(share 55)
    shift
    run bash -c 'ulimit -S -f "$0" && exec "$@"' "$kib" env --default-signal=XFSZ LD_LIBRARY_PATH="$SIM" LD_PRELOAD="$PENSTOCK_SO" \
        PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$budget" "$@" "${TRAINER[@]}"
}

# nothing_left: no partial file is left, here or in memory.
nothing_left() { equal '' "$(find "$WORK" "$XDG_RUNTIME_DIR" -name '*.tmp' -o -path '*/penstock/*')" "files left"; }

# --- files and the program's limits ---------------------------------------------------------------
@test "a limit on the size of files ends no program: a file without room is left out, and no part of it stays" {
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

# --- names and links ------------------------------------------------------------------------------
# as_pid SCRIPT COMMAND...: bash runs SCRIPT, which knows its process number, and then becomes the
# command.
as_pid() { run with_device bash -c "$1"$'\n''exec "$@"' bash "${@:2}"; }

# traps NAME...: prints a script that puts links to `victim` at every name that the process could
# make from its number.
traps() {
    local name
    echo 'for suffix in .tmp .now.tmp ""; do'
    for name; do echo "ln -sf '$WORK/victim' '$name'.\$\$\$suffix; ln -sf '$WORK/victim' '$name'.\$\$-1\$suffix"; done
    echo 'done'
}

# unharmed: the links' target is unchanged.
unharmed() { equal precious "$(cat "$WORK/victim")" "the file behind a link"; }

under_penstock() { as_pid "$1" env LD_PRELOAD="$PENSTOCK_SO" PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$(share 55)" "${@:2}"; }

@test "no file is made under a predictable name, nor through a link that waits there" {
    local held
    echo precious >victim
    under_penstock "$(traps report.json recording figures.prom)" PENSTOCK_REPORT=report.json PENSTOCK_RECORDING=recording PENSTOCK_PROMETHEUS=figures.prom \
        PENSTOCK_SIGNAL=USR1 "${TRAINER[@]/--steps=3/--steps=20}"
    ended_with 0
    unharmed
    for held in report.json recording figures.prom; do [ -s $held ] && [ ! -L $held ]; done
    equal 644 "$(stat -c %a report.json)" "who may read it, by the umask"
    as_pid "$(traps page.html)" "$PENSTOCK" report -o page.html report.json
    ended_with 0
    unharmed
    [ -s page.html ] && [ ! -L page.html ]
    # A second process that was given the same trace writes beside it.
    : >trace.json
    exec {held}<trace.json
    flock -x $held
    under_penstock "$(traps trace.json)" PENSTOCK_TRACE=trace.json PENSTOCK_LOG=info "${TRAINER[@]}" {held}<&-
    exec {held}<&-
    ended_with 0
    unharmed
    contains "$output" 'another process writes its trace there; the trace of this process is .*trace\.json\.[0-9]+-2$'
    [ -s trace.json.*-2 ] && [ ! -L trace.json.*-2 ]
}

# theirs NAME...: makes links of another user's to `victim` in a directory where every user may make
# one.
theirs() {
    local name
    mkdir -p shared
    chmod 1777 shared
    for name; do ln -sf "$WORK/victim" "shared/$name" && chown -h 65534 "shared/$name"; done
}

@test "a link that another user has put into a shared directory is not written through" {
    requires root python
    local how name
    echo precious >victim
    theirs report.json recording figures.prom trace.json metrics.jsonl
    train PENSTOCK_REPORT=shared/report.json PENSTOCK_RECORDING=shared/recording PENSTOCK_PROMETHEUS=shared/figures.prom PENSTOCK_TRACE=shared/trace.json \
        PENSTOCK_METRICS=shared/metrics.jsonl
    ended_with 0
    unharmed
    # A file that is renamed into place replaces the link. A file that is appended to is refused,
    # with a line.
    for name in report.json recording figures.prom; do [ -s shared/$name ] && [ ! -L shared/$name ]; done
    contains "$output" '^penstock: PENSTOCK_TRACE=.*Too many levels of symbolic links'
    contains "$output" '^penstock: PENSTOCK_METRICS='
    theirs page.html rules
    run "$PENSTOCK" report -o shared/page.html shared/report.json
    ended_with 0
    unharmed
    [ -s shared/page.html ] && [ ! -L shared/page.html ]
    run python3 -B -c 'import sys; sys.path.insert(0, sys.argv[1]); import penstock_files; penstock_files.write_in_place("shared/rules", "mine")' "$ROOT/scripts/command"
    ended_with 1
    contains "$output" "it is a link that another user made"
    unharmed
    # A link of one's own is followed, and so is one of the directory's owner.
    for how in 0 65534; do
        rm -f shared/*
        ln -s "$WORK/elsewhere" shared/report.json
        chown -h $how shared shared/report.json
        train PENSTOCK_REPORT=shared/report.json
        right_results
        [ -L shared/report.json ] && [ -s elsewhere ]
        run "$PENSTOCK" report -o shared/report.json "$WORK/elsewhere"
        ended_with 2 # it is a report itself
        ln -s "$WORK/page" shared/page.html
        chown -h $how shared/page.html
        run "$PENSTOCK" report -o shared/page.html elsewhere
        ended_with 0
        [ -L shared/page.html ] && grep -q '<html' page
        rm -f elsewhere page
        chown 0 shared
    done
}

# --- terminals ------------------------------------------------------------------------------------
# obeyed TEXT: prints the control characters in it that a terminal would obey.
obeyed() { LC_ALL=C grep -aP '[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|(^|[\x00-\x7f])[\x80-\x9f]|\xe2\x80\xae' <<<"$1" | cat -v; }

@test "control characters in another user's report are shown, not obeyed, in a terminal" {
    requires python
    local escape=$'\033[31m' name
    train
    jq '.stands_aside = "left \u001b]0;title\u0007 \u009b31m \u202e \u007f" | .rank = 0 | .processes = 2' "$REPORT" >hostile.json
    run "$PENSTOCK" summary hostile.json
    ended_with 0
    contains "$output" '^rank 0: stood aside: left \?\]0;title\? \?31m \? \?$'
    equal '' "$(obeyed "$output")" "summary"
    run "$PENSTOCK" summary "no${escape}file" $'nor\x9bthis'
    ended_with 2
    equal '' "$(obeyed "$output")" "a name"
    for name in "a${escape}page" $'a\xc2\x9bpage'; do
        cp "$REPORT" "$name.json"
        run "$PENSTOCK" report "$name.json"
        ended_with 0
        equal '' "$(obeyed "$output")" "a page's name"
    done
    printf 'penstock-recording 1\n%s\n' $'x\xc2\x9b31m' >recording
    run_command plan recording
    ended_with 2
    equal '' "$(obeyed "$output")" "a recording"
    run env "PENSTOCK_BUDGET=$(printf 'a\033b\302\233c\233d')" "$BUILD/penstock-settings" check
    ended_with 2
    contains "$output" '^penstock: PENSTOCK_BUDGET=a\?b\?c\?d: '
}

# --- rights and secrets ---------------------------------------------------------------------------
@test "a setuid program is left alone, whatever the settings" {
    requires cc
    gcc -x c -shared -fPIC -o secure.so - <<'END'
#include <stdlib.h>
#include <sys/auxv.h>

/* The kernel's answer in a setuid program. */
unsigned long getauxval(unsigned long type)
{
    return type == AT_SECURE && getenv("SECURE") ? 1 : 0;
}
END
    gcc -x c -shared -fPIC -o policy.so - <<'END'
#include <stdio.h>

__attribute__((constructor)) static void run(void) { puts("code of the user's"); }
END
    # First without SECURE, so that the test shows Penstock's usual effects.
    run_as() {
        run with_device env LD_PRELOAD="$WORK/secure.so:$PENSTOCK_SO" PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$(share 55)" PENSTOCK_REPORT="$WORK/report.json" \
            PENSTOCK_METRICS="$WORK/metrics" PENSTOCK_TRACE="$WORK/trace" PENSTOCK_POLICY="$WORK/policy.so" PENSTOCK_CUPTI="$WORK/policy.so" PENSTOCK_LAYERS=nvtx: \
            PENSTOCK_SIGNAL=USR1 PENSTOCK_LOG=debug "$@"
    }
    run_as "${TRAINER[@]}"
    ended_with 0
    contains "$output" "^code of the user's"
    [ -s report.json ] && [ -e trace ]
    rm -rf report.json trace metrics "$XDG_RUNTIME_DIR/penstock"
    run_as SECURE=1 "${TRAINER[@]}"
    ended_with 0
    equal "$(plain | grep -v '^allocated')" "$output" "what is said"
    equal '' "$(ls -d report.json trace metrics "$XDG_RUNTIME_DIR/penstock" 2>/dev/null)" "files made"
    # Nothing is set for its children either, and no signal is caught.
    run_as SECURE=1 sh -c 'env | grep -E "^(PYTORCH|XLA|NVTX|NCCL)_"; grep SigCgt /proc/self/status'
    lacks "$output" '^(PYTORCH|XLA|NVTX|NCCL)_'
    equal 0 "$((0x$(sed -n 's/^SigCgt:[[:space:]]*//p' <<<"$output") >> 9 & 1))" "USR1 is caught"
    run_as sh -c 'env | grep -E "^(PYTORCH|XLA|NVTX|NCCL)_"; exec grep SigCgt /proc/self/status'
    contains "$output" '^(PYTORCH|XLA|NVTX|NCCL)_'
    equal 1 "$((0x$(sed -n 's/^SigCgt:[[:space:]]*//p' <<<"$output") >> 9 & 1))" "USR1 is caught where it may be"
}

@test "the user chooses how much of the command line a report, its page and top show" {
    requires python
    local how shown
    for how in full name off; do
        train PENSTOCK_REPORT_COMMAND=$how
        right_results
        case $how in
        full) shown="${TRAINER[*]}" ;;
        name) shown=${TRAINER[0]} ;;
        off) shown= ;;
        esac
        equal "$shown" "$(jq -r .command "$REPORT")" "command ($how)"
        run "$PENSTOCK" report -o page.html "$REPORT"
        ended_with 0
        [ $how = full ] || lacks "$(cat page.html)" '--steps=3'
    done
    contains "$(cat "$ROOT/scripts/manual/report.md")" 'PENSTOCK_REPORT_COMMAND=name'
}

@test "doctor names other users who may write to the library, or to a directory that leads there" {
    mkdir -p "$WORK/opt/lib"
    cp "$PENSTOCK_SO" "$BUILD"/penstock-{settings,doctor} opt/lib/
    doctor() { run with_device "$PENSTOCK" doctor --library "$WORK/opt/lib/libpenstock.so"; }
    chmod 755 opt opt/lib opt/lib/*
    doctor
    ended_with 0
    lacks "$output" "$WORK/opt.*(writable|belongs)"
    chmod 777 opt/lib/libpenstock.so
    doctor
    ended_with 1
    contains "$output" "^problem: library: $WORK/opt/lib/libpenstock\.so is writable by all users - chmod o-w it"
    chmod 755 opt/lib/libpenstock.so
    chmod 777 opt
    doctor
    ended_with 1
    contains "$output" "^problem: library: $WORK/opt is writable by all users - "
    chmod 1777 opt # like /tmp
    doctor
    ended_with 0
    chmod 775 opt
    doctor
    ended_with 0
    contains "$output" "^note: library: $WORK/opt is writable by a group - "
    chmod 755 opt
    if [ "$(id -u)" = 0 ]; then
        chown 65534 opt/lib
        doctor
        ended_with 0
        contains "$output" "^note: library: $WORK/opt/lib belongs to user 65534 - "
    fi
    # The same behind a link.
    mkdir -m 777 elsewhere
    mv opt/lib/* elsewhere/
    ln -s ../../elsewhere/libpenstock.so opt/lib/libpenstock.so
    doctor
    ended_with 1
    contains "$output" "^problem: library: $WORK/elsewhere is writable by all users - "
}
