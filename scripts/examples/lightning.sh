#!/bin/bash
# A script that uses Lightning's Trainer, on this machine:
#   lightning.sh [SCRIPT [ARGUMENT]...]    by default: tests/gpu/lightning_trainer.py of this tree
# GPUS is the number of GPUs (1), and must equal the Trainer's `devices` in the script.
# PENSTOCK_BUDGET is the device memory of each process (60% of its device). Reports go to OUT.
set -euo pipefail

tree=$(dirname "$(readlink -f "$0")")/../..
command -v penstock >/dev/null || PATH=$tree/scripts/command:$PATH
out=${OUT:-penstock-out}
gpus=${GPUS:-1}
mkdir -p "$out"
rm -f "$out"/report*.json # of a job that had more processes

[ $# -gt 0 ] || set -- "$tree/tests/gpu/lightning_trainer.py"
# Without a launcher, Lightning starts the other processes itself, but without a RANK. Then each
# report would overwrite the other, and each process would use the host memory of all. torchrun,
# which Lightning recognises, gives each process its rank.
launcher=(python3)
[ "$gpus" = 1 ] || launcher=(torchrun --standalone --nproc-per-node "$gpus")
penstock run --budget "${PENSTOCK_BUDGET:-60%}" --report "$out/report.json" -- "${launcher[@]}" "$@"
penstock summary "$out"/report*.json
