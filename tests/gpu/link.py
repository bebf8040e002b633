"""What the link of each GPU carries while so many of them copy both ways at once: pinned host memory, in torch, without anything else.

    link.py GPUS

Prints one line of JSON: each_way_gbps, the mean of all GPUs and both ways, and of_each, [out, in] of each GPU, GB/s.
"""
import json
import sys

import torch

BYTES, COPIES, ROUNDS = 512 << 20, 24, 3  # a quarter of a second a round at 50 GB/s


class Way:
    """One direction of one GPU's link."""

    def __init__(self, gpu, out):
        host = torch.empty(BYTES, dtype=torch.uint8, pin_memory=True)
        device = torch.empty(BYTES, dtype=torch.uint8, device=f"cuda:{gpu}")
        self.to, self.source = (host, device) if out else (device, host)
        self.stream = torch.cuda.Stream(device=gpu)
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def queue(self, copies):
        with torch.cuda.stream(self.stream):
            self.begin.record(self.stream)
            for _ in range(copies):
                self.to.copy_(self.source, non_blocking=True)
            self.end.record(self.stream)

    def gbps(self, copies):
        self.end.synchronize()
        return copies * BYTES / self.begin.elapsed_time(self.end) / 1e6


def main():
    gpus = int(sys.argv[1])
    ways = [[Way(gpu, out) for out in (True, False)] for gpu in range(gpus)]
    every = [way for pair in ways for way in pair]
    best = None
    for copies in (1, *[COPIES] * ROUNDS):  # pages are made at first use
        for way in every:
            way.queue(copies)
        rates = [[way.gbps(copies) for way in pair] for pair in ways]
        mean = sum(map(sum, rates)) / len(every)
        if copies == COPIES and (best is None or mean > best[0]):
            best = mean, rates
    print(json.dumps({"gpus": gpus, "each_way_gbps": round(best[0], 2), "of_each": [[round(rate, 2) for rate in pair] for pair in best[1]]}))


if __name__ == "__main__":
    main()
