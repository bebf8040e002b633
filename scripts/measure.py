"""Runs commands one after the other and keeps what each of them took: the parts that scripts/bench and scripts/gpu share.

A run never ends the script: a command that fails, hangs or runs out of memory becomes a record that says so.
"""

import contextlib
import datetime
import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time

OURS = re.compile(r"^(PENSTOCK_|CUDASIM_|PYTORCH_(CUDA_)?ALLOC_CONF$|LD_PRELOAD$|DET$)")
KILL_AFTER_S = 10  # between SIGTERM, on which Penstock writes its report, and SIGKILL


class MemorySampler:
    """The used memory by nvidia-smi, every `period_ms`, from `with` to its end; of several devices that of the fullest."""

    def __init__(self, period_ms=200, limit_s=3600):
        self.period_ms = period_ms
        self.command = ["timeout", str(limit_s), "nvidia-smi", "--query-gpu=timestamp,memory.used",
                        "--format=csv,noheader,nounits", f"-lms={period_ms}"]
        self.samples = []  # (seconds since the epoch, MiB)
        self.process = None

    def __enter__(self):
        try:
            self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError as error:
            print(f"no memory samples: {error}", file=sys.stderr)
            return self
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        return self

    def _read(self):
        for line in self.process.stdout:
            # The sample's own time, not that of its arrival: a pipe may hold lines back.
            with contextlib.suppress(ValueError):
                stamp, mebibytes = line.split(",")
                at = datetime.datetime.strptime(stamp.strip(), "%Y/%m/%d %H:%M:%S.%f").timestamp()
                self.samples.append((at, int(mebibytes)))

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.reader.join(timeout=5)

    def peak_mib(self, begin, end):
        """The highest sample of a stretch of time, or None without samples."""
        return max((mib for at, mib in list(self.samples) if begin <= at <= end), default=None)


def clean_environment(**settings):
    """This process's environment without anything that steers Penstock, the simulated device or torch's allocator, and with `settings`."""
    environment = {name: value for name, value in os.environ.items() if not OURS.match(name)}
    environment.update({name: str(value) for name, value in settings.items()})
    return environment


def last_json_line(text):
    for line in reversed(text.splitlines()):
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                return value
    return None


def run(name, command, settings, limit_s, directory):
    """One command to its end or for `limit_s`. Its output goes to directory/name.{out,err}; what Penstock reports, to name.report.json.

    Gives a dictionary: name, command, settings, begin and end (seconds since the epoch), wall_s, rc (None: killed at the limit),
    status ("ok" or in words why not), result (the last JSON object the command printed), report (Penstock's) and closing_line.
    """
    out, err, report = (os.path.join(directory, f"{name}.{what}") for what in ("out", "err", "report.json"))
    settings = dict(settings)
    if "LD_PRELOAD" in settings:
        settings["PENSTOCK_REPORT"] = report
    record = {"name": name, "command": " ".join(command), "settings": settings, "begin": time.time(), "rc": None}
    with open(out, "w") as stdout, open(err, "w") as stderr:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                       env=clean_environment(**settings), start_new_session=True)
            try:
                record["rc"] = process.wait(timeout=limit_s)
            except subprocess.TimeoutExpired:
                end_group(process)
        except OSError as error:
            stderr.write(f"{error}\n")
            record["rc"] = 127
    record["end"] = time.time()
    record["wall_s"] = round(record["end"] - record["begin"], 2)
    with open(out, errors="replace") as stdout, open(err, errors="replace") as stderr:
        printed, complained = stdout.read(), stderr.read()
    record["result"] = last_json_line(printed)
    # Of several processes each writes its own; the first one's stands for them.
    record["report"] = read_json(report) or read_json(report.replace(".json", ".rank0.json")) if "LD_PRELOAD" in settings else None
    lines = [line for line in complained.splitlines() if line.startswith("penstock: ")]
    record["closing_line"] = lines[-1] if lines else None
    record["said"] = lines[:-1][:20]
    record["status"] = status_of(record, complained, limit_s)
    if record["status"] != "ok":
        # Addresses of other people's pages have no place among committed figures.
        record["stderr_tail"] = [re.sub(r" *\(?\w+://\S+", "", line) for line in complained.splitlines()[-12:]]
    return record


def end_group(process):
    """Ends a process and the children it started, in its own session."""
    for number, patience in ((signal.SIGTERM, KILL_AFTER_S), (signal.SIGKILL, KILL_AFTER_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience)
            return


def status_of(record, complained, limit_s):
    if record["rc"] is None:
        return f"killed after {limit_s:.0f} s"
    if record["rc"] != 0:
        return "out of memory" if re.search("out of memory", complained, re.I) else f"failed ({record['rc']})"
    if record["result"] is None:
        return "printed no result"
    report = record["report"]
    if "LD_PRELOAD" in record["settings"]:
        if report is None:
            return "no report: Penstock did not run"
        if report.get("stands_aside"):
            return f"stood aside: {report['stands_aside']}"
    return "ok"


def read_json(path):
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def write_json(path, value):
    """All or nothing: the file is whole at any time."""
    with open(path + ".tmp", "w") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
    os.replace(path + ".tmp", path)


def output_of(command, limit_s=60):
    """What a command prints, stripped, or None when it fails."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              timeout=limit_s, check=True, env=clean_environment())
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def sha256_of(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def commit_of(tree):
    """The tree's commit, with "+changes" when files differ from it; None outside a repository."""
    commit = output_of(["git", "-C", tree, "rev-parse", "HEAD"])
    if commit and output_of(["git", "-C", tree, "status", "--porcelain", "--untracked-files=no"]):
        commit += "+changes"
    return commit


def first_match(path, pattern):
    try:
        with open(path) as file:
            found = re.search(pattern, file.read(), re.M)
    except OSError:
        return None
    return found.group(1) if found else None


def machine(torch_python=None):
    """What the figures depend on; GPU and torch only where a Python that has torch is named."""
    gpu = torch = None
    if torch_python:
        gpu = output_of(["nvidia-smi", "--id=0", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
        torch = output_of([torch_python, "-c", "import torch; print(torch.__version__)"])
    total = first_match("/proc/meminfo", r"^MemTotal: +(\d+) kB")
    return {"gpu": gpu, "torch": torch, "python": platform.python_version(), "kernel": platform.release(), "cores": os.cpu_count(),
            "cpu": first_match("/proc/cpuinfo", r"^model name\s*: (.*)$"), "memory_gib": round(int(total) / 2**20, 1) if total else None}
