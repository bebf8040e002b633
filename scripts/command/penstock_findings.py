"""Finds problems in a report (PENSTOCK_REPORT) and their cures, for penstock-report."""

GIB = 2**30
NOTHING_LOST = 1.02  # of the plain step, as in the library's own hint: a smaller loss is not worth a message


def size(count):
    """Returns bytes as text with a unit."""
    for unit, name in ((GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            return f"{count / unit:.2f} {name}"
    return f"{count} B"


def duration(ns):
    """Returns nanoseconds as text with a unit."""
    for unit, name in ((10**9, "s"), (10**6, "ms"), (10**3, "µs")):
        if ns >= unit:
            return f"{ns / unit:.2f} {name}"
    return f"{ns} ns"


def budget(count):
    """Returns bytes as PENSTOCK_BUDGET takes them, rounded up."""
    unit, name = next(((unit, name) for unit, name in ((GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB")) if count >= unit), (1, ""))
    return f"{-(-count * 100 // unit) / 100:g}{name}"


def number(count):
    return f"{count:,}"


# Counters that should be 0: (field, level, text, cure). {} is the count.
COUNTED = (
    ("out_of_memory", "problem", "{} allocations failed because there was no memory.",
     "Raise PENSTOCK_HOST_BUDGET to give idle tensors more host memory, or use a smaller batch; a line on stderr names demand, budget and slab."),
    ("eviction_errors", "problem", "The driver refused {} copies to the host; those tensors stayed on the device.",
     "Run with PENSTOCK_LOG=debug to see the driver's error."),
    ("reload_errors", "problem", "The driver refused {} copies back to the device.", "Run with PENSTOCK_LOG=debug to see the driver's error."),
    ("bad_frees", "problem", "The program freed {} addresses that are not allocations, or freed them twice.",
     "This is a bug in the program, with or without Penstock; compute-sanitizer finds the place."),
    ("layout_disagreements", "problem", "For {} kernels, the driver and the program file differ about the layout of parameters; Penstock used the driver's.",
     "Run `penstock verify` with this command before a long training."),
    ("graph_launches_unknown", "warning", "{} launches were of CUDA graphs with nodes that can't be read: while such a graph exists, nothing moves.",
     "If that is too slow, train without graphs."),
    ("launches_without_layout", "warning", "{} launches were of kernels whose parameters can't be read: Penstock may not see what they use.",
     "Run `penstock verify` with this command; it finds what they use and writes rules for PENSTOCK_RULES."),
    ("pointer_tables_forgotten", "warning", "{} tables of addresses were dropped because there was no room: Penstock may not see what their kernels use.",
     "Run `penstock verify` with this command; PENSTOCK_GUARD=host makes faults rare."),
    ("pages_refused", "warning", "{} times the device was full although the budget was not: other processes use the memory.",
     "Lower PENSTOCK_BUDGET, raise PENSTOCK_RESERVE, or keep other processes off this device."),
    ("accesses_on_slot", "warning", "{} accesses read a tensor in host memory over the link, which is slow.",
     "The budget is smaller than what one kernel uses: raise PENSTOCK_BUDGET."),
    ("spans_born_on_slot", "warning", "{} allocations found no device memory and began in host memory, which is slow.",
     "Raise PENSTOCK_BUDGET, or keep other processes off this device."),
    ("trace_events_dropped", "note", "The trace lacks {} events that came faster than they could be written.",
     "Set PENSTOCK_TRACE to a file on a faster disk or in memory."),
)

# Reasons why an allocation was left to CUDA; `small` is normal and not listed.
PASSED = {
    "disabled": ("came after Penstock stood aside", "Read the first lines on stderr, and run `penstock doctor`."),
    "other_device": ("were made in a context that Penstock does not manage", "Use each device's primary context, as the CUDA runtime does."),
    "capture": ("were made while a stream was being captured", "Allocate before the capture: memory allocated during it stays on the device."),
    "plain": ("were left to CUDA by PENSTOCK_RULES", "A rule with `plain` asks for that."),
    "own_pool": ("came from memory pools of the program", "Memory of the default pool can move; memory of other pools stays on the device."),
    "mapped": ("were mapped by the program in a way that can't be moved", "Nothing to do: they work, and stay on the device."),
    "no_addresses": ("got no address range or no memory for bookkeeping", "Run with PENSTOCK_LOG=info to see why."),
}


def of_process(report):
    """Yields (level, text, cure) for the counters of the whole process."""
    aside = report.get("stands_aside")
    if aside:
        yield "problem", f"Penstock stood aside: {aside}. The command ran without it.", "Run `penstock doctor` to see what this machine lacks."
        return
    for field, level, what, todo in COUNTED:
        count = report.get(field) or 0
        if count:
            yield level, what.format(number(count)), todo
    for reason, count in (report.get("passthrough") or {}).items():
        if count and reason in PASSED:
            what, todo = PASSED[reason]
            yield "note", f"{number(count)} allocations {what}: they use device memory outside the budget.", todo


def of_device(device, report):
    """
    Yields the same for the part of one device, which is the report itself if there is only one
    device.
    """
    if report.get("stands_aside"):
        return
    plan, learning, slab = device.get("plan") or {}, device.get("learning") or {}, device.get("slab") or {}
    moved = report.get("evictions", 0)
    if device.get("budget_bytes") is None:
        yield "note", "The budget is `unlimited`: nothing is moved.", "Set PENSTOCK_BUDGET to train in less memory."
    elif not moved:
        yield "note", "Nothing was moved: memory was plentiful.", "Run `penstock advise` to see what a smaller PENSTOCK_BUDGET would cost."
    if slab.get("limit_bytes") and slab.get("bytes", 0) >= 0.98 * slab["limit_bytes"]:
        yield ("warning", f"The host memory for idle tensors is used up: {size(slab['bytes'])} of {size(slab['limit_bytes'])}.",
               "Raise PENSTOCK_HOST_BUDGET if the machine has more; otherwise nothing more can leave the device.")
    yield from of_learning(learning, plan, moved)
    yield from of_plan(plan, report)


def of_learning(learning, plan, moved):
    patterns, lost = learning.get("patterns") or [], learning.get("patterns_lost", 0)
    if moved and not patterns:
        yield ("warning", f"No step was recognised in {number(learning.get('launches', 0))} launches: every move was made on demand, which is usually slow.",
               "A plan needs a step that comes at least three times. Run longer, and keep shapes and the order of work the same from step to step. "
               "Batches padded to a few lengths get a plan for each length, up to eight.")
    elif moved and not plan.get("steps"):
        yield ("warning", "A step was recognised, but no whole step has ended under a plan yet: every move was made on demand.",
               "Run more steps; these figures are of the first ones, which are slow.")
    if lost > 2 and lost * 4 > learning.get("steps", 0):
        yield ("warning", f"Steps left the known pattern {number(lost)} times. Where steps differ, Penstock moves memory on demand.",
               "Keep shapes and the order of work the same, or repeat them: up to eight patterns are kept. PENSTOCK_LOG=debug shows when it happens.")


def of_plan(plan, report):
    if not plan.get("steps"):
        return
    plain, exposed, enough = plan.get("plain_step_ns", 0), plan.get("exposed_ns", 0), plan.get("nothing_lost_bytes", 0)
    if plain and exposed > plain * (NOTHING_LOST - 1):
        help_ = f"PENSTOCK_BUDGET={budget(enough)} would avoid that." if enough else "Run `penstock advise` to see what each PENSTOCK_BUDGET costs."
        if enough and enough > report.get("device", {}).get("total_bytes", enough):
            help_ = f"Avoiding that takes {size(enough)}, more than the device has: a smaller batch moves less."
        yield "warning", f"Each step waited {duration(exposed)} for copies, {exposed / plain:.1%} of the plain step.", help_
    reloads, demand = report.get("reloads", 0), report.get("demand_reloads", 0)
    if reloads and demand * 4 > reloads:
        yield ("note", f"{number(demand)} of {number(reloads)} reloads began only when a launch needed the data: in steps before the plan, or outside it.",
               "In a long training their share gets small. If it does not, check how often steps left the pattern.")
    made, missing = plan.get("spans_made_ahead", 0), plan.get("allocations_without_one", 0)
    if missing > 2 * made and missing > 100:
        yield ("note", f"{number(missing)} allocations of planned steps had to wait for their memory; for {number(made)}, it was made ahead.",
               "The device was too full: a slightly larger PENSTOCK_BUDGET avoids that wait.")
