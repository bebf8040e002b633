#!/usr/bin/env python3
"""
Reports, with a NUL between two, as `penstock report` and `penstock summary` read them. Each becomes a
page and a table, or is refused in one line. No text of a report becomes markup of the page, and a
terminal obeys nothing that is printed. Called by tests/fuzz/run.
"""
import contextlib
import html.parser
import io
import json
import os
import re
import shutil
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from mutator import ROOT, change_bytes, change_json, program, require, run  # noqa: E402
import penstock_reports  # noqa: E402


REPORT, SUMMARY = program("penstock-report"), program("penstock-summary")
# Control characters but the line break, and characters that change the direction or end a line.
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\udc80-\udc9f]")


class Tags(html.parser.HTMLParser):
    """Collects what a browser would take for markup."""

    def __init__(self):
        super().__init__()
        self.names, self.attributes, self.data, self.inside = set(), set(), "", False

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.inside = tag == "script" and ("id", "data") in attrs

    def handle_data(self, data):
        if self.inside:
            self.data += data
            self.inside = False


def check_page(text):
    tags = Tags()
    tags.feed(text)
    strange = {name for name in tags.names | tags.attributes if not re.fullmatch("[a-z][a-z0-9-]*", name)}
    require(not strange and "img" not in tags.names and "evil" not in tags.names, f"a report's text is no markup: {strange}")
    require(not any(name.startswith("on") for name in tags.attributes), "a report's text is no attribute")
    require(text.count("<script") == 3, "the page has its own scripts only")
    require(isinstance(json.loads(tags.data), dict), "the figures are JSON")
    require("\u2028" not in tags.data and "<" not in tags.data, "the figures end no script")


def check_refusal(status, printed):
    require(status == 2, f"the status of a refusal is 2, not {status}")
    require(printed.startswith("penstock: ") and printed.count("\n") == 1 and printed.endswith("\n"), f"a refusal is one line: {printed[:200]!r}")


def check_way(way, paths):
    """Returns what that way of showing the reports returned, or None if they were refused; and what was printed."""
    out, err = io.StringIO(), io.StringIO()
    shown = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            shown = way(penstock_reports.read_all(paths))
    except SystemExit as refusal:
        check_refusal(refusal.code, err.getvalue())
    for printed in (out.getvalue(), err.getvalue()):
        require(not OBEYED.search(printed), f"a terminal shows what is printed: {printed[:200]!r}")
    return shown, out.getvalue()


def parts():
    """Returns a directory with the page's parts; the library that draws the charts is left out."""
    place = os.path.join(os.getcwd(), "parts")
    if not os.path.isdir(place):
        shutil.copytree(os.path.join(ROOT, "scripts/command/report-page"), place)
        with open(os.path.join(place, "chart.js"), "w", encoding="utf-8") as file:
            file.write("/* chart */")
    return place


def page(reports):
    with penstock_reports.looking_at("r0.json"):
        return REPORT.page(reports, parts())


def table(reports):
    result = SUMMARY.summary(reports)
    SUMMARY.write(result)
    return result


def check(data):
    paths = []
    for number, one in enumerate(data.split(b"\0")[:3]):
        paths.append(f"r{number}.json")
        with open(paths[-1], "wb") as file:
            file.write(one)
    text, _ = check_way(page, paths)
    if text is not None:
        check_page(text)
    result, printed = check_way(table, paths)
    if result is not None:
        require(len(result["ranks"]) == len(paths) and len(printed.splitlines()) > len(paths), "the table has a line for each report")
        require(json.loads(json.dumps(result)) == result, "the summary is JSON")


def change(data, rng):
    try:
        reports = [json.loads(one) for one in data.split(b"\0")]
    except ValueError:
        return change_bytes(data, rng)
    for report in reports:
        change_json(report, rng)
    changed = b"\0".join(json.dumps(report).encode() for report in reports)
    return changed if rng.random() < .9 else change_bytes(changed, rng)


if __name__ == "__main__":
    run(check, change)
