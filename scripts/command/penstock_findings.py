"""What in a report (PENSTOCK_REPORT) asks for something to be done, and what: for penstock-report."""

GIB = 2**30
NOTHING_LOST = 1.02  # as the library's own hint: less of the plain step is not worth a word


def size(count):
    """Bytes, for people."""
    for unit, name in ((GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            return f"{count / unit:.2f} {name}"
    return f"{count} B"


def duration(ns):
    """Nanoseconds, for people."""
    for unit, name in ((10**9, "s"), (10**6, "ms"), (10**3, "µs")):
        if ns >= unit:
            return f"{ns / unit:.2f} {name}"
    return f"{ns} ns"


def budget(count):
    """As PENSTOCK_BUDGET takes it, and no less than it is."""
    unit, name = next(((unit, name) for unit, name in ((GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB")) if count >= unit), (1, ""))
    return f"{-(-count * 100 // unit) / 100:g}{name}"


def number(count):
    return f"{count:,}"


# Counters that should be 0: (field, how bad, what it says, what to do). {} is the count.
COUNTED = (
    ("out_of_memory", "problem", "{} allocations failed for want of memory.",
     "Give idle tensors more host memory (PENSTOCK_HOST_BUDGET), or the command a smaller batch; the one line on stderr names demand, budget and slab."),
    ("eviction_errors", "problem", "The driver refused {} copies to the host; those tensors stayed on the device.",
     "See what it says with PENSTOCK_LOG=debug."),
    ("reload_errors", "problem", "The driver refused {} copies back to the device.", "See what it says with PENSTOCK_LOG=debug."),
    ("bad_frees", "problem", "The program freed {} addresses that are no allocation's, or freed them twice.",
     "That is a fault of the program's, with Penstock and without it; compute-sanitizer finds where."),
    ("layout_disagreements", "problem", "For {} kernels the two sources of their parameters' layout differ; the driver's was used.",
     "Run `penstock verify` with this command before a long training."),
    ("graph_launches_unknown", "warning", "{} launches were of CUDA graphs with nodes that can't be read: while such a graph exists, nothing moves.",
     "Keep conditional nodes and child graphs out of what is captured, or train without graphs."),
    ("launches_without_layout", "warning", "{} launches were of kernels whose parameters can't be read: what they use may not be seen.",
     "Run `penstock verify` with this command; it finds what they use, and writes the rules for PENSTOCK_RULES."),
    ("pointer_tables_forgotten", "warning", "{} tables of addresses were forgotten for want of room: what their kernels use may not be seen.",
     "Run `penstock verify` with this command; PENSTOCK_GUARD=host makes faults rare."),
    ("pages_refused", "warning", "{} times the device had no more memory although the budget had room: somebody else takes it.",
     "Lower PENSTOCK_BUDGET, raise PENSTOCK_RESERVE, or keep others off this device."),
    ("accesses_on_slot", "warning", "{} accesses read a tensor where it lay in host memory, over the link, which is slow.",
     "The budget is less than what single kernels use at once: raise PENSTOCK_BUDGET."),
    ("spans_born_on_slot", "warning", "{} allocations found no device memory and began in host memory, which is slow.",
     "Raise PENSTOCK_BUDGET, or keep others off this device."),
    ("trace_events_dropped", "note", "The trace lacks {} events that came faster than they were written.",
     "Let PENSTOCK_TRACE lead to a faster disk, or to one that is in memory."),
)

# Reasons for which an allocation was left to CUDA; `small` is as it should be.
PASSED = {
    "disabled": ("came after Penstock had stepped aside", "Look at the first lines on stderr, and ask `penstock doctor`."),
    "other_device": ("were made in a context that is not managed", "Use each device's primary context, as the CUDA runtime does."),
    "capture": ("were made while a stream was being captured", "Allocate before the capture; that memory is left where it is."),
    "plain": ("were left to CUDA by PENSTOCK_RULES", "That is what a rule with `plain` asks for."),
    "own_pool": ("came from memory pools that the program made", "Memory of the default pool can move; that of such pools stays."),
    "mapped": ("were mapped by the program in a way that can't be moved", "Nothing need be done: they are right, and stay on the device."),
    "no_addresses": ("found no addresses or no memory for bookkeeping", "See what PENSTOCK_LOG=info says of it."),
}


def of_process(report):
    """(how bad, what, what to do) of what is counted for the whole process."""
    aside = report.get("stands_aside")
    if aside:
        yield "problem", f"Penstock stood aside: {aside}. The command ran as without it.", "Ask `penstock doctor` what this machine lacks."
        return
    for field, level, what, todo in COUNTED:
        count = report.get(field) or 0
        if count:
            yield level, what.format(number(count)), todo
    for reason, count in (report.get("passthrough") or {}).items():
        if count and reason in PASSED:
            what, todo = PASSED[reason]
            yield "note", f"{number(count)} allocations {what}: they count to the device's memory and not to the budget.", todo


def of_device(device, report):
    """The same of one device's part, which is the report itself where there is one device."""
    if report.get("stands_aside"):
        return
    plan, learning, slab = device.get("plan") or {}, device.get("learning") or {}, device.get("slab") or {}
    moved = report.get("evictions", 0)
    if device.get("budget_bytes") is None:
        yield "note", "The budget is `unlimited`: nothing is moved.", "Set PENSTOCK_BUDGET to train in less memory."
    elif not moved:
        yield "note", "Nothing was moved: memory was plentiful.", "Ask `penstock advise` what a smaller PENSTOCK_BUDGET would cost."
    if slab.get("limit_bytes") and slab.get("bytes", 0) >= 0.98 * slab["limit_bytes"]:
        yield ("warning", f"The host memory for idle tensors is used up: {size(slab['bytes'])} of {size(slab['limit_bytes'])}.",
               "Raise PENSTOCK_HOST_BUDGET if the machine has more; else nothing more can leave the device.")
    yield from of_learning(learning, plan, moved)
    yield from of_plan(plan, report)


def of_learning(learning, plan, moved):
    patterns, lost = learning.get("patterns") or [], learning.get("patterns_lost", 0)
    if moved and not patterns:
        yield ("warning", f"No step was recognised in {number(learning.get('launches', 0))} launches: every move was a reaction, which is seldom fast.",
               "A plan needs a step that comes at least three times. Run longer, and keep shapes and the order of work the same from step to step: batches "
               "padded to a few lengths have a plan for each, up to eight.")
    elif moved and not plan.get("steps"):
        yield ("warning", "A step was recognised, and no whole step has ended under a plan yet: every move was a reaction.",
               "Run some steps more; the figures here are those of the first ones, which are slow.")
    if lost > 2 and lost * 4 > learning.get("steps", 0):
        yield ("warning", f"The step was left {number(lost)} times: steps differ from each other, and Penstock reacts where they do.",
               "Keep shapes and the order of work the same, or let them return: up to eight patterns are kept. PENSTOCK_LOG=debug says when it happens.")


def of_plan(plan, report):
    if not plan.get("steps"):
        return
    plain, exposed, enough = plan.get("plain_step_ns", 0), plan.get("exposed_ns", 0), plan.get("nothing_lost_bytes", 0)
    if plain and exposed > plain * (NOTHING_LOST - 1):
        help_ = f"PENSTOCK_BUDGET={budget(enough)} would spare that." if enough else "`penstock advise` tells what each PENSTOCK_BUDGET costs."
        if enough and enough > report.get("device", {}).get("total_bytes", enough):
            help_ = f"It would take {size(enough)}, more than the device has: a smaller batch moves less."
        yield "warning", f"Each step stood still for {duration(exposed)}, {exposed / plain:.1%} of the plain step, for transfers.", help_
    reloads, demand = report.get("reloads", 0), report.get("demand_reloads", 0)
    if reloads and demand * 4 > reloads:
        yield ("note", f"{number(demand)} of {number(reloads)} reloads began only when their data was missed: in steps before the plan, or beside it.",
               "In a long training that is little; if it stays so, see how often the step was left.")
    made, missing = plan.get("spans_made_ahead", 0), plan.get("allocations_without_one", 0)
    if missing > 2 * made and missing > 100:
        yield ("note", f"{number(missing)} allocations of planned steps did not find their memory made ahead, and {number(made)} did.",
               "The device was too full for it: a somewhat larger PENSTOCK_BUDGET spares the launching thread that wait.")
