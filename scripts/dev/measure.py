"""Runs commands one after the other, and keeps a record of each: the code that scripts/dev/bench and
scripts/gpu share.

A run never ends the script: a command that fails, hangs or runs out of memory becomes a record that
says so.
"""

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import platform
import re
import shlex
import signal
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COMMAND = os.path.join(ROOT, "scripts", "command")
sys.path.append(COMMAND)
from penstock_files import write_whole  # noqa: E402

OURS = re.compile(r"^(PENSTOCK_|CUDASIM_|PYTORCH_(CUDA_)?ALLOC_CONF$|LD_PRELOAD$|DET$)")
KILL_AFTER_S = 10  # between SIGTERM, on which Penstock writes its report, and SIGKILL
LEAST_RUN_S = 5  # the least expected time of a run, also of the first of its sort
SETTLING_S = 0.3  # after the start of a run: a sample of memory may still show the run before
LEARNT_BY = 4  # steps; later steps are judged as planned


class MemorySampler:
    """
    Samples the used memory by nvidia-smi every `period_ms` inside a `with`. peak_mib() is that of the
    fullest device.
    """

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
            # The time is that in the sample, not of its arrival: a pipe may hold lines back.
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
        """Returns the highest sample between two times, or None without samples."""
        return max((mib for at, mib in list(self.samples) if begin <= at <= end), default=None)


def clean_environment(**settings):
    """
    Returns the environment of this process with `settings`, and without any other setting of
    Penstock, the simulated device or torch's allocator.
    """
    environment = {name: value for name, value in os.environ.items() if not OURS.match(name)}
    environment.update({name: str(value) for name, value in settings.items()})
    return environment


def last_json(text):
    """Returns the JSON object of the whole text, or the last one on a line of its own; or None."""
    for line in [text, *reversed(text.splitlines())]:
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                return value
    return None


def run(name, command, settings, limit_s, directory):
    """
    Runs a command to its end or for `limit_s`. Its output goes to directory/name.{out,err}, and
    Penstock's report to name.report.json, unless `settings` has PENSTOCK_REPORT (empty: no report).

    Returns a dictionary: name, command, settings, begin and end (seconds since the epoch), wall_s, rc
    (None: killed at the limit), status ("ok", or the reason in words), result (the last JSON object
    that the command printed), report (Penstock's), closing_line, and said (Penstock's other lines,
    at most 20). stderr_tail is there if the status is not "ok".
    """
    out, err, report = (os.path.join(directory, f"{name}.{what}") for what in ("out", "err", "report.json"))
    settings = dict(settings)
    if "LD_PRELOAD" in settings:
        settings.setdefault("PENSTOCK_REPORT", report)
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
    record["result"] = last_json(printed)
    # Each process of a job writes its own report; the first one's stands for all.
    record["report"] = read_json(report) or read_json(report.replace(".json", ".rank0.json")) if "LD_PRELOAD" in settings else None
    lines = [line for line in complained.splitlines() if line.startswith("penstock: ")]
    record["closing_line"] = lines[-1] if lines else None
    record["said"] = lines[:-1][:20]
    record["status"] = status_of(record, complained, limit_s)
    if record["status"] != "ok":
        # Committed figures must not contain addresses of foreign pages.
        record["stderr_tail"] = [re.sub(r" *\(?\w+://\S+", "", line) for line in complained.splitlines()[-12:]]
    return record


def end_group(process):
    """Ends a process and its children, which are in a session of their own."""
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
        if not record["settings"]["PENSTOCK_REPORT"]:
            return "ok" if " moved " in (record["closing_line"] or "") else "no closing line: Penstock did not run"
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
    """Writes the whole file at once, so that it is complete at any time."""
    write_whole(path, (json.dumps(value, indent=1) + "\n").encode())


def output_of(command, limit_s=60):
    """Returns the stripped output of a command, or None if it fails."""
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
    """
    Returns the tree's commit, with "+changes" if files differ from it; None outside a repository.
    """
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


def gpus_there():
    return len((output_of(["nvidia-smi", "-L"]) or "").splitlines())


def machine(torch_python=None):
    """
    Returns the facts of the machine that figures depend on. GPUs and torch are included only if a
    Python with torch is named.
    """
    gpu = gpus = torch = None
    if torch_python:
        gpus = gpus_there()
        gpu = output_of(["nvidia-smi", "--id=0", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
        torch = output_of([torch_python, "-c", "import torch; print(torch.__version__)"])
    total = first_match("/proc/meminfo", r"^MemTotal: +(\d+) kB")
    return {"gpu": gpu, "gpus": gpus, "torch": torch, "python": platform.python_version(), "kernel": platform.release(), "cores": os.cpu_count(),
            "cpu": first_match("/proc/cpuinfo", r"^model name\s*: (.*)$"), "memory_gib": round(int(total) / 2**20, 1) if total else None}


# --- shared by scripts/gpu ------------------------------------------------------------------------
def setting(text):
    """Returns the name and value of a --set NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text}: expected NAME=VALUE")
    return "PENSTOCK_" + name, value


def add_options(parser, name, parts, limit, deadline):
    """Adds the options that the scripts share. `parts`: the parts that run without --parts."""
    option = parser.add_argument
    option("--out", default=os.environ.get("OUT", f"{name}-results"), help="directory for the results (default: $OUT)")
    option("--parts", default=",".join(parts), help="the parts to run, in this order")
    option("--limit", type=float, default=limit, help="seconds for one run")
    option("--deadline", type=float, default=deadline, help="seconds for everything: no run starts that would not end before")
    option("--commit", help="the commit that was built, if git can't tell")
    option("--python", default="python3", help="the Python that has torch")
    option("--set", type=setting, action="append", default=[], metavar="NAME=VALUE", help="a PENSTOCK_ setting for every run under Penstock")


def parse_options(parser, parts, files):
    """
    Returns the arguments, with parts as a list. An option in `files` must name a file if given.
    """
    arguments = parser.parse_args()
    arguments.parts = [part for part in arguments.parts.split(",") if part]
    unknown = [part for part in arguments.parts if part not in parts]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(parts)}")
    for file in filter(None, (getattr(arguments, name) for name in files)):
        if not os.path.isfile(file):
            parser.error(f"{file}: no such file")
    arguments.out = os.path.abspath(arguments.out)
    return arguments


class Session:
    """
    All runs of one call of a script, in one file, OUT/NAME.json, which is written as a whole after
    each run. `arguments`: those of add_options, `library`, and `trainer`, which may be None.
    """

    def __init__(self, name, arguments, sampler=None):
        self.arguments, self.sampler, self.begin = arguments, sampler, time.time()
        self.longest = {}  # seconds of the longest run so far, by sort: the expected time of the next
        self.runs = []
        self.file = os.path.join(arguments.out, f"{name}.json")
        os.makedirs(arguments.out, exist_ok=True)
        trainer = arguments.trainer
        self.results = {
            "format": f"penstock-{name}/1", "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "command": shlex.join(sys.argv), "commit": arguments.commit or commit_of(ROOT), "machine": machine(arguments.python),
            "trainer": {"file": os.path.basename(trainer), "sha256": sha256_of(trainer)} if trainer else None,
            "library_sha256": sha256_of(arguments.library), "period_ms": sampler and sampler.period_ms,
            "parts": {}, "checks": [], "runs": self.runs,
        }

    def left(self):
        return self.arguments.deadline - (time.time() - self.begin)

    def run(self, part, label, command, budget=None, limit=None, settings=None, sort=None):
        """
        Makes one run and returns its record. It is plain without a budget. Never raises: a failure
        is the record's status.
        """
        arguments = self.arguments
        sort = sort or (part, label)
        count = sum(run["part"] == part for run in self.runs)
        name = f"{part}-{count:02d}-{label}"
        settings = dict(settings or {})
        if budget is not None:
            settings.update({"LD_PRELOAD": os.path.abspath(arguments.library), "PENSTOCK_BUDGET": budget, "PENSTOCK_LOG": "info"})
            settings.update(arguments.set)
        room = self.left() - KILL_AFTER_S
        limit = min(limit or arguments.limit, room)
        if room < max(self.longest.get(sort, 0), LEAST_RUN_S):
            record = {"name": name, "command": " ".join(command), "settings": settings, "status": "not run: out of time", "result": None,
                      "report": None}
        else:
            record = run(name, command, settings, limit, arguments.out)
            self.longest[sort] = max(self.longest.get(sort, 0), record["wall_s"])
            record.update(said_on_stderr(os.path.join(arguments.out, name + ".err")))
            record["smi_peak_mib"] = self.sampler and self.sampler.peak_mib(record["begin"] + SETTLING_S, record["end"])
        record.update({"part": part, "label": label, "budget": budget})
        self.runs.append(record)
        print(f"{time.time() - self.begin:5.0f} s  {name}: {record['status']}  {brief(record)}", flush=True)
        self.write()
        return record

    def trainer(self, part, label, args, **more):
        return self.run(part, label, [self.arguments.python, self.arguments.trainer, *args.split()], **more)

    def check(self, name, ok, wanted, got):
        """Adds a check. `ok` None: could not be judged, which counts as a failure. Returns `ok`."""
        self.results["checks"].append({"name": name, "ok": ok, "wanted": wanted, "got": got})
        return ok

    def write(self):
        self.results["wall_s"] = round(time.time() - self.begin, 1)
        write_json(self.file, self.results)

    def do_parts(self, functions):
        """Runs each requested part by calling the function of its name."""
        for part in self.arguments.parts:
            try:
                functions[part](self)
            except Exception as error:  # a part that can't be judged must not stop the others
                self.check(part, None, "figures", f"{type(error).__name__}: {error}")
            self.write()

    def finish(self, may_fail=()):
        """
        Writes and prints the table of scripts/dev/results-table. Returns the exit status: 0 if every
        check holds and every run ended well, except runs of a (part, label) in `may_fail`.
        """
        table = subprocess.run([sys.executable, os.path.join(HERE, "results-table"), self.file], stdout=subprocess.PIPE, text=True, check=False)
        with open(self.file.replace(".json", ".txt"), "w") as out:
            out.write(table.stdout)
        print(table.stdout, end="")
        failed = [run for run in self.runs if run["status"] != "ok" and (run["part"], run["label"]) not in may_fail]
        return 1 if table.returncode or failed or not all(check["ok"] for check in self.results["checks"]) else 0


def said_on_stderr(path):
    """
    Returns figures from a run's stderr: steps_ms, each step's time in ms; link, bytes a second out
    and in; and plans, the number of plans. The first two are None if stderr lacks them.
    """
    try:
        with open(path, errors="replace") as file:
            text = file.read()
    except OSError:
        text = ""
    steps = re.search(r"^steps \[([0-9., ]+)\]$", text, re.M)
    link = re.search(r"the link: (\d+) MB/s out, (\d+) in", text)
    return {"steps_ms": [float(step) for step in steps.group(1).split(",")] if steps else None,
            "link": [int(rate) * 10**6 for rate in link.groups()] if link else None,
            "plans": len(re.findall(r"^penstock: policy: planned a step of ", text, re.M))}


def brief(record):
    result, ms = record["result"] or {}, late_steps_ms(record)
    words = [f"{ms:g} ms a step"] if ms else []
    words += [f"{key} {result[key]}" for key in ("apart_us", "in_span_us", "chk") if result.get(key)]
    if record.get("smi_peak_mib") is not None:
        words.append(f"peak {record['smi_peak_mib']} MiB")
    return ", ".join(words)


def late_steps_ms(run):
    """
    Returns the median step time from the fifth step on, when a plan is in force, if the trainer
    prints each step's time ("steps [MS, ...]" on stderr, or a list as its ms). Otherwise returns the
    trainer's own figure, or None.
    """
    ms = (run["result"] or {}).get("ms")
    late = (run.get("steps_ms") or (ms if isinstance(ms, list) else []))[LEARNT_BY:]
    return statistics.median(late) if late else None if isinstance(ms, list) else ms


def well(runs):
    return [run for run in runs if run["status"] == "ok"]


def status_over(runs):
    bad = [run["status"] for run in runs if run["status"] != "ok"]
    return bad[0] if bad else "ok" if runs else "not run"


def median_of(values):
    return round(statistics.median(values), 4) if values else None


def rounded(value, digits=None):
    return None if value is None else round(value, digits)


def of_each(runs, *path):
    """Returns the value at `path` of each run that has it."""
    found = []
    for run in runs:
        value = run
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            found.append(value)
    return found


def losses_apart(one, other):
    return max((abs(a - b) for a, b in zip(one, other)), default=0.0) if len(one) == len(other) else float("inf")


def check_losses(session, label, plain, runs, least=0.0):
    """
    Checks that losses of each run differ from those of some plain run by at most the difference
    among plain runs, or `least`. That difference takes two plain runs; one is enough if its losses
    differ by at most `least`.
    """
    known = of_each(well(plain), "result", "loss")
    theirs = of_each(well(runs), "result", "loss")
    if not known or not theirs or (len(known) < 2 and any(losses_apart(loss, known[0]) > least for loss in theirs)):
        return session.check(f"losses, {label}", None, "two plain runs and one under Penstock", f"{len(known)} and {len(theirs)}")
    spread = max(losses_apart(a, b) for a in known for b in known)
    apart = max(min(losses_apart(loss, other) for other in known) for loss in theirs)
    may = "the only plain run" if len(known) < 2 else "as plain runs differ" if spread >= least else f"plain runs differ by {spread:g}"
    return session.check(f"losses, {label}", apart <= max(spread, least), f"at most {max(spread, least):g} from plain, {may}", f"{apart:g}")
