#!/usr/bin/env bats
# Defects that were mended are noticed by the tests if they come back (scripts/dev/defects). The
# table, its patches and its tests fit the tree.

load ../../lib/helper

# All of them take a quarter of an hour.
is_short || export BATS_TEST_TIMEOUT=$(($(patience 1800)))

setup() { helper_setup 1800; requires sim samples python patch release; }

defects() { run "$ROOT/scripts/dev/defects" "$@"; }

@test "the table of defects is that of the script, its patches apply, and its rules and tests exist" {
    defects --check
    ended_with 0
    equal '' "$output"
    # The check itself objects to each of these.
    mkdir copy
    tar -C "$ROOT" --exclude=./build --exclude=./.git -cf - . | tar -C copy -xf -
    sed -i 's/^| r5 | .*/| r5 | |/' copy/tests/README.md
    sed -i 's/^PS_ORDERING_RULE(KERNEL_GRAPH_STAYS,/PS_ORDERING_RULE(KERNEL_GRAPH_LEAVES,/' copy/shim/base/ordering_rules.def
    sed -i 's/ps_uses_merge_one(&span->order.uses, span->order.after)/ps_uses_join(\&span->order.uses)/' copy/shim/core/allocation.c
    sed -i 's/^@test "nothing is unmapped under work/&s/' copy/tests/bats/runtime/refusals.bats
    sed -i 's/^hostile-graph-children /hostile-graph-parents /' copy/scripts/dev/seeds
    cp copy/tests/defects/{note-stays,spare}.patch
    run copy/scripts/dev/defects --check
    ended_with 1
    contains "$output" '^-\| r5 \| \|$'
    contains "$output" '^r8: no rule KERNEL_GRAPH_STAYS$'
    contains "$output" '^r1: former-uses-forgotten.patch does not apply: '
    contains "$output" '^D6: runtime/refusals.bats has no test with this name$'
    contains "$output" '^memcpy-node: no workload hostile-graph-children$'
    contains "$output" 'spare.patch: no defect of the table has this patch$'
}

@test "a defect that comes back is noticed" {
    by_turn 4
    local names=() quick
    # In a short run, one that needs no build of its own and whose test takes seconds.
    mapfile -t quick < <("$ROOT/scripts/dev/defects" --list | sed -nE 's/^([^:]+): rule \w+: (seeds|moment) .*/\1/p')
    at_least 3 ${#quick[@]} "quick ones"
    ! is_short || mapfile -t names < <(some_of ${#quick[@]} "${quick[@]}")
    defects "${names[@]}"
    grep -E '^(ok|FAIL|defects:) ' <<<"$output" | cut -c 1-150 | sed 's/^/# /' >&3
    ended_with 0
    contains "$output" "^defects: ([0-9]+) taken back, \1 noticed, 0 not$"
}

@test "what no test notices, and what can't be shown, is reported" {
    by_turn 4
    local layout='bats house/house the top level holds exactly what the design lists'
    defects --try 'rule NCCL_NAMES_SPANS' "$layout"
    ended_with 1
    contains "$output" '^FAIL +other: not noticed: the test passes '
    contains "$output" '^defects: 1 taken back, 0 noticed, 1 not$'
    defects --try 'rule NCCL_NAMES_SPANS' 'bats house/house no such test'
    ended_with 1
    contains "$output" '^FAIL +other: bats ended with status '
    defects --try 'rule NCCL_NAMES_SPANS' 'seeds 30-100 no-such-workload'
    ended_with 1
    contains "$output" '^FAIL +other: seeds ended with status 2: .*no-such-workload: no such workload'
    defects --try 'rule NO_SUCH_RULE' "$layout"
    ended_with 1
    contains "$output" '^FAIL +other: NO_SUCH_RULE: no such rule'
    defects no-such-defect
    ended_with 2
    contains "$output" 'no-such-defect: no such defect'
}
