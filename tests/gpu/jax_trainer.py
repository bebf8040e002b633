"""The training of a perceptron in JAX, with the allocator that XLA_PYTHON_CLIENT_ALLOCATOR names.

    python jax_trainer.py [width [batch [layers [steps]]]]

Prints one line of JSON: step times (ms), losses and the sum of all parameters' absolute values (chk).
"""
import json
import os
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true " + os.environ.get("XLA_FLAGS", "") if not os.environ.get("JAX_PLATFORMS") else ""
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

width, batch, layers, steps = (int(x) for x in (sys.argv[1:] + ["4096", "32768", "12", "12"][len(sys.argv) - 1:]))
keys = jax.random.split(jax.random.key(0), layers)
parameters = [jax.random.normal(key, (width, width), jnp.float32) / width**0.5 for key in keys]
momentum = [jnp.zeros_like(w) for w in parameters]


# Each layer has a program for forward and one for backward. XLA would hold all temporaries of a
# single program in one buffer.
@jax.jit
def forward(w, x):
    return jnp.tanh(x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32)


@jax.jit
def backward(w, x, y, dy):
    d = (dy * (1 - y * y)).astype(jnp.bfloat16)
    return (x.astype(jnp.bfloat16).T @ d).astype(jnp.float32), (d @ w.astype(jnp.bfloat16).T).astype(jnp.float32)


@jax.jit
def loss_of(y):
    return jnp.mean(y * y), 2 * y / y.size


@jax.jit
def update(w, m, g):
    m = 0.9 * m + g
    return w - 0.1 * m, m


times, losses = [], []
for number in range(steps):
    x = jax.random.normal(jax.random.key(1000 + number), (batch, width), jnp.float32).block_until_ready()
    began = time.perf_counter()
    kept = [x]
    for w in parameters:
        kept.append(forward(w, kept[-1]))
    loss, dy = loss_of(kept[-1])
    for i in reversed(range(layers)):
        g, dy = backward(parameters[i], kept[i], kept.pop(), dy)
        parameters[i], momentum[i] = update(parameters[i], momentum[i], g)
    jax.block_until_ready(parameters)
    times.append(round((time.perf_counter() - began) * 1e3, 1))
    losses.append(round(float(loss), 8))
print(json.dumps({"ms": times, "loss": losses, "chk": float(sum(jnp.abs(w).sum() for w in parameters))}), flush=True)
