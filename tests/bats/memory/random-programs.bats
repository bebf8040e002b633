#!/usr/bin/env bats
# Random programs (tests/samples/random_orders.cu), each rightly ordered by CUDA's rules. Under
# Penstock each reads the words that it wrote, nothing faults, and nothing hangs. Streams of
# random_overlap.cu run side by side as they do without Penstock. Some seeds are fixed. Others are
# new and are printed, so that a failing program can be run again.

load ../../lib/helper

setup() { helper_setup 60; requires sim samples jq plain; }

# How long a wait for a gate may take before the simulated device reports a deadlock: longer than
# the sample waits.
PATIENT=CUDASIM_PATIENCE_MS=60000

# fresh: prints a seed that has hardly ever been used before.
fresh() { echo $((RANDOM * 32768 + RANDOM + 1)); }

# settings_of N: prints the Nth set of settings under which memory is short.
settings_of() {
    local guards=(host unmap auto) tracers=(cupti hook) policies=(lru plan) budgets=(150KiB 220KiB 400KiB)
    echo PENSTOCK_GUARD="${guards[$1 % 3]}" PENSTOCK_TRACER="${tracers[$1 % 2]}" PENSTOCK_POLICY="${policies[$1 / 2 % 2]}" \
        PENSTOCK_BUDGET="${budgets[$1 / 3 % 3]}"
}

# right PROGRAM_SEED DEVICE_SEED [VARIABLE=VALUE]... -- ARGUMENT...: runs this program, which must
# be right.
right() {
    local program=$1 device=$2 settings=()
    shift 2
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    shift
    run_penstock CUDASIM_GRANULARITY=4096 PENSTOCK_MIN_SPAN=4096 CUDASIM_SCHED=seeded CUDASIM_SEED="$device" "${settings[@]}" \
        "$SAMPLES/random_orders" "$program" "$@"
    [ "$status" -eq 0 ] || echo "random_orders $program $*, ${settings[*]}, device seed $device" >&2
    ended_with 0 && contains "$output" '^ok$'
}

# programs N ARGUMENT...: runs N new programs and prints their seeds.
programs() {
    local count=$1 i first settings
    shift
    first=$(fresh)
    echo "# random_orders $first to $((first + count - 1)) $*" >&3
    for ((i = 0; i < count; i++)); do
        read -ra settings <<<"$(settings_of $i)"
        right $((first + i)) $((first + i)) "${settings[@]}" -- "$@" || return 1
    done
}

@test "programs of known seeds compute the same in every order that the device may take" {
    mapfile -t names < <("$ROOT/scripts/dev/seeds" --list | grep -E '^random')
    run "$ROOT/scripts/dev/seeds" --build "$BUILD" --library "$PENSTOCK_SO" --percent 40-100 --seeds 80 "${names[@]}"
    ended_with 0
    contains "$output" '^seeds: 80 runs .* 0 failed; [1-9][0-9]+ evictions'
}

@test "programs that capture branches whose order matters compute the same in every order" {
    programs 12 100 branches
    programs 6 60 4 4 branches threads=2
    # Without memory pressure too, and plain: the device itself must keep each edge and no other.
    local i
    for i in 1 2 3 4; do
        run_sim CUDASIM_GRANULARITY=4096 CUDASIM_SCHED=seeded CUDASIM_SEED=$i "$SAMPLES/random_orders" $i 120 branches
        ended_with 0
        at_least 4 "$(ledger calls.cuGraphLaunch)" "launches of graphs"
        right $i $i PENSTOCK_BUDGET=16MiB -- 120 branches
    done
}

@test "programs that use memory by disguised tables compute the same in every order" {
    run "$ROOT/scripts/dev/seeds" --build "$BUILD" --library "$PENSTOCK_SO" --policy lru --percent 15-100 --seeds 40 tables-random tables-random-steps
    ended_with 0
    contains "$output" '^seeds: 40 runs .* 0 failed; [1-9][0-9]+ evictions'
    # Under a plan, whose step counts copies, too: there four launches of kernels are more places.
    local guard seed
    for guard in host unmap; do
        for seed in 91299 90182 90778; do
            right $seed $seed PENSTOCK_BUDGET=150KiB PENSTOCK_GUARD=$guard PENSTOCK_POLICY=plan -- 60 14 4 masked=4
        done
        # With hardly any memory a graph's copy names spans that are away, after launches on more
        # streams than are tracked separately.
        for seed in 1 2 90004; do
            right 90004 $seed PENSTOCK_BUDGET=40KiB PENSTOCK_GUARD=$guard -- 60 14 4 masked=4
        done
    done
}

@test "new programs are right, with one thread and two, with steps and without" {
    programs 12
    programs 12 200 1 4 threads=2
    programs 12 80 12
}

@test "new programs that hold up streams don't hang while memory suffices" {
    local i first
    first=$(fresh)
    echo "# random_orders $first to $((first + 7)) gates" >&3
    for ((i = 0; i < 8; i++)); do
        right $((first + i)) $i PENSTOCK_BUDGET=16MiB $PATIENT -- gates
        right $((first + i)) $i PENSTOCK_BUDGET=16MiB $PATIENT -- 150 1 4 gates threads=2
    done
}

# --- programs of all kinds ------------------------------------------------------------------------
# several N WORD...: runs new programs, four in each of N processes, and prints their seeds. Memory
# is short unless the words let work wait for later work.
several() {
    local count=$1 budgets=(60KiB 100KiB 150KiB) i first settings
    shift
    [[ " $* " != *' ahead '* ]] || budgets=(64MiB 32MiB 16MiB)
    is_short || count=$((count * 20))
    first=$(fresh)
    echo "# random_orders $first to $((first + 4 * count - 1)) $*, four in a process" >&3
    for ((i = 0; i < count; i++)); do
        read -ra settings <<<"$(settings_of $i)"
        right $((first + 4 * i)) $((first + i)) "${settings[@]}" PENSTOCK_BUDGET="${budgets[i % 3]}" $PATIENT CUDASIM_DEVICES=2 \
            CUDASIM_PEERS=$((i % 2)) -- "$@" to=$((first + 4 * i + 3)) || return 1
    done
}

@test "without Penstock programs of all kinds are right, on two devices too" {
    local words
    for words in 'kinds ahead gates' 'devices=2' 'kinds ahead threads=4 devices=2' 'tables nodes green kinds' 'tables nodes ahead gates'; do
        # shellcheck disable=SC2086 # words
        run_sim CUDASIM_GRANULARITY=4096 CUDASIM_SCHED=seeded CUDASIM_DEVICES=2 $PATIENT "$SAMPLES/random_orders" 1 $words to=12
        ended_with 0
        equal 12 "$(grep -cx ok <<<"$output")" "programs that were right, $words"
    done
}

@test "new programs with memory, streams and graphs of all kinds are right, on up to four threads and two devices" {
    several 3 kinds
    several 2 kinds devices=2
    several 2 kinds threads=2
    several 2 kinds threads=4
    several 2 kinds threads=3 devices=2
    # The looks for tables on one device had events of the other one, and no table was seen.
    right 280000 40000 PENSTOCK_GUARD=unmap PENSTOCK_GRACE=4 PENSTOCK_TRACER=cupti PENSTOCK_POLICY=lru PENSTOCK_BUDGET=100KiB $PATIENT \
        CUDASIM_DEVICES=2 -- kinds devices=2 to=280006
    several 2 80 12 4 kinds
}

@test "new programs that use memory through tables of every kind are right" {
    several 3 tables
    several 2 80 8 tables kinds
    several 2 tables threads=2
}

@test "new programs whose graphs are made and changed node by node are right, on streams of green contexts too" {
    several 3 tables nodes
    several 2 tables nodes green kinds
    several 2 60 8 tables nodes green
}

@test "new programs that queue work before what it waits for don't hang while memory suffices" {
    several 3 kinds ahead gates
    several 2 kinds ahead threads=2
    several 2 kinds ahead threads=4 devices=2
    # These hung when cudaMalloc made streams wait for work that was queued later, or for other
    # threads' work.
    right 1001 1001 PENSTOCK_BUDGET=64MiB CUDASIM_DEVICES=2 $PATIENT -- kinds ahead gates to=1002
    right 7006 5 PENSTOCK_BUDGET=64MiB $PATIENT -- kinds ahead gates threads=2
}

# --- streams side by side -------------------------------------------------------------------------
# side_by_side SEED WORD...: with plenty of memory this program's kernels may overlap as without
# Penstock: it ends, and the longest chain of kernels that wait for each other is as long.
side_by_side() {
    local seed=$1 plain way
    local device=(CUDASIM_GRANULARITY=4096 CUDASIM_SCHED=seeded CUDASIM_SEED="$1" "$PATIENT" PENSTOCK_MIN_SPAN=4096)
    shift
    run_sim "${device[@]}" "$SAMPLES/random_overlap" "$seed" "$@"
    ended_with 0
    plain=$(ledger longest_chain)
    for way in PENSTOCK_LIVE=0 PENSTOCK_BUDGET=64MiB 'PENSTOCK_BUDGET=64MiB PENSTOCK_TRACER=hook' 'PENSTOCK_BUDGET=64MiB PENSTOCK_RULES=pieces'; do
        # shellcheck disable=SC2086 # settings
        run_penstock "${device[@]}" $way "$SAMPLES/random_overlap" "$seed" "$@"
        [ "$status" -eq 0 ] || echo "random_overlap $seed $*, $way" >&2
        ended_with 0
        equal "$plain" "$(ledger longest_chain)" "the longest chain of random_overlap $seed $*, $way" || return 1
    done
}

@test "streams of new programs run side by side as without Penstock, while memory suffices" {
    local i first count=4
    is_short || count=80
    first=$(fresh)
    echo "# random_overlap $first to $((first + count - 1)): alone, kinds, kinds threads" >&3
    for ((i = 0; i < count; i++)); do
        side_by_side $((first + i))
        side_by_side $((first + i)) kinds
        side_by_side $((first + i)) kinds threads
    done
}

# in_one_process FIRST LAST VARIABLE=VALUE... -- WORD...: these programs end, one after the other in
# one process, in plenty of memory.
in_one_process() {
    local first=$1 last=$2 settings=()
    shift 2
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    run_penstock PENSTOCK_BUDGET=4GiB "${settings[@]}" "$SAMPLES/random_overlap" "$first" 6 5 2048 "${@:2}" to="$last"
    ended_with 0 || return 1
    equal $((last - first + 1)) "$(grep -c '^ok$' <<<"$output")" "programs that ended"
}

@test "a stream that takes the place of one that is over does not count as still using what that one used" {
    # The 21st program stood still when it did, on a GPU as well.
    in_one_process 151 171 -- kinds
}

@test "streams that run side by side in eight hardware queues do so under Penstock" {
    local seed
    # These stood still when Penstock made its own streams before memory was short.
    for seed in 155 166 173 176; do
        run_sim CUDASIM_MAX_CONNECTIONS=8 "$SAMPLES/random_overlap" $seed 6 5 2048 kinds
        ended_with 0
        in_one_process $seed $seed CUDASIM_MAX_CONNECTIONS=8 -- kinds
    done
}

@test "each word behind the seed leaves the number of operations as it is" {
    local word
    for word in branches gates masked=4 threads=2 tables nodes green; do
        run_sim CUDASIM_GRANULARITY=4096 "$SAMPLES/random_orders" 1 $word
        ended_with 0
        at_least 40 "$(ledger kernels_run)" "kernels, $word"
    done
}

@test "a program that goes wrong fails" {
    local sample
    for sample in random_orders random_overlap; do
        run_sim CUDASIM_GRANULARITY=4096 "$SAMPLES/$sample"
        ended_with 2
        run_sim CUDASIM_GRANULARITY=4096 "$SAMPLES/$sample" 1 knids
        ended_with 2
    done
    run_sim CUDASIM_GRANULARITY=4096 CUDASIM_FAULT=cuLaunchKernel:error@30 "$SAMPLES/random_overlap" 1
    ended_with 1
    run_sim CUDASIM_GRANULARITY=4096 CUDASIM_FAULT=cuLaunchKernel:error@9 "$SAMPLES/random_orders" 1
    ended_with 1
}
