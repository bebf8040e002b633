#!/bin/bash
# A torch script on several GPUs of this machine, by torchrun:
#   torchrun.sh [SCRIPT [ARGUMENT]...]     without one: tests/gpu/transformer.py of this tree, data parallel
# GPUS is how many (2). PENSTOCK_BUDGET is what each process may hold, 60% of its device unless set. Each writes a report of its own to OUT; the table of
# all comes last.
set -euo pipefail

tree=$(dirname "$(readlink -f "$0")")/../..
command -v penstock >/dev/null || PATH=$tree/scripts/command:$PATH
out=${OUT:-penstock-out}
mkdir -p "$out"
rm -f "$out"/report.rank*.json # of a job that had more processes

[ $# -gt 0 ] || set -- "$tree/tests/gpu/transformer.py" --parallel ddp
# What the launcher starts inherits the environment, and Penstock with it. The launcher itself has nothing on a GPU, and nothing is done in it.
penstock run --budget "${PENSTOCK_BUDGET:-60%}" --report "$out/report.json" -- torchrun --standalone --nproc-per-node "${GPUS:-2}" "$@"
penstock summary "$out"/report.rank*.json
