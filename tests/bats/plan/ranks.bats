#!/usr/bin/env bats
# Jobs of several processes: files and lines of each, its share of the host's memory, and one
# summary of all.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup; requires sim samples jq plain; }

teardown() { [ -z "${RUNTIME:-}" ] || rm -rf "$RUNTIME"; }

# job FIRST LAST VARIABLE=VALUE...: runs the trainer under Penstock for each rank at once, as a
# launcher would. @ in a value is the rank.
job() {
    local first=$1 last=$2 rank pids=() rc=0
    shift 2
    for ((rank = first; rank <= last; rank++)); do
        (train "${@//@/$rank}" && printf '%s\n' "$output" >"out.$rank" && ended_with 0) &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do wait "$rank" || rc=$?; done
    return $rc
}

@test "each process of a job writes its own files, and its lines name its rank" {
    local rank
    TRAINER=("${TRAINER[@]/--steps=3/--steps=8}")
    BATS_FILE_TMPDIR=$WORK/longer && mkdir -p "$BATS_FILE_TMPDIR" # that trainer prints other output
    job 0 2 RANK=@ WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 PENSTOCK_RECORDING="$WORK/step.txt" PENSTOCK_REPORT="$WORK/report.json"
    [ ! -e report.json ] && [ ! -e step.txt ]
    for rank in 0 1 2; do
        equal "$rank 3" "$(jq -r '"\(.rank) \(.processes)"' "report.rank$rank.json")" "rank and processes"
        contains "$(cat "out.$rank")" "^penstock: rank $rank: [0-9]+ steps, peak "
        contains "$(head -n 1 "step.rank$rank.txt")" '^penstock-recording '
    done
}

@test "a process alone keeps the file names that it was given" {
    train RANK=0 WORLD_SIZE=1 LOCAL_WORLD_SIZE=1
    right_results
    equal "null 1" "$(jq -r '"\(.rank) \(.processes)"' "$REPORT")" "rank and processes"
    contains "$output" '^penstock: [0-9]+ steps, peak '
}

@test "the processes of a job on one machine share its memory under torchrun, Open MPI and Slurm" {
    local whole
    train PENSTOCK_HOST_BUDGET=50%
    whole=$(report slab.limit_bytes)
    train PENSTOCK_HOST_BUDGET=50% LOCAL_WORLD_SIZE=4
    equal $((whole / 4)) "$(report slab.limit_bytes)" "a quarter, torchrun's"
    REPORT=$WORK/report.rank1.json
    train PENSTOCK_REPORT="$WORK/report.json" PENSTOCK_HOST_BUDGET=50% OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2
    equal $((whole / 2)) "$(report slab.limit_bytes)" "a half, Open MPI's"
    train PENSTOCK_REPORT="$WORK/report.json" PENSTOCK_HOST_BUDGET=50% SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=16 'SLURM_STEP_TASKS_PER_NODE=8(x2)'
    equal $((whole / 8)) "$(report slab.limit_bytes)" "an eighth, Slurm's"
}

# planned_by RANK: prints the figures of the first plan with timings of two ranks, in ms: the shared
# figure, and the rank's own measurement.
planned_by() {
    sed -nE 's/^penstock: rank [0-9]+: policy: a step of [0-9]+ launches is planned with the timings of 2 ranks: ([0-9]+) ms without transfers, ([0-9]+) ms by .*/\1 \2/p' "out.$1" |
        head -n 1
}

@test "ranks of one machine plan a step by the same figures: each launch counts its shortest time" {
    local rank fast slow own budget pids=() runtime=/dev/shm/penstock-ranks.$BATS_ROOT_PID
    mkdir -m 700 "$runtime" && RUNTIME=$runtime
    TRAINER=("${TRAINER[@]/--steps=3/--steps=24}")
    BATS_FILE_TMPDIR=$WORK/longer && mkdir -p "$BATS_FILE_TMPDIR" # that trainer prints other output
    budget=$(share 55)
    for rank in 1 2; do
        # Ranks train in step with each other. These at least begin together.
        # shellcheck disable=SC2016 # for the shell that waits
        (run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$budget" RANK=$rank WORLD_SIZE=3 LOCAL_WORLD_SIZE=2 MASTER_PORT=29871 \
            CUDASIM_KERNEL_NS=${rank}00000 PENSTOCK_LOG=info XDG_RUNTIME_DIR="$runtime" \
            sh -c 'echo >>"$0"; until [ "$(wc -l <"$0")" -ge 2 ]; do sleep 0.01; done; exec "$@"' "$WORK/began" "${TRAINER[@]}"
        printf '%s\n' "$output" >"out.$rank"
        right_results) &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do wait "$rank"; done
    for rank in 1 2; do
        contains "$(cat "out.$rank")" '^penstock: rank [12]: policy: the link: .*, while other ranks measured theirs'
    done
    read -r fast own <<<"$(planned_by 1)"
    read -r slow own <<<"$(planned_by 2)"
    at_least 1 "${fast:-0}" "ms that both plan by"
    equal "$fast" "$slow" "ms that both plan by"
    at_least $((slow * 6 / 5)) "$own" "ms by the slower rank's own figures"
    equal "" "$(find "$runtime" -type f)" "what is left of what they told"
}

# summary ARGUMENT...: runs `penstock summary`.
summary() { run "$ROOT/scripts/command/penstock" summary "$@"; }

@test "one summary covers all processes: a line each, sums, and the missing ranks" {
    requires python
    job 0 1 RANK=@ WORLD_SIZE=3 PENSTOCK_REPORT="$WORK/report.json"
    summary report.rank1.json report.rank0.json
    ended_with 0
    contains "$output" '^rank +steps +planned +budget +peak +without +slab +out +back +waited s +predicted ms +exposed ms$'
    equal "0 1 all" "$(awk 'NR >= 2 && NR <= 4 { print $1 }' <<<"$output" | xargs)" "lines, in order"
    contains "$output" '^no report for rank 2$'
    summary --json report.rank0.json report.rank1.json
    ended_with 0
    local key
    for key in evicted_bytes reloaded_bytes; do
        equal "$(jq -s "map(.$key) | add" report.rank[01].json)" "$(jq ".all.$key" <<<"$output")" "$key of both"
        at_least 1 "$(jq ".all.$key" <<<"$output")" "$key"
    done
    equal "$(jq -s 'map(.peak_resident_bytes) | max' report.rank[01].json)" "$(jq .all.peak_resident_bytes <<<"$output")" "the larger peak"
    equal '[2]' "$(jq -c .missing <<<"$output")" "missing"
    equal '[0,1]' "$(jq -c '[.ranks[].rank]' <<<"$output")" "ranks"
    summary report.rank0.json
    ended_with 0
    equal 2 "$(grep -cE '^ *(rank|0) ' <<<"$output")" "lines for one report"
}

@test "a process that stood aside is named in the summary" {
    requires python
    train RANK=0 WORLD_SIZE=2 CUDASIM_FAULT=cuMemAddressReserve:error@1+ PENSTOCK_REPORT="$WORK/report.json"
    ended_with 0
    summary report.rank0.json
    ended_with 0
    contains "$output" '^rank 0: stood aside: '
}

@test "reports that can't be summed up are named, and the summary ends with status 2" {
    requires python
    train
    refused 'summary: no report given; usage: penstock summary .*'
    refused '--foo: no such option; see penstock summary --help' --foo "$REPORT"
    summary nowhere.json
    ended_with 2
    contains "$output" '^penstock: nowhere.json: No such file'
    echo '{' >broken.json
    summary broken.json
    ended_with 2
    contains "$output" '^penstock: broken.json: not JSON \('
    echo '[1]' >other.json
    summary other.json
    ended_with 2
    contains "$output" "^penstock: other.json: JSON, but not a Penstock report"
    jq '.rank = 1 | .processes = 2' "$REPORT" >a.json
    cp a.json b.json
    summary a.json b.json
    ended_with 2
    contains "$output" '^penstock: a.json and b.json: both are of rank 1'
    refused '\./a\.json: given twice, also as a\.json; name each report once' a.json ./a.json
    refused 'a\.json: given twice; name each report once' a.json a.json
    jq 'del(.stands_aside)' a.json >aside.json
    refused 'aside\.json: JSON, but not a Penstock report \(stands_aside is missing\)' aside.json
    jq 'del(.host_wait_ns)' a.json >short.json
    refused "short\.json: not a complete Penstock report \(KeyError: 'host_wait_ns'\)" short.json
    jq '.slab.bytes = "much"' a.json >words.json
    refused 'words\.json: not a complete Penstock report' words.json
    python3 -c 'print("[" * 100000)' >deep.json
    refused 'deep\.json: not JSON' deep.json
    jq -c . a.json | sed -E 's/"evicted_bytes":[0-9]+/"evicted_bytes":1'"$(printf '%0400d' 0)"'/' >huge.json
    refused 'huge\.json: not JSON .*is too large' huge.json
    jq '.rank = "0"' a.json >text.json
    refused 'text\.json: its rank is "0": expected a whole number from 0, or null' a.json text.json
}

# refused PATTERN ARGUMENT...: the summary is refused in one line, with status 2.
refused() {
    local pattern=$1
    shift
    summary "$@"
    ended_with 2 && equal 1 "${#lines[@]}" lines && contains "$output" "^penstock: $pattern"
}

@test "a summary copes with millions of missing ranks, a file name that is not UTF-8, and a failing output" {
    requires python
    train
    jq '.rank = 1 | .processes = 10000000' "$REPORT" >a.json
    summary a.json
    ended_with 0
    contains "$output" '^no report for rank 0, 2, 3, .*, 16 and 9,999,983 more$'
    summary --json a.json
    equal '16 9999999' "$(jq -r '"\(.missing | length) \(.missing_count)"' <<<"$output")" "the first that are missing, and how many are"
    cp "$REPORT" $'caf\xe9.json'
    summary $'caf\xe9.json'
    ended_with 0
    refuses_failing_output summary a.json
}

@test "a report with any figure replaced is shown, or refused in one line" {
    requires python
    train
    ended_with 0
    cat >spoil.py <<'END'
import contextlib, copy, importlib.machinery, importlib.util, io, json, sys

scripts, path = sys.argv[1:]
sys.path.insert(0, scripts)
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("summary", f"{scripts}/penstock-summary")
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("summary", loader))
loader.exec_module(module)
with open(path) as file:
    whole = json.load(file)


def places(value, so_far=()):
    yield so_far
    for key in value if isinstance(value, dict) else range(min(2, len(value))) if isinstance(value, list) else ():
        yield from places(value[key], (*so_far, key))


def spoilt(place, other):
    report = copy.deepcopy(whole)
    at = report
    for key in place[:-1]:
        at = at[key]
    if other is Ellipsis:
        del at[place[-1]]
    else:
        at[place[-1]] = other
    return report


tried = refused = 0
for place in list(places(whole))[1:]:
    for other in (..., None, True, -1, 1.5, 2**64 - 1, "text", [], {}, [None], {"bytes": None}):
        with open("spoilt.json", "w") as file:
            json.dump(spoilt(place, other), file)
        for options in ((), ("--json",)):
            sys.argv = ["summary", *options, "spoilt.json"]
            errors = io.StringIO()
            tried += 1
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
                    module.main()
            except SystemExit as end:
                refused += 1
                text = errors.getvalue()
                assert end.code == 2 and text.count("\n") == 1 and text.startswith("penstock: spoilt.json: "), (place, other, end.code, text)
            except Exception as error:
                raise AssertionError(f"{place} = {other}: {error!r}") from error
print(tried, refused)
END
    run python3 spoil.py "$ROOT/scripts/command" "$REPORT"
    ended_with 0
    at_least 1000 "${output% *}" "summaries"
    at_least 100 "${output#* }" "refusals"
    jq '.slab.bytes = null' "$REPORT" >null.json
    run "$PENSTOCK" summary null.json
    ended_with 2
    equal 1 "${#lines[@]}" lines
    contains "$output" '^penstock: null\.json: not a complete Penstock report .*its slab_bytes is null: expected a whole number from 0'
}
