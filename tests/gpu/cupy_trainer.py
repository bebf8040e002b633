"""The training of a perceptron in CuPy, which contains a CUDA runtime of its own. Arrays come from
CuPy's memory pool (`pool`), from the runtime one by one (`none`), or stream-ordered (`async`).

    python cupy_trainer.py [pool|none|async [width [batch [layers [steps]]]]]

Prints one line of JSON: step times (ms), losses, the sum of all parameters' absolute values (chk),
and the bytes of the pool at the end (poolGiB, in GiB).
"""
import json
import sys
import time

import cupy

how, *sizes = sys.argv[1:] + ["pool", "4096", "32768", "12", "12"][len(sys.argv) - 1:]
width, batch, layers, steps = map(int, sizes)
pool = cupy.cuda.MemoryPool()
cupy.cuda.set_allocator({"pool": pool.malloc, "none": None, "async": cupy.cuda.MemoryAsyncPool().malloc if how == "async" else None}[how])
random = cupy.random.RandomState(0)
parameters = [random.standard_normal((width, width), dtype=cupy.float32) / width**0.5 for _ in range(layers)]
momentum = [cupy.zeros_like(w) for w in parameters]
times, losses = [], []
for number in range(steps):
    x = random.standard_normal((batch, width), dtype=cupy.float32)
    cupy.cuda.Device().synchronize()
    began = time.perf_counter()
    kept = [x]
    for w in parameters:
        kept.append(cupy.tanh(kept[-1] @ w))
    y = kept[-1]
    loss = (y * y).mean()
    dy = 2 * y / y.size
    for i in reversed(range(layers)):
        y = kept.pop()
        d = dy * (1 - y * y)
        momentum[i] = 0.9 * momentum[i] + kept[-1].T @ d
        dy = d @ parameters[i].T
        parameters[i] = parameters[i] - 0.1 * momentum[i]
    cupy.cuda.Device().synchronize()
    times.append(round((time.perf_counter() - began) * 1e3, 1))
    losses.append(round(float(loss), 8))
print(json.dumps({"ms": times, "loss": losses, "chk": float(sum(cupy.abs(w).sum() for w in parameters)), "poolGiB": pool.total_bytes() / 2**30}),
      flush=True)
