"""The yardstick: a step of a Llama-like model in plain torch, with bf16 weights and fused AdamW.

    python llama.py MODE LAYERS HIDDEN SEQUENCE BATCH STEPS

MODE says what forward keeps: none, all tensors; ckpt, the inputs of the layers, which are computed
again; cpu, all tensors, by save_on_cpu(pin_memory=True); cpuckpt, both. With DET=1 kernels are
deterministic. Prints one line of JSON: "ms", the median step from the third on, and "min"; "loss",
the first four and the last; "peakGiB" of its tensors, "usedGiB" of the device; "chk", with DET=1
the sum of all parameters' absolute values.
"""
import contextlib
import json
import os
import statistics
import sys
import time

DETERMINISTIC = bool(os.environ.get("DET"))
if DETERMINISTIC:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

mode = sys.argv[1]
layers, hidden, sequence, batch, steps = map(int, sys.argv[2:7])
WORDS, HEAD = 32000, 128
if mode not in ("none", "ckpt", "cpu", "cpuckpt"):
    sys.exit(__doc__)
torch.use_deterministic_algorithms(DETERMINISTIC)
torch.set_float32_matmul_precision("high")
torch.manual_seed(0)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return F.rms_norm(x, (hidden,), self.weight, 1e-6)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def rotated(x, cos, sin):
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        inner = (8 * hidden // 3 + 255) // 256 * 256
        self.before_attention, self.before_mlp = Norm(), Norm()
        self.qkv, self.out = linear(hidden, 3 * hidden), linear(hidden, hidden)
        self.gate, self.up, self.down = linear(hidden, inner), linear(hidden, inner), linear(inner, hidden)

    def forward(self, x, cos, sin):
        shape = x.shape[0], x.shape[1], 3, hidden // HEAD, HEAD
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before_attention(x)).view(shape).unbind(2))
        mixed = F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        y = self.before_mlp(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, hidden)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm, self.head = Norm(), linear(hidden, WORDS)

    def forward(self, words, cos, sin):
        x = self.embedding(words)
        for layer in self.layers:
            x = checkpoint(layer, x, cos, sin, use_reentrant=False) if "ckpt" in mode else layer(x, cos, sin)
        return self.head(self.norm(x))


torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = Model()
torch.set_default_dtype(torch.float32)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
frequencies = 1 / 10000 ** (torch.arange(0, HEAD // 2, device="cuda") / (HEAD // 2))
angles = torch.outer(torch.arange(sequence, device="cuda").float(), frequencies)
cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
generator = torch.Generator(device="cuda").manual_seed(1)


def train():
    words = torch.randint(0, WORDS, (batch, sequence), device="cuda", generator=generator)
    torch.cuda.synchronize()
    began = time.perf_counter()
    with torch.autograd.graph.save_on_cpu(pin_memory=True) if mode.startswith("cpu") else contextlib.nullcontext():
        loss = F.cross_entropy(model(words, cos, sin).view(-1, WORDS)[:-1], words.view(-1)[1:])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e3, loss.detach()


ms, losses = zip(*(train() for _ in range(steps)))
late = ms[2:] or ms
free, total = torch.cuda.mem_get_info()
print(json.dumps({
    "mode": mode, "layers": layers, "hidden": hidden, "sequence": sequence, "batch": batch,
    "ms": round(statistics.median_high(late), 1), "min": round(min(late), 1), "loss": [round(float(loss), 5) for loss in (*losses[:4], losses[-1])],
    "peakGiB": round(torch.cuda.max_memory_allocated() / 2**30, 2), "usedGiB": round((total - free) / 2**30, 2),
    "chk": float(sum(p.detach().double().abs().sum() for p in model.parameters())) if DETERMINISTIC else 0,
}), flush=True)
