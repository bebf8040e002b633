#!/bin/bash
# A torch script on several GPUs of this machine, by torchrun:
#   torchrun.sh [SCRIPT [ARGUMENT]...]     by default: tests/gpu/transformer.py of this tree, with DDP
# GPUS is the number of GPUs (2). PENSTOCK_BUDGET is the device memory of each process (60% of its
# device). Each process writes its own report to OUT. A table of all reports comes last.
set -euo pipefail

tree=$(dirname "$(readlink -f "$0")")/../..
command -v penstock >/dev/null || PATH=$tree/scripts/command:$PATH
out=${OUT:-penstock-out}
mkdir -p "$out"
rm -f "$out"/report.rank*.json # of a job that had more processes

[ $# -gt 0 ] || set -- "$tree/tests/gpu/transformer.py" --parallel ddp
# The processes that the launcher starts inherit its environment, and Penstock with it. The launcher
# itself uses no GPU, so Penstock does nothing in it.
penstock run --budget "${PENSTOCK_BUDGET:-60%}" --report "$out/report.json" -- torchrun --standalone --nproc-per-node "${GPUS:-2}" "$@"
penstock summary "$out"/report.rank*.json
