"""The training of a transformer in JAX whose whole step is one jitted function with donated state.

    python jax_step.py [loop|scan [width [batch [length [layers [steps]]]]]]

The layers are unrolled (loop), or are one traced body (scan). XLA makes one program of the step, and
launches most of it as CUDA graphs. Prints one line of JSON: step times (ms), losses and the sum of
all parameters' absolute values (chk).
"""
import functools
import json
import os
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true " + os.environ.get("XLA_FLAGS", "") if not os.environ.get("JAX_PLATFORMS") else ""
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

given = sys.argv[1:]
way = given[0] if given else "loop"
width, batch, length, layers, steps = (int(x) for x in (given[1:] + ["1024", "16", "1024", "12", "6"][len(given[1:]):]))
heads, words = max(width // 64, 1), 4096
SHAPES = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}


def begin(key):
    keys = jax.random.split(key, len(SHAPES) + 1)
    stacks = {name: jax.random.normal(k, (layers, *shape), jnp.float32) / shape[0]**0.5 for (name, shape), k in zip(SHAPES.items(), keys)}
    body = stacks if way == "scan" else [{name: stack[i] for name, stack in stacks.items()} for i in range(layers)]
    return {"body": body, "embedding": jax.random.normal(keys[-1], (words, width), jnp.float32) * 0.02}


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def layer(x, w):
    w = {name: matrix.astype(jnp.bfloat16) for name, matrix in w.items()}
    q, k, v = jnp.split((norm(x).astype(jnp.bfloat16) @ w["qkv"]).reshape(batch, length, heads, 3 * width // heads), 3, axis=-1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / (width / heads)**0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(jnp.bfloat16), v).reshape(batch, length, width)
    x = x + (mixed @ w["out"]).astype(jnp.float32)
    return x + (jax.nn.gelu(norm(x).astype(jnp.bfloat16) @ w["up"]) @ w["down"]).astype(jnp.float32)


def loss_of(parameters, tokens):
    x = parameters["embedding"][tokens[:, :-1]]
    if way == "scan":
        x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, parameters["body"])
    else:
        for w in parameters["body"]:
            x = layer(x, w)
    logits = norm(x).astype(jnp.bfloat16) @ parameters["embedding"].astype(jnp.bfloat16).T
    return -jnp.take_along_axis(jax.nn.log_softmax(logits.astype(jnp.float32)), tokens[:, 1:, None], axis=-1).mean()


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train(parameters, moments, tokens):
    loss, gradients = jax.value_and_grad(loss_of)(parameters, tokens)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
    return jax.tree.map(lambda w, m: w - 0.02 * m, parameters, moments), moments, loss


parameters = begin(jax.random.key(0))
moments = jax.tree.map(jnp.zeros_like, parameters)
times, losses = [], []
for number in range(steps):
    tokens = jax.random.randint(jax.random.key(1000 + number), (batch, length + 1), 0, words).block_until_ready()
    began = time.perf_counter()
    parameters, moments, loss = train(parameters, moments, tokens)
    jax.block_until_ready(parameters)
    times.append(round((time.perf_counter() - began) * 1e3, 1))
    losses.append(round(float(loss), 8))
print(json.dumps({"ms": times, "loss": losses, "chk": float(sum(jnp.abs(w).sum() for w in jax.tree.leaves(parameters)))}), flush=True)
