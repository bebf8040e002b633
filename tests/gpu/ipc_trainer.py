"""A trainer whose weights another process sees through CUDA IPC (cudaIpcGetMemHandle), as programs do
that generate or evaluate beside a training. The weights are copied into one flat tensor, whose
handle torch.multiprocessing sends. It needs torch's own allocator: memory of cudaMallocAsync can't
be sent in this way.

Every few steps the trainer copies the weights into the flat tensor. While the training goes on, the
other process adds up the tensor and writes the sum at its end. These sums are added to the losses.
The tensor has --mib MiB. No other allocation here has this size, so a rule can name it. With
--refused the handle is requested and may be refused, and the training goes on without the other
process.

Prints one line of JSON (loop.py), with sharedGiB, the flat tensor's size.
"""
import argparse
import sys

import loop

CHUNK = 1 << 22  # elements of one addition


def sum_of(torch, flat):
    """Returns the sum in double precision and a fixed order, each element weighted by its place. So
    a misplaced or missing element changes the sum."""
    places = torch.arange(1, CHUNK + 1, dtype=torch.float64, device=flat.device) / CHUNK
    total = torch.zeros((), dtype=torch.float64, device=flat.device)
    for number, part in enumerate(flat.split(CHUNK)):
        total += (number + 1) * (part.double() * places[: part.numel()]).sum()
    return total


def end_of(torch, flat):
    return flat[-2:].view(torch.float64)


def look_on(connection):
    """Runs in the other process: receives the handle, then adds up the tensor for each message."""
    torch = loop.prepare()
    flat = connection.recv()
    while connection.recv() == "look":
        end_of(torch, flat).copy_(sum_of(torch, flat[:-2]))
        if flat.is_cuda:
            torch.cuda.synchronize()
        connection.send("seen")
    del flat  # it must go before its owner ends
    connection.send("gone")


class Watched:
    """The flat tensor, and the process that reads it."""

    def __init__(self, torch, flat):
        context = torch.multiprocessing.get_context("spawn")
        self.torch, self.flat, self.sums, self.looking = torch, flat, [], False
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=look_on, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()  # so that this process notices when the other one ends
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
    option("--mib", type=int, default=774, help="the size of the flat tensor, which must hold the weights")
    option("--every", type=int, default=3, help="steps from one sum to the next")
    option("--refused", action="store_true")
    a = parser.parse_args()
    torch = loop.prepare(strict=True)
    import torch.multiprocessing

    device = "cuda" if torch.cuda.is_available() else "cpu"
    # Allocated first, while torch's allocator has no larger block to cut it from. So it is an
    # allocation of CUDA of exactly this size.
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
