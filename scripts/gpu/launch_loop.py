"""A launch-bound loop in torch: x.add_(1) on 64 floats. Prints JSON: the microseconds of one
operation, as the median of several rounds.

usage: launch_loop.py ITERATIONS ROUNDS
`apart`: x has its own allocation, too small for Penstock to manage. `in_span`: x lies in a tensor
of 8 MiB, which Penstock manages.
"""

import json
import statistics
import sys
import time

import torch


def microseconds(x, iterations):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(iterations):
        x.add_(1)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / iterations * 1e6


iterations, rounds = int(sys.argv[1]), int(sys.argv[2])
places = {"apart": torch.zeros(64, device="cuda"), "in_span": torch.zeros(2 << 20, device="cuda")[:64]}
result = {"iterations": iterations, "rounds": rounds}
for x in places.values():
    microseconds(x, 2000)
taken = {place: [] for place in places}
for _ in range(rounds):
    for place, x in places.items():
        taken[place].append(microseconds(x, iterations))
for place, x in places.items():
    if float(x[0]) != 2000 + rounds * iterations:
        sys.exit(f"x is {float(x[0])}, which is not the number of additions")
    result[place + "_us"] = round(statistics.median(taken[place]), 4)
    result[place + "_min_us"] = round(min(taken[place]), 4)
print(json.dumps(result), flush=True)
