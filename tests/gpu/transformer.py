"""The training of a Llama-like model in plain torch, in common ways: see --help. It has embedding,
dropout, SDPA and gradient clipping.

Prints one line of JSON (loop.py). Under torchrun every rank trains on its own data, and rank 0
prints, with the sum over ranks as chk. --parallel cut and replicas use several devices in one
process.
"""
import argparse
import contextlib
import os
import random

import loop

parser = argparse.ArgumentParser(description=__doc__)
option = parser.add_argument
option("--layers", type=int, default=8)
option("--hidden", type=int, default=2048)
option("--sequence", type=int, default=2048)
option("--shortest", type=int, default=0, help="the shortest length of a batch; lengths are random, in steps of 8 up to --sequence, and rarely repeat")
option("--batch", type=int, default=8)
option("--steps", type=int, default=10)
option("--dropout", type=float, default=0.1)
option("--optimizer", choices=("fused", "foreach", "loop", "sgd"), default="fused")
option("--amp", choices=("none", "bf16", "fp16"), default="bf16", help="autocast over fp32 parameters; fp16 with a GradScaler")
option("--saved", choices=("all", "reentrant", "nonreentrant", "hooks", "cpu"), default="all",
       help="how forward keeps tensors: all; as checkpoints of either kind; packed by saved_tensors_hooks; by save_on_cpu(pin_memory=True)")
option("--compile", choices=("no", "default", "reduce-overhead"), default="no")
option("--graph", action="store_true", help="capture the whole step once, and replay it")
option("--accumulate", type=int, default=1, help="micro-batches a step")
option("--evaluate-every", type=int, default=0)
option("--pool", action="store_true", help="allocate everything in a separate MemPool of torch's native allocator")
option("--expandable", action="store_true", help="ask for expandable segments, as scripts do, before torch is imported")
option("--empty-cache", action="store_true", help="call torch.cuda.empty_cache() at the end of each step")
option("--profile", action="store_true", help="run all steps under torch.profiler, and print the number of kernels it saw")
option("--parallel", choices=("no", "ddp", "fsdp", "tp", "cut", "replicas"), default="no",
       help="ddp, fsdp and tp need torchrun; in one process: cut puts the layers on two devices, replicas is DataParallel on all devices")
a = parser.parse_args()

if a.expandable:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
torch = loop.prepare(strict=True)
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

VOCABULARY = 32000
device, rank, ranks = "cuda" if torch.cuda.is_available() else "cpu", 0, 1
second = "cuda:1" if a.parallel == "cut" and device == "cuda" else None  # the device of the second half of the layers and of the head
distributed = a.parallel in ("ddp", "fsdp", "tp")
if distributed:
    import torch.distributed as dist

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        device = f"cuda:{int(os.environ['LOCAL_RANK'])}"
    dist.init_process_group("nccl" if device != "cpu" else "gloo", device_id=torch.device(device) if device != "cpu" else None)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = max(1, width // 128)
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(width, 4 * width, bias=False), nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        z = self.norm1(x)
        q, k, v = (p(z).view(b, t, -1, x.shape[2] // self.heads).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, -1)
        x = x + F.dropout(self.out(y), a.dropout)
        z = self.norm2(x)
        return x + F.dropout(self.down(F.silu(self.gate(z)) * self.up(z)), a.dropout)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, a.hidden)
        self.blocks = nn.ModuleList(Block(a.hidden) for _ in range(a.layers))
        self.norm, self.head = nn.RMSNorm(a.hidden), nn.Linear(a.hidden, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for number, block in enumerate(self.blocks):
            if second and number == a.layers // 2:
                x, tokens = x.to(second), tokens.to(second)
            if a.saved in ("reentrant", "nonreentrant"):
                x = checkpoint(block, x, use_reentrant=a.saved == "reentrant")
            else:
                x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, VOCABULARY)[:-1].float(), tokens.view(-1)[1:])


if a.pool:
    pool = contextlib.ExitStack()  # until the end of the program
    pool.enter_context(torch.cuda.use_mem_pool(torch.cuda.MemPool()))
with torch.device(device):
    model = Net()
if second:
    for part in (*model.blocks[a.layers // 2:], model.norm, model.head):
        part.to(second)
if a.parallel == "tp":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh(device.split(":")[0], (ranks,))
    # A head is as wide as in the whole model: each rank has a share of the heads.
    columns = {name: ColwiseParallel() for name in ("q", "k", "v", "gate", "up")}
    for block in model.blocks:
        parallelize_module(block, mesh, {**columns, "out": RowwiseParallel(), "down": RowwiseParallel()})
elif a.parallel == "fsdp":
    from torch.distributed.fsdp import fully_shard

    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
trained = model
if a.parallel == "ddp":
    trained = nn.parallel.DistributedDataParallel(model, device_ids=[int(os.environ["LOCAL_RANK"])] if device != "cpu" else None)
elif a.parallel == "replicas":
    trained = nn.DataParallel(model)
if a.compile != "no":
    trained = torch.compile(trained, mode=None if a.compile == "default" else a.compile)

kinds = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}
capturable = {"capturable": True} if a.graph else {}
if a.optimizer == "sgd":
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **kinds[a.optimizer], **capturable)
scaler = torch.amp.GradScaler(device.split(":")[0], enabled=a.amp == "fp16")
types = {"none": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
seed = 1 + (0 if a.parallel == "tp" else rank)
generator = torch.Generator(device=device).manual_seed(seed)
lengths = random.Random(seed)


def keeping():
    if a.saved == "hooks":
        return torch.autograd.graph.saved_tensors_hooks(lambda x: (x.dtype, x.half() if x.dtype == torch.float32 and x.ndim > 2 else x),
                                                        lambda packed: packed[1].to(packed[0]))
    if a.saved == "cpu":
        return torch.autograd.graph.save_on_cpu(pin_memory=device != "cpu")
    return contextlib.nullcontext()


def loss_of(tokens):
    with keeping(), torch.autocast(device.split(":")[0], types[a.amp], enabled=a.amp != "none"):
        return trained(tokens).mean()  # the mean over replicas, if any


def batch():
    length = lengths.randrange(a.shortest, a.sequence + 1, 8) if a.shortest else a.sequence
    return torch.randint(0, VOCABULARY, (a.batch // a.accumulate, length), device=device, generator=generator)


def update():
    scaler.unscale_(optimizer)
    if a.parallel != "tp":  # torch clips no mixture of sharded and whole gradients
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=not a.graph)


def step(number):
    if a.evaluate_every and number % a.evaluate_every == a.evaluate_every - 1:
        with torch.no_grad():
            loss_of(batch())
    total = 0
    for _ in range(a.accumulate):
        if a.compile == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        loss = loss_of(batch()) / a.accumulate
        scaler.scale(loss).backward()
        total = total + loss.detach()
    update()
    if a.empty_cache:
        torch.cuda.empty_cache()
    return total


class Captured:
    """The step as one CUDA graph. A few steps run on a side stream without a graph first, as torch's
    manual asks; then one is captured, and replayed."""

    def __init__(self):
        self.tokens = batch()
        self.stream = torch.cuda.Stream()
        self.graph = None

    def work(self):
        loss = loss_of(self.tokens)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss

    def __call__(self, number):
        self.tokens.copy_(batch())
        if number < 3:
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                loss = self.work()
            torch.cuda.current_stream().wait_stream(self.stream)
            return loss
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.loss = self.work()
        self.graph.replay()
        return self.loss


more = {}
if a.profile:
    from torch.profiler import ProfilerActivity, profile

    profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    profiler.__enter__()
told = loop.run(torch, Captured() if a.graph else step, a.steps, model.parameters())
if a.profile:
    profiler.__exit__(None, None, None)
    events = [e for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    told["profiled"] = len(events)
if distributed:
    total = torch.tensor(told["chk"], dtype=torch.float64, device=device)
    dist.all_reduce(total)
    told["chk"] = float(total)
    dist.destroy_process_group()
if rank == 0:
    loop.tell(told)
