#!/usr/bin/env python3
"""
The findings of `penstock verify`, as JSON: the room for rules, and spans with their places. The
rules that it writes name all of these spans, and no others unless there is too little room. The file
that a run writes is read in pieces of any size. Called by tests/fuzz/run.
"""
import itertools
import json
import os
import re
import sys
import types

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from mutator import change_bytes, program, require, run  # noqa: E402

VERIFY = program("penstock-verify")

KEYS = ("layer", "birth", "nth")
UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
RULE = re.compile(r"exclude((?: (?:layer|birth|nth)=[0-9]+(?:-[0-9]+)?)*) size>=([0-9]+)([KMG]iB)? size<=([0-9]+)([KMG]iB)?")


def read_rule(text):
    """Reads a rule as shim/ does. Returns the bytes, and the range of each key."""
    found = RULE.fullmatch(text)
    require(found, f"a rule that can be read: {text}")
    conditions, *sizes = found.groups()
    least, most = (int(sizes[i]) * UNITS[sizes[i + 1] or ""] for i in (0, 2))
    require(least == most, "a rule names one size")
    ranges = {}
    for word in conditions.split():
        key, _, numbers = word.partition("=")
        first, _, last = numbers.partition("-")
        require(key not in ranges and int(first) <= int(last or first), f"a condition that can be read: {word}")
        ranges[key] = (int(first), int(last or first))
    return least, ranges


def names(rule, place):
    """True if each span that has this place, and perhaps other facts, meets the rule."""
    size, ranges = rule
    return size == place["bytes"] and all(key in place and first <= place[key] <= last for key, (first, last) in ranges.items())


def check_rules(places, room):
    try:
        rules = [read_rule(VERIFY.rule_text(place)) for place in VERIFY.merged([dict(place) for place in places], room)]
    except VERIFY.Untold:
        require(len({place["bytes"] for place in places}) > room, "rules for all sizes fit")
        return
    require(len(rules) <= max(room, 0) or not places, "the rules fit")
    for place in places:
        require(any(names(rule, place) for rule in rules), f"a rule names {place}")
    if all(not ranges for _, ranges in rules):
        return  # whole sizes: one was found whole, or there was too little room
    for size, ranges in rules:
        for numbers in itertools.islice(itertools.product(*(range(first, last + 1) for first, last in ranges.values())), 300):
            place = {"bytes": size, **dict(zip(ranges, numbers))}
            require(any(all(place.get(key) == value for key, value in one.items()) for one in places), f"{place} was found")


# ---- what a run writes ----

def check_events(data, pieces):
    events = [one for one in data.split(b"\n}\n")[:-1]]
    try:
        wanted = [json.loads(one + b"\n}\n") for one in events]
    except ValueError:
        return  # the library writes JSON alone
    with open("task.seen", "wb"):
        pass
    seen = VERIFY.Seen(types.SimpleNamespace(command=[], verbose=False, tools=""), {}, ".", "")
    for begin in range(0, len(data), pieces):
        with open("task.seen", "ab") as file:
            file.write(data[begin:begin + pieces])
        seen.look()
    require(seen.events == wanted, "the events are read once, whole and in order")


def check(data):
    rules, _, events = data.partition(b"\0")
    check_events(events, 1 + len(data) % 40)
    try:
        room, *places = json.loads(rules)
        places = [{key: int(one[key]) % 1000 if key != "bytes" else int(one[key]) for key in ("bytes", *KEYS) if key in one} for one in places]
        room = int(room)
    except (ValueError, TypeError, AttributeError):
        return
    if all(place.get("bytes", 0) > 0 for place in places) and 0 <= room <= VERIFY.RULES_MAX:
        check_rules(places, room)


def change(data, rng):
    rules, _, events = data.partition(b"\0")
    try:
        room, *places = json.loads(rules)
    except ValueError:
        return change_bytes(data, rng)
    for _ in range(rng.choice((1, 2, 5))):
        place = {"bytes": rng.choice((4096, 4097, 2**20, 3 * 2**30))}
        place.update({key: rng.randrange(6) for key in KEYS if rng.random() < .4})
        places.insert(rng.randrange(len(places) + 1), place)
    changed = json.dumps([rng.choice((room, rng.randrange(VERIFY.RULES_MAX + 1))), *places]).encode() + b"\0"
    return changed + (change_bytes(events, rng) if rng.random() < .3 else events)


if __name__ == "__main__":
    run(check, change)
