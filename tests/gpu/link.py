"""Measures the bandwidth of each GPU's link while GPUS of them copy both ways at once, between pinned
host memory and the device, in torch.

    link.py GPUS

Prints one line of JSON: each_way_gbps, and of_each, [out, in] of each GPU, in GB/s. A byte that is
moved goes out and comes back. So each_way_gbps is the harmonic mean of out and in, as the mean over
all GPUs.

Every direction has copies queued from before the measured time until after it. A direction that
ended sooner would leave the link to the others. With equal bytes each way, 34 GB/s were measured
where two H100 get 27 while all copy (tests/results/README.md#links-and-ranks).
"""
import json
import statistics
import sys
import threading
import time

import torch

BYTES, QUEUED = 256 << 20, 2  # a copy takes about 5 ms
WARM_UP_S, LOOKED_AT_S, ROUNDS = 0.2, 0.6, 3


class Way:
    """One direction of one GPU's link."""

    def __init__(self, gpu, out):
        host = torch.empty(BYTES, dtype=torch.uint8, pin_memory=True)
        device = torch.empty(BYTES, dtype=torch.uint8, device=f"cuda:{gpu}")
        self.to, self.source = (host, device) if out else (device, host)
        self.stream = torch.cuda.Stream(device=gpu)
        self.gbps = 0.0

    def queue(self):
        with torch.cuda.stream(self.stream):
            self.to.copy_(self.source, non_blocking=True)
            return self.stream.record_event()

    def copy_until(self, begin):
        """Copies without a pause until after the measured time. Sets the rate from the copies that
        ended in that time, by the host's clock."""
        queued, ends = [self.queue() for _ in range(QUEUED)], []
        while time.monotonic() < begin + LOOKED_AT_S + WARM_UP_S:
            queued.append(self.queue())
            queued.pop(0).synchronize()
            ends.append(time.monotonic())
        self.stream.synchronize()
        ends = [end for end in ends if begin <= end <= begin + LOOKED_AT_S]
        self.gbps = (len(ends) - 1) * BYTES / (ends[-1] - ends[0]) / 1e9


def round_of(ways):
    threads = [threading.Thread(target=way.copy_until, args=(time.monotonic() + WARM_UP_S,)) for way in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [way.gbps for way in ways]


def main():
    gpus = int(sys.argv[1])
    ways = [Way(gpu, out) for gpu in range(gpus) for out in (True, False)]
    for way in ways:  # the first use makes pages
        way.queue().synchronize()
    rounds = [round_of(ways) for _ in range(ROUNDS)]
    rates = [statistics.median(rate) for rate in zip(*rounds)]
    of_each = [rates[2 * gpu:2 * gpu + 2] for gpu in range(gpus)]
    each_way = statistics.mean(2 / (1 / out + 1 / back) for out, back in of_each)
    print(json.dumps({"gpus": gpus, "each_way_gbps": round(each_way, 2), "of_each": [[round(rate, 2) for rate in pair] for pair in of_each]}))


if __name__ == "__main__":
    main()
