"""A trainer whose weights another process sees through CUDA IPC (cudaIpcGetMemHandle), as those do who generate or evaluate beside a training: they are
copied into one flat tensor, whose handle torch.multiprocessing sends. For torch's own allocator: what cudaMallocAsync gives can't be sent so.

Every few steps the weights go into the flat tensor. While the training goes on, the other process adds up what lies there and leaves the sum at the
tensor's end: these sums are among the losses. The tensor is of --mib MiB, a size that nothing else here has, so that a rule can tell it from the rest.
With --refused the handle is asked for, may be refused, and the training goes on by itself.

Prints one line of JSON (loop.py), with sharedGiB, the flat tensor's size.
"""
import argparse
import sys

import loop

CHUNK = 1 << 22  # elements that are added up at a time


def sum_of(torch, flat):
    """In double precision and always the same order, each element by its place: what lies elsewhere, or is not there, makes another sum."""
    places = torch.arange(1, CHUNK + 1, dtype=torch.float64, device=flat.device) / CHUNK
    total = torch.zeros((), dtype=torch.float64, device=flat.device)
    for number, part in enumerate(flat.split(CHUNK)):
        total += (number + 1) * (part.double() * places[: part.numel()]).sum()
    return total


def end_of(torch, flat):
    return flat[-2:].view(torch.float64)


def look_on(connection):
    """The other process: it gets the handle, and for each word after that adds up."""
    torch = loop.prepare()
    flat = connection.recv()
    while connection.recv() == "look":
        end_of(torch, flat).copy_(sum_of(torch, flat[:-2]))
        if flat.is_cuda:
            torch.cuda.synchronize()
        connection.send("seen")
    del flat  # before its owner ends
    connection.send("gone")


class Watched:
    """The flat tensor, and the process that looks at it."""

    def __init__(self, torch, flat):
        context = torch.multiprocessing.get_context("spawn")
        self.torch, self.flat, self.sums, self.looking = torch, flat, [], False
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=look_on, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()  # so that its end is seen here
        self.connection.send(flat)

    def wait(self):
        if self.looking:
            self.connection.recv()
            self.sums.append(float(end_of(self.torch, self.flat)))

    def show(self, parameters):
        self.wait()
        at = 0
        for p in parameters:
            self.flat[at:at + p.numel()].copy_(p.detach().view(-1))
            at += p.numel()
        if self.flat.is_cuda:
            self.torch.cuda.synchronize()
        self.connection.send("look")
        self.looking = True

    def end(self):
        self.wait()
        self.connection.send("enough")
        self.connection.recv()
        self.process.join()


def asked_in_vain(torch, flat):
    from multiprocessing.reduction import ForkingPickler

    try:
        ForkingPickler.dumps(flat)
    except RuntimeError as error:
        print(f"refused: {error}".splitlines()[0], file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    loop.options(parser, steps=24)
    option = parser.add_argument
    option("--mib", type=int, default=774, help="the flat tensor, which the weights must fit into")
    option("--every", type=int, default=3, help="steps from one look to the next")
    option("--refused", action="store_true")
    a = parser.parse_args()
    torch = loop.prepare(strict=True)
    import torch.multiprocessing

    device = "cuda" if torch.cuda.is_available() else "cpu"
    # Before all else, when there is no larger block that torch's allocator could cut it from: an allocation of CUDA's of exactly this size.
    flat = torch.zeros((a.mib << 20) // 4, device=device)
    if flat.numel() < a.layers * a.width**2 + 2:
        parser.error("the weights are more than --mib")
    watched = asked_in_vain(torch, flat) if a.refused else Watched(torch, flat)
    stack = loop.Stack(torch, a.width, a.layers, device)

    def step(number):
        loss = stack.train(stack.batch(a.batch))
        if watched and number % a.every == a.every - 1:
            watched.show(stack.parameters)
        return loss

    told = loop.run(torch, step, a.steps, stack.parameters, sharedGiB=a.mib / 1024)
    if watched:
        watched.end()
        told["loss"] += [round(x, 6) for x in watched.sums]
    loop.tell(told)


if __name__ == "__main__":
    main()
