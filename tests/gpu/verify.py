"""Runs a training whose kernels use memory that no parameter names (tests/samples/hidden.cu).
Without Penstock it only runs the training. If Penstock is preloaded, `penstock verify` must find the
kernels that use such memory. Then the training runs with the rules that verify wrote, under the
unmap guard.

    python verify.py PROGRAM STEPS WORD...

Prints sample.py's line of JSON.
"""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PENSTOCK = os.path.join(HERE, "..", "..", "scripts", "command", "penstock")
KERNELS = {"table": "peek", "masked": "peek", "weights": "peek_at_weights", "wide": "peek_at_weights"}  # kernels that use it, by word

program, steps, *words = sys.argv[1:]
environment = dict(os.environ)
library = environment.pop("LD_PRELOAD", None)
if library:
    with tempfile.TemporaryDirectory() as work:
        # More steps than verify needs: it ends the program itself.
        done = subprocess.run([PENSTOCK, "verify", "--library", library, "--output", f"{work}/rules", "--", program, "100000", *words],
                              env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        rules = ""
        if os.path.exists(f"{work}/rules"):
            with open(f"{work}/rules") as file:
                rules = file.read().strip()
    found = set(re.findall(r"^found: kernel (\w+),", done.stdout, re.M))
    wanted = {KERNELS[word] for word in words if word in KERNELS}
    sys.stderr.write(done.stdout)
    if done.returncode != 1 or found != wanted or not rules:
        sys.exit(f"verify ended with {done.returncode} and found {sorted(found)}, not {sorted(wanted)}")
    environment.update({"LD_PRELOAD": library, "PENSTOCK_RULES": rules, "PENSTOCK_GUARD": "unmap"})
sys.stderr.flush()
os.execve(sys.executable, [sys.executable, os.path.join(HERE, "sample.py"), program, steps, *words], environment)
