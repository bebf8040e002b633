#!/usr/bin/env bats
# The gates that hold the tree to its own rules, each as a test, and the tools that run the tests. A
# runner that can't fail proves nothing.

load ../../lib/helper

gate() {
    run "$ROOT/scripts/dev/check" --build "$BUILD" "$1"
    ended_with 0
}

@test "the top level holds exactly what the design lists" {
    gate layout
}

@test "no file names a network host" {
    gate hosts
}

@test "no file is too long to read" {
    gate sizes
}

@test "shell scripts pass shellcheck" {
    requires shellcheck
    gate shell
}

@test "C files are formatted" {
    requires clang-format
    gate format
}

@test "C files pass cppcheck" {
    requires cppcheck
    gate cppcheck
}

@test "the other compiler gives no warning" {
    requires clang cc
    local other=clang
    ! readelf -p .comment "$PENSTOCK_SO" | grep -q clang || other=gcc
    run env -u MAKEFLAGS -u MAKELEVEL make -C "$ROOT" "-j$(nproc)" CC=$other CFLAGS=-O0 OUT="$WORK/build" sim "$WORK/build/libpenstock.so" \
        "$WORK/build/penstock-doctor" units
    ended_with 0
}

@test "the library exports the hooks and nothing else" {
    gate exports
}

@test "the library depends on libc alone" {
    gate needed
}

@test "every hook exists in the simulated device" {
    requires sim
    gate coverage
}

@test "policy/ is pure" {
    gate purity
}

@test "the README is short, and the manual lists exactly the settings of the table" {
    gate readme
}

# Copies the files that the gates check, so that tests can spoil them.
copy_tree() {
    mkdir -p copy
    tar -C "$ROOT" --exclude=./build --exclude=./.git -cf - . | tar -C copy -xf -
}

# objects GATE PATTERN: the gate fails in the spoilt copy and gives the reason.
objects() {
    run copy/scripts/dev/check --build "$WORK/build" "$1"
    ended_with 1
    contains "$output" "^FAIL +$1"
    contains "$output" "$2"
}

@test "each source gate objects to what it forbids" {
    requires shellcheck clang-format cppcheck cc
    copy_tree
    mkdir copy/extra
    objects layout 'exactly'
    echo 'see ht''tp://example.invalid/' >copy/policy/notes.txt
    objects hosts 'notes.txt:1'
    yes '/* line */' | head -n 701 >copy/policy/long.h
    objects sizes 'long.h: 701'
    printf '/* So ma''ny are several. */\n' >copy/policy/odd.h
    objects words 'odd.h:1:So ma''ny: dialect'
    printf '/* %0100d */\n' 1 >copy/policy/odd.h
    objects words 'odd.h:1: a comment of 106 columns'
    rm copy/policy/odd.h
    printf '# Wide\n\n| %0101d |\n\n    %0101d\n\n- %0101d\n' 1 2 3 >copy/policy/wide.md
    objects words '^ +[^ ]*wide.md:7: a paragraph of 103 columns'
    lacks "$output" 'wide.md:[1-6]:'
    rm copy/policy/wide.md
    yes one more | head -n 41 >>copy/CHANGELOG.md
    objects sizes 'CHANGELOG.md: [0-9]+ lines; at most 40'
    cp "$ROOT/CHANGELOG.md" copy/
    printf '#!/bin/bash\nrm $1\n' >copy/scripts/dev/careless
    objects shell 'careless'
    printf '#!/bin/bash\n# shellcheck disable=SC2064\ntrap "rm $1" EXIT\n' >copy/scripts/dev/careless
    objects shell 'careless:3.*a trap stands in single quotes'
    printf 'int  ps_ugly ( void ) ;\n' >copy/policy/ugly.h
    objects format 'ugly.h:1'
    printf 'int ps_wrong(void);\nint ps_wrong(void)\n{\n    int a[2] = {0, 0};\n    return a[2];\n}\n' >copy/policy/wrong.c
    objects cppcheck 'wrong.c:5'
    sed -i 's/^<!-- settings: begin.*/&\n| `PENSTOCK_OLD` | gone |/' copy/scripts/manual/settings.md
    mkdir -p build
    cp "$BUILD/penstock-settings" build/
    objects readme 'PENSTOCK_OLD'
    yes line | head -n 251 >copy/README.md
    objects readme 'README.md: 251 lines'
}

@test "each binary gate objects to what it forbids" {
    requires cc
    copy_tree
    mkdir -p build/obj/policy
    gcc -x c -shared -fPIC -o build/libpenstock.so - -Wl,--no-as-needed -lm <<<'int stowaway(void) { return 1; }'
    objects exports 'stowaway: exported, and not listed'
    objects exports 'cudaMalloc: listed, and not exported'
    objects needed 'libm.so.6: needed'
    gcc -x c -c -o build/obj/policy/impure.o - <<<'#include <stdlib.h>
void *impure(void); void *impure(void) { return malloc(4); }'
    objects purity 'impure.o: calls malloc'
}

# hardened FILE: the file has the protections that loaders and linkers can see.
hardened() {
    contains "$(readelf -hW "$1")" 'Type: +DYN' && contains "$(readelf -lW "$1")" 'GNU_RELRO' && contains "$(readelf -dW "$1")" 'BIND_NOW|FLAGS_1.* NOW' &&
        contains "$(readelf -lW "$1")" 'GNU_STACK .* RW ' && lacks "$(readelf -dW "$1")" 'TEXTREL|RPATH|RUNPATH'
}

@test "released programs and the library are built with the compiler's protections against memory errors" {
    requires release cc
    local file
    for file in "$BUILD/libpenstock.so" "$BUILD"/penstock-{doctor,plan,plan-bound,settings,top,trade}; do
        hardened "$file"
        contains "$(nm -D --undefined-only "$file")" '__stack_chk_fail'
        contains "$(nm -D --undefined-only "$file")" '__[a-z]+_chk(@|$)' # _FORTIFY_SOURCE
    done
    if echo 'int main(void) { return 0; }' | gcc -fcf-protection=full -x c -c -o branches.o - 2>/dev/null && readelf -nW branches.o | grep -q IBT; then
        for file in shim/base/log policy/lru scripts/command/penstock-top; do contains "$(readelf -nW "$BUILD/obj/$file.o")" 'IBT, SHSTK'; done
    fi
    ! gcc -fstack-clash-protection -x c -c -o stack.o /dev/null 2>/dev/null || contains "$(cat "$BUILD/flags")" ' -fstack-clash-protection '
}

@test "unoptimised and sanitizer builds omit the protections, and the builder's own flags are kept" {
    requires nvcc
    commands() { env -u MAKEFLAGS -u MAKELEVEL CUDA_HOME="$TOOLKIT" make -C "$ROOT" -n --no-print-directory V=1 DEBUG= OUT="$WORK/out" "$WORK/out/obj/policy/lru.o" "$@"; }
    contains "$(commands)" '-D_FORTIFY_SOURCE=2 .*policy/lru\.c'
    lacks "$(commands CFLAGS='-O0 -g')" '_FORTIFY_SOURCE'
    contains "$(commands CFLAGS='-O0 -g')" '-fstack-protector-strong'
    lacks "$(commands DEBUG=1)" '_FORTIFY_SOURCE|-fstack-protector'
    lacks "$(commands SAN=address)" '_FORTIFY_SOURCE|-fstack-protector'
    equal 1 "$(commands CPPFLAGS=-D_FORTIFY_SOURCE=3 | grep 'c.*policy/lru\.c$' | grep -o 'FORTIFY_SOURCE=' | wc -l)" "definitions beside the builder's"
}

# --- the scripts ----------------------------------------------------------------------------------
@test "each script says what it does, and starts nothing for --help or an unknown option" {
    requires python
    local tool script
    mkdir bin empty
    # Other programs than these would not be found, and a script that starts one would complain.
    for tool in env dirname readlink sed; do ln -s "$(type -P $tool)" bin/; done
    ln -s "$(python3 -c 'import sys; print(sys.executable)')" bin/python3
    ln -s "$ROOT/scripts" scripts
    cd empty
    for script in ../scripts/{dev,gpu,packages}/*; do
        [ -f "$script" ] && [ -x "$script" ] || continue
        # By a relative path, from another directory than the tree's.
        run env -i PATH="$WORK/bin" TMPDIR="$WORK/empty" PYTHONDONTWRITEBYTECODE=1 "$script" --help
        ended_with 0
        contains "${lines[0]}" '[^ ] +[^ ]'
        contains "$output" "${script##*/}( |\$)"
        lacks "$output" 'not found|No such file'
        run env -i PATH="$WORK/bin" TMPDIR="$WORK/empty" PYTHONDONTWRITEBYTECODE=1 "$script" --no-such-option
        ended_with 2
        contains "$output" '--no-such-option|arguments are required'
        lacks "$output" 'not found|No such file'
    done
    equal '' "$(ls -A)" "files made"
}

# --- the test runner ------------------------------------------------------------------------------
# Makes a tree with nothing but the runner and the given tests/bats/room/sample.bats.
sample_suite() {
    mkdir -p tree/tests/bats/room tree/tests/lib tree/build/unit
    cp -r "$ROOT/scripts" "$ROOT/include" tree/
    cp "$ROOT"/tests/lib/{helper,patience}.bash tree/tests/lib/
    sed 's/^TEST /@test /' >tree/tests/bats/room/sample.bats # bats would take an @test in a here-document for a test of this file
}

# sample_run [VARIABLE=VALUE]... NAME...: runs as from a person's shell, without the outer bats'
# variables and its directory on PATH.
sample_run() {
    local path variables=()
    path=$(tr : '\n' <<<"$PATH" | grep -v bats | paste -sd:)
    while [[ "$1" == *=* ]]; do
        variables+=("$1")
        shift
    done
    run env -i PATH="$path" HOME="$HOME" "${variables[@]}" tree/scripts/dev/test --build build "$@"
}

@test "the runner ends with the number of tests that passed, failed and were skipped" {
    sample_suite <<'EOF'
load ../../lib/helper
TEST "good" { true; }
TEST "bad" { echo reason; false; }
TEST "absent" { skip "no reason"; }
EOF
    printf '#!/bin/sh\nexit 0\n' >tree/build/unit/test_good
    printf '#!/bin/sh\necho detail; exit 3\n' >tree/build/unit/test_bad
    printf '#!/bin/sh\necho "not here"; exit 77\n' >tree/build/unit/test_skip
    chmod +x tree/build/unit/*
    sample_run unit sample
    ended_with 1
    equal '2 passed, 2 failed, 2 skipped' "${lines[-1]}"
    contains "$output" 'FAIL .*bad'
    contains "$output" '# .*reason'
    contains "$output" 'detail'
}

@test "the runner's status is 0 when all tests pass" {
    sample_suite <<'EOF'
TEST "good" { true; }
EOF
    sample_run room # the folder's name
    ended_with 0
    contains "$output" '^took  room [0-9]+ s$'
    equal '1 passed, 0 failed' "${lines[-1]}"
}

@test "the runner runs less by turns if it would not be over in time, and says so" {
    sample_suite <<'EOF'
load ../../lib/helper
TEST "first" { sleep 8; }
EOF
    {
        echo 'load ../../lib/helper'
        printf '@test "%d" { by_turn 1; echo "$PENSTOCK_TEST_SEEDS" >"$SEEN"; }\n' {1..9}
    } >tree/tests/bats/room/later.bats
    sample_run SEEN="$WORK/seen" PENSTOCK_TEST_TURN=1 PENSTOCK_TEST_UNTIL=$(($(date +%s) + 600)) sample later
    ended_with 0
    equal '10 passed, 0 failed' "${lines[-1]}"
    equal 80 "$(cat seen)" "seeds"
    sample_run SEEN="$WORK/seen" PENSTOCK_TEST_TURN=1 PENSTOCK_TEST_UNTIL=$(($(date +%s) + 40)) sample later
    ended_with 0
    local pace
    pace=$(sed -nE 's/^pace: 1 of 10 tests ran in [0-9]+ s, and [0-9]+ s are left; turns come ([0-9]) times less often$/\1/p' <<<"$output")
    contains "${lines[-1]}" '^[2-9] passed, 0 failed, [1-8] skipped$'
    at_least 2 "$pace" pace
    equal $((80 / pace)) "$(cat seen)" "seeds"
}

@test "the runner leaves out what would begin too late, and names it" {
    sample_suite <<'EOF'
TEST "good" { true; }
EOF
    cp tree/tests/bats/room/{sample,later}.bats
    sample_run PENSTOCK_TEST_UNTIL=1 sample later
    ended_with 1
    contains "$output" '^left out, as the time of this run was over: room/(sample.bats room/later.bats|later.bats room/sample.bats)$'
    equal '0 passed, 0 failed, 2 skipped' "${lines[-1]}"
}

@test "the runner adds up the seconds of each room, those of unit programs too" {
    sample_suite <<'EOF'
TEST "good" { true; }
EOF
    mkdir -p tree/tests/unit/{lobby,stairs/up}
    touch tree/tests/unit/lobby/test_{quick,slow}.c tree/tests/unit/stairs/up/test_upstairs.c
    printf '#!/bin/sh\nsleep 0.6\n' | tee tree/build/unit/test_quick >tree/build/unit/test_slow
    printf '#!/bin/sh\n' | tee tree/build/unit/test_upstairs >tree/build/unit/test_unknown
    chmod +x tree/build/unit/*
    sample_run
    ended_with 0
    contains "$output" '^took  room [0-9]+ s unit [0-9]+ s unit/lobby [1-9][0-9]* s unit/stairs [0-9]+ s$'
}

@test "each test file and unit program has a /dev/shm of its own where the user may make one" {
    unshare --mount sh -c 'mount -t tmpfs tmpfs /dev/shm' 2>/dev/null || skip "this user can mount nothing"
    sample_suite <<'EOF'
TEST "alone" { [ -z "$(ls -A /dev/shm)" ]; }
EOF
    printf '#!/bin/sh\nls -A /dev/shm | grep . && exit 1\nexit 0\n' >tree/build/unit/test_alone
    chmod +x tree/build/unit/test_alone
    [ -n "$(ls -A /dev/shm)" ] # at least this suite's directory
    sample_run
    ended_with 0
    equal '2 passed, 0 failed' "${lines[-1]}"
}

@test "a file that bats can't run counts as a failure" {
    sample_suite <<'EOF'
load there-is-no-such-file
TEST "good" { true; }
EOF
    sample_run sample
    ended_with 1
    contains "${lines[-1]}" '^0 passed, [1-9]'
}

@test "a test that hangs is ended and counts as a failure" {
    sample_suite <<'EOF'
TEST "hangs" { sleep 60; }
EOF
    sample_run PENSTOCK_TEST_TIMEOUT=1 sample
    ended_with 1
    equal '0 passed, 1 failed' "${lines[-1]}"
}

@test "a run without tests counts as a failure" {
    run "$ROOT/scripts/dev/test" --build "$BUILD" no-such-test
    ended_with 1
    equal '0 passed, 1 failed' "${lines[-1]}"
}

@test "an unknown word in requires fails the test" {
    sample_suite <<'EOF'
load ../../lib/helper
TEST "misspelt" { requires smi; }
EOF
    sample_run sample
    ended_with 1
    contains "$output" 'smi: no such word'
}

@test "strict mode turns a skip into a failure, except for want of a GPU" {
    sample_suite <<'EOF'
load ../../lib/helper
TEST "no simulated device is built here" { requires sim; }
TEST "no GPU" { requires gpu; }
EOF
    sample_run sample
    ended_with 1 # nothing passed
    equal '0 passed, 0 failed, 2 skipped' "${lines[-1]}"
    sample_run PENSTOCK_TEST_STRICT=1 sample
    equal '0 passed, 1 failed, 1 skipped' "${lines[-1]}"
    sample_run PENSTOCK_TEST_STRICT=all sample
    equal '0 passed, 2 failed' "${lines[-1]}"
}

@test "the waiting helpers end" {
    wait_until 5 true
    run wait_until 1 false
    ended_with 1
    sleep 0.2 &
    wait_for_exit 5 $!
}
