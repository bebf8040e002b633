"""The training loop that the programs here share. Each program prints one line of JSON: step times
(ms), losses, the sum of all parameters' absolute values (chk), and torch's peaks of allocated and
reserved memory (peakGiB, reservedGiB), and of reserved memory for allocations under 1 MiB
(smallGiB).

Kernels are deterministic unless DET=0, so that runs of one program agree bit for bit, except where a
kernel has no deterministic version.
"""
import json
import os
import time


def prepare(strict=False):
    """
    Returns torch, set up for runs that can be compared. Must come before any CUDA call. With
    `strict`, an operation without a deterministic kernel fails.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    if os.environ.get("DET") != "0":
        torch.use_deterministic_algorithms(True, warn_only=not strict)
        torch.backends.cuda.enable_cudnn_sdp(False)  # its backward is not deterministic; that of flash attention can be
    torch.manual_seed(0)
    return torch


def checksum(parameters):
    """Returns the sum of absolute values of all parameters, or of this process's shards of them."""
    local = (p.detach().to_local() if hasattr(p, "to_local") else p.detach() for p in parameters)
    return sum(float(p.double().abs().sum()) for p in local)


def run(torch, step, steps, parameters, **more):
    """
    Calls step(number) `steps` times, and waits for the device after each. step returns the loss, or
    None if the loss must not be printed. Returns the figures to print.
    """
    cuda = torch.cuda.is_available()
    parameters = list(parameters)
    wait = torch.cuda.synchronize if cuda else lambda: None
    times, losses = [], []
    for number in range(steps):
        wait()
        began = time.perf_counter()
        loss = step(number)
        if loss is not None:
            losses.append(loss.detach().clone())
        wait()
        times.append(time.perf_counter() - began)
    told = {"ms": [round(t * 1e3, 1) for t in times], "loss": [round(float(x), 6) for x in losses], "chk": checksum(parameters), **more}
    if cuda:
        # The fullest device that holds parameters. A query of any other would make a context there.
        held = {p.device for p in parameters if p.device.type == "cuda"}
        peaks = [(torch.cuda.max_memory_allocated(d), torch.cuda.max_memory_reserved(d),
                  torch.cuda.memory_stats(d).get("reserved_bytes.small_pool.peak", 0)) for d in held]
        told["peakGiB"], told["reservedGiB"], told["smallGiB"] = (round(figure / 2**30, 3) for figure in max(peaks))
    return told


class Stack:
    """Square layers with tanh between, under autocast to bfloat16, and AdamW: a model for programs in
    which the model does not matter."""

    def __init__(self, torch, width, layers, device, seed=1):
        self.torch, self.width, self.device = torch, width, device
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.parameters = [(torch.randn(width, width, device=device, generator=self.generator) / width**0.5).requires_grad_() for _ in range(layers)]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, fused=device == "cuda")

    def batch(self, rows):
        return self.torch.randn(rows, self.width, device=self.device, generator=self.generator)

    def train(self, x):
        """Trains one step on the batch. Returns the loss."""
        with self.torch.autocast(self.device, self.torch.bfloat16):
            for w in self.parameters:
                x = self.torch.tanh(x @ w)
        loss = (x.float() - 0.5).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


def options(parser, layers=12, steps=20):
    """Adds the options of programs that train a Stack."""
    option = parser.add_argument
    option("--width", type=int, default=4096)
    option("--layers", type=int, default=layers)
    option("--batch", type=int, default=16384)
    option("--steps", type=int, default=steps)


def tell(told):
    print(json.dumps(told), flush=True)
