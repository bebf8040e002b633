"""Runs a program on a GPU that another process uses too. Without Penstock the program runs alone on
the GPU. If Penstock is preloaded, another process first takes all but LEFT GiB of the device. It
takes MORE GiB while the program trains. The budget is `auto`: the memory that is free.

    python shared.py LEFT MORE PROGRAM [ARGUMENT]...            LEFT: less than the program needs
    python shared.py LEFT MORE --twins PROGRAM [ARGUMENT]...    two processes of the program at once,
                                                                on an equal footing; LEFT: less than
                                                                both need

Prints the program's line of JSON, and ends with its status. Twins must print the same losses. It
fails if the other process could not get its memory.
"""
import ctypes
import json
import os
import select
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PIECE = 64 << 20
LOOKS_EVERY_S = 0.05
TRAINS_FOR_S = 4


class Device:
    """The first GPU, used by driver calls only: this process is no trainer."""

    def __init__(self):
        self.driver, context, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        result = getattr(self.driver, name)(*arguments)
        if result:
            sys.exit(f"{name}: error {result}")

    def free(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def take(self):
        return not self.driver.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(PIECE))


def hold(left, more):
    """Runs in the other process. TRAINS_FOR_S seconds after less than a third of `left` is free, it
    begins to take `more` bytes. It ends when a line comes on stdin."""
    device, since, taken = Device(), None, 0
    while device.free() > left + PIECE and device.take():
        pass
    print("held", flush=True)
    while not select.select([sys.stdin], [], [], LOOKS_EVERY_S)[0]:
        since = since or (time.time() if device.free() < left // 3 else None)
        if taken < more and since and time.time() > since + TRAINS_FOR_S:
            taken += PIECE if device.take() else 0
    print(taken)


def main():
    left, more, *command = sys.argv[1:]
    if left == "--hold":
        return hold(int(more), int(command[0]))
    left, more = (int(float(x) * 2**30) for x in (left, more))
    twins = command[0] == "--twins"
    command = [sys.executable, os.path.join(HERE, command[twins]), *command[1 + twins:]]
    if "LD_PRELOAD" not in os.environ:
        os.execv(sys.executable, command)
    others = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    holder = subprocess.Popen([sys.executable, __file__, "--hold", str(left), str(more)], env=others, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    holder.stdout.readline()
    programs = []
    for number in range(1 + twins):
        # PENSTOCK_REPORT gets the report of the first process.
        report = {"PENSTOCK_REPORT": os.environ["PENSTOCK_REPORT"] + ".twin"} if number and "PENSTOCK_REPORT" in os.environ else {}
        programs.append(subprocess.Popen(command, env={**os.environ, "PENSTOCK_BUDGET": "auto", **report}, stdout=subprocess.PIPE, text=True))
    printed = [program.communicate()[0] for program in programs]
    taken = int(holder.communicate("enough\n")[0])
    bad = [program.returncode for program in programs if program.returncode]
    if bad:
        sys.exit(bad[0] if bad[0] > 0 else 128 - bad[0])
    told = [json.loads(text.splitlines()[-1]) for text in printed]
    if any(one["loss"] != told[0]["loss"] or one["chk"] != told[0]["chk"] for one in told):
        sys.exit(f"the twins' losses differ: {told}")
    if taken < more:
        sys.exit(f"the other process had only {taken} bytes more, not {more}")
    print(json.dumps(told[0]))


if __name__ == "__main__":
    main()
