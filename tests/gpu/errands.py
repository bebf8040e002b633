"""A trainer that runs errands between its steps, as trainers do: nvidia-smi, git, a compiler and the
program it made, children that are forked, spawned and given work, and a DataLoader with workers.
One child uses the GPU itself. The results of the errands are added to the losses.

Prints one line of JSON (loop.py).
"""
import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile

import loop


def added_up(numbers):
    return sum(n * n % 97 for n in range(numbers))


def added_up_on_gpu(numbers, answer):
    """Runs in a child that uses the GPU too, as for an evaluation. Penstock manages it if its own
    environment says so."""
    torch = loop.prepare()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    answer.send(int((torch.arange(numbers, device=device, dtype=torch.int64) % 97).sum()))


def nvidia_smi():
    done = subprocess.run(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"], stdout=subprocess.PIPE, text=True)
    return done.returncode * 1000 + len(done.stdout.split())


def shell():
    return os.system("cd / && git --version >/dev/null 2>&1; test -d tmp") + len(os.popen("echo a word").read())


def compiler():
    with tempfile.TemporaryDirectory() as work:
        with open(f"{work}/made.c", "w") as file:
            file.write('#include <stdio.h>\nint main(void) { puts("made"); return 3; }\n')
        subprocess.run(["gcc", "-O2", "-o", f"{work}/made", f"{work}/made.c"], check=True)
        done = subprocess.run([f"{work}/made"], stdout=subprocess.PIPE, text=True)
    return done.returncode + len(done.stdout)


def fork_and_exit():
    child = os.fork()
    if not child:
        os._exit(added_up(1000) % 50)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fork_and_exec():
    child = os.fork()
    if not child:
        os.execvp("sh", ["sh", "-c", "exit 9"])
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def pool():
    with multiprocessing.get_context("fork").Pool(2) as workers:
        return sum(workers.map(added_up, range(0, 4000, 500)))


def spawn():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=added_up_on_gpu, args=(8 << 20, theirs))
    child.start()
    answer = ours.recv()
    child.join()
    return answer + child.exitcode


def python_of_its_own():
    return len(subprocess.run([sys.executable, "-c", "import ctypes; print(ctypes.CDLL(None).getpid() > 0)"], stdout=subprocess.PIPE).stdout)


def loader(torch):
    numbers = torch.utils.data.TensorDataset(torch.arange(4096.0))
    pinned = torch.cuda.is_available()
    return float(sum(part.sum() for part, in torch.utils.data.DataLoader(numbers, batch_size=256, num_workers=2, pin_memory=pinned)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    loop.options(parser)
    a = parser.parse_args()
    torch = loop.prepare(strict=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    stack = loop.Stack(torch, a.width, a.layers, device)
    errands = [nvidia_smi, shell, compiler, fork_and_exit, fork_and_exec, pool, spawn, python_of_its_own, lambda: loader(torch)]
    brought = []

    def step(number):
        loss = stack.train(stack.batch(a.batch))
        if number % 2:  # the device still works on the step
            brought.append(float(errands[number // 2 % len(errands)]()))
        return loss

    told = loop.run(torch, step, a.steps, stack.parameters)
    told["loss"] += brought
    loop.tell(told)


if __name__ == "__main__":
    main()
