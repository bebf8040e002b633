#!/bin/bash
# A torch script on one GPU:
#   train.sh [SCRIPT [ARGUMENT]...]        by default: tests/gpu/transformer.py of this tree
# PENSTOCK_BUDGET is the device memory that it may hold (60% of the device). The report goes to OUT.
set -euo pipefail

tree=$(dirname "$(readlink -f "$0")")/../..
command -v penstock >/dev/null || PATH=$tree/scripts/command:$PATH
out=${OUT:-penstock-out}
mkdir -p "$out"

[ $# -gt 0 ] || set -- "$tree/tests/gpu/transformer.py"
exec penstock run --budget "${PENSTOCK_BUDGET:-60%}" --report "$out/report.json" -- python3 "$@"
