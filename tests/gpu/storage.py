"""A trainer whose batches lie in registered shared memory (cudaHostRegister). cuFile writes its
weights to a file and reads them back, as for checkpoints (not with --every 0). cuFile runs in
compatible mode, which needs no driver of its own, but a file system that cuFile supports.

Prints one line of JSON (loop.py).
"""
import argparse
import ctypes
import glob
import mmap
import os
import sys
import tempfile

import loop

os.environ.setdefault("CUFILE_FORCE_COMPAT_MODE", "true")


def library():
    """Returns libcufile, from torch's packages or else the toolkit."""
    found = [path for place in [f"{p}/nvidia/*/lib" for p in sys.path] + ["/usr/local/cuda/lib64"] for path in glob.glob(f"{place}/libcufile.so.0")]
    return ctypes.CDLL(found[0] if found else "libcufile.so.0")


class Description(ctypes.Structure):
    """
    CUfileDescr_t of cufile.h; of its union of a descriptor and a pointer, only the descriptor.
    """

    _fields_ = [("type", ctypes.c_int), ("fd", ctypes.c_long), ("operations", ctypes.c_void_p)]


class CuFile:
    """One file, open to read and write, in the first of `places` whose files can be registered."""

    def __init__(self, places):
        self.cufile, self.handle, errors = library(), ctypes.c_void_p(), []
        for name in ("cuFileDriverOpen", "cuFileHandleRegister"):
            getattr(self.cufile, name).restype = ctypes.c_uint64  # CUfileError_t: its lower half is cuFile's own error
        for name in ("cuFileRead", "cuFileWrite"):
            function = getattr(self.cufile, name)
            function.restype, function.argtypes = ctypes.c_ssize_t, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long, ctypes.c_long]
        errors.append(f"cuFileDriverOpen {self.call('cuFileDriverOpen')}")
        for place in places:
            self.file = tempfile.TemporaryFile(dir=place)
            error = self.call("cuFileHandleRegister", ctypes.byref(self.handle), ctypes.byref(Description(1, self.file.fileno(), None)))
            if not error:
                return
            errors.append(f"cuFileHandleRegister in {place} {error}")
        sys.exit(f"no file can be registered with cuFile: {', '.join(errors)}")

    def call(self, name, *arguments):
        return getattr(self.cufile, name)(*arguments) & 0xFFFFFFFF

    def move(self, name, tensor, offset):
        size = tensor.numel() * tensor.element_size()
        done = getattr(self.cufile, name)(self.handle, tensor.data_ptr(), size, offset, 0)
        if done != size:
            sys.exit(f"{name}: {done} of {size} bytes")
        return offset + size


class Batches:
    """The batches of the training, in registered memory; each comes round again."""

    def __init__(self, torch, a, device):
        self.torch, self.a, self.device = torch, a, device
        size = a.batches * a.batch * a.width * 2
        self.memory = mmap.mmap(-1, size)
        self.all = torch.frombuffer(self.memory, dtype=torch.bfloat16).view(a.batches, a.batch, a.width)
        generator = torch.Generator().manual_seed(1)
        self.all[:] = torch.randn(self.all.shape[1:], generator=generator).bfloat16()
        for number, batch in enumerate(self.all):
            batch *= 1 + number
        if device == "cuda":
            error = int(torch.cuda.cudart().cudaHostRegister(self.all.data_ptr(), size, 0))
            if error:
                sys.exit(f"cudaHostRegister: error {error}")

    def __call__(self, number):
        return self.all[number % self.a.batches].to(self.device, non_blocking=True)

    def end(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()
            self.torch.cuda.cudart().cudaHostUnregister(self.all.data_ptr())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    loop.options(parser)
    option = parser.add_argument
    option("--batches", type=int, default=3)
    option("--every", type=int, default=5, help="steps from one checkpoint to the next; every second one reads the weights back; 0: no checkpoints")
    a = parser.parse_args()
    torch = loop.prepare(strict=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batches = Batches(torch, a, device)
    file = CuFile([tempfile.gettempdir(), os.getcwd(), "/dev/shm"]) if a.every and device == "cuda" else None
    stack = loop.Stack(torch, a.width, a.layers, device)

    def step(number):
        loss = stack.train(batches(number))
        if file and number % a.every == a.every - 1:
            torch.cuda.synchronize()  # cuFile is in no stream order
            offset = 0
            for p in stack.parameters:
                offset = file.move("cuFileWrite" if number // a.every % 2 == 0 else "cuFileRead", p.detach(), offset)
        return loss

    told = loop.run(torch, step, a.steps, stack.parameters)
    batches.end()
    loop.tell(told)


if __name__ == "__main__":
    main()
