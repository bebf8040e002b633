"""Runs a program of tests/samples, and prints its results as one line of JSON: losses and hashes of
each step, and the checksum of its parameters (chk). A program without steps prints "ok" if all its
checks passed.

    python sample.py PROGRAM [ARGUMENT]...
    python sample.py TOOL [OPTION]... -- PROGRAM [ARGUMENT]...

Other lines of the program or the tool go to stderr. A library in LD_PRELOAD is preloaded into the
program inside the TOOL, because some tools (ncu) do not pass it on.
"""
import json
import os
import re
import subprocess
import sys

command, environment = sys.argv[1:], dict(os.environ)
if "--" in command:
    at = command.index("--")
    library = environment.pop("LD_PRELOAD", "")
    inside = ["sh", "-c", 'LD_PRELOAD=${LD_PRELOAD:+$LD_PRELOAD:}$0 exec "$@"', library] if library else []
    command[at:at + 1] = inside
done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
steps = re.findall(r"^step .*", done.stdout, re.M)
sys.stderr.write("".join(f"{line}\n" for line in done.stdout.splitlines() if line not in steps))
if done.returncode:
    sys.exit(done.returncode if done.returncode > 0 else 128 - done.returncode)
losses = [float(line.split()[3]) for line in steps if line.split()[2] == "loss"]
hashes = [x for line in steps for x in re.findall(r" (?:gradients|weights|sum) ([0-9a-f]+)", line)]
parameters = re.search(r"^parameters ([0-9a-f]+)$", done.stdout, re.M)
if not (losses and parameters) and not re.search(r"^ok$", done.stdout, re.M):
    sys.exit(f"{sys.argv[1]}: neither losses nor ok in what it printed")
# The low halves of hashes, which a JSON number holds exactly.
print(json.dumps({"loss": losses + [int(x[-8:], 16) for x in hashes], "chk": int(parameters.group(1)[-8:], 16) if parameters else 0}))
