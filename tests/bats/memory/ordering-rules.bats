#!/usr/bin/env bats
# Each ordering rule of shim/base/ordering_rules.def is needed. Without the rule, in a build made
# for that (MUTANT=1), some seed goes wrong. With all rules the same build and the same seeds are
# right. So the seeds of seeds.bats would detect a broken rule.

load ../../lib/helper

MUTANT=$ROOT/build/mutant
# A missing rule must show within this many seeds. A tenth of them or fewer suffices.
SEEDS=240

setup_file() {
    requires sim samples jq release
    env -u MAKEFLAGS -u MAKELEVEL make -C "$ROOT" --no-print-directory "-j$(nproc)" MUTANT=1 build/mutant/libpenstock.so \
        build/mutant/unit/test_orderings >&2
}

setup() {
    helper_setup
    requires sim samples jq release
    [ "$BATS_TEST_NUMBER" -le 3 ] || by_turn 6
}

# without RULE COMMAND...: runs the command with the rule dropped.
without() {
    local rule=$1
    shift
    run env "PENSTOCK_TEST_DROP_RULE=$rule" "$@"
}

# trainers_need RULE PERCENT WORKLOAD...: these workloads fail without the rule, with budgets of
# PERCENT of their memory.
trainers_need() {
    local rule=$1 percent=$2 runs
    shift 2
    local seeds=("$ROOT/scripts/dev/seeds" --build "$BUILD" --library "$MUTANT/libpenstock.so" --percent "$percent")
    without "$rule" "${seeds[@]}" --limit 10 --seeds $SEEDS --stop "$@"
    ended_with 1
    contains "$output" '^FAIL '
    runs=$(sed -nE 's/^seeds: ([0-9]+) runs .*/\1/p' <<<"$output")
    grep -m 1 '^FAIL ' <<<"$output" | cut -c 1-150 | sed "s/^/# /" >&3
    # With the rule nothing hangs; beside busy neighbours a run may take long.
    run "${seeds[@]}" --limit 60 --seeds "$runs" "$@"
    ended_with 0
}

# moment_needs RULE CASE: the case fails without the rule. tests/unit/residency/test_orderings.c
# makes such moments, which trainers don't reach.
moment_needs() {
    local rule=$1 case=$2 first
    for ((first = 1; first < SEEDS; first += 24)); do
        without "$rule" "LD_LIBRARY_PATH=$SIM" "$MUTANT/unit/test_orderings" "$case" $first 24
        [ "$status" -eq 0 ] || break
    done
    ended_with 1
    contains "$output" "case $case, seed"
    grep -m 1 "case $case, seed" <<<"$output" | sed "s/^ */# /" >&3
    run env "LD_LIBRARY_PATH=$SIM" "$MUTANT/unit/test_orderings" "$case" $first 24
    ended_with 0
}

rules() { sed -nE 's/^PS_ORDERING_RULE\(([A-Z_]+),.*/\1/p' "$ROOT/shim/base/ordering_rules.def"; }

@test "every rule has its test in this file or in storm.bats" {
    at_least 14 "$(rules | wc -l)" rules
    for rule in $(rules); do
        contains "$(cat "$BATS_TEST_FILENAME" "$ROOT/tests/bats/runtime/storm.bats")" "^    (trainers_need|moment_needs|faults_need) $rule "
    done
}

@test "the released library has no switch for the rules" {
    run grep -c PENSTOCK_TEST_DROP_RULE "$PENSTOCK_SO"
    equal 0 "$output" "names of the switch in libpenstock.so"
    run grep -c PENSTOCK_TEST_DROP_RULE "$MUTANT/libpenstock.so"
    at_least 1 "$output" "names of the switch in the build for these tests"
}

@test "a launch holds the spans that it names" {
    trainers_need PIN_WHILE_LAUNCHING 5-15 mlp-halves-async transformer-halves-async mlp-streams
}

@test "a small block that was freed on a stream is handed out again only there" {
    trainers_need SMALL_STAYS_ON_STREAM 30-100 transformer-halves-async mlp-halves-async
}

@test "a tick is claimed before its event is recorded" {
    trainers_need TICK_BEFORE_RECORD 30-100 mlp-halves-async transformer-halves
}

@test "an eviction waits for the uses on every stream" {
    trainers_need EVICTION_WAITS_FOR_USES 30-100 mlp-streams transformer-async-streams
}

@test "an eviction waits for the launches that may use the span without naming it" {
    trainers_need EVICTION_WAITS_FOR_GRACE 10-30 tables-long-disguised tables-beside-disguised
}

@test "a launch that may use a span without naming it waits while the span moves" {
    trainers_need GRACE_WAITS_FOR_MOVE 5-20 tables-apart-disguised tables-long-disguised
}

@test "a launch that may use a span without naming it comes after the span's reload, on any stream" {
    moment_needs GRACE_WAITS_FOR_RELOAD reload-in-grace
    moment_needs GRACE_WAITS_FOR_RELOAD reload-beside-launch
}

@test "a launch that ends while a grace begins again is waited for" {
    moment_needs GRACE_LOOKS_AGAIN launch-beside-grace
}

@test "a launch that is slow in its call belongs to the grace in which it began" {
    moment_needs GRACE_WAITS_FOR_SLOW_LAUNCH stand-in-call
    moment_needs GRACE_WAITS_FOR_SLOW_LAUNCH stand-before-call
}

@test "an eviction waits for the reload before it" {
    moment_needs EVICTION_WAITS_FOR_RELOAD evict-while-reloading
}

@test "an eviction waits for the reload that still reads its slot" {
    trainers_need EVICTION_WAITS_FOR_SLOT 30-100 transformer-skew-eval transformer-threads
}

@test "an eviction to several slots waits for the reloads that still read any of them" {
    moment_needs EVICTION_WAITS_FOR_SLOT evict-to-row
    moment_needs EVICTION_WAITS_FOR_SLOT evict-to-slot-of-row
}

@test "the mapping moves to the slot when the copy is over" {
    trainers_need REMAP_WAITS_FOR_COPY 30-100 mlp-async transformer-shapes
}

@test "an access cancels an eviction under way and keeps the pages" {
    trainers_need ACCESS_JOINS_EVICTION 30-100 transformer-skew-eval mlp-halves-async
}

@test "an access waits for the reload of its span" {
    trainers_need ACCESS_WAITS_FOR_RELOAD 30-100 mlp transformer-streams
}

@test "a copy that may read ahead of its stream waits for the reload on the host" {
    trainers_need READ_AHEAD_WAITS_FOR_RELOAD 30-60 hostile-copies-ahead
}

@test "memory that is freed on the default stream is reused after the work of blocking streams" {
    trainers_need FREE_ON_LEGACY_IS_BARRIER 95-100 orders-legacy orders-legacy-event
}

@test "a span does not leave while a cancelled copy still reads it" {
    trainers_need EVICTION_WAITS_FOR_READERS 50-60 hostile-graph-join
}

@test "every stream that uses a reloaded span waits for the H2D" {
    trainers_need EVERY_STREAM_WAITS 30-100 mlp-async-streams-skew mlp-halves
}

@test "a reload waits for launches of the grace that ran on the slot" {
    moment_needs RELOAD_WAITS_FOR_GRACE hold-in-grace
}

@test "a reload waits for launches that ran on the slot" {
    trainers_need RELOAD_WAITS_FOR_SLOT_USES 5-15 transformer-async
}

@test "a span that rules keep in place moves to pages when nothing else runs" {
    moment_needs RELOAD_WAITS_FOR_UNSEEN reload-under-unseen-use
}

@test "a reload waits for the last use of the pages that it takes" {
    trainers_need RELOAD_WAITS_FOR_PAGES 30-100 mlp-async transformer-shapes
}

@test "an allocation waits for the free before it" {
    trainers_need REUSE_WAITS_FOR_FREE 30-100 mlp-streams mlp-shapes
}

@test "pages of a freed span are unmapped when their last use is over" {
    trainers_need RELEASE_WAITS_FOR_USES 30-100 mlp-async transformer-shapes
}

@test "a span freed while it moves keeps its pages until the copy is over" {
    moment_needs FREE_WAITS_FOR_COPY free-after-cancel
}

@test "the mapping stays on the slot while a launch that will run there is not queued" {
    moment_needs RELOAD_WAITS_FOR_LAUNCH reload-before-launch
}

@test "an access that waited for pages in vain looks again" {
    trainers_need ACCESS_LOOKS_AGAIN 1-4 transformer-halves-async mlp-halves
}

@test "the launch of a graph is an access to all spans that its nodes name" {
    trainers_need GRAPH_NAMES_SPANS 30-60 hostile-graph-nodes
    trainers_need GRAPH_NAMES_SPANS 30-60 random-branches
}

@test "spans of a graph that kernels launch are on the device, with their bytes, and stay there" {
    trainers_need KERNEL_GRAPH_STAYS 40-80 hostile-graph-by-kernel
    trainers_need KERNEL_GRAPH_WAITS 40-80 hostile-graph-by-kernel
}

@test "addresses that become part of a graph lead to device pages while the driver looks, after uses of the slot" {
    trainers_need GRAPH_SHOWS_DEVICE_PAGES 30-60 hostile-graph-children
    trainers_need STAND_IN_WAITS_FOR_SLOT_USES 8-12 hostile-graph-children
}

@test "while the driver looks at stand-ins, no launch is queued that may use the span" {
    moment_needs STAND_IN_HOLDS_LAUNCHES look-in-grace
}

@test "no event of ours is recorded on the legacy stream while a blocking stream is captured" {
    moment_needs CAPTURE_BARS_LEGACY wait-for-legacy-in-capture
}

@test "the work of a stream that is destroyed while it is captured is waited for" {
    moment_needs CAPTURED_WITH_TICK destroy-in-capture
}

@test "a stream that joins a capture brings no event of ours into it" {
    moment_needs JOINING_HOLDS_RECORDS join-while-recording
}

@test "memory of a destroyed graph is freed after everything that was queued" {
    moment_needs GRAPH_MEMORY_WAITS_FOR_ALL graph-goes
}

@test "driver calls during a capture don't break it" {
    trainers_need CAPTURE_STAYS_VALID 20-60 hostile-graph
}

@test "a call of NCCL's is an access to its buffers" {
    trainers_need NCCL_NAMES_SPANS 30-60 nccl-buckets nccl-transfers
}

@test "spans that a group of NCCL's names are held until the group ends" {
    trainers_need NCCL_HOLDS_UNTIL_GROUP_END 40-70 nccl-group
}

@test "spans for a launch by NCCL's thread are held until the communicator reports success" {
    trainers_need NCCL_HOLDS_UNTIL_SUCCESS 40-70 nccl-nonblocking nccl-watched
}

@test "a registered buffer stays on its pages" {
    trainers_need NCCL_REGISTERED_STAYS 40-70 nccl-registered nccl-window
}

@test "a graph touches the buffers of NCCL's calls under its capture" {
    trainers_need NCCL_IN_GRAPH_IS_KNOWN 40-70 nccl-graph
}

@test "a launch that is given a pointer table is an access to the spans that the table names" {
    trainers_need TABLE_NAMES_SPANS 30-60 hostile-pointer-table hostile-table-changes
    trainers_need TABLE_NAMES_SPANS 30-60 hostile-tensor-map
    trainers_need TABLE_NAMES_SPANS 30-60 hostile-table-moves
    trainers_need HOST_TABLE_NAMES_SPANS 30-60 hostile-host-table
    trainers_need MADE_TABLE_NAMES_SPANS 30-70 tables-once tables-later
    trainers_need FREED_TABLE_STAYS 30-60 hostile-freed-table
    moment_needs FREED_TABLE_STAYS reload-beside-table
    trainers_need TABLE_NAMES_SPANS 30-60 hostile-table-graph
    trainers_need TABLE_NAMES_SPANS 30-60 hostile-module-table
    trainers_need TABLE_NAMES_SPANS 30-60 hostile-module-table-graph
}

@test "memory under a texture stays where it is" {
    trainers_need TEXTURED_STAYS 30-60 hostile-texture
}

@test "a launch that names a block is queued when none of its pieces is on the move" {
    trainers_need BLOCK_LAUNCH_WAITS_FOR_MOVES 30-90 blocks blocks-streams blocks-threads
}

@test "a launch that names a block comes after the reload of each of its pieces" {
    trainers_need BLOCK_LAUNCH_WAITS_FOR_RELOADS 30-90 blocks blocks-streams blocks-plan
}

@test "a launch that names a block comes after the last reload when two threads queued reloads" {
    trainers_need BLOCK_WAITS_FOR_LAST_RELOAD 8-15 blocks-plan
}

@test "a piece moves after all launches that named its block" {
    trainers_need PIECE_MOVES_AFTER_LAUNCHES 30-90 blocks blocks-streams
}

@test "no piece begins to move while a launch that named its block is about to be queued" {
    trainers_need PIECE_STAYS_WHILE_LAUNCHING 30-90 blocks-plan-streams blocks-plan
}

@test "memory that the program maps elsewhere leaves its addresses when no copy uses it there" {
    trainers_need MOVE_WAITS_FOR_COPIES 30-70 mappings-swaps mapped-moves mapped-range
}
