"""A trainer of tests/samples, with what it prints as one line of JSON: losses, and its parameters' checksum (chk).

    python sample.py PROGRAM [ARGUMENT]...
"""
import json
import re
import subprocess
import sys

done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True)
if done.returncode:
    sys.exit(done.returncode)
losses = [float(x) for x in re.findall(r"^step \d+ loss (\S+)", done.stdout, re.M)]
gradients = re.findall(r" gradients ([0-9a-f]+)$", done.stdout, re.M)
parameters = re.search(r"^parameters ([0-9a-f]+)$", done.stdout, re.M)
if not losses or not parameters:
    sys.exit(f"{sys.argv[1]}: no losses in what it printed")
# Bit for bit: the checksums' low halves, which a JSON number holds exactly.
print(json.dumps({"loss": losses + [int(x[-8:], 16) for x in gradients], "chk": int(parameters.group(1)[-8:], 16)}))
