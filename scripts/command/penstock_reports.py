"""Reads and checks reports (PENSTOCK_REPORT), for penstock-report and penstock-summary. A report
that can't be used ends the program with one line and status 2.
"""
import contextlib
import itertools
import json
import os

from penstock_output import fail

WHAT = "expected a file that PENSTOCK_REPORT, or penstock run --report, named"
NEEDED = {"version": str, "device": dict, "stands_aside": (str, type(None)), "peak_resident_bytes": int, "peak_demand_bytes": int, "evicted_bytes": int, "slab": dict,
          "plan": dict}
RANKS_SHOWN = 16
# The exceptions of code that expects a whole report and gets another one.
NOT_WHOLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@contextlib.contextmanager
def looking_at(path):
    """Blames an exception inside on that report: a field is missing or has another type."""
    try:
        yield
    except NOT_WHOLE as error:
        fail(f"{path}: not a complete Penstock report ({type(error).__name__}: {error}); {WHAT}")


# ---- reading ----

def whole_number(text):
    """Refuses numbers of more than 64 bits, which no report has."""
    if len(text) > 20 or abs(int(text)) >= 2**64:
        raise ValueError(f"{text[:20]}{'...' * (len(text) > 20)} is too large: expected at most 64 bits")
    return int(text)


def is_whole(value, least):
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file, parse_int=whole_number)
        json.dumps(report, ensure_ascii=False, allow_nan=False).encode()  # a value that JSON can't hold can't be shown
    except OSError as error:
        fail(f"{path}: {error.strerror}; {WHAT}")
    except (ValueError, RecursionError) as error:
        fail(f"{path}: not JSON ({error}); {WHAT}")
    wrong = [key for key, kind in NEEDED.items() if key not in report or not isinstance(report[key], kind)] if isinstance(report, dict) else ["everything"]
    if wrong:
        fail(f"{path}: JSON, but not a Penstock report ({wrong[0]} is missing); {WHAT}")
    if report.get("rank") is not None and not is_whole(report["rank"], 0):
        fail(f"{path}: its rank is {json.dumps(report['rank'])}: expected a whole number from 0, or null; {WHAT}")
    if not is_whole(report.get("processes", 1), 1):
        fail(f"{path}: its field processes is {json.dumps(report['processes'])}: expected a whole number from 1; {WHAT}")
    return report


def read_all(paths):
    """Returns a list of (path, report), sorted by rank."""
    seen = {}
    for path in paths:
        before = seen.setdefault(os.path.realpath(path), path)
        if before is not path:
            fail(f"{path}: given twice" + ("" if before == path else f", also as {before}") + "; name each report once")
    reports = sorted(((path, read(path)) for path in paths), key=lambda pair: (pair[1].get("rank") is None, pair[1].get("rank") or 0, pair[0]))
    ranks = {}
    for path, report in reports:
        rank = report.get("rank")
        if rank is not None and ranks.setdefault(rank, path) != path:
            fail(f"{ranks[rank]} and {path}: both are of rank {rank}; name reports of one job only")
    return reports


def absent_ranks(reports):
    """Returns the first ranks of the job that have no report, and the number of all such ranks."""
    seen = {report.get("rank") for _, report in reports}
    expected = max(report.get("processes", 1) for _, report in reports)
    if None in seen or expected == 1:
        return [], 0
    first = list(itertools.islice((rank for rank in range(expected) if rank not in seen), RANKS_SHOWN))
    return first, expected - sum(1 for rank in seen if rank < expected)


def ranks_text(ranks, count):
    more = count - len(ranks)
    return ", ".join(map(str, ranks)) + (f" and {more:,} more" if more else "")
