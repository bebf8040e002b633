#!/usr/bin/env bats
# Tables of addresses that kernels write on the device (tests/samples/made_tables.cu). A launch that
# uses one names the table alone. The sample's output stays the same to the last bit in every order
# of the device, and nothing faults, under each guard. tests/bats/memory/ordering-rules.bats shows
# the rules that this needs.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup; requires sim samples jq plain; by_turn 2; }

# right PERCENT SEEDS OPTION... WORKLOAD...: these runs are right, and spans moved in them.
right() {
    local percent=$1 seeds=$2
    shift 2
    run "$ROOT/scripts/dev/seeds" --build "$BUILD" --library "$PENSTOCK_SO" --percent "$percent" --seeds "$seeds" "$@"
    ended_with 0 || return 1
    contains "$output" '^seeds: [1-9][0-9]* runs .* 0 failed; [1-9][0-9]+ evictions'
    tail -n 1 <<<"$output" | sed "s/^/# /" >&3
}

SOON=(tables-each tables-apart tables-long tables-beside tables-{apart,long,beside}-disguised)

@test "spans used by a table soon after it was written are there" {
    right 30-80 160 "${SOON[@]}"
}

@test "spans used by a fresh table are there when hardly anything fits, so that spans leave in their grace" {
    right 4-30 120 --first 1001 "${SOON[@]}"
}

@test "spans used by a fresh table are there with a thread for each stream" {
    right 10-80 40 --first 2001 --scheduler threads "${SOON[@]}"
}

@test "spans used by a table are there while plans are followed" {
    right 20-80 60 --first 3001 --policy plan tables-plan tables-plan-disguised tables-once-plan
}

@test "spans used by a table are there under plans when hardly anything fits, so that spans stay on their slots" {
    right 9-19 120 --first 1001 --policy plan tables-plan-disguised
}

@test "spans used by a table long after it was written are there" {
    right 30-80 80 --first 4001 tables-once tables-later
    right 4-30 60 --first 5001 tables-once tables-later
    right 10-80 30 --first 6001 --scheduler threads tables-once tables-later
}

# made MODE [VARIABLE=VALUE]...: runs the sample under Penstock in three fifths of its memory.
made() {
    local mode=$1
    shift
    run_penstock PENSTOCK_MIN_SPAN="$SPAN_FROM" PENSTOCK_BUDGET=780KiB "$@" "$SAMPLES/made_tables" "$mode" 6
    ended_with 0 && contains "$output" '^ok$' && counted evictions
}

@test "each table that a kernel makes is known, by either tracer, and a program without tables has none" {
    local tracer
    for tracer in cupti hook; do
        # 24 products in each of six steps.
        made each PENSTOCK_TRACER=$tracer
        equal $((24 * 6)) "$(report made_tables)" "tables"
        # Plus one for each of the eight weights.
        made once PENSTOCK_TRACER=$tracer
        equal $((8 + 24 * 6)) "$(report made_tables)" "tables of which some are made once"
        equal 0 "$(report pointer_tables)" "tables that were copied"
    done
    train
    right_results
    equal 0 "$(report made_tables)" "tables of a trainer that has none"
}

@test "a plan has each launch that names its spans by a table alone, though the first of them named none" {
    local mode launches
    # A step: two launches to begin, and eight copies of weights. In each of eight layers three
    # products, each one launch or eight, their tables, and three other launches.
    while read -r mode launches; do
        run_penstock PENSTOCK_MIN_SPAN="$SPAN_FROM" PENSTOCK_BUDGET=780KiB "$SAMPLES/made_tables" "$mode" 16
        ended_with 0 && contains "$output" '^ok$'
        equal "$launches" "$(report 'learning.patterns[0].launches')" "launches of a step in mode $mode"
        at_least $(($(report evictions) / 2)) "$(report plan.evictions)" "evictions by the plan in mode $mode"
        at_most $(($(report reloads) / 2)) "$(report demand_reloads)" "reloads that launches had to begin in mode $mode"
    done <<<"each 82
apart 130
long 250
beside 82
once 82"
}

@test "spans that the last launch of a grace uses by a table are there, even beside a capture or a lack of room" {
    local case guard seed
    for case in table-grace-end table-beside-capture; do
        for guard in unmap host; do
            for seed in 1 2; do
                run_penstock PENSTOCK_BUDGET=18MiB PENSTOCK_POLICY=lru PENSTOCK_GUARD=$guard CUDASIM_SCHED=seeded CUDASIM_SEED=$seed \
                    "$SAMPLES/hostile" $case 16 4
                ended_with 0
                counted evictions
            done
        done
    done
}
