#!/usr/bin/env bats
# scripts/gpu/programs runs the programs of tests/gpu on a GPU. These tests check its judgement, and
# that the programs exist. Their results on a GPU are in tests/results.

load ../../lib/helper

setup() {
    helper_setup
    by_turn 2
}

# Stand-ins for the Python with the frameworks, the GPU's tool and the library. The Python reports
# steps of 100 ms; TEST_WRONG makes it misbehave.
make_stand_ins() {
    mkdir bin
    cat >bin/nvidia-smi <<'END'
#!/bin/bash
case "$*" in
*timestamp*)
    exec {never}<> <(:)
    while now=$EPOCHREALTIME; do
        printf '%(%Y/%m/%d %H:%M:%S)T.%.3s, 6800\n' "${now%.*}" "${now#*.}"
        echo "${now/./}" >>"$TEST_SAMPLES"
        read -rt 0.05 -u "$never"
    done
    ;;
-L) for ((gpu = 0; gpu < ${TEST_GPUS:-1}; gpu++)); do echo "GPU $gpu: A GPU"; done ;;
*) echo "A GPU, 1.2, 143771 MiB" ;;
esac
END
    cat >bin/python <<'END'
#!/bin/bash
[ -f "$1" ] || exit 1
# A run's peak is that of the samples from 0.3 s after its start on (SETTLING_S in measure.py).
counts_from=$((${EPOCHREALTIME/./} + 300000)) samples=()
until [ ${#samples[@]} -ge 3 ] && [ "${samples[-3]}" -gt $counts_from ]; do
    sleep 0.1
    mapfile -t samples <"$TEST_SAMPLES"
done
moved=5 ms=100 loss=3.25 aside=null launches=40 copies=3 errors=0 kernels=3 tracer=hook tables=250 plain=1 shared=0
[[ "$PENSTOCK_BUDGET" =~ ^[1-9] && "$PENSTOCK_BUDGET" -lt 8000000000 ]] || moved=0
case "${TEST_WRONG:-}" in
loss) [ -z "$LD_PRELOAD" ] || loss=3.26 ;;
slow) [ -z "$LD_PRELOAD" ] || [ "${PENSTOCK_BUDGET:-auto}" != auto ] || ms=102 ;;
once) [ -z "$LD_PRELOAD" ] || ! mkdir "$TEST_WRONG" 2>/dev/null || ms=102 ;;
faster) [[ "$LD_PRELOAD" != *other.so ]] || ms=98 ;;
idle) moved=0 ;;
hook) [ "${PENSTOCK_TRACER:-}" != hook ] || launches=39 ;;
picks) [ "${PENSTOCK_TRACER:-}" = hook ] && launches=3972 copies=17 || launches=4000 ;;
miss) [ "${PENSTOCK_TRACER:-}" = hook ] && launches=3973 || launches=4000 ;;
pair) [ "${PENSTOCK_TRACER:-}" != hook ] || launches=42 copies=5 ;;
crash) [ -z "$LD_PRELOAD" ] || exit 4 ;;
aside) aside='"CUDA graphs"' ;;
tool) errors=1 ;;
all) [ -z "$LD_PRELOAD" ] || errors=1 kernels=2 tracer=cupti tables=81 plain=0 ;;
esac
case "$*" in
*link.py\ 1) echo '{"each_way_gbps": 50.1}' && exit ;;
*link.py\ 2) echo '{"each_way_gbps": 40}' && exit ;;
*ipc_trainer.py*) shared=0.75 ;;
*compute-sanitizer*) ms= && echo "========= ERROR SUMMARY: $errors errors" >&2 ;;
*\ ncu\ *) ms= && for ((i = 0; i < kernels; i++)); do echo "    sm__cycles_elapsed.max       cycle       12,345"; done >&2 ;;
*sample.py* | *verify.py*) ms= ;;
esac
[ -z "$LD_PRELOAD" ] || cat >"$PENSTOCK_REPORT" <<<"{\"launches\": $launches, \"graph_launches\": 0, \"copies_seen\": $copies, \"evictions\": $moved,
    \"evicted_bytes\": $moved, \"plan\": {\"steps\": 5, \"profile\": [1, 2]}, \"stands_aside\": $aside, \"tracer\": \"$tracer\", \"pointer_tables\": $tables, \"passthrough\": {\"plain\": $plain}}"
[ -z "$LD_PRELOAD" ] || { echo "penstock: policy: the link: 55000 MB/s out, 55000 in, at once 40000 and 40000"; echo "penstock: ${TEST_SAYS:-closing}"; echo "penstock: closing"; } >&2
echo "{\"ms\": [${ms:+900, 500, 500, 500, 500, $ms, $ms}], \"loss\": [$loss], \"chk\": 7, \"peakGiB\": 10, \"reservedGiB\": ${TEST_RESERVED:-6}, \"sharedGiB\": $shared}"
END
    # As under torchrun, where a step takes even longer.
    cat >bin/torchrun <<'END'
#!/bin/bash
while [ ! -f "$1" ]; do shift; done
case ${PENSTOCK_BUDGET:-} in [1-9]*) export ms=250 ;; esac
exec "$(dirname "$0")/python" "$@"
END
    sed -i 's/ ms=100 / ms=${ms:-100} /' bin/python
    touch bin/compute-sanitizer bin/ncu
    chmod +x bin/*
    echo 'int nothing;' | gcc -shared -fPIC -x c -o library.so -
}

# The results of the last call of `programs` are in $results. Several calls can run at once, because
# they sleep most of the time.
results=out

programs() {
    rm -rf "$results"
    : >"$results.samples"
    run env PATH="$PWD/bin:$PATH" TEST_SAMPLES="$PWD/$results.samples" timeout --kill-after=5 "$(patience 100)" python3 -B "$ROOT/scripts/gpu/programs" --library library.so --out "$results" \
        --python "$PWD/bin/python" "$@"
}

# beside NAME ARGUMENT...: runs `programs` in the background. Its results are NAME, and its exit
# status is in NAME.status.
beside() {
    results=$1
    { programs "${@:2}" && echo "$status" >"$results.status"; } &
    pids_beside+=($!)
    results=out
}
pids_beside=()

all_are_done() { wait "${pids_beside[@]}"; }

# said_of ROW WAY: prints the checks of a run, one a line.
said_of() { jq -r --arg name "$1" --arg way "$2" '.rows[] | select(.name == $name).ways[$way].checks[] | (if .[1] then "ok" else "NOT" end) + ": " + .[0]' "$results/programs.json"; }

ways_of() { jq -r --arg name "$1" '[.runs[] | select(.row == $name).way] | join(" ")' "$results/programs.json"; }

status_of() { jq -r --arg name "$1" '.rows[] | select(.name == $name).status' "$results/programs.json"; }

@test "a second library runs in turn with the first, and the first may take at most a hundredth longer" {
    requires python jq cc
    make_stand_ins
    cp library.so other.so
    beside same --rows eager --ways auto,other --other other.so --turns 2
    TEST_WRONG=faster beside faster --rows eager --ways auto,other --other other.so
    TEST_WRONG=slow beside slow --rows eager --ways auto,other --other other.so
    all_are_done
    results=same
    equal 0 "$(<same.status)" "status"
    equal "plain plain auto other plain auto other" "$(ways_of eager)" "ways"
    contains "$(said_of eager auto)" "^ok: 1\.000 of the other library's"
    equal "$PWD/other.so $PWD/other.so" "$(jq -r '[.runs[] | select(.way == "other").settings.LD_PRELOAD] | join(" ")' same/programs.json)" "its library"
    results=faster
    equal 1 "$(<faster.status)" "status"
    contains "$(said_of eager auto)" "^NOT: 1\.020 of the other library's"
    # As slow as plain, and as the other library.
    results=slow
    contains "$(said_of eager auto)" '^NOT: 1\.020 of plain'
    contains "$(said_of eager auto)" "^ok: 1\.000 of the other library's"
    programs --rows eager --other nowhere.so
    ended_with 2
}

@test "a program passes with plain's losses in plain's time, and with less memory where its row says so" {
    requires python jq cc
    make_stand_ins
    programs --rows eager,native,fsdp
    ended_with 0
    equal ok "$(status_of eager)" "eager"
    equal ok "$(status_of native)" "native"
    equal "left out: needs 2 GPUs" "$(status_of fsdp)" "fsdp"
    equal "plain plain tight hook auto ample" "$(ways_of eager)" "ways"
    equal 6442450944 "$(jq '.rows[0].budget_bytes' out/programs.json)" "60 % of plain's peak"
    equal 656 "$(jq '.rows[0].fixed_mib' out/programs.json)" "memory beside tensors"
    equal "backend:native" "$(jq -r '.runs[] | select(.row == "native").settings.PYTORCH_CUDA_ALLOC_CONF' out/programs.json | sort -u)" "settings"
    contains "$output" '^eager +ok '
}

@test "runs in turn are compared by their medians: one slow run is forgiven, several are not" {
    requires python jq cc
    make_stand_ins
    TEST_WRONG=once programs --rows vision --ways auto,ample
    ended_with 0
    equal "plain plain auto ample plain auto ample plain auto ample" "$(ways_of vision)" "ways"
    contains "$(said_of vision auto)" 'ok: 1\.000 of plain'
    equal 3 "$(said_of vision auto | grep -c '^ok: losses 0 from')" "runs judged by their losses"
    rmdir once
    TEST_WRONG=once programs --rows eager --ways auto
    ended_with 1
    contains "$(said_of eager auto)" 'NOT: 1\.020 of plain'
    TEST_WRONG=slow programs --rows vision --ways auto
    ended_with 1
    contains "$(said_of vision auto)" 'NOT: 1\.020 of plain'
    TEST_WRONG=slow programs --rows vision --ways auto --deadline 17
    contains "$(said_of vision auto)" 'NOT: not run: out of time'
}

@test "rows of an earlier call are kept, and the printed table is the one that the README shows" {
    requires python jq cc
    make_stand_ins
    TEST_WRONG=slow programs --rows eager,native --ways plain,auto
    ended_with 1
    cp out/programs.json before.json
    programs --rows native,jax --ways plain,tight,auto --before before.json
    ended_with 1 # eager is still slow
    equal "eager native jax" "$(jq -r '[.rows[].name] | join(" ")' out/programs.json)" "rows"
    equal ok "$(status_of native)" "native, run anew"
    run "$ROOT/scripts/dev/results-table" out/programs.json
    ended_with 0
    contains "$output" '^  torch eager: .* 10\.0 +100 +- +- +no: 1\.020 of plain +-$'
    contains "$output" "^  torch's own caching allocator  .* 10\.0 +100 +1\.000 +- +1\.000 +-\$"
    contains "$output" '^native: transformer\.py: ok$'
    echo 'int anything;' | gcc -shared -fPIC -x c -o library.so -
    programs --rows native --before before.json
    ended_with 1
    contains "$output" 'of another library or GPU'
}

@test "a row that is like another gets the same pressure, and must cost as little" {
    requires python jq cc
    make_stand_ins
    TEST_GPUS=2 programs --rows fsdp,alone --ways plain,tight
    ended_with 1
    # FSDP2: 4 GiB over the 40 GB/s that each of two GPUs has are 1.074 of plain's 100 ms. Alone, at
    # 50.1 GB/s, the same share of its step is 5.01 GiB.
    equal 1.074 "$(jq '.rows[1].pressure' out/programs.json)" "the link's share of a step"
    equal 5357 "$(jq '.rows[1].budget_bytes / 1e6 | floor' out/programs.json)" "MB of budget"
    equal ok "$(status_of fsdp)" "two GPUs"
    equal "not well: tight" "$(status_of alone)" "one GPU, which 250 ms are not like"
    contains "$output" 'NOT: fsdp 2.500 of its plain, alone 1.000'
    # Without the other row there is no figure to compare with.
    programs --rows alone --ways plain,tight
    ended_with 1
    contains "$output" 'no step time of fsdp, or no speed of a link, to compare with'
}

@test "memory over the budget passes if a line explains it" {
    requires python jq cc
    make_stand_ins
    TEST_RESERVED=6.35 beside without --rows graph --ways plain,tight
    TEST_SAYS="memory is the graph's: it stays on the device" TEST_RESERVED=6.35 programs --rows graph --ways plain,tight
    all_are_done
    equal "not well: tight" "$(results=without status_of graph)" "without the line"
    equal ok "$(status_of graph)" "with it"
}

@test "shared memory does not count against the budget, and step times of some rows are not judged" {
    requires python jq cc
    make_stand_ins
    TEST_WRONG=slow programs --rows ipc,tables
    ended_with 0
    equal "plain plain tight auto" "$(ways_of ipc)" "ways"
    equal "plain plain tight hook auto" "$(ways_of tables)" "ways"
    # 60 % of 9.25 of 10 GiB; of the 6 GiB that are reserved 5.25 GiB are not shared.
    equal "5959 1424" "$(jq -r '.rows[0] | "\(.budget_bytes / 1e6 | floor) \(.fixed_mib)"' out/programs.json)" "budget and memory beside it"
    equal "102 null" "$(jq -r '.rows[0].ways.auto | "\(.ms) \(.of_plain)"' out/programs.json)" "the step's time, and of plain's"
    equal 'plain size>=774MiB size<=774MiB' "$(jq -r '.runs[] | select(.row == "ipc").settings.PENSTOCK_RULES' out/programs.json | sort -u)" rule
}

@test "pairs of a launch and a copy whose number varies are not counted where a row says so" {
    requires python jq cc
    make_stand_ins
    TEST_WRONG=pair beside pairs --rows eager,jax --ways plain,tight,hook
    TEST_WRONG=hook programs --rows jax --ways plain,tight,hook
    all_are_done
    equal "not well: hook" "$(status_of jax)" "a launch less"
    contains "$(said_of jax hook)" '^NOT: launches and copies \[36, 0\], by CUPTI \[37, 0\]$'
    results=pairs
    equal ok "$(status_of jax)" "two pairs more"
    equal "not well: hook" "$(status_of eager)" "a program that makes no such pairs"
}

@test "launches and copies may differ by the number that a row allows, the same in each step" {
    requires python jq cc
    make_stand_ins
    TEST_WRONG=picks beside picks --rows eager,vision --ways plain,tight,hook
    TEST_WRONG=miss beside miss --rows vision --ways plain,tight,hook
    TEST_WRONG=hook programs --rows vision --ways plain,tight,hook
    all_are_done
    equal "not well: hook" "$(status_of vision)" "one launch in forty less"
    results=miss
    equal "not well: hook" "$(status_of vision)" "27 in seven steps, not a hundredth"
    results=picks
    equal ok "$(status_of vision)" "four a step less, two copies a step more"
    equal "not well: hook" "$(status_of eager)" "a program that always launches the same"
}

@test "on a shared GPU no peak is judged, and a row without its file is left out" {
    requires python jq cc
    make_stand_ins
    TEST_RESERVED=6.35 programs --rows shared,eager,cuda12 --ways plain,tight --build built
    ended_with 1
    equal ok "$(status_of shared)" "with others"
    equal "not well: tight" "$(status_of eager)" "with the GPU to itself"
    equal "left out: no built/cuda12/libcudart.so.12" "$(status_of cuda12)" "without the file"
    equal '{"steps":5}' "$(jq -c '.runs[] | select(.name == "shared-tight-0").report.plan' out/programs.json)" "the plan, without its curves"
    mkdir -p built/cuda12
    touch built/cuda12/libcudart.so.12
    programs --rows cuda12 --ways plain,tight --build built
    ended_with 0
    equal ok "$(status_of cuda12)" "with the file"
}

@test "tools have their own time limit and budget, must print their lines, and are left out where absent" {
    requires python jq cc
    make_stand_ins
    TEST_WRONG=tool beside errors --rows sanitizer
    # 6800 MiB are more than 1.03 times the budget and 400 MiB beside it. They are not if a tool may
    # take 128 MiB more.
    TEST_RESERVED=6.25 beside high --rows eager,ncu --ways plain,tight
    TEST_RESERVED=4.9 programs --limit 0.3 --rows eager,verify,sanitizer,ncu
    all_are_done
    ended_with 1
    equal "plain: killed after 0 s" "$(status_of eager)" "a row with the usual time"
    for row in verify sanitizer ncu; do equal ok "$(status_of $row)" $row; done
    equal "5368709120 true" "$(jq -r '.rows[1] | "\(.budget_bytes) \(.title | endswith(" (in 50%)"))"' out/programs.json)" "half of plain's peak"
    equal "plain plain tight" "$(ways_of verify)" "ways"
    contains "$(said_of ncu tight)" '^ok: 3 of 3 lines like '
    equal $'1\n1' "$(cat errors.status high.status)" "exit statuses"
    results=errors
    contains "$(status_of sanitizer)" '^plain: 0 of 1 lines like .*ERROR SUMMARY'
    equal "plain plain" "$(ways_of sanitizer)" "ways"
    contains "$(jq -r '.runs[0].printed_tail[]' errors/programs.json)" 'ERROR SUMMARY: 1 errors'
    results=high
    equal "not well: tight" "$(status_of eager)" "without slack"
    equal ok "$(status_of ncu)" "with slack"
    rm bin/ncu
    ! command -v ncu >/dev/null || skip "a real ncu is there"
    programs --rows ncu
    ended_with 0
    equal "left out: no ncu" "$(status_of ncu)" "without the tool"
}

@test "a tool's lines and the report's fields are judged" {
    requires python jq cc
    make_stand_ins
    TEST_SAYS="cudaIpcGetMemHandle: an allocation of 811597824 bytes can't; PENSTOCK_RULES='plain size>=811597824 size<=811597824' leaves" \
        beside right --rows ipc-refused
    TEST_WRONG=all beside others --rows tables,ipc,ipc-refused --ways plain,tight
    TEST_WRONG=all programs --rows sanitizer,ncu --ways plain,tight
    all_are_done
    ended_with 1
    contains "$(said_of sanitizer tight)" '^NOT: 0 of 1 lines like .*ERROR SUMMARY'
    contains "$(said_of sanitizer tight)" '^NOT: tracer cupti, to be hook$'
    contains "$(said_of ncu tight)" '^NOT: 2 of 3 lines like '
    results=others
    contains "$(said_of tables tight)" '^NOT: pointer_tables 81, to be 250$'
    contains "$(said_of ipc tight)" '^NOT: passthrough.plain 0, to be 1$'
    contains "$(said_of ipc-refused tight)" '^NOT: a line says: cudaIpcGetMemHandle'
    for row in tables ipc ipc-refused; do equal "not well: tight" "$(status_of $row)" $row; done
    equal $'1\n0' "$(cat others.status right.status)" "exit statuses"
    equal "plain plain tight" "$(results=right ways_of ipc-refused)" "ways"
}

@test "every defect of a program is reported and fails the row" {
    requires python jq cc
    make_stand_ins
    local wrong ways
    for wrong in loss slow idle hook crash aside; do TEST_WRONG=$wrong beside $wrong --rows eager; done
    # 1.03 times the budget, plus the program's memory beside its tensors, is 6984 MiB; here it is
    # only 6625 MiB.
    TEST_RESERVED=6.35 beside high --rows eager --ways plain,tight
    all_are_done
    while read -r wrong ways; do
        equal 1 "$(cat "$wrong.status")" "exit status with a wrong $wrong"
        equal "not well: $ways" "$(results=$wrong status_of eager)" "with a wrong $wrong"
    done <<'END'
loss tight, hook, auto, ample
slow auto
idle tight, hook
hook hook
crash tight, hook, auto, ample
aside tight, hook, auto, ample
high tight
END
    TEST_RESERVED=7 programs --rows eager
    ended_with 1
    equal "nothing is known of what it holds beside tensors: no sample of so short a run" "$(status_of eager)" "all that was seen is tensors"
    programs --rows nothing
    ended_with 2
    contains "$output" 'no such row or way: nothing'
}

@test "the programs of every row exist and parse as Python" {
    requires python
    local program
    for program in "$ROOT"/tests/gpu/*.py; do
        python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$program"
    done
    run python3 - "$ROOT" <<'END'
import importlib.machinery, importlib.util, os, re, sys
loader = importlib.machinery.SourceFileLoader("programs", sys.argv[1] + "/scripts/gpu/programs")
programs = importlib.util.module_from_spec(importlib.util.spec_from_loader("programs", loader))
sys.dont_write_bytecode = True
loader.exec_module(programs)
missing = [word for row in programs.ROWS for word in row.command.split() if word.endswith(".py")
           and not os.path.isfile(f"{sys.argv[1]}/tests/gpu/{word}")]
samples = [name for row in programs.ROWS for name in re.findall(r"{build}/samples/(\w+)", f"{row.command} {row.tiny}")]
missing += [name for name in samples if not os.path.isfile(f"{sys.argv[1]}/tests/samples/{name}.cu")]
missing += [row.name for row in programs.ROWS if not set(row.ways) <= set(programs.WAYS) or (row.like and row.like not in
            [other.name for other in programs.ROWS])]
[re.compile(pattern) for row in programs.ROWS for pattern in (row.says, row.prints and row.prints[0]) if pattern]
sys.exit(f"not there: {missing}" if missing or not samples else 0)
END
    ended_with 0
}
