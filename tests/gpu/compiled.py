"""The training loop of a compiled model in plain torch: a Llama-style net under torch.compile, with
fused AdamW. Most kernels come from Triton.

    python compiled.py [layers [hidden [sequence [batch [steps]]]]]

Prints one line of JSON: step times (ms), the allocator's peak (GiB) and the losses. DET=1: deterministic kernels.
"""
import json
import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

layers, hidden, sequence, batch, steps = (int(a) for a in (sys.argv[1:] + ["8", "2048", "4096", "4", "10"][len(sys.argv) - 1:]))
if os.environ.get("DET"):
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = width // 128
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 4 * width, bias=False), nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, h = x.shape
        q, k, v = (z.transpose(1, 2) for z in self.qkv(self.norm1(x)).view(b, t, 3, self.heads, 128).unbind(2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, h))
        z = self.norm2(x)
        return x + self.down(F.silu(self.gate(z)) * self.up(z))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32000, hidden)
        self.blocks = nn.Sequential(*(Block(hidden) for _ in range(layers)))
        self.norm, self.head = nn.RMSNorm(hidden), nn.Linear(hidden, 32000, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embed(tokens))))


with torch.device("cuda"):
    model = Net().to(torch.bfloat16)
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
generator = torch.Generator(device="cuda").manual_seed(1)
times, losses = [], []
for step in range(steps):
    tokens = torch.randint(0, 32000, (batch, sequence), device="cuda", generator=generator)
    torch.cuda.synchronize()
    began = time.perf_counter()
    logits = compiled(tokens)
    loss = F.cross_entropy(logits.view(-1, 32000)[:-1].float(), tokens.view(-1)[1:])
    del logits
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.detach())
    torch.cuda.synchronize()
    times.append(time.perf_counter() - began)
print(json.dumps({"ms": [round(t * 1e3, 1) for t in times], "peakGiB": round(torch.cuda.max_memory_allocated() / 2**30, 2),
                  "loss": [round(float(x), 5) for x in losses]}))
