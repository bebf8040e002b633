#!/usr/bin/env bats
# scripts/gpu/programs, which runs the programs of tests/gpu on a GPU: that it judges, and that the programs are there. What they do on a GPU is in
# tests/results.

load helper

# Stand-ins for the Python with the frameworks, the GPU's tool and the library. The first tells a step of 100 ms, and misbehaves as TEST_WRONG says.
make_stand_ins() {
    mkdir bin
    cat >bin/nvidia-smi <<'END'
#!/bin/bash
case "$*" in
*timestamp*) while sleep 0.05; do date +"%Y/%m/%d %H:%M:%S.%3N, 6800"; done ;;
-L) for ((gpu = 0; gpu < ${TEST_GPUS:-1}; gpu++)); do echo "GPU $gpu: A GPU"; done ;;
*) echo "A GPU, 1.2, 143771 MiB" ;;
esac
END
    cat >bin/python <<'END'
#!/bin/bash
[ -f "$1" ] || exit 1
sleep 0.8
moved=5 ms=100 loss=3.25 aside=null launches=40
[[ "$PENSTOCK_BUDGET" =~ ^[1-9] && "$PENSTOCK_BUDGET" -lt 8000000000 ]] || moved=0
case "${TEST_WRONG:-}" in
loss) [ -z "$LD_PRELOAD" ] || loss=3.26 ;;
slow) [ -z "$LD_PRELOAD" ] || [ "${PENSTOCK_BUDGET:-auto}" != auto ] || ms=102 ;;
idle) moved=0 ;;
hook) [ "${PENSTOCK_TRACER:-}" != hook ] || launches=39 ;;
crash) [ -z "$LD_PRELOAD" ] || exit 4 ;;
aside) aside='"CUDA graphs"' ;;
esac
[ -z "$LD_PRELOAD" ] || cat >"$PENSTOCK_REPORT" <<<"{\"launches\": $launches, \"graph_launches\": 0, \"copies_seen\": 3, \"evictions\": $moved,
    \"evicted_bytes\": $moved, \"stands_aside\": $aside}"
[ -z "$LD_PRELOAD" ] || { echo "penstock: policy: the link: 55000 MB/s out, 55000 in, 40000 each way at once"; echo "penstock: ${TEST_SAYS:-closing}"; echo "penstock: closing"; } >&2
echo "{\"ms\": [900, 500, 500, 500, 500, $ms, $ms], \"loss\": [$loss], \"chk\": 7, \"peakGiB\": 10, \"reservedGiB\": ${TEST_RESERVED:-6}}"
END
    # As under torchrun, where a step takes longer yet.
    cat >bin/torchrun <<'END'
#!/bin/bash
while [ ! -f "$1" ]; do shift; done
case ${PENSTOCK_BUDGET:-} in [1-9]*) export ms=250 ;; esac
exec "$(dirname "$0")/python" "$@"
END
    sed -i 's/ ms=100 / ms=${ms:-100} /' bin/python
    chmod +x bin/*
    echo 'int nothing;' | gcc -shared -fPIC -x c -o library.so -
}

programs() {
    rm -rf out
    run env PATH="$PWD/bin:$PATH" timeout --kill-after=5 100 python3 -B "$ROOT/scripts/gpu/programs" --library library.so --out out \
        --python "$PWD/bin/python" "$@"
}

status_of() { jq -r --arg name "$1" '.rows[] | select(.name == $name).status' out/programs.json; }

@test "a program is well that has plain's losses in plain's time, and less memory when it is to" {
    requires python jq cc
    make_stand_ins
    programs --rows eager,native,fsdp
    ended_with 0
    equal ok "$(status_of eager)" "eager"
    equal ok "$(status_of native)" "native"
    equal "left out: needs 2 GPUs" "$(status_of fsdp)" "fsdp"
    equal "plain plain tight hook auto ample" "$(jq -r '[.runs[] | select(.row == "eager").way] | join(" ")' out/programs.json)" "ways"
    equal 6442450944 "$(jq '.rows[0].budget_bytes' out/programs.json)" "60 % of plain's peak"
    equal 656 "$(jq '.rows[0].fixed_mib' out/programs.json)" "memory beside tensors"
    equal "backend:native" "$(jq -r '.runs[] | select(.row == "native").settings.PYTORCH_CUDA_ALLOC_CONF' out/programs.json | sort -u)" "settings"
    contains "$output" '^eager +ok '
}

@test "rows of an earlier call are kept, and the table is what the README shows" {
    requires python jq cc
    make_stand_ins
    TEST_WRONG=slow programs --rows eager,native --ways plain,auto
    ended_with 1
    cp out/programs.json before.json
    programs --rows native,jax --ways plain,tight,auto --before before.json
    ended_with 1 # eager is as slow as it was
    equal "eager native jax" "$(jq -r '[.rows[].name] | join(" ")' out/programs.json)" "rows"
    equal ok "$(status_of native)" "native, run anew"
    run "$ROOT/scripts/results-table" out/programs.json
    ended_with 0
    contains "$output" '^  torch eager: .* 10\.0 +100 +- +- +no: 1\.020 of plain +-$'
    contains "$output" "^  torch's own caching allocator  .* 10\.0 +100 +1\.000 +- +1\.000 +-\$"
    contains "$output" '^native: transformer\.py: ok$'
    echo 'int anything;' | gcc -shared -fPIC -x c -o library.so -
    programs --rows native --before before.json
    ended_with 1
    contains "$output" 'of another library or GPU'
}

@test "a row that is like another is pressed as hard, and the other is to cost as little" {
    requires python jq cc
    make_stand_ins
    TEST_GPUS=2 programs --rows fsdp,alone --ways plain,tight
    ended_with 1
    # FSDP2: 4 GiB over 40 GB/s are 1.074 of plain's 100 ms; alone, at 50.1 GB/s, the same share of its step are 5.01 GiB.
    equal 1.074 "$(jq '.rows[1].pressure' out/programs.json)" "the link's share of a step"
    equal 5357 "$(jq '.rows[1].budget_bytes / 1e6 | floor' out/programs.json)" "MB of budget"
    equal ok "$(status_of fsdp)" "two GPUs"
    equal "not well: tight" "$(status_of alone)" "one GPU, which 250 ms are not like"
    contains "$output" 'NOT: fsdp 2.500 of its plain, alone 1.000'
    # Without the other there is nothing to be like.
    programs --rows alone --ways plain,tight
    ended_with 1
    contains "$output" 'no step time of fsdp to compare with'
}

@test "memory that can't be kept within the budget is well if a line says so" {
    requires python jq cc
    make_stand_ins
    TEST_RESERVED=6.35 programs --rows graph --ways plain,tight
    equal "not well: tight" "$(status_of graph)" "without the line"
    TEST_SAYS="memory is the graph's: it stays on the device" TEST_RESERVED=6.35 programs --rows graph --ways plain,tight
    equal ok "$(status_of graph)" "with it"
}

@test "what is wrong with a program is told, and fails" {
    requires python jq cc
    make_stand_ins
    local wrong ways
    while read -r wrong ways; do
        TEST_WRONG=$wrong programs --rows eager
        ended_with 1
        equal "not well: $ways" "$(status_of eager)" "with a wrong $wrong"
    done <<'END'
loss tight, hook, auto, ample
slow auto
idle tight, hook
hook hook
crash tight, hook, auto, ample
aside tight, hook, auto, ample
END
    # 1.03 times the budget, and what the program takes beside its tensors, are 6984 MiB, or only 6625.
    TEST_RESERVED=6.35 programs --rows eager --ways plain,tight
    equal "not well: tight" "$(status_of eager)" "with too high a peak"
    programs --rows nothing
    ended_with 2
    contains "$output" 'no such row or way: nothing'
}

@test "the programs of every row are there, and are Python" {
    requires python
    local program
    for program in "$ROOT"/tests/gpu/*.py; do
        python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$program"
    done
    run python3 - "$ROOT" <<'END'
import importlib.machinery, importlib.util, os, sys
loader = importlib.machinery.SourceFileLoader("programs", sys.argv[1] + "/scripts/gpu/programs")
programs = importlib.util.module_from_spec(importlib.util.spec_from_loader("programs", loader))
sys.dont_write_bytecode = True
loader.exec_module(programs)
missing = [word for row in programs.ROWS for word in row.command.split() if word.endswith(".py")
           and not os.path.isfile(f"{sys.argv[1]}/tests/gpu/{word}")]
sys.exit(f"not there: {missing}" if missing else 0)
END
    ended_with 0
}
