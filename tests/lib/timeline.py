"""Checks the rules that every trace of PENSTOCK_TRACE must keep, and prints a summary as JSON. For
tests/bats/observe/trace.bats.

usage: timeline.py [--cut] TRACE [REPORT]     --cut: the process was killed; the trace has all events
                                              until then
"""
import json
import sys
from collections import Counter, defaultdict

PHASES = {"M", "X", "B", "E", "i", "C"}
STEPS, STREAM, D2H, H2D = range(4)
TRACKS_FROM = 5000000
ROUNDING = 0.002  # us: the error of two figures, each cut to ns


def fail(text):
    sys.exit(f"timeline.py: {text}")


def read(path, cut):
    text = open(path, "rb").read()
    at = 0
    for line in text.splitlines(keepends=True):
        if len(line.strip()) and at // 4096 != (at + len(line) - 1) // 4096:
            fail(f"a line lies across two pages, at byte {at}")
        at += len(line)
    text = text.decode().rstrip()
    if cut:
        if not text.startswith("[") or text.endswith("]"):
            fail("not cut off")
        text = text.rstrip(",") + "]"  # as chrome://tracing does; Perfetto reads event by event
    return json.loads(text)


def check_shape(event):
    if event.get("ph") not in PHASES or not isinstance(event.get("name"), str) or not event["name"] or not isinstance(event.get("pid"), int):
        fail(f"no phase, name or process: {event}")
    needed = {"M": {"args"}, "X": {"tid", "ts", "dur", "args"}, "B": {"tid", "ts"}, "E": {"tid", "ts"}, "i": {"tid", "ts", "s"}, "C": {"ts", "args"}}
    lacking = needed[event["ph"]] - event.keys()
    if lacking:
        fail(f"lacks {lacking}: {event}")
    for key in ("ts", "dur"):
        if key in event and not event[key] >= 0:
            fail(f"{key} of {event}")


def check_links(tracks):
    """Checks that events of each of our streams do not overlap and are in order in the file."""
    for (_, tid), events in tracks.items():
        if tid < TRACKS_FROM or tid % 4 == STEPS:
            continue
        over = 0
        for event in events:
            if event["ts"] < over - ROUNDING:
                fail(f"begins before {over}: {event}")
            over = event["ts"] + event["dur"]


def check_nesting(tracks):
    """Checks that two complete events of a thread are apart, or one lies inside the other."""
    for (_, tid), events in tracks.items():
        if tid >= TRACKS_FROM:
            continue
        open_until = []
        for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            while open_until and open_until[-1] <= event["ts"] + ROUNDING:
                open_until.pop()
            end = event["ts"] + event["dur"]
            if open_until and end > open_until[-1] + ROUNDING:
                fail(f"begins in another and ends after it: {event}")
            open_until.append(end)


def check_steps(events, cut):
    """
    Checks that begins and ends form pairs, that at most a step and a layer in it are open, and that
    time goes on. Returns the number of pairs by name.
    """
    stacks, latest, pairs = defaultdict(list), defaultdict(float), Counter()
    for event in events:
        track = event["tid"]
        if event["ts"] < latest[track]:
            fail(f"goes back from {latest[track]}: {event}")
        latest[track] = event["ts"]
        if event["ph"] == "B":
            stacks[track].append("step" if event["name"] == "step" else "layer")
            if stacks[track] not in (["step"], ["layer"], ["step", "layer"]):
                fail(f"opens {stacks[track]}: {event}")
        elif event["ph"] == "E":
            if not stacks[track] or stacks[track].pop() != event["name"]:
                fail(f"ends what is not open: {event}")
            pairs[event["name"]] += 1
    if not cut and any(stacks.values()):
        fail(f"left open: {stacks}")
    return pairs


def check_counters(events):
    """
    Checks that time goes on for each counter, and that held bytes are never above the budget.
    Returns the names of the counters.
    """
    latest, budget = defaultdict(float), {}
    for event in events:
        device, what = event["name"].split(": ", 1)
        if what == "budget":
            budget[device] = event["args"]["bytes"]
            continue
        if event["ts"] < latest[event["name"]]:
            fail(f"goes back from {latest[event['name']]}: {event}")
        latest[event["name"]] = event["ts"]
        if any(value < 0 for value in event["args"].values()):
            fail(f"less than nothing: {event}")
        if what == "held" and device in budget and event["args"]["bytes"] > budget[device]:
            fail(f"above the budget of {budget[device]}: {event}")
    return {name.split(": ", 1)[1] for name in latest} | ({"budget"} if budget else set())


def check_moves(events, clock_error_us):
    """
    Checks that each move has bytes and a span, and began on the device after the host queued it.
    """
    for event in events:
        args = event["args"]
        if args["bytes"] <= 0 or not args["span"].startswith("0x"):
            fail(f"no bytes or no span: {event}")
        if event["ts"] < args["queued_us"] - clock_error_us - ROUNDING:
            fail(f"began before the host had thought of it: {event}")


def compare(report, summary, waits):
    told = {"evictions": summary["evict"], "evicted_bytes": summary["evicted_bytes"], "reloads": summary["reload"],
            "reloaded_bytes": summary["reloaded_bytes"], "demand_reloads": summary["on_demand"],
            "evictions_cancelled": summary["eviction cancelled"], "out_of_memory": summary["out of memory"],
            "trace_events": summary["events"], "trace_events_dropped": summary["dropped"]}
    for key, value in told.items():
        if report[key] != value:
            fail(f"{key}: {report[key]} in the report, {value} in the trace")
    ns = sum(round(event["dur"] * 1000) for event in waits)
    if ns != report["host_wait_ns"]:
        fail(f"host_wait_ns: {report['host_wait_ns']} in the report, {ns} in the trace")


def main(arguments):
    cut = "--cut" in arguments
    paths = [a for a in arguments if a != "--cut"]
    events = read(paths[0], cut)
    for event in events:
        check_shape(event)
    if len({event["pid"] for event in events}) != 1:
        fail("events of several processes")
    named = {event["tid"] for event in events if event["ph"] == "M" and event["name"] == "thread_name"}
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
        if event["ph"] in "XBEi" and event["tid"] not in named:
            fail(f"on a track without a name: {event}")
    check_links(tracks)
    check_nesting(tracks)
    pairs = check_steps([e for e in events if e["ph"] in "BE"], cut)
    counters = check_counters([e for e in events if e["ph"] == "C"])
    last = events[-1]
    ended = last["name"] == "the trace ends"
    if ended == cut:
        fail(f"the last event is {last}")
    names = Counter(event["name"] for event in events if event["ph"] in "Xi")
    moves = [e for e in events if e["name"] in ("evict", "evict, void", "reload") and e["ph"] == "X"]
    # A trace that was cut does not contain the error of the clock.
    check_moves(moves, last["args"]["clock_error_ns"] / 1000 if ended else 3000)
    of = {name: [e for e in moves if e["name"] == name] for name in ("evict", "reload")}
    waits = [e for e in events if e["name"] in ("launch waits", "allocation waits", "Penstock waits")]
    summary = {
        "evict": len(of["evict"]), "evicted_bytes": sum(e["args"]["bytes"] for e in of["evict"]),
        "reload": len(of["reload"]), "reloaded_bytes": sum(e["args"]["bytes"] for e in of["reload"]),
        "on_demand": sum(e["args"]["why"] == "on demand" for e in of["reload"]),
        "planned": sum(e["args"]["why"] == "planned" for e in of["evict"]),
        "timed": sum("times" not in e["args"] for e in moves), "in_layers": sum("layer" in e["args"] for e in moves),
        "longer_than_nothing": sum(e["dur"] > 0 for e in moves),
        "steps": pairs["step"], "layers": pairs["layer"], "counters": sorted(counters), "threads": len([t for t in named if t < TRACKS_FROM]),
        "layer_names": sorted({e["name"] for e in events if e["ph"] == "B" and e["name"] != "step"}),
        "void": names["evict, void"], "stalls": names["stands still"], "waits": len(waits), "pid": last["pid"],
        **{name: names[name] for name in ("eviction cancelled", "out of memory", "plan in force", "plan lost")},
        "events": last["args"]["events"] if ended else None, "dropped": last["args"]["dropped"] if ended else None,
        "clock_error_ns": last["args"]["clock_error_ns"] if ended else None,
    }
    if len(paths) > 1 and not summary["dropped"]:
        compare(json.load(open(paths[1])), summary, [e for e in waits if e["args"]["for"] == "pages"])
    print(json.dumps(summary))


main(sys.argv[1:])
