"""A command that is begun, watched and ended early: what penstock-verify and penstock-advise share."""
import os
import signal
import subprocess
import sys
import time

TERM_SECONDS = 10


def say(text):
    print(f"penstock: {text}", file=sys.stderr, flush=True)


def preloaded(environment, library):
    """The same, with the library behind what is preloaded already."""
    before = environment.get("LD_PRELOAD")
    return environment | {"LD_PRELOAD": f"{before}:{library}" if before else library}


def ended(status):
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"


def show_log(log):
    for line in log.splitlines()[-20:]:
        print(f"    {line}", file=sys.stderr)


def end_at_signals():
    """A signal that ends this program ends the command as well, by way of `finally`."""
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda number, _: sys.exit(128 + number))


class Run:
    """One run of a command, and how it ended."""

    def __init__(self, command, environment, log, verbose):
        self.command = command
        self.environment = environment
        self.path = log
        self.verbose = verbose
        self.status = None  # None: we ended it
        self.late = False  # it took too long
        self.seconds = 0.0
        self.log = ""

    def until(self, enough, seconds):
        """Runs it until `enough`, or so many seconds are over, or it ends. Nothing of it, and of what it has begun, is left when this returns."""
        begun = time.monotonic()
        with open(self.path, "w", encoding="utf-8") as log:
            output = None if self.verbose else log
            process = subprocess.Popen(self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       start_new_session=True)
            try:
                while process.poll() is None:
                    self.late = time.monotonic() - begun > seconds
                    if enough() or self.late:
                        break
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
                continue  # others of its group may be there yet
        except subprocess.TimeoutExpired:
            pass
    process.wait()
