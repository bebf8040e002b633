"""Two threads of one process that train at once, each with its own model and stream. A second
context of the same GPU holds memory from the driver, and a word of it is read every few steps.

Prints one line of JSON (loop.py): the losses of both, and the words read in the second context.
"""
import argparse
import concurrent.futures
import contextlib
import ctypes

import loop


class SecondContext:
    """
    A context of our own, with memory from the driver. Each word of the memory is `word` at first.
    """

    def __init__(self, mib, word):
        self.driver, self.bytes, self.context, self.memory = ctypes.CDLL("libcuda.so.1"), mib << 20, ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuCtxCreate_v2", ctypes.byref(self.context), 0, 0)
        self.call("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(self.bytes))
        self.call("cuMemsetD32_v2", self.memory, word, ctypes.c_size_t(self.bytes // 4))
        self.leave()

    def call(self, name, *arguments):
        result = getattr(self.driver, name)(*arguments)
        if result:
            raise RuntimeError(f"{name}: error {result}")

    def leave(self):
        self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def last_word(self):
        """Returns the last word of the memory, and adds one to it."""
        at, word = ctypes.c_uint64(self.memory.value + self.bytes - 4), ctypes.c_uint32()
        self.call("cuCtxPushCurrent_v2", self.context)
        self.call("cuMemcpyDtoH_v2", ctypes.byref(word), at, ctypes.c_size_t(4))
        self.call("cuMemsetD32_v2", at, word.value + 1, ctypes.c_size_t(1))
        self.leave()
        return word.value


class Training:
    """The training of one thread. Threads share nothing of it."""

    def __init__(self, torch, a, number, device):
        self.torch, self.rows, self.stream = torch, a.batch, torch.cuda.Stream() if device == "cuda" else None
        with self.at_stream():
            self.stack = loop.Stack(torch, a.width, a.layers, device, seed=1 + number)

    def at_stream(self):
        return self.torch.cuda.stream(self.stream) if self.stream else contextlib.nullcontext()

    def step(self):
        with self.at_stream():
            return self.stack.train(self.stack.batch(self.rows)).detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    loop.options(parser, layers=8)
    parser.add_argument("--mib", type=int, default=256, help="the size of the second context's memory")
    a = parser.parse_args()
    torch = loop.prepare(strict=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    trainings = [Training(torch, a, number, device) for number in range(2)]
    if device == "cuda":
        torch.cuda.synchronize()
    second = SecondContext(a.mib, 1000) if device == "cuda" else None
    found = []

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        def step(number):
            losses = list(threads.map(Training.step, trainings))
            if device == "cuda":
                torch.cuda.synchronize()
            if second and number % 3 == 2:
                found.append(float(second.last_word()))
            return losses[0] + 3 * losses[1]

        told = loop.run(torch, step, a.steps, [p for training in trainings for p in training.stack.parameters])
    told["loss"] += found
    loop.tell(told)


if __name__ == "__main__":
    main()
