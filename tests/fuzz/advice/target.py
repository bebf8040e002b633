#!/usr/bin/env python3
"""
Recordings, as `penstock advise` reads and stretches them, and the figures of a step, as it shows
them. Stretching changes only the durations in the lines of launches, to the given sum. Whatever the
figures are, the advice is a budget that suffices. Called by tests/fuzz/run.
"""
import contextlib
import hashlib
import io
import os
import random
import re
import sys
import types

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from mutator import change_bytes, program, require, run  # noqa: E402

ADVISE = program("penstock-advise")

UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
LAUNCH = re.compile(rb"l ([0-9]{1,15})(\+[0-9]{1,15})?((?: [0-9]+)*)$")


def launches(text):
    """Returns the durations of a text whose lines of launches are as the library prints them; None if one is not."""
    lines = [line for line in text.split(b"\n") if line.startswith(b"l ")]
    found = [LAUNCH.match(line) for line in lines]
    return [int(one[1]) for one in found] if all(found) else None


def without_durations(text):
    return [re.sub(rb"^l [0-9]+", b"l", line) for line in text.split(b"\n")]


def check_recording(data):
    text = data.replace(b"\r", b"")  # the library prints none
    times = launches(text)
    if times is None:
        return
    with open("step", "wb") as file:
        file.write(text)
    require(ADVISE.launches_ns("step") == sum(times), "the durations are added up")
    if not sum(times):
        return
    wanted = 3 * sum(times) + 1000
    ADVISE.stretch("step", wanted)
    with open("step", "rb") as file:
        stretched = file.read()
    require(wanted - len(times) <= sum(launches(stretched)) <= wanted, "the launches take as long as is asked for")
    require(without_durations(stretched.rstrip(b"\n")) == without_durations(text.rstrip(b"\n")), "nothing else has changed")


# ---- advice ----

def made_facts(rng):
    """Returns figures as penstock-trade prints them: points from the most memory to the least, the first without a loss."""
    unit = rng.choice((1, 2**10, 2**20, 2**30))
    budgets = sorted({rng.randrange(1, 9000) * unit for _ in range(rng.randrange(1, 12))}, reverse=True)
    plain = rng.choice((0, 1, 10**6, 10**9))
    points = [{"budget_bytes": budget, "predicted_ns": plain, "evicted_bytes": 0} for budget in budgets]
    for point in points[1:]:
        point["predicted_ns"] += rng.choice((0, plain // 1000, plain, 50 * plain))
        point["evicted_bytes"] = rng.randrange(2**40)
    kinds = {kind: {"thousandths": rng.choice((0, 1000, 16000)), "predicted_ns": plain, "plain_ns": plain or 1}
             for kind in ("fits_plain", "loses_nothing", "fits_at_all")}
    return {"launches": 1 + rng.randrange(9), "plain_ns": plain, "peak_bytes": budgets[0], "points": points, "nothing_moves_bytes": budgets[0],
            "nothing_lost_bytes": rng.choice(budgets), "least_bytes": budgets[-1], "batch": rng.choice((None, {"budget_bytes": budgets[0], **kinds}))}


def bytes_of(text):
    number, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text).groups()
    whole, _, rest = number.partition(".")
    return int(whole + rest) * UNITS[unit] / 10**len(rest)


def check_advice(rng):
    facts = made_facts(rng)
    budgets = [point["budget_bytes"] for point in facts["points"]]
    advised = ADVISE.advised(facts)
    require(advised in (*budgets, facts["nothing_lost_bytes"]), "the advice is one of the budgets")
    require(advised <= bytes_of(ADVISE.budget_text(advised)) <= advised * 1.011 + 1, "a budget's text is not below it, nor far above")
    knee = ADVISE.knee(facts)
    require(knee is None or knee in facts["points"], "the knee is a point")
    options = types.SimpleNamespace(given=["--set", "A=b c"], called="penstock", command=["python", "train it.py"])
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        ADVISE.show(options, facts)
    rows = [line for line in out.getvalue().splitlines() if re.match(r" *[0-9.]+ \|", line)]
    require(len(rows) == ADVISE.ROWS and all(len(row) <= 9 + ADVISE.COLUMNS for row in rows), "the drawing has its rows and columns")
    require(sum(row.count("o") for row in rows) >= 1, "the drawing has points")


def check(data):
    check_recording(data)
    check_advice(random.Random(hashlib.sha256(data).digest()))


if __name__ == "__main__":
    run(check, change_bytes)
