#!/bin/bash
# A script that uses Lightning's Trainer, on this machine:
#   lightning.sh [SCRIPT [ARGUMENT]...]    without one: tests/gpu/lightning_trainer.py of this tree, on one GPU
# GPUS is how many (1), and must be what the script gives the Trainer as `devices`. PENSTOCK_BUDGET is what each process may hold, 60% of its device
# unless set. Reports go to OUT.
set -euo pipefail

tree=$(dirname "$(readlink -f "$0")")/../..
command -v penstock >/dev/null || PATH=$tree/scripts/command:$PATH
out=${OUT:-penstock-out}
gpus=${GPUS:-1}
mkdir -p "$out"
rm -f "$out"/report*.json # of a job that had more processes

[ $# -gt 0 ] || set -- "$tree/tests/gpu/lightning_trainer.py"
# Lightning starts the other processes itself where nobody else does, but tells them no RANK: they would write one report over the other's, and each
# would take the host's memory for its own. By torchrun, which Lightning recognises, each knows its place.
launcher=(python3)
[ "$gpus" = 1 ] || launcher=(torchrun --standalone --nproc-per-node "$gpus")
penstock run --budget "${PENSTOCK_BUDGET:-60%}" --report "$out/report.json" -- "${launcher[@]}" "$@"
penstock summary "$out"/report*.json
