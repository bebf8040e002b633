#!/usr/bin/env bats
# The samples on a device that takes the worst order that a seed finds, under budgets from 30 % to
# 100 % of their memory. Their results stay the same to the last bit, and the device reports no
# error. scripts/dev/seeds makes the runs.
# PENSTOCK_TEST_SEEDS=80 is the number of runs in all.

load ../../lib/helper

setup() { helper_setup; requires sim samples jq plain; }

SEEDS=$PENSTOCK_TEST_SEEDS

# seeds NAME OPTION...: makes the runs, which must all be right. Their counters are in NAME.json,
# for the tests further down.
seeds() {
    local name=$1
    shift
    run "$ROOT/scripts/dev/seeds" --build "$BUILD" --library "$PENSTOCK_SO" --totals "$BATS_FILE_TMPDIR/$name.json" "$@"
    ended_with 0 || return 1
    contains "$output" '^seeds: [1-9][0-9]* runs .* 0 failed'
    tail -n 1 <<<"$output" | sed "s/^/# /" >&3
}

workloads() { "$ROOT/scripts/dev/seeds" --list | grep -E "$1"; }

# done_in NAME... KEY: prints the sum of a counter over the runs of these names.
done_in() {
    local key=${*: -1} files=()
    while [ $# -gt 1 ]; do
        files+=("$BATS_FILE_TMPDIR/$1.json")
        shift
    done
    jq -es "map(.$key) | add" "${files[@]}"
}

@test "the workloads cover both trainers and each of their variants" {
    local list option trainer
    list=$(sed -n '/^workloads="/,/^"/p' "$ROOT/scripts/dev/seeds" | tr -d '$')
    for option in --alloc=async --streams=2 --threads=2 --halves=2 --shapes= --skew --eval-every= --skip-every= --print=end; do
        for trainer in mlp transformer; do
            contains "$list" "^$trainer.* $trainer .*$option"
        done
    done
}

@test "the MLP's losses, gradients and parameters are the same in every seed" {
    mapfile -t names < <(workloads '^mlp')
    seeds mlp --first 1 --seeds $((SEEDS * 2 / 5)) "${names[@]}"
}

@test "the transformer's losses, gradients and parameters are the same in every seed" {
    mapfile -t names < <(workloads '^transformer')
    seeds transformer --first 100001 --seeds $((SEEDS * 2 / 5)) "${names[@]}"
}

@test "other programs than trainers see the same bytes in every seed" {
    mapfile -t names < <(workloads '^hostile')
    seeds hostile --first 200001 --seeds $((SEEDS / 5)) "${names[@]}"
}

@test "streams that wait for each other wait for nothing else, in any seed" {
    mapfile -t names < <(workloads '^orders')
    seeds orders --first 700001 --seeds $((SEEDS / 10 + ${#names[@]})) "${names[@]}"
}

@test "the trainers' results are the same in every seed when hardly anything fits on the device" {
    mapfile -t names < <(workloads '^(mlp|transformer)')
    seeds scarce --first 300001 --seeds $((SEEDS / 10 + 20)) --percent 1-20 "${names[@]}"
}

@test "results are the same in every seed while plans are followed, and when a step departs from its plan" {
    mapfile -t names < <(workloads '^plan')
    seeds plan --first 400001 --seeds $((SEEDS / 8)) --policy plan "${names[@]}"
    seeds layers --first 500001 --seeds $((SEEDS / 8)) --policy layers "${names[@]}"
    seeds plan-scarce --first 600001 --seeds $((SEEDS / 50 + 4)) --percent 5-30 --policy plan "${names[@]}"
    # Two threads that train at the same time repeat nothing; all other workloads do.
    local policy
    for policy in plan layers plan-scarce; do
        at_least $(($(done_in $policy runs) * 4 / 5)) "$(done_in $policy runs_with_plans)" "$policy: runs that followed plans"
        at_least $(($(done_in $policy runs) * 3)) "$(done_in $policy plan_steps)" "$policy: whole steps under plans"
        at_least $(($(done_in $policy runs) * 4)) "$(done_in $policy plan_reloads)" "$policy: reloads that plans began"
        at_least $(($(done_in $policy runs) / 5)) "$(done_in $policy patterns_lost)" "$policy: departures from a step"
        equal 0 "$(done_in $policy reload_errors)" "$policy: reloads that failed"
        equal 0 "$(done_in $policy eviction_errors)" "$policy: evictions that failed"
    done
}

@test "results are the same in every seed when calls block in full queues, streams share queues and kernels run in parts" {
    mapfile -t names < <(some_of 12 $(workloads .))
    seeds harsh --first 800001 --seeds $((SEEDS / 8)) --harsh "${names[@]}"
    at_least $((SEEDS / 16)) "$(done_in harsh runs_with_evictions)" "runs with evictions"
}

@test "in these runs spans left, came back, were kept by cancelled evictions, and were used on their slots" {
    at_least $((SEEDS - 4)) "$(done_in mlp transformer hostile runs)" "runs, of 2000 or as many as were asked for"
    at_least $((SEEDS * 7 / 10)) "$(done_in mlp transformer hostile runs_with_evictions)" "runs with evictions"
    at_least $((SEEDS * 10)) "$(done_in mlp transformer evictions)" evictions
    at_least $((SEEDS * 10)) "$(done_in mlp transformer reloads)" reloads
    at_least $((SEEDS / 10)) "$(done_in mlp transformer evictions_cancelled)" "evictions cancelled"
    at_least $((SEEDS / 2)) "$(done_in mlp transformer rows)" "evictions to several slots"
    at_least $((SEEDS / 2)) "$(done_in plan layers rows)" "evictions to several slots under plans"
    at_least 1 "$(done_in mlp transformer 'guards.unmap')" "runs under the unmap guard"
    at_least 1 "$(done_in mlp transformer 'guards.host')" "runs under the host guard"
    at_least 1 "$(done_in mlp transformer 'tracers.hook')" "runs traced without CUPTI"
    at_least 1 "$(done_in mlp transformer 'tracers.cupti')" "runs traced by CUPTI"
    at_least 1 "$(done_in scarce accesses_on_slot)" "accesses to a span on its slot"
    at_least 1 "$(done_in scarce spans_born_on_slot)" "spans that began on a slot"
}

@test "in these runs no call was refused, and every launch could be read" {
    equal 0 "$(done_in mlp transformer hostile scarce eviction_errors)" "evictions that failed"
    equal 0 "$(done_in mlp transformer hostile scarce reload_errors)" "reloads that failed"
    equal 0 "$(done_in mlp transformer hostile scarce launches_without_layout)" "launches without a layout"
    equal 0 "$(done_in mlp transformer hostile scarce out_of_memory)" "allocations that failed"
}

@test "the runner fails for a library that does nothing" {
    echo 'int nothing;' | gcc -shared -o nothing.so -x c -
    run "$ROOT/scripts/dev/seeds" --build "$BUILD" --library "$WORK/nothing.so" --seeds 2 mlp
    ended_with 1
    contains "$output" '^FAIL mlp seed 1 .*no report'
    contains "$output" '^seeds: 2 runs of 1 workloads .* 2 failed'
}

# stopped_amid_a_run SESSION: stops the whole session; fails, and continues it, if no sample is
# among the stopped processes.
stopped_amid_a_run() {
    pkill -STOP -s "$1"
    sleep 0.05 # until each is stopped; the caller tries again
    pgrep -s "$1" -r T -x 'mlp|transformer' >/dev/null || { pkill -CONT -s "$1" && false; }
}

@test "a run that timed out because the machine stood still is run again" {
    local runner
    mkdir tmp
    TMPDIR=$PWD/tmp setsid "$ROOT/scripts/dev/seeds" --build "$BUILD" --library "$PENSTOCK_SO" --limit 3 --seeds 60 mlp transformer >out 2>&1 &
    runner=$!
    wait_until 20 compgen -G 'tmp/*/*.done' # plain runs are over
    wait_until 20 stopped_amid_a_run $runner
    sleep "$(patience 6)" # the machine stands still for twice what a run may take
    pkill -CONT -s $runner
    wait $runner
    contains "$(<out)" '^seeds: the machine stood still; (mlp|transformer) seed [0-9]+ is run again$'
    contains "$(<out)" '^seeds: 60 runs .* 0 failed'
}

# left_after STEPS: writes the resources that a run of STEPS steps leaves in the driver, by kind.
left_after() {
    run_penstock CUDASIM_GRANULARITY=4096 PENSTOCK_MIN_SPAN=4096 PENSTOCK_BUDGET=300000 "$SAMPLES/mlp" --layers=5 --width=32 --batch=128 \
        --streams=2 --shapes=3 --steps="$1"
    ended_with 0 || return 1
    at_least "$1" "$(report evictions)" "evictions in $1 steps"
    ledger leaks >"left-$1"
}

@test "the resources that Penstock keeps don't grow with the steps" {
    by_turn 2
    left_after 40
    left_after 480
    for kind in handles mappings reservations events streams plain pooled pinned registered; do
        # The number of freed spans and slots varies by a few from run to run. An evicted span has
        # its slot mapped twice, or not yet. The stopwatch keeps up to 256 events, the most that
        # were pending at a time. A leak of one a step would be 440.
        local more=16
        [ "$kind" != mappings ] || more=48
        [ "$kind" != events ] || more=272
        at_most $(($(jq ".$kind" left-40) + more)) "$(jq ".$kind" left-480)" "$kind kept after 480 steps"
    done
}
