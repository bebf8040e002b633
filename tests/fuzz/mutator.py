"""Shared by the fuzz targets in Python. They are called like libFuzzer's (tests/fuzz/run), and change
their seeds at random.
"""
import copy
import importlib.machinery
import importlib.util
import os
import random
import sys
import tempfile
import time
import traceback

NUMBERS = (0, 1, -1, 2**31, 2**63, 2**64 - 1, 2**64, 10**400, 0.5, 1e308, True, False, None, "", "1", [], {}, [0], {"a": 1})
TEXTS = ("</script><script>EVIL</script>", "<img src=x onerror=EVIL>", "\"><EVIL>", "'<EVIL>", "{{data}}", "\u2028", "\x1b[2J", "\x9b2J", "\ud800", "A" * 3000,
         "PENSTOCK_<EVIL>", "\u202eEVIL")


ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts/command"))


def program(name):
    """Loads a program of scripts/command as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), os.path.join(ROOT, "scripts/command", name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def require(condition, what):
    """Ends the input with a report if the condition does not hold."""
    if not condition:
        raise AssertionError(f"does not hold: {what}")


def places(value, place=()):
    """Yields the place of each value inside, as keys and indexes."""
    yield place
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*place, index))


def change_json(value, rng):
    """Changes a value of JSON in some places."""
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        *outer, last = rng.choice([place for place in places(value) if place] or [(None,)])
        if last is None:
            break
        at = value
        for key in outer:
            at = at[key]
        how = rng.random()
        if how < .1:
            del at[last]
        elif how < .2 and isinstance(at, dict):
            at[rng.choice(TEXTS)] = at.pop(last)
        else:
            at[last] = copy.deepcopy(rng.choice(TEXTS if how < .6 else NUMBERS))


def change_bytes(data, rng):
    """Changes, inserts or removes some bytes."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 2, 4))):
        at, how = rng.randrange(len(out) + 1), rng.random()
        if how < .5:
            out[at:at + 1] = bytes([rng.randrange(256)])
        elif how < .75:
            del out[at:at + rng.choice((1, 4, 50))]
        else:
            out[at:at] = out[:rng.choice((1, 4, 50))]
    return bytes(out)


def run(check, change):
    """Checks the files of the command line, or changed copies of them for -max_total_time seconds and one more, like libFuzzer. `change(data, rng)` returns changed bytes."""
    options = dict(word[1:].split("=", 1) for word in sys.argv[1:] if word.startswith("-") and "=" in word)
    prefix = os.path.abspath(options.get("artifact_prefix", ".")) + "/"
    paths = []
    for word in sys.argv[1:]:
        if os.path.isdir(word):
            paths += sorted(os.path.join(word, name) for name in os.listdir(word))
        elif not word.startswith("-"):
            paths.append(word)
    seeds = []
    for path in paths:
        with open(path, "rb") as file:
            seeds.append(file.read())
    count = 0
    with tempfile.TemporaryDirectory(prefix="penstock-fuzz.") as place:
        os.chdir(place)
        if "max_total_time" not in options:
            for path, data in zip(paths, seeds):
                print(f"Running: {path}", flush=True)
                check(data)
            return
        rng = random.Random(time.time_ns())
        until = time.monotonic() + int(options["max_total_time"]) + 1
        while time.monotonic() < until:
            data = change(rng.choice(seeds), rng)
            try:
                check(data)
            except BaseException:
                where = f"{prefix}crash-{rng.randrange(2**64):016x}"
                with open(where, "wb") as file:
                    file.write(data)
                traceback.print_exc()
                print(f"Test unit written to {where}", flush=True)
                sys.exit(1)
            count += 1
    print(f"stat::number_of_executed_units: {count}")
