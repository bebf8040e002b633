"""The training loop of a convolutional net in plain torch and timm: ResNet-50, autocast to
bfloat16, channels last, SGD with momentum.

    python convnet.py [batch [steps]]

Prints one line of JSON: step times (ms), the allocator's peak (GiB) and the losses. DET=1: deterministic kernels.
"""
import json
import os
import sys
import time

import timm
import torch

batch, steps = (int(a) for a in (sys.argv[1:] + ["256", "10"][len(sys.argv) - 1:]))
if os.environ.get("DET"):
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
torch.manual_seed(0)
model = timm.create_model("resnet50", num_classes=1000).cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
generator = torch.Generator(device="cuda").manual_seed(1)
times, losses = [], []
for step in range(steps):
    images = torch.randn(batch, 3, 224, 224, device="cuda", generator=generator).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device="cuda", generator=generator)
    torch.cuda.synchronize()
    began = time.perf_counter()
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.detach())
    torch.cuda.synchronize()
    times.append(time.perf_counter() - began)
print(json.dumps({"ms": [round(t * 1e3, 1) for t in times], "peakGiB": round(torch.cuda.max_memory_allocated() / 2**30, 2),
                  "loss": [round(float(x), 5) for x in losses]}))
