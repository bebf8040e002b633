#!/usr/bin/env bats
# `penstock report`: its page as a browser shows it. Headless Chromium looks once at a real run's
# page, and most tests here check what it saw.

load ../../lib/helper

# One run in half of its memory. Its page, and pages of changed reports, are looked at once.
setup_file() {
    export CUDASIM_GRANULARITY=4096 SEEN=$BATS_FILE_TMPDIR
    [ "$DEVICE" = sim ] && [ -x "$SAMPLES/transformer" ] || return 0
    cd "$SEEN"
    local trainer=("$SAMPLES/transformer" --layers=4 --width=16 --batch=16 --seq=64 --steps=30) peak
    peak=$(with_device CUDASIM_LEDGER=plain.ledger "${trainer[@]/--steps=*/--steps=2}" --memory 2>&1 >/dev/null | sed -nE 's/^allocated at the peak ([0-9]+) bytes.*/\1/p')
    # The link is so slow that launches wait for it, however fast the machine is.
    with_device CUDASIM_D2H_GBPS=0.05 CUDASIM_H2D_GBPS=0.05 PENSTOCK_MIN_SPAN=4096 "$PENSTOCK" run --library "$PENSTOCK_SO" --budget $((peak / 2)) --report tight.json -- "${trainer[@]}" >run.log 2>&1
    "$PENSTOCK" report tight.json >told
    # Characters in a command and a layer's name that a page must escape.
    jq '.command = "train \"a\" </script><script>document.title=1</script><img src=x onerror=alert(1)> & <b>" | .rank = 0 | .processes = 3 |
        .plan.layers[1].name = "</script><i>" | .bad_frees = 3 | .plan.profile |= (.step_ns as $step |
        def span(born; freed; from; to; leaves; gone; comes; back):
            {born_ns: born, freed_ns: freed, gaps: [{from_ns: from, to_ns: to, leaves_ns: leaves, gone_ns: gone, comes_ns: comes, back_ns: back}]}
            | (.. | numbers) |= (. * $step / 1000 | floor);
        .spans[0] += span(900; 200; 950; 200; 950; 300; null; null) |
        .spans[1] += span(null; null; 100; 600; 100; 400; 300; 500) |
        .spans[2] += span(null; null; 800; 300; 850; 950; 200; 300) |
        .spans[3] += span(null; null; 100; 600; 99.99; 200; 500; 600))' tight.json >hostile.rank0.json
    jq '.rank = 1 | .processes = 3 | .plan = {steps: 0} | .learning.patterns = []' tight.json >hostile.rank1.json
    "$PENSTOCK" report hostile.rank1.json hostile.rank0.json --output hostile.html
    if command -v python3 && compgen -c | grep -qxE 'chromium(-headless-shell|-browser)?'; then
        mkdir -p tight hostile
        mkdir temporary
        TMPDIR=$SEEN/temporary python3 -B "$ROOT/tests/lib/browser.py" tight.html tight
        TMPDIR=$SEEN/temporary python3 -B "$ROOT/tests/lib/browser.py" hostile.html hostile
    fi
}

setup() {
    helper_setup
    requires sim samples python jq plain
    cp "$SEEN/tight.json" .
}

# looked FILTER: prints a part of what Chromium saw of the run's page; PAGE=hostile: of the page of
# two ranks.
looked() { jq -er "$1" "$SEEN/${PAGE:-tight}/seen.json"; }

# by_python: runs the program on stdin with `seen`, `report` and `expect`; each failed `expect` is a
# message.
by_python() {
    python3 -B - "$SEEN/${PAGE:-tight}/seen.json" "$SEEN/tight.json" 3<&0 <<'END'
import json, os, sys
seen, report = (json.load(open(path)) for path in sys.argv[1:3])
failures = []
def expect(holds, *what):
    if not holds: failures.append(" ".join(map(str, what)))
exec(compile(os.fdopen(3).read(), "test", "exec"))
print("\n".join(failures[:20]))
sys.exit(bool(failures))
END
}

# --- as the browser shows it ----------------------------------------------------------------------

@test "the page is drawn without a complaint by the browser, and makes no request" {
    requires chromium
    local page
    for page in tight hostile; do
        equal '[]' "$(PAGE=$page looked '.console + .exceptions + .log | tojson')" "what the browser says of $page"
        equal '[]' "$(PAGE=$page looked '.requests | tojson')" "what $page asks for"
    done
    equal 'memory link waits layers spans' "$(looked '[.light.charts[].kind] | join(" ")')" charts
    equal '' "$(find "$SEEN/temporary" -mindepth 1 -name 'penstock-browser.*')" "directories of the browser's"
    # Each chart has something drawn on it, light and dark, on a desktop and on a phone.
    looked '[.light, .dark, .phone | .charts[].inked] | all(. > 2000)'
    looked '(.light.charts | map(.datasets[].colour)) != (.dark.charts | map(.datasets[].colour))'
    at_least 20000 "$(stat -c %s "$SEEN/tight/page.pdf")" "bytes printed"
}

@test "the run ended with a plan in force, and the page reports it" {
    at_least 5 "$(jq .plan.steps tight.json)" "steps under a plan"
    contains "$(cat "$SEEN/told")" '^The page is tight\.html\. Open it in a browser: file:///.*/tight\.html$'
    contains "$(lead_of "$SEEN/tight.html")" ' A step took .* times the .* that its work alone takes; in the last one its stream waited .* for copies'
}

# lead_of PAGE, card PAGE NAME: print the text as a reader sees it.
lead_of() { sed -n 's/^<p class="lead">//p' "$1" | sed 's/<[^>]*>//g'; }
card() { sed -nE "s/^<div><dt>$2<\\/dt><dd>(.*)<\\/dd><\\/div>/\\1/p" "$1" | sed 's/<[^>]*>//g'; }

@test "the measured time of a step comes first, with the plan's prediction beside it" {
    jq '.plan.plain_step_ns = 32000000 | .plan.predicted_step_ns = 32660000 | .plan.exposed_ns = 30000000 |
        .learning.recent_steps = [{ns: 116000000}, {ns: 48000000}, {ns: 64000000}, {ns: 50000000}]' tight.json >slow.json
    "$PENSTOCK" report slow.json
    equal '50.00 ms' "$(card slow.html 'Step, measured \(median of the last 4\)')" "the card"
    equal '32.66 ms' "$(card slow.html 'Step, predicted')" "the plan's"
    contains "$(lead_of slow.html)" ' A step took 50\.00 ms \(median of the last 4\), 1\.56 times the 32\.00 ms that its work alone takes; in the last one its stream waited 30\.00 ms for copies\. The plan predicted 32\.66 ms\.$'
    lacks "$(lead_of slow.html)" '1\.0[0-9] times'
    contains "$(lead_of "$SEEN/tight.html")" '\(median of the last eight\)'
    jq '.learning.recent_steps = []' slow.json >unmeasured.json
    "$PENSTOCK" report unmeasured.json
    equal '–' "$(card unmeasured.html 'Step, measured')" "without a measured one"
    contains "$(lead_of unmeasured.html)" ' A step is predicted to take 32\.66 ms, 1\.02 times the 32\.00 ms'
    # In the format of older versions.
    jq '.learning.recent_steps |= map(.ns)' slow.json >old.json
    "$PENSTOCK" report old.json
    equal '50.00 ms' "$(card old.html 'Step, measured \(median of the last 4\)')" "the card of an older report"
}

@test "every figure on the page is the report's, in value and in words" {
    requires chromium
    by_python <<'END'
def at(path):
    found = report
    for key in path.split("."):
        found = found[int(key)] if isinstance(found, list) else found[key]
    return found

def words(path, value):
    name = path.split(".")[-1] if not path.split(".")[-1].isdigit() else path.split(".")[-2]
    units = {"bytes": [(2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")], "ns": [(10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns")]}
    for end, scale in units.items():
        if name == end or name.endswith("_" + end):
            unit, text = next(((unit, text) for unit, text in scale if value >= unit), scale[-1])
            return f"{value} {text}" if unit == 1 else f"{value / unit:.2f} {text}"
    return f"{value:,}"

for figure in seen["light"]["figures"]:
    expect(figure["value"] == str(at(figure["of"])), figure, "is", at(figure["of"]))
    expect(figure["text"] == words(figure["of"], at(figure["of"])), figure, "reads", words(figure["of"], at(figure["of"])))
expect(len(seen["light"]["figures"]) > 1000, "few figures")

# No figure is missing: only gaps are shown in words, and flags are no figures.
shown = {figure["of"] for figure in seen["light"]["figures"]}
def walk(path, found):
    if isinstance(found, (dict, list)):
        for key, value in found.items() if isinstance(found, dict) else enumerate(found):
            walk(path + [str(key)], value)
    elif isinstance(found, int) and not isinstance(found, bool) and "gaps" not in path and path[-1] not in ("number", "layer", "first_launch") and path[-2:] != ["profile", "step_ns"]:
        expect(".".join(path) in shown, ".".join(path), "is not on the page")
walk([], report)
END
}

@test "the charts show the report's figures" {
    requires chromium
    by_python <<'END'
UNITS = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1, "s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1}
charts = {chart["kind"]: chart for chart in seen["light"]["charts"]}
plan, profile = report["plan"], report["plan"]["profile"]
bins = len(profile["held_bytes"])

def unit(chart, axis):
    words = charts[chart]["axes"][axis].replace("(", " ").replace(")", " ").split()
    return next(UNITS[word] for word in words if word in UNITS)

def same(what, drawn, wanted):
    expect(len(drawn) == len(wanted), what, len(drawn), "points, not", len(wanted))
    for i, (one, other) in enumerate(zip(drawn, wanted)):
        expect(abs(one - other) <= 1e-6 * max(abs(other), 1), what, i, one, "not", other)

def curve(chart, label):
    found = next(dataset for dataset in charts[chart]["datasets"] if dataset["label"] == label)["data"]
    same(label + " x", [point["x"] * unit(chart, "x") for point in found[:bins]], [profile["step_ns"] * i / bins for i in range(bins)])
    return [point["y"] * unit(chart, "y") for point in found[:bins]]

same("held", curve("memory", "with Penstock"), profile["held_bytes"])
same("demand", curve("memory", "without Penstock"), profile["demand_bytes"])
budget = next(dataset for dataset in charts["memory"]["datasets"] if dataset["label"] == "budget")["data"]
same("budget", [point["y"] * unit("memory", "y") for point in budget], [report["budget_bytes"]] * 2)
seconds = profile["step_ns"] / bins / 1e9
same("out", [rate * seconds for rate in curve("link", "out to the host")], profile["out_bytes"])
same("in", [-rate * seconds for rate in curve("link", "back to the device")], profile["in_bytes"])
for label, field in (("device time", "device_ns"), ("waits for copies", "exposed_ns")):
    drawn = next(dataset for dataset in charts["layers"]["datasets"] if dataset["label"] == label)["data"]
    same(label, [value * unit("layers", "y") for value in drawn], [layer[field] for layer in plan["layers"]])
launches = [int(label.split()[1]) for label in charts["waits"]["labels"]]
waits = {wait["launch"]: wait for wait in plan["reload_waits"]}
for label, field in (("measured", "actual_ns"), ("predicted", "predicted_ns")):
    drawn = next(dataset for dataset in charts["waits"]["datasets"] if dataset["label"] == label)["data"]
    same(label, [value * unit("waits", "x") for value in drawn], [waits[launch][field] for launch in launches])

# Tensors: the bars of each cover its life without overlap. It is away from the release of its pages
# until its reload begins or its life ends. It may be freed, or wanted, before it is gone.
step = profile["step_ns"]
def length(a, b):
    return (b - a) % step
def away_in(gap):
    back = length(gap["from_ns"], gap["to_ns"] if gap["comes_ns"] is None else gap["comes_ns"])
    return max(0, back - length(gap["from_ns"], gap["gone_ns"]))
for i, span in enumerate(profile["spans"]):
    drawn = {dataset["label"]: sum(bar["x"][1] - bar["x"][0] for bar in dataset["data"] if bar["y"].split(".")[0] == str(i + 1)) * unit("spans", "x")
             for dataset in charts["spans"]["datasets"]}
    life = step if span["born_ns"] is None else length(span["born_ns"], span["freed_ns"])
    expect(abs(sum(drawn.values()) - life) < step / 1000, "tensor", i + 1, "is drawn for", sum(drawn.values()), "ns, and lives", life)
    away = sum(away_in(gap) for gap in span["gaps"] if gap["leaves_ns"] is not None)
    expect(abs(drawn["away"] - away) < step / 1000, "tensor", i + 1, "is drawn away for", drawn["away"], "not", away)
expect(any(span["moves"] for span in profile["spans"]), "no tensor moves")
END
}

@test "a tensor is drawn away only while it is: freed on its way, wanted before it is gone, across the step's end" {
    requires chromium
    PAGE=hostile by_python <<'END'
chart = next(chart for chart in seen["light"]["charts"] if chart["kind"] == "spans")
unit = {"s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1}[chart["axes"]["x"].rsplit("(", 1)[1].rstrip(")")]
step = report["plan"]["profile"]["step_ns"]
for row, wanted in enumerate([(50, 0, 250, 0), (500, 100, 400, 0), (500, 50, 200, 250), (500, 0, 200, 300)]):
    drawn = [round(1000 / step * unit * sum(bar["x"][1] - bar["x"][0] for bar in dataset["data"] if bar["y"].split(".")[0] == str(row + 1)))
             for dataset in chart["datasets"]]
    expect(drawn == list(wanted), "tensor", row + 1, "has", drawn, "thousandths of a step in use, idle, moving, away; not", wanted)
END
}

@test "the profile shows a step within its budget" {
    local budget
    budget=$(jq .budget_bytes tight.json)
    at_most "$budget" "$(jq '.plan.profile.held_bytes | max' tight.json)" "the most that is held"
    at_least "$budget" "$(jq '.plan.profile.demand_bytes | max' tight.json)" "the most that would be"
    jq -e '.plan.profile | [.demand_bytes, .held_bytes] | transpose | all(.[0] > 0 and .[1] > 0)' tight.json
    # The bytes that come back in a step are those of its layers, except for rounding by bins.
    jq -e '.plan | ([.layers[].reloaded_bytes] | add) as $back | ((.profile.in_bytes | add) - $back | fabs) <= (.profile.in_bytes | length)' tight.json
    jq -e '.plan | ([.layers[].evicted_bytes] | add) as $out | $out > 0 and ((.profile.out_bytes | add) - $out | fabs) <= (.profile.out_bytes | length)' tight.json
    jq -e '.plan.profile.step_ns == .plan.predicted_step_ns - .plan.predicted_mapping_ns and (.plan.layers | [.[].begin_ns] | . == sort and .[0] == 0)' tight.json
    jq -e '.plan.profile.spans | length == 20 and ([.[].bytes] | . == (sort | reverse))' tight.json
}

@test "in light, dark and phone views the text is readable and nothing is wider than the screen" {
    requires chromium
    by_python <<'END'
import re
def shade(text):
    red, green, blue, *alpha = (float(part) for part in re.findall(r"[\d.]+", text))
    return [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (red / 255, green / 255, blue / 255)]
def contrast(one, other):
    light = sorted(sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), shade(text))) for text in (one, other))
    return (light[1] + 0.05) / (light[0] + 0.05)
def ground(name):
    return next(behind for _, behind in seen[name]["colours"] if behind != "rgba(0, 0, 0, 0)")
for name in ("light", "dark", "phone"):
    expect(len(seen[name]["colours"]) > 3, "few colours", seen[name]["colours"])
    for text, behind in seen[name]["colours"]:
        if behind == "rgba(0, 0, 0, 0)":
            behind = "rgb(255, 255, 255)"
        expect(contrast(text, behind) >= 4.5, name, text, "on", behind, "has", contrast(text, behind))
    for chart in seen[name]["charts"]:
        for dataset in chart["datasets"]:
            red, green, blue = (int(dataset["colour"][i:i + 2], 16) for i in (1, 3, 5))
            # Bars that overlap have an edge in the page's own colour.
            if chart["kind"] != "layers":
                expect(contrast(f"rgb({red}, {green}, {blue})", ground(name)) >= 3, name, chart["kind"], dataset["label"], dataset["colour"])
expect(contrast("rgb(255, 255, 255)", ground("dark")) > 12 and contrast("rgb(0, 0, 0)", ground("light")) > 12, ground("dark"), ground("light"))
for name, width in (("light", 1200), ("dark", 1200), ("phone", 360)):
    expect(seen[name]["window"] == width and seen[name]["width"] <= width, name, "is", seen[name]["width"], "wide on", width)
    expect(all(200 < chart["width"] <= width for chart in seen[name]["charts"]), name, "charts", [chart["width"] for chart in seen[name]["charts"]])
END
}

@test "keyboard and screen reader find order, names, table heads and a visible focus" {
    requires chromium
    by_python <<'END'
import struct
page = seen["light"]
tabs = seen["tabs"]
expect(tabs[0][1] == "#content", "the first stop is", tabs[0])
expect(all(outline == "solid" and width == "3px" for _, _, outline, width in tabs), "stops that don't show", tabs)
expect([stop[1] for stop in tabs[1:8]] == page["links"][1:8], "order", tabs)
expect({stop[0] for stop in tabs} >= {"A", "SUMMARY", "DIV"}, "stops", tabs)
for chart in page["charts"]:
    expect(chart["role"] == "img" and len(chart["label"]) > 40, chart["kind"], "has no name")
expect(len(page["ids"]) == len(set(page["ids"])), "ids twice")
expect(all(link.startswith("#") and link[1:] in page["ids"] for link in page["links"]), "links that lead nowhere", page["links"])
levels = [int(tag[1]) for tag, _ in page["headings"]]
expect(levels[0] == 1 and levels.count(1) == 1 and all(b - a <= 1 for a, b in zip(levels, levels[1:])), "headings", page["headings"])
for table in page["tables"]:
    expect(table["caption"] and table["scopes"] and all(table["heads"]) and table["rows"], table["caption"], "has no heads or rows")
    expect(all(len(row) == len(table["heads"]) for row in table["rows"]), table["caption"], "has ragged rows")
for name, wide in (("light", 1200), ("dark", 1200), ("phone", 360)):
    with open(f"{os.path.dirname(sys.argv[1])}/{name}.png", "rb") as file:
        width, height = struct.unpack(">II", file.read(24)[16:])
    expect(width == wide and height > 1500, name, "is a picture of", width, "by", height)
END
}

@test "without scripts and network nothing is fetched, and the tables have every figure" {
    local page=$SEEN/tight.html
    # Chart.js names its home page in a comment. Nothing else on the page links to another site.
    equal '' "$(sed '/^<script>\/\*!/,/<\/script>/d' "$page" | grep -oE '(src|href)="[^#][^"]*"|url\([^)]*\)|@import' | grep -v '^href="data:,"$')" "what leads out"
    contains "$(cat "$page")" "default-src 'none'"
    contains "$(cat "$page")" 'Chart\.js v3'
    contains "$(cat "$page")" 'Copyright .* Chart\.js Contributors'
    at_least 200 "$(grep -c 'data-of="plan.profile.held_bytes' "$page")" "rows of the curve"
}

# --- several ranks, and hostile text --------------------------------------------------------------

@test "several ranks have a table of all, a section each, and a note of the missing ones" {
    requires chromium
    local PAGE=hostile
    equal 'Rank 0: Simulated CUDA device,Rank 1: Simulated CUDA device' "$(looked '[.light.headings[] | select(.[0] == "H2" and (.[1] | startswith("Rank"))) | .[1]] | join(",")')"
    equal 'Rank 0,Rank 1' "$(looked '[.light.tables[0].rows[][0]] | join(",")')" "rows of the table of all"
    looked '.light.missing | any(. == "No report was given for rank 2.")'
    looked '.light.missing | any(. == "No step was recognised, so there is no step to draw.")'
    # Only the rank with a step has charts.
    equal 5 "$(looked '.light.charts | length')" charts
    cp "$SEEN/hostile.rank0.json" again.json
    run "$PENSTOCK" report "$SEEN/hostile.rank0.json" again.json --output none.html
    ended_with 2
    contains "$output" 'both are of rank 0'
    run "$PENSTOCK" report again.json again.json --output none.html
    ended_with 2
    contains "$output" 'again\.json: given twice'
    [ ! -e none.html ]
}

@test "a command line or a layer's name is shown as text and never executed" {
    requires chromium
    local PAGE=hostile
    equal 'train "a" </script><script>document.title=1</script><img src=x onerror=alert(1)> & <b> … and 1 other commands' "$(looked .light.command)"
    looked '.light.title | startswith("Penstock: train \"a\" </script>")'
    equal 3 "$(looked .light.scripts)" "scripts of the page"
    looked '[.light.tables[].rows[][]] | any(startswith("</script><i>"))'
    looked '.light.findings | any(.[0] == "problem" and (.[1] | contains("freed 3 addresses")))'
}

# --- warnings -------------------------------------------------------------------------------------

# advised FILTER PATTERN: a report changed by FILTER has a finding that matches.
advised() {
    jq "$1" tight.json >changed.json
    "$PENSTOCK" report changed.json >/dev/null
    contains "$(grep '^<li class="\(problem\|warning\|note\)">' changed.html | sed 's/<[^>]*>//g')" "$2"
}

@test "findings name the problem and its remedy" {
    advised '.stands_aside = "the device is not there"' 'Problem: Penstock stood aside: the device is not there\..*penstock doctor'
    advised '.out_of_memory = 2' 'Problem: 2 allocations failed.*PENSTOCK_HOST_BUDGET'
    advised '.eviction_errors = 1' 'Problem: .*PENSTOCK_LOG=debug'
    advised '.bad_frees = 4' 'Problem: The program freed 4 addresses.*compute-sanitizer'
    advised '.layout_disagreements = 1' 'Problem: For 1 kernels.*penstock verify'
    advised '.graph_launches_unknown = 7' 'Warning: 7 launches were of CUDA graphs.*train without graphs'
    advised '.pages_refused = 3' 'Warning: 3 times .*PENSTOCK_RESERVE'
    advised '.launches_without_layout = 5' 'Warning: 5 launches .*PENSTOCK_RULES'
    advised '.spans_born_on_slot = 3' 'Warning: 3 allocations found no device memory.*PENSTOCK_BUDGET'
    advised '.accesses_on_slot = 9' 'Warning: 9 accesses .*raise PENSTOCK_BUDGET'
    advised '.trace_events_dropped = 1234' 'Note: The trace lacks 1,234 events'
    advised '.slab.limit_bytes = .slab.bytes' 'Warning: The host memory for idle tensors is used up.*PENSTOCK_HOST_BUDGET'
    advised '.passthrough.capture = 11' 'Note: 11 allocations were made while a stream was being captured'
    advised '.learning.patterns_lost = 20 | .learning.steps = 4' 'Warning: Steps left the known pattern 20 times'
    advised '.learning.patterns = [] | .plan = {steps: 0}' 'Warning: No step was recognised in [0-9,]+ launches'
    advised '.plan.steps = 0' 'Warning: A step was recognised, but no whole step has ended under a plan'
    advised '.plan.plain_step_ns = 100000000 | .plan.exposed_ns = 30000000 | .plan.nothing_lost_bytes = 3221225472 | .device.total_bytes = 8589934592' \
        'Warning: Each step waited 30\.00 ms for copies, 30\.0% of the plain step\. PENSTOCK_BUDGET=3GiB would avoid that'
    advised '.plan.plain_step_ns = 100000000 | .plan.exposed_ns = 30000000 | .plan.nothing_lost_bytes = 3221225472 | .device.total_bytes = 1073741824' \
        'Avoiding that takes 3\.00 GiB, more than the device has'
    advised '.reloads = 100 | .demand_reloads = 60' 'Note: 60 of 100 reloads began only when a launch needed the data'
    advised '.evictions = 0' 'Note: Nothing was moved: memory was plentiful'
    advised '.budget_bytes = null' 'Note: The budget is unlimited: nothing is moved'
    # Each setting that is named exists.
    local name
    for name in $(grep -oE 'PENSTOCK_[A-Z_]+' "$ROOT/scripts/command/penstock_findings.py" | sort -u); do
        [ "$name" = PENSTOCK_REPORT ] || contains "$("$BUILD/penstock-settings" list | cut -f 1)" "^$name\$"
    done
    # A report without problems has no findings.
    jq '.plan.exposed_ns = 0 | .reloads = 100 | .demand_reloads = 0 | .spans_born_on_slot = 0 | .learning.patterns_lost = 0 | .passthrough = {small: 5} | .plan.allocations_without_one = 0 |
        .slab.limit_bytes = 1099511627776' tight.json >calm.json
    "$PENSTOCK" report calm.json
    contains "$(cat calm.html)" 'No problems found: nothing to do'
    lacks "$(cat calm.html)" '^<li class="(problem|warning|note)">'
}

# --- incomplete reports --------------------------------------------------------------------------

@test "a report without a profile, a plan or a step has a page that gives the reason" {
    # In the format of older versions.
    jq 'del(.plan.profile, .plan.layers[].begin_ns, .plan.layers[].first_launch) | .plan.reload_waits = [{launch: 3, reloads: 2, predicted_ns: 5, actual_ns: 200000, launches_earlier: 0}]' \
        tight.json >old.json
    "$PENSTOCK" report old.json
    contains "$(cat old.html)" 'it was written by an older Penstock'
    contains "$(cat old.html)" 'data-chart="layers"'
    contains "$(cat old.html)" 'data-chart="waits"'
    lacks "$(cat old.html)" 'data-chart="memory"'
    # A run with plentiful memory, and one without the device.
    run_penstock PENSTOCK_BUDGET=auto "$SAMPLES/mlp" --layers=2 --width=64 --batch=256 --steps=2
    ended_with 0
    "$PENSTOCK" report "$REPORT" --output plentiful.html
    contains "$(cat plentiful.html)" 'Memory was plentiful, so launches were not looked at'
    contains "$(cat plentiful.html)" 'Nothing was moved: memory was plentiful'
    jq '.stands_aside = "no device" | .plan = {steps: 0} | .learning.patterns = []' tight.json >aside.json
    "$PENSTOCK" report aside.json
    contains "$(cat aside.html)" 'Penstock stood aside: no device'
    contains "$(cat aside.html)" 'so no step was looked at'
}

@test "several devices of a process have a section each" {
    jq '.devices = [{device, budget_bytes, peak_resident_bytes, peak_demand_bytes, slab, learning, plan}, {device: (.device | .ordinal = 1), budget_bytes, peak_resident_bytes: 4096,
        peak_demand_bytes, slab, learning, plan: {steps: 0}}]' tight.json >two.json
    "$PENSTOCK" report two.json
    contains "$(cat two.html)" '>two\.json, device 0: Simulated'
    contains "$(cat two.html)" '>two\.json, device 1: Simulated'
    contains "$(cat two.html)" '<data value="4096" data-of="devices\.1\.peak_resident_bytes">4\.00 KiB</data>'
}

# --- wrong use ------------------------------------------------------------------------------------

# refused PATTERN ARGUMENT...: the command is refused in one line with status 2, and the existing
# page stays.
refused() {
    local pattern=$1
    shift
    echo before >page.html
    run "$PENSTOCK" report --output page.html "$@"
    ended_with 2
    equal 1 "${#lines[@]}" "lines"
    contains "$output" "^penstock: $pattern"
    equal before "$(cat page.html)" "the page that was there"
}

# strange_reports: makes files that are nearly reports.
strange_reports() {
    jq 'del(.stands_aside)' tight.json >aside.json
    python3 -c 'print("[" * 100000)' >deep.json
    jq -c . tight.json | sed -E 's/"steps":[0-9]+/"steps":1'"$(printf '%0400d' 0)"'/' >huge.json
    jq -c . tight.json | sed -E 's/"steps":[0-9]+/"steps":1e999/' >endless.json
    jq '.rank = "0"' tight.json >text.json
    jq '.rank = 1' tight.json >one.json
    jq '.processes = -1' tight.json >many.json
}

@test "a file that is no report is refused in one line, and an existing page stays" {
    refused 'nowhere\.json: No such file.*PENSTOCK_REPORT' nowhere.json
    echo 'not JSON' >text
    refused 'text: not JSON .*PENSTOCK_REPORT' text
    head -c 2000 tight.json >half.json
    refused 'half\.json: not JSON .*PENSTOCK_REPORT' half.json
    echo '{"version": "1", "plan": 3}' >other.json
    refused "other\\.json: JSON, but not a Penstock report.*PENSTOCK_REPORT" other.json
    echo '[1, 2]' >list.json
    refused "list\\.json: JSON, but not a Penstock report" list.json
    jq '.plan.layers = [3]' tight.json >strange.json
    refused "strange\\.json: not a complete Penstock report" strange.json
    head -c 3000 /dev/urandom >noise
    refused 'noise: not JSON' noise
    refused 'report: no report given'
    refused 'tight\.json: is one of the reports' tight.json -o tight.json
    refused '--frobnicate: no such option' --frobnicate tight.json
    mkdir directory
    refused 'directory: is a directory' tight.json -o directory
    refused 'nowhere/page\.html: No such file' tight.json -o nowhere/page.html
    strange_reports
    refused 'aside\.json: JSON, but not a Penstock report \(stands_aside is missing\)' aside.json
    refused 'deep\.json: not JSON' deep.json
    refused 'huge\.json: not JSON .*is too large' huge.json
    refused 'endless\.json: not JSON' endless.json
    refused 'text\.json: its rank is "0": expected a whole number from 0, or null' one.json text.json
    refused 'many\.json: its field processes is -1' many.json
    refused '\./tight\.json: given twice, also as tight\.json; name each report once' tight.json ./tight.json
    jq '.plan.layers = [3] | .rank = 1' tight.json >second.json
    jq '.rank = 0' tight.json >first.json
    refused 'second\.json: not a complete Penstock report' first.json second.json
    equal '' "$(compgen -G '*.tmp' || true)" "left over"
}

@test "the page is written to a link's target, and into devices and pipes" {
    "$PENSTOCK" report tight.json -o wanted.html
    echo before >target.html
    ln -s target.html link.html
    "$PENSTOCK" report tight.json -o link.html
    equal target.html "$(readlink link.html)" "the link"
    cmp wanted.html target.html
    ln -s later.html dangling.html
    "$PENSTOCK" report tight.json -o dangling.html
    [ -L dangling.html ] && cmp wanted.html later.html
    mkfifo pipe.html
    timeout "$(patience 20)" cat pipe.html >through.html &
    local reader=$!
    timeout "$(patience 20)" "$PENSTOCK" report tight.json -o pipe.html
    [ -p pipe.html ]
    wait $reader
    cmp wanted.html through.html
    requires root
    mknod full c 1 7 && mknod null c 1 3 || skip "no nodes can be made here"
    "$PENSTOCK" report tight.json -o null
    [ -c null ]
    refused 'full: No space left' tight.json -o full
    [ -c full ]
    equal '' "$(compgen -G '*.tmp' || true)" "left over"
}

@test "a file name that is not UTF-8 works, and an output that can't be written is reported" {
    local odd=$'caf\xe9.json'
    cp tight.json "$odd"
    run "$PENSTOCK" report "$odd"
    ended_with 0
    [ -s $'caf\xe9.html' ]
    equal '' "$(compgen -G '*.tmp' || true)" "left over"
    equal $'The page is caf\xe9.html.' "$(LC_ALL=C sed -n '1s/ Open it.*//p' <<<"$output")" "its name, byte for byte"
    refuses_failing_output report tight.json
}

@test "the page is written beside the report or where -o names, under any name" {
    mkdir 'a b'
    cp tight.json 'a b/--report.v1.json'
    run "$PENSTOCK" report -- 'a b/--report.v1.json'
    ended_with 0
    [ -s 'a b/--report.v1.html' ]
    contains "$output" "Open it in a browser: file://.*/a%20b/--report\\.v1\\.html"
    ! command -v xdg-open >/dev/null || contains "$output" "^    xdg-open 'a b/--report\\.v1\\.html'\$"
    "$PENSTOCK" report -o here.html tight.json
    cmp here.html 'a b/--report.v1.html' || contains "$(diff here.html 'a b/--report.v1.html')" 'report\.v1'
    "$PENSTOCK" report --output=there.html tight.json
    cmp here.html there.html
}
