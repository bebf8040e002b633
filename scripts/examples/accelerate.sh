#!/bin/bash
# A script that uses Accelerate, or transformers' Trainer, on this machine:
#   accelerate.sh [SCRIPT [ARGUMENT]...]   by default: tests/gpu/hf_trainer.py of this tree
# GPUS is the number of GPUs (1). PENSTOCK_BUDGET is the device memory of each process (60% of its
# device). Reports go to OUT.
set -euo pipefail

tree=$(dirname "$(readlink -f "$0")")/../..
command -v penstock >/dev/null || PATH=$tree/scripts/command:$PATH
out=${OUT:-penstock-out}
gpus=${GPUS:-1}
mkdir -p "$out"
rm -f "$out"/report*.json # of a job that had more processes

[ $# -gt 0 ] || set -- "$tree/tests/gpu/hf_trainer.py"
# These four options are given, so that neither a file of `accelerate config` nor a guess decides.
options=(--num_machines 1 --num_processes "$gpus" --mixed_precision bf16 --dynamo_backend no)
[ "$gpus" = 1 ] || options+=(--multi_gpu)
penstock run --budget "${PENSTOCK_BUDGET:-60%}" --report "$out/report.json" -- accelerate launch "${options[@]}" "$@"
penstock summary "$out"/report*.json
