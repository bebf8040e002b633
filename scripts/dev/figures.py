"""Reads and writes the figures in tests/results, and makes rows from the raw JSON of a run.

Each file holds one JSON object a line. runs.jsonl has a line for each call of a measuring script. The
other files have a line for each figure, in a file for each kind of run. The lines are sorted by the
name of their run, and keep the order of the script within a run. tests/results/README.md lists the
fields.
"""

import hashlib
import json
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RESULTS = os.path.join(ROOT, "tests", "results")
KINDS = ("yardstick", "programs", "advice", "costs", "by-hand")
MOST_BYTES = 400_000  # of all files together

# The fields of a row that come from its run. A row of a run by hand may have its own.
COMMON = ("run", "date", "commit", "card", "command")
NOT = "NOT: "
DIGITS = 16  # of a hash
# Values of single steps and single loops; checks and medians stand for them.
NOT_KEPT = ("loss", "apart_us_all", "in_span_us_all")


class Row(dict):
    """A row. A field that it lacks reads as None and is not written."""

    def __missing__(self, key):
        return None


class Refused(Exception):
    """The request can't be done; the text says why."""


def kind_of(result):
    """Returns the kind of a run in raw form, from its format: penstock-KIND/1."""
    found = re.fullmatch(r"penstock-([a-z-]+)/1", str(result.get("format")))
    if not found or found.group(1) not in KINDS:
        raise Refused(f"format {result.get('format')!r}; known are {', '.join(f'penstock-{kind}/1' for kind in KINDS)}")
    return found.group(1)


def card_of(machine):
    """Returns the GPU in one word, and the number of GPUs: "H200", "H100 x2". None: no GPU."""
    gpu = ((machine or {}).get("gpu") or "").split(",")[0].replace("NVIDIA", "").split()
    count = (machine or {}).get("gpus") or 1
    return None if not gpu else f"{gpu[0]} x{count}" if count > 1 else gpu[0]


def short(commit):
    """Returns seven digits of a commit, with the mark of a changed tree."""
    return commit and re.sub(r"^([0-9a-f]{7})[0-9a-f]*", r"\1", commit)


# --- raw form to rows -----------------------------------------------------------------------------
def host_peak(runs):
    """
    Returns the most bytes of pinned host memory that one of these runs used, on all its devices
    together; None if unknown.
    """
    peaks = []
    for run in runs:
        report = run.get("report") or {}
        slabs = [device.get("slab") for device in report.get("devices") or []] or [report.get("slab")]
        peaks += [sum(slab["peak_used_bytes"] for slab in slabs)] if all(slabs) else []
    return max(peaks, default=None)


def with_host_peak(values, runs):
    peak = host_peak(runs)
    return values if peak is None else {**values, "host_peak_mib": round(peak / 2**20)}


def rows_of_programs(result):
    """
    Yields a row for each program, with the figures of each way of running it. A check that failed
    begins with NOT.
    """
    for entry in result["rows"]:
        ways = {}
        for way, found in entry["ways"].items():
            runs = [run for run in result.get("runs", ()) if run.get("row") == entry["name"] and run.get("way") == way]
            kept = {key: value for key, value in found.items() if value is not None}
            ways[way] = with_host_peak({**kept, "checks": [what if ok else NOT + what for what, ok in found["checks"]]}, runs)
        yield {"program": entry["name"], **{key: value for key, value in entry.items() if key not in ("name", "ways")}, "ways": ways}


def rows_of_parts(result):
    """
    Yields the rows of a yardstick or of advice. A part without `rows` has its figures under their
    names.
    """
    trainer = (result.get("trainer") or {}).get("file")
    for name, part in result["parts"].items():
        command = part.get("command") or (f"{trainer} {part['args']}" if "args" in part else None)
        rows = part.get("rows")
        if rows is None:
            rows = [{"label": key, **(value if isinstance(value, dict) else {"median": value})}
                    for key, value in part.items() if isinstance(value, dict) or key.endswith("_plain")]
        for row in rows:
            runs = [run for run in result.get("runs", ()) if run.get("part") == name and run.get("label") == row["label"]]
            values = {key: value for key, value in row.items() if key not in NOT_KEPT}
            yield {"part": name, **({"command": command} if command else {}), **with_host_peak(values, runs)}


def rows_of_checks(result):
    """Yields the checks, and each run that did not end well with its last lines."""
    for check in result.get("checks", ()):
        yield {"check": check["name"], **{key: value for key, value in check.items() if key != "name" and value is not None}}
    for run in result.get("runs", ()):
        if run["status"] != "ok":
            said = [line for line in run.get("stderr_tail") or [] if line.strip()][-3:]
            yield {"not_well": run["name"], **{key: run[key] for key in ("part", "row", "label", "way") if key in run}, "status": run["status"],
                   **({"said": said} if said else {})}


def head_of_parts(parts):
    """Returns the scalars of each part, which hold for the part as a whole."""
    return {name: {key: value for key, value in part.items() if not isinstance(value, (dict, list)) and ("rows" in part or not key.endswith("_plain"))}
            for name, part in parts.items()}


def rows_of(result, name, raw_sha256=None):
    """Returns the line of runs.jsonl and the rows of a run in raw form."""
    kind, card = kind_of(result), card_of(result["machine"])
    run = {"run": name, "format": result["format"], "date": result["date"], "commit": result["commit"], "card": card, "command": result["command"]}
    run |= {key: value for key, value in result.items() if key not in (*run, "rows", "runs", "checks", "parts") and value is not None}
    run |= {key: value[:DIGITS] for key, value in run.items() if key.endswith("_sha256")}
    if "parts" in result:
        run["parts"] = head_of_parts(result["parts"])
    if raw_sha256:
        run["raw_sha256"] = raw_sha256[:DIGITS]
    found = rows_of_programs(result) if kind == "programs" else rows_of_parts(result) if "parts" in result else result["rows"]
    common = {"run": name, "date": result["date"][:10], "commit": short(result["commit"]), "card": card, "command": result["command"]}
    rows = []
    for row in found:
        merged = common | row
        rows.append({key: merged[key] for key in COMMON[:-1]} | {key: value for key, value in row.items() if key not in COMMON and value is not None}
                    | {"command": merged["command"]})
    return run, rows + [{"run": name, **row} for row in rows_of_checks(result)]


def is_verdict(row):
    """
    Returns whether a row is a check or a run that did not end well. Such a row has the run's name,
    but no other common field.
    """
    return "check" in row or "not_well" in row


# --- rows to raw form, as far as tables need it ---------------------------------------------------
def values_of(row, *names):
    return Row((key, value) for key, value in row.items() if key not in (*COMMON, *names))


def ways_of(row):
    return {way: Row(found, checks=[[what.removeprefix(NOT), not what.startswith(NOT)] for what in found["checks"]]) for way, found in row["ways"].items()}


def result_of(run, rows):
    """
    Returns a run in raw form again. Of its single runs it has only those that did not end well.
    """
    kind = run["format"].split("-", 1)[1].split("/")[0]
    result = {"name": run["run"], **{key: value for key, value in run.items() if key not in ("run", "parts")}}
    result["checks"] = [Row(name=row["check"], **values_of(row, "check")) for row in rows if "check" in row]
    result["runs"] = [{"name": row["not_well"], "stderr_tail": row.get("said", []), **values_of(row, "not_well", "said")} for row in rows if "not_well" in row]
    figures = [row for row in rows if not is_verdict(row)]
    if kind == "programs":
        result["rows"] = [Row(values_of(row, "program"), name=row["program"], command=row["command"], ways=ways_of(row)) for row in figures]
    elif "parts" in run:
        result["parts"] = {name: dict(head) for name, head in run["parts"].items()}
        for row in figures:
            part, values = result["parts"][row["part"]], values_of(row, "part")
            if row["part"] == "launch":
                part[values.pop("label")] = values
            else:
                part.setdefault("rows", []).append(values)
    else:
        result["rows"] = [Row(values_of(row), command=row["command"]) for row in figures]
    return result


# --- the files ------------------------------------------------------------------------------------
def path_of(kind):
    return os.path.join(RESULTS, f"{kind}.jsonl")


def text_of(rows):
    """Returns the rows as lines, sorted by run; rows of one run keep their order."""
    return "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in sorted(rows, key=lambda row: row["run"]))


def read(kind):
    """Returns the rows of a kind, or of "runs"; an empty list if there is no such file."""
    rows = []
    if os.path.exists(path_of(kind)):
        with open(path_of(kind), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    row = json.loads(line)
                    row["run"] += ""
                except (ValueError, KeyError, TypeError) as error:
                    raise Refused(f"{os.path.relpath(path_of(kind), ROOT)}:{number}: no row with a run: {error}") from None
                rows.append(row)
    return rows


def read_results():
    """Returns all runs in raw form, the oldest first."""
    rows = {}
    for kind in KINDS:
        for row in read(kind):
            rows.setdefault(row["run"], []).append(row)
    return sorted((result_of(run, rows.get(run["run"], [])) for run in read("runs")), key=lambda result: (result["date"], result["name"]))


def name_for(result, taken):
    """
    Returns DATE-CARD-KIND for a new run, with -2, -3 and so on if the name is taken. The kind of a
    yardstick is its first part.
    """
    kind, card = kind_of(result), (card_of(result["machine"]) or "").lower().replace(" ", "-")
    what = next(iter(result["parts"]), kind) if kind == "yardstick" else kind
    base = "-".join(word for word in (result["date"][:10], card, what) if word)
    return next(name for name in (base, *(f"{base}-{number}" for number in range(2, 1000))) if name not in taken)


def add(text, name=None):
    """Adds a run, given as the text of its raw JSON, and returns its name."""
    try:
        result = json.loads(text)
    except ValueError as error:
        raise Refused(f"no JSON: {error}") from None
    kind, raw, runs = kind_of(result), hashlib.sha256(text.encode()).hexdigest(), read("runs")
    for run in runs:
        if run.get("raw_sha256") == raw[:DIGITS]:
            raise Refused(f"is there already, as {run['run']}")
        if run["run"] == name:
            raise Refused(f"there is a run {name} already")
    name = name or name_for(result, {run["run"] for run in runs})
    run, rows = rows_of(result, name, raw)
    for what, more in ((kind, rows), ("runs", [run])):
        whole = text_of([*read(what), *more])
        with open(path_of(what), "w", encoding="utf-8") as file:
            file.write(whole)
    return name


def objections():
    """Returns the problems of the files, as lines."""
    out, runs, size = [], {run["run"] for run in read("runs")}, 0
    for kind in ("runs", *KINDS):
        name = os.path.relpath(path_of(kind), ROOT)
        if not os.path.exists(path_of(kind)):
            continue
        with open(path_of(kind), encoding="utf-8") as file:
            text = file.read()
        size += len(text.encode())
        rows = read(kind)
        if text != text_of(rows):
            out.append(f"{name}: not as scripts/dev/results-table --add writes it: rows are out of order or edited")
        missing = [key for key in COMMON for row in rows if key not in row and not is_verdict(row)]
        out += [f"{name}: {missing.count(key)} rows without {key}" for key in COMMON if key in missing]
        out += [f"{name}: run {run}: not in runs.jsonl" for run in sorted({row["run"] for row in rows} - runs)]
    if size > MOST_BYTES:
        out.append(f"{size} bytes of figures; at most {MOST_BYTES}")
    return out
