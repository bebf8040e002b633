#!/usr/bin/env bats
# The examples of scripts/examples, run as they are. There is no torch here and no cluster.
# `torchrun`, `accelerate`, `srun` and `python3` are stand-ins on PATH. They take only options that
# the real ones have, and start the sample trainer with the environment that the real ones give.

load ../../lib/helper
load ../../lib/small_trainer

setup() {
    helper_setup 60
    requires sim samples jq python release plain
    make_stand_ins
}

EXAMPLES=$ROOT/scripts/examples

# stand_in NAME: makes a program of that name on PATH, from standard input.
stand_in() {
    rm -f "bin/$1" # it may be a link to a file that must not change
    { echo '#!/bin/bash' && cat; } >"bin/$1"
    chmod +x "bin/$1"
}

# The options and environments are from torchrun's manual (torch.distributed.run); Accelerate 1.15's
# commands/launch.py and utils/launch.py; the manual pages of Slurm 22.05.
# shellcheck disable=SC2153 # names of the helpers'
make_stand_ins() {
    mkdir -p bin
    ln -s "$PENSTOCK" bin/penstock
    # The sample trains in place of a script, which must exist. Any other call goes to the real
    # Python.
    stand_in python3 <<END
case \$1 in
*.py)
    [ -f "\$1" ] || { echo "python3: can't open file '\$1'" >&2 && exit 2; }
    [ "\$1" != failing.py ] || exit 7
    name=\${RANK:-alone}
    printf '%s\n' "\$@" >"$WORK/arguments.\$name"
    CUDASIM_LEDGER=$WORK/ledger.\$name exec "$SAMPLES/mlp" ${TRAINER[*]:1} >"$WORK/printed.\$name"
    ;;
*) exec "$(type -P python3)" "\$@" ;;
esac
END
    # start_ranks N COMMAND...: starts them as torch's elastic agent does.
    cat >bin/ranks <<'END'
start_ranks() {
    local processes=$1 rank pids=() rc=0
    shift
    for ((rank = 0; rank < processes; rank++)); do
        env RANK=$rank LOCAL_RANK=$rank WORLD_SIZE="$processes" LOCAL_WORLD_SIZE="$processes" GROUP_RANK=0 GROUP_WORLD_SIZE=1 ROLE_RANK=$rank \
            ROLE_WORLD_SIZE="$processes" ROLE_NAME=default MASTER_ADDR=localhost MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 \
            OMP_NUM_THREADS=1 python3 "$@" &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do wait "$rank" || rc=$?; done
    exit $rc
}
wrong() { echo "${0##*/}: $1: no such option, or not in this form" >&2 && exit 64; }
END
    stand_in torchrun <<END
. "$WORK/bin/ranks"
while [[ "\$1" == -* ]]; do
    case \$1 in
    --standalone) standalone=yes && shift ;;
    --nproc-per-node | --nproc_per_node) processes=\$2 && shift 2 ;;
    *) wrong "\$1" ;;
    esac
done
[ "\$standalone" = yes ] || wrong "no --standalone: several jobs of a machine would meet at one port"
start_ranks "\$processes" "\$@"
END
    stand_in accelerate <<END
. "$WORK/bin/ranks"
[ "\$1" = launch ] && shift || wrong "\$1"
while [[ "\$1" == -* ]]; do
    case \$1=\$2 in
    --num_processes=[1-9]) processes=\$2 && shift 2 ;;
    --num_machines=1 | --mixed_precision=no | --mixed_precision=fp16 | --mixed_precision=bf16 | --mixed_precision=fp8 | --dynamo_backend=no) shift 2 ;;
    --multi_gpu=*) multi=yes && shift ;;
    *) wrong "\$1" ;;
    esac
done
[ "\$multi" != yes ] || start_ranks "\$processes" "\$@"
# One process in any case: its launcher for that gives no ranks.
env ACCELERATE_MIXED_PRECISION=bf16 OMP_NUM_THREADS=1 python3 "\$@"
END
    # sbatch copies the script and starts the copy in the caller's directory, with the options of
    # the script's head and then its own.
    stand_in sbatch <<'END'
for option in $(sed -n 's/^#SBATCH //p' "${@: -1}") "${@:1:$#-1}"; do
    case $option in
    --nodes=*) export SLURM_NNODES=${option#*=} ;;
    --ntasks-per-node=*) export SLURM_NTASKS_PER_NODE=${option#*=} ;;
    --cpus-per-task=*) export SLURM_CPUS_PER_TASK=${option#*=} ;;
    --gpus-per-node=*) gpus=${option#*=} ;;
    --job-name=?* | --mem=[0-9]* | --time=??:??:?? | --output=?*) ;;
    *) echo "sbatch: $option: unrecognized" >&2 && exit 64 ;;
    esac
done
[ "$gpus" = "$SLURM_NTASKS_PER_NODE" ] || { echo "sbatch: a task for each GPU?" >&2 && exit 64; }
export SLURM_JOB_ID=4711 SLURM_SUBMIT_DIR=$PWD SLURM_JOB_NODELIST=node[1-$SLURM_NNODES] SLURM_PROCID=0 SLURM_LOCALID=0
export SLURM_NTASKS=$((SLURM_NNODES * SLURM_NTASKS_PER_NODE))
mkdir -p spool
cp "${@: -1}" spool/slurm_script
chmod +x spool/slurm_script
exec spool/slurm_script
END
    stand_in scontrol <<'END'
[ "$1 $2" = "show hostnames" ] && [ "$3" = "$SLURM_JOB_NODELIST" ] || exit 64
for ((node = 1; node <= SLURM_NNODES; node++)); do echo "node$node"; done
END
    stand_in srun <<'END'
while [[ "$1" == -* ]]; do
    case $1 in
    --kill-on-bad-exit=[01] | --cpus-per-task=[1-9]*) shift ;;
    *) echo "srun: $1: unrecognized" >&2 && exit 64 ;;
    esac
done
pids=() rc=0
for ((rank = 0; rank < SLURM_NTASKS; rank++)); do
    env SLURM_PROCID=$rank SLURM_LOCALID=$((rank % SLURM_NTASKS_PER_NODE)) SLURM_NODEID=$((rank / SLURM_NTASKS_PER_NODE)) SLURM_STEP_NUM_TASKS="$SLURM_NTASKS" \
        SLURM_STEP_TASKS_PER_NODE="$SLURM_NTASKS_PER_NODE(x$SLURM_NNODES)" "$@" &
    pids+=($!)
done
for rank in "${pids[@]}"; do wait "$rank" || rc=$?; done
exit $rc
END
}

# example VARIABLE=VALUE... COMMAND...: runs it with the stand-ins, and device memory for half of
# the trainer's need.
example() {
    PATH=$WORK/bin:$PATH run_sim PENSTOCK_MIN_SPAN="$SPAN_FROM" PENSTOCK_BUDGET="$(share 55)" PENSTOCK_HOST_BUDGET=50% OUT="$WORK/out" "$@"
}

# trained NAME REPORT RANK PROCESSES LOCAL: one process was managed in less memory and had plain's
# results. It knew its place in the job and its share of the host's memory: that of a process alone,
# divided by LOCAL.
trained() {
    equal "$(plain | grep -v '^allocated')" "$(cat "printed.$1")" "losses and gradients of $1"
    equal "null $3 $4" "$(jq -r '"\(.stands_aside) \(.rank) \(.processes)"' "$2")" "stands aside, rank and processes"
    at_least 1 "$(jq .evictions "$2")" "evictions of $1"
    at_most "$(share 55)" "$(jq .peak_resident_bytes "$2")" "peak of $1"
    equal $(($(whole_slab) / $5)) "$(jq .slab.limit_bytes "$2")" "share of the host's memory of $1"
    LEDGER=$WORK/ledger.$1 sound
}

# The slab's limit for a process that has the machine to itself, computed once a file.
whole_slab() {
    local kept=$BATS_FILE_TMPDIR/whole
    [ -s "$kept" ] || { REPORT=$kept.json run_penstock PENSTOCK_HOST_BUDGET=50% "${TRAINER[@]}" && jq .slab.limit_bytes "$kept.json" >"$kept"; }
    cat "$kept"
}

# all_trained N [LOCAL]: every process of such a job trained, and no other; the table of all came
# last.
all_trained() {
    local rank
    ended_with 0
    for ((rank = 0; rank < $1; rank++)); do
        trained $rank "out/report.rank$rank.json" $rank "$1" "${2:-$1}"
        contains "$output" "^ *$rank +[0-9]+ "
    done
    equal "$1" "$(find out -name '*.json' | wc -l)" "reports"
    lacks "$output" 'no report of'
    contains "${lines[-1]}" '^ *all '
}

@test "train.sh trains a torch script on one GPU, or a script of one's own" {
    example "$EXAMPLES/train.sh"
    ended_with 0
    trained alone out/report.json null 1 1
    contains "$(cat arguments.alone)" '/tests/gpu/transformer\.py$'
    # One's own script, with arbitrary arguments. Without the command on PATH the tree's is used.
    rm -f printed.alone bin/penstock
    touch train.py
    example "$EXAMPLES/train.sh" train.py --budget 'a b'
    ended_with 0
    trained alone out/report.json null 1 1
    equal "train.py,--budget,a b" "$(paste -sd, arguments.alone)" "arguments"
}

@test "with torchrun each rank is managed and has its own report" {
    mkdir out
    touch out/report.rank7.json # of a larger job before
    example "$EXAMPLES/torchrun.sh"
    all_trained 2
    contains "$(paste -sd' ' arguments.1)" '/tests/gpu/transformer\.py --parallel ddp$'
    touch train.py
    example GPUS=3 "$EXAMPLES/torchrun.sh" train.py --epochs 2
    all_trained 3
    equal "train.py,--epochs,2" "$(paste -sd, arguments.2)" "arguments"
}

@test "with Slurm each task is managed and shares the memory of its own machine" {
    ln -s "$ROOT/tests" tests
    cp "$EXAMPLES/slurm.sbatch" .
    example sbatch slurm.sbatch
    all_trained 2
    contains "$(paste -sd' ' arguments.1)" '/tests/gpu/transformer\.py --parallel ddp$'
    rm -r out
    example sbatch --nodes=2 slurm.sbatch
    all_trained 4 2
    # Each task sees the variables that torch needs.
    stand_in python3 <<'END'
[[ $1 == *.py ]] || exit 0
echo "told $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT"
END
    stand_in penstock <<'END'
[ "$1" != run ] || exec "${@:3}"
END
    example sbatch --nodes=2 slurm.sbatch
    equal "told 0 0 4 node1 19711,told 1 1 4 node1 19711,told 2 0 4 node1 19711,told 3 1 4 node1 19711" "$(grep ^told <<<"$output" | sort | paste -sd,)"
}

@test "with Accelerate one process has no rank, and several have ranks" {
    example "$EXAMPLES/accelerate.sh"
    ended_with 0
    trained alone out/report.json null 1 1
    contains "$(cat arguments.alone)" '/tests/gpu/hf_trainer\.py$'
    example GPUS=2 "$EXAMPLES/accelerate.sh"
    all_trained 2
}

@test "with Lightning one process runs alone, and torchrun starts several" {
    example "$EXAMPLES/lightning.sh"
    ended_with 0
    trained alone out/report.json null 1 1
    contains "$(cat arguments.alone)" '/tests/gpu/lightning_trainer\.py$'
    example GPUS=2 "$EXAMPLES/lightning.sh"
    all_trained 2
}

@test "when training fails, the example fails with its status" {
    local script
    touch failing.py
    for script in train torchrun accelerate lightning; do
        example "$EXAMPLES/$script.sh" failing.py
        ended_with 7
    done
    # There is no tests/gpu in the directory of this submission.
    example sbatch "$EXAMPLES/slurm.sbatch"
    ended_with 2
    lacks "$output" 'no report|penstock: '
}

# --- the C program --------------------------------------------------------------------------------

# The kernels' own text as host functions, which the simulated device runs in place of nvcc's code:
# one thread takes all items.
host_kernels() {
    {
        cat <<'END'
#include <utility>
#include "tests/cudasim/kernel_abi.h"
static const struct { unsigned x; } blockIdx = {0}, blockDim = {1}, threadIdx = {0}, gridDim = {1};
#define __global__ __attribute__((visibility("hidden")))
#include "scripts/examples/c-program/kernels.h"

template <auto Kernel> struct host;
template <typename... P, void (*Kernel)(P...)> struct host<Kernel> {
    struct layout {
        struct cudasim_param param[sizeof...(P)];
    };
    static constexpr layout make(void)
    {
        layout made = {};
        uint32_t offset = 0, index = 0;
        ((offset = (offset + alignof(P) - 1) / alignof(P) * alignof(P), made.param[index++] = {offset, (uint32_t)sizeof(P)}, offset += sizeof(P)), ...);
        return made;
    }
    static constexpr layout parameters = make();
    template <size_t... I> static void call(void *const *params, std::index_sequence<I...>) { Kernel(*(const P *)params[I]...); }
    static void run(const struct cudasim_launch *, void *const *params) { call(params, std::index_sequence_for<P...>()); }
};
#define HOST(name) \
    extern "C" const struct cudasim_kernel cudasim_kernel_##name; \
    const struct cudasim_kernel cudasim_kernel_##name = {CUDASIM_KERNEL_ABI, sizeof host<name>::parameters / sizeof(struct cudasim_param), \
                                                         host<name>::parameters.param, host<name>::run};
END
        sed -nE 's/^extern "C" __global__ void (\w+)\(.*/HOST(\1)/p' "$EXAMPLES/c-program/kernels.h"
    } >host_kernels.cc
    g++ -std=c++17 -O2 -Wall -Werror -shared -fPIC "-I$ROOT" -o host_kernels.so host_kernels.cc
}

@test "the C program compiles with the command that it names, and its layers and steps are recognised" {
    requires nvcc
    local compile trainer=(env "LD_PRELOAD=$WORK/host_kernels.so" ./trainer 6 1024 64 12)
    ln -s "$ROOT/include" "$ROOT/scripts" .
    compile=$(sed -n 's/^ \* *\(nvcc .*\)$/\1/p' "$EXAMPLES/c-program/trainer.cu")
    # The simulated device needs of any program the shared runtime, and a cubin that CUPTI's
    # simulation can show.
    PATH=$TOOLKIT/bin:$PATH NVCC_APPEND_FLAGS='-cudart shared -compress-mode none -arch=sm_90' bash -c "$compile"
    host_kernels
    run_sim "${trainer[@]}"
    ended_with 0
    equal 12 "$(grep -c '^step [0-9]* loss 0\.[0-9]*$' <<<"$output")" "steps"
    local losses=$output
    # Training: the loss falls.
    awk '{ if ($2 && $4 > last) exit 1; last = $4 } END { exit !(last < 0.15) }' <<<"$output"
    run with_device CUDASIM_GRANULARITY=4096 timeout "$(patience 60)" "$PENSTOCK" run --budget 1MiB --min-span 4096 --report "$REPORT" -- "${trainer[@]/LD_PRELOAD=/LD_PRELOAD=$PENSTOCK_SO:}"
    ended_with 0
    equal "$losses" "$(grep -v '^penstock: ' <<<"$output")" "losses"
    at_least 1 "$(report evictions)" "evictions"
    # A step of so few launches is learnt because the program marks it. Its layers have the
    # program's names.
    at_least 5 "$(report plan.steps)" "steps under a plan"
    equal "layer 0 forward,layer 1 forward,layer 5 backward,layer 0 backward" \
        "$(report plan.layers | jq -r '[.[] | select(.number != null)] | [.[0], .[1], .[6], .[-1]] | map("\(.name) \(.number) \(.direction)") | join(",")')"
}

# --- examples that can't run here -----------------------------------------------------------------

# instructions: prints the Containerfile's instructions, one a line.
instructions() { sed -e ':a' -e '/\\$/N' -e 's/\\\n//' -e ta "$EXAMPLES/Containerfile" | grep -E '^[A-Z]+ '; }

@test "the Containerfile copies existing files, installs existing packages, and uses existing commands and options" {
    local word words from package known
    # Each stage begins with an image. The second copies the package of the first, by the name that
    # make gives it.
    equal "FROM debian:bookworm-slim AS build,FROM debian:bookworm-slim" "$(instructions | grep '^FROM' | paste -sd,)" "stages"
    equal '' "$(instructions | grep -vE '^(FROM|RUN|COPY|WORKDIR|ENV|ENTRYPOINT|CMD) ')" "other instructions"
    while read -ra words; do
        for word in "${words[@]:1:${#words[@]}-2}"; do
            case $word in
            --from=build) from=yes ;;
            /src/build/release/packages/) equal yes "${from:-}" "copied from the first stage" ;;
            *) [ -n "$(git -C "$ROOT" ls-files "$word" 2>/dev/null || find "$ROOT/$word")" ] || equal "$word in the sources" "nothing" ;;
            esac
        done
    done < <(instructions | grep '^COPY')
    # Every input of the build is copied: each directory and file of the top level.
    for word in $(cd "$ROOT" && echo *); do
        [ "$word" = build ] || contains "$(instructions | grep '^COPY')" " $word( |$)"
    done
    # Packages are those that set-up installs, or Debian's.
    known=$(sed -n "/_needs='/,/^'/p" "$ROOT/scripts/dev/setup" | awk 'NF == 2 { print $2 }')
    # shellcheck disable=SC2046 # words
    for package in $(instructions | grep -oE 'apt-get install [^&]*' | tr ' ' '\n' | grep -vE '^(apt-get|install|-.*|)$'); do
        grep -qxF "$package" <<<"$known" || [ -n "$(apt-cache show "$package" 2>/dev/null)" ] || [ "$package $(apt-cache show libc6 2>&1 | wc -l)" = "make 0" ] ||
            equal "a package: $package" "none that set-up or Debian knows"
    done
    # The image looks for the wheel where make wheel puts it.
    contains "$(cat "$ROOT/Makefile")" '^packages := \$\(OUT\)/packages$'
    contains "$(instructions)" '^RUN scripts/dev/setup build && make wheel$'
    contains "$(instructions)" '/tmp/packages/penstock-\*\.whl && penstock --version'
    # The commands in its head, and the one it starts, are the command's.
    contains "$("$PENSTOCK" --help)" "^  $(instructions | sed -nE 's/^CMD \["(\w+)"\]$/\1/p') "
    contains "$("$PENSTOCK" run --help)" '^  --budget '
    contains "$(cat "$EXAMPLES/Containerfile")" '^# +podman run .* penstock run --budget 60% -- python3 train\.py$'
}

@test "the table lists exactly the existing examples" {
    local path
    equal "$(cd "$EXAMPLES" && for path in *; do [ "$path" = README.md ] || echo "$path"; done)" \
        "$(sed -nE 's/^\| \[([^]]+)\]\(.*/\1/p' "$EXAMPLES/README.md" | sort)" "files"
    equal '' "$(sed -nE 's/^\| \[[^]]+\]\(([^)]+)\).*/\1/p' "$EXAMPLES/README.md" | while read -r path; do [ -e "$EXAMPLES/$path" ] || echo "$path"; done)" \
        "links that lead nowhere"
    # shellcheck disable=SC2016
    equal '' "$(grep -oE '`(tests|scripts)/[^` ]+' "$EXAMPLES/README.md" | tr -d '`' | while read -r path; do [ -e "$ROOT/$path" ] || echo "$path"; done)" \
        "paths that lead nowhere"
}
