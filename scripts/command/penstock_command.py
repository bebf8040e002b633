"""Starts a command, watches it and ends it early, for penstock-verify and penstock-advise."""
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from penstock_output import say

TERM_SECONDS = 10
TELL_FIRST_SECONDS, TELL_SECONDS = 5, 10  # seconds until the first message about progress, and then between messages
NOT_FOUND, NOT_EXECUTABLE = 127, 126
# Turns off settings that write files: each run would overwrite the user's files.
NO_OUTPUT = dict.fromkeys(("PENSTOCK_TRACE", "PENSTOCK_METRICS", "PENSTOCK_PROMETHEUS", "PENSTOCK_SIGNAL", "PENSTOCK_RECORDING"), "")


def preloaded(environment, library):
    """Returns the environment with the library added after other preloaded libraries."""
    before = environment.get("LD_PRELOAD")
    return environment | {"LD_PRELOAD": f"{before}:{library}" if before else library}


def ended(status):
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"


def show_log(log):
    for line in log.splitlines()[-20:]:
        print(f"    {line}", file=sys.stderr)


def end_at_signals():
    """
    Lets a signal that ends this program end the command too: the signal becomes an exit, which runs
    `finally`.
    """
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda number, _: sys.exit(128 + number))


def is_text(path):
    """True if the file may be a shell script without a `#!` line, judged as shells do."""
    with open(path, "rb") as file:
        return b"\0" not in file.read(128)


def started(command, **how):
    """
    Starts the command and returns its process. If that fails, prints a line and exits with the
    status that a shell would have.
    """
    path = shutil.which(command[0], path=how["env"].get("PATH", os.defpath))
    try:
        try:
            return subprocess.Popen(command, **how)
        except OSError as error:
            if error.errno != errno.ENOEXEC or not path or not is_text(path):
                raise
            return subprocess.Popen(["/bin/sh", path, *command[1:]], **how)
    except OSError as error:
        if not path:
            say(f"{command[0]}: command not found; name one that is on PATH, or give its path")
            sys.exit(NOT_FOUND)
        why = "the interpreter that it names does not exist" if error.errno == errno.ENOENT else os.strerror(error.errno)
        say(f"{command[0]}: can't be started: {why}; expected a program, or a script whose first line names an existing program")
        sys.exit(NOT_EXECUTABLE)


def pages_of(top, session):
    """Returns the live pages of a session's processes; none if they are unknown."""
    try:
        done = subprocess.run([top, "--json"], capture_output=True, text=True, timeout=2, check=False)
        return [process for process in json.loads(done.stdout)["processes"] if session_of(process["pid"]) == session]
    except (OSError, ValueError, LookupError, TypeError, subprocess.TimeoutExpired):
        return []


def seen_of(top, session):
    """Returns the state in the live pages of a session's processes, in words; empty if unknown."""
    there = pages_of(top, session)
    try:
        launches = sum(process.get("launches", 0) for process in there)
        steps = max((device["step"] for process in there for device in process.get("devices", ())), default=0)
    except (ValueError, LookupError, TypeError):
        return ""
    return f"; {launches:,} launches and {steps:,} whole steps seen so far" if there else ""


def session_of(pid):
    try:
        return os.getsid(pid)
    except OSError:
        return None


class Run:
    """One run of a command, and how it ended."""

    def __init__(self, options, environment, log, waits_for):
        """`options`: with the command, verbose, and tools, the directory of penstock-top."""
        self.command = options.command
        self.environment = environment
        self.path = log
        self.verbose = options.verbose
        self.top = f"{options.tools}/penstock-top"
        self.waits_for = waits_for  # in words
        self.status = None  # None: this program ended it
        self.late = False  # it took too long
        self.seconds = 0.0
        self.log = ""
        self.session = None  # while it runs

    def launching(self):
        """Returns the number of its processes that launch kernels under Penstock, while it runs."""
        return sum(bool(process.get("launches")) for process in pages_of(self.top, self.session))

    def until(self, enough, seconds):
        """
        Runs it until `enough()` is true, the time is over, or it ends. When this returns, neither
        it nor a process that it started is left.
        """
        begun = time.monotonic()
        tell = begun + TELL_FIRST_SECONDS
        with open(self.path, "w", encoding="utf-8") as log:
            output = None if self.verbose else log
            process = started(self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
            self.session = process.pid
            try:
                while process.poll() is None:
                    now = time.monotonic()
                    self.late = now - begun > seconds
                    if enough() or self.late:
                        break
                    if now >= tell:
                        say(f"{now - begun:.0f} of at most {seconds:.0f} s: waiting for {self.waits_for}{seen_of(self.top, process.pid)}")
                        tell += TELL_SECONDS
                    time.sleep(0.01)
                self.status = process.poll()
            finally:
                end(process)
        self.seconds = time.monotonic() - begun
        with open(self.path, encoding="utf-8", errors="replace") as log:
            self.log = log.read()
        return self


def end(process):
    for how, seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, TERM_SECONDS)):
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            break
        try:
            process.wait(seconds)
            if how == signal.SIGTERM:
                continue  # other processes of its group may still run
        except subprocess.TimeoutExpired:
            pass
    process.wait()
