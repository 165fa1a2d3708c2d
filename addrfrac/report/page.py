"""One run in, its HTML page out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from addrfrac import units
from addrfrac.errors import brief
from addrfrac.records import BreakEven, DeviceState, Op, Range, Run
from addrfrac.report import bounds_sections, breakdowns, ceilings, facts, figures, kernel_table, ladders, tables
from addrfrac.report.document import Figures, Shared, banners, document
from addrfrac.report.markup import bound_mark, bullets, definitions, escape, hint, kernel_name, section, table


def render_page(run: Run, shared: Shared | None = None) -> str:
    """The page of one run.

    `shared` names the files that several pages share; without it the page carries its own copies.
    """
    placed = Figures(facts.subject(run))
    sections = [
        ("answer", "Answer", _answer(run)),
        ("step", "Step", _step(run, placed)),
        *breakdown_sections(run),
        *bounds_sections.sections(run, placed),
        ("gain", "Gain", _gain(run, placed)),
        ("kernels", facts.kernel_noun(run).capitalize() + "s", kernel_table.kernels_section([run])),
        ("times", "Times", _times(run, placed)),
        ("environment", "Environment", _environment(run)),
        ("trace", "Trace and notes", _trace(run)),
    ]
    title = facts.title(run)
    header = f'<h1>{escape(title)}</h1><p class="device">{escape(facts.device_line(run))}</p>{banners([run])}'
    return document(
        f"{title} · {facts.device(run)} · addrfrac",
        header,
        sections,
        [*placed.scripts, *kernel_table.kernels_data([run])],
        shared,
    )


def _answer(run: Run) -> str:
    share = run.addressable.share_of_busy
    time = "busy CPU time" if facts.is_cpu(run) else "busy GPU time"
    if share.low is None:
        big = '<p class="answer"><span class="big">not measured</span> no device time in the window</p>'
    else:
        big = (
            f'<p class="answer"><span class="big">{facts.range_percent(share)}</span> of {time} is addressable by '
            f"replacement {facts.kernel_noun(run)}s (policy {escape(run.addressable.policy)})</p>"
        )
    return section("answer", "The answer", big, _policies(run), _tiles(run))


def _policies(run: Run) -> str:
    if not run.addressable.by_policy:
        return ""
    rows, classes = [], []
    for policy, share in facts.policies(run):
        classes.append("own" if policy == run.addressable.policy else "")
        rows.append(
            (
                escape(policy),
                facts.range_percent(share.share_of_busy, units.DASH),
                _track(share.share_of_busy),
                facts.range_percent(share.share_of_wall, units.DASH),
                facts.ceiling(share.speedup_of_busy, share.share_of_busy, units.DASH),
                facts.ceiling(share.speedup_of_wall, share.share_of_wall, units.DASH),
                units.microseconds_range(share.replaceable_us.low, share.replaceable_us.high, units.DASH),
                facts.range_percent(share.sampling_of_busy, units.DASH),
            )
        )
    columns = ["policy", ">of busy", "0–100 %", ">of wall", ">ceiling of busy", ">ceiling of wall", ">replaceable"]
    note = (
        "Each interval runs from the time in which replaceable kernels ran alone to the time in which replaceable or "
        "unknown ones ran. Ceilings are Amdahl's 1 / (1 − f) on these shares: bounds, not measurements. The last "
        "column is the 95 % interval of the mid-point over the profiled steps."
    )
    return table("Addressable share by policy", [*columns, ">sampling"], rows, classes) + hint(note)


def _track(share: Range) -> str:
    """A bar from 0 to 100 % that fills to the lower end and fades to the upper."""
    if share.low is None or share.high is None:
        return ""
    low, high = 100 * share.low, 100 * share.high
    return (
        f'<span class="track" aria-hidden="true"><i class="sure" style="left:0;width:{low:.2f}%"></i>'
        f'<i style="left:{low:.2f}%;width:max(3px,{high - low:.2f}%)"></i></span>'
    )


def _tiles(run: Run) -> str:
    policy = run.addressable.by_policy.get(run.addressable.policy)
    times = facts.step_times(run)
    tiles = [
        (
            "Amdahl ceiling of wall" if policy and policy.share_of_wall.low is not None else "Amdahl ceiling of busy",
            _best_ceiling(run),
            "if every replaceable kernel cost nothing",
        ),
        (
            "Step, unprofiled wall" if times else "Step, profiled span",
            units.microseconds(times.median_us if times else run.accounts.span_us or None),
            facts.interval(times) if times else "no wall was measured",
        ),
        ("Step as a CUDA graph", *_graph_tile(run)) if run.wall is not None else ("", "", ""),
        _best_library_tile(run),
        _measured_ceiling_tile(run),
        ("Busy", facts.busy_share(run), facts.busy_line(run)),
        ("Host", facts.host_answer(run), run.accounts.host_bound_evidence),
        ("Rate", facts.throughput_text(run), "at the unprofiled step time") if facts.throughput(run) else ("", "", ""),
        _full_depth_tile(run),
        ("Launches a step", units.count(run.accounts.launches), facts.launches_line(run)),
    ]
    items = "".join(
        f"<div><dt>{escape(term)}</dt><dd>{escape(value)}<small>{escape(text)}</small></dd></div>"
        for term, value, text in tiles
        if term
    )
    extrapolated = facts.extrapolation_line(run)
    return f'<dl class="tiles">{items}</dl>' + (hint(extrapolated) if extrapolated else "")


def _best_ceiling(run: Run) -> str:
    policy = run.addressable.by_policy.get(run.addressable.policy)
    if policy is None:
        return units.NOT_MEASURED
    if policy.share_of_wall.low is not None:
        return facts.ceiling(policy.speedup_of_wall, policy.share_of_wall)
    return facts.ceiling(policy.speedup_of_busy, policy.share_of_busy)


def _best_library_tile(run: Run) -> tuple[str, str, str]:
    times = ladders.arm(run.ladder, ladders.BEST)
    if times is None:
        return "", "", ""
    how = f"{units.microseconds_range(times.low_us, times.high_us)}, with {ladders.switches(times.switches)}"
    return "Step, best-library", units.microseconds(times.median_us), how


def _measured_ceiling_tile(run: Run) -> tuple[str, str, str]:
    last = ceilings.last_word(run)
    if last is None:
        return "", "", ""
    row = ceilings.row_of_all(last)
    free = "" if row is None else f"; {units.microseconds(row.reduced_us)} with every replaceable kernel free"
    return (
        "Measured ceiling",
        ceilings.speedup(last, units.NOT_MEASURED),
        f"above {last.arm}{free}" if last.measured else brief(last.why_not),
    )


def _full_depth_tile(run: Run) -> tuple[str, str, str]:
    full = run.extrapolation
    if full is None:
        return "", "", ""
    share = f"{units.plural(full.full_depth, 'layer')}, {facts.range_percent(full.full_share_of_busy)} of busy"
    return "Full depth, extrapolated", units.microseconds(full.full_step_us), share


def _graph_tile(run: Run) -> tuple[str, str]:
    if run.wall is None or run.wall.graph is None:
        return units.NOT_MEASURED, "" if run.wall is None else run.wall.graph_note
    return units.microseconds(run.wall.graph.median_us), facts.interval(run.wall.graph)


def _step(run: Run, placed: Figures) -> str:
    if not run.accounts.span_us:
        return section("step", "Where the step goes", "<p>Nothing ran on the device in this window.</p>")
    picture = placed.place(
        figures.step(run),
        "The profiled step, closed",
        "Stacked bars of the profiled step by bound and by class, with overlap and gaps; numbers in the table below.",
    )
    split = ""
    if tables.has_phases(run):
        split = placed.place(
            figures.phases(run),
            "Forward, backward, optimizer",
            "Stacked bars of the time by phase and bound; the table beside it has the numbers.",
        ) + _phase_table(run)
    stretched = facts.distortion_line(run)
    warning = f'<p class="banner" role="note">{escape(stretched)}</p>' if stretched else ""
    return section("step", "Where the step goes", warning, picture, _accounts_table(run), split)


def _accounts_table(run: Run) -> str:
    rows, row_classes = [], []
    merged = {(row["op"], row["bound"]): row for row in tables.classes(run).to_dict("records")}
    for row in tables.accounts(run).to_dict("records"):
        members = merged.get((row["part"], row["bound"]))
        row_classes.append("" if members else "faint")
        rows.append(
            (
                f'<span class="part">{_swatch(row)}{escape(figures.part_name(row))}</span>',
                escape(members["provider"]) if members else "",
                bound_mark(members["bound"]) if members else "",
                "" if row["number"] != row["number"] else units.count(row["number"]),
                units.microseconds(members["device_us"]) if members else "",
                units.microseconds(row["us"]),
                units.percent(row["share_of_span"]),
            )
        )
    row_classes.append("total")
    launches = units.count(run.accounts.launches)
    rows.append(("profiled span", "", "", launches, "", units.microseconds(run.accounts.span_us), "100 %"))
    columns = ["class", "owner", "bound", ">launches", ">device time", ">in the account", ">of span"]
    note = (
        "In the account, a class counts only while no other class ran; time shared by two classes stands on its own "
        "line, so the column sums to the span; what is left over is the residual. Device time counts overlap in full."
    )
    return table(
        f"Accounts of a step, mean of {units.plural(len(run.accounts.steps), 'step')}", columns, rows, row_classes
    ) + hint(note)


def _swatch(row: dict[Any, Any]) -> str:
    colour, _ = figures.part_colour(row)
    if row["kind"] in ("gap", "residual"):
        return '<span class="swatch"></span>'
    return f'<span class="swatch" style="background:{colour}"></span>'


def _phase_table(run: Run) -> str:
    rows = [
        (
            escape(row["phase"]),
            bound_mark(row["bound"]),
            units.count(row["launches"]),
            units.microseconds(row["device_us"]),
            units.microseconds(row["us"]),
        )
        for row in tables.phases(run).to_dict("records")
    ]
    return table("Time by phase and bound", ["phase", "bound", ">launches", ">device time", ">alone"], rows)


def breakdown_sections(run: Run) -> list[tuple[str, str, str]]:
    """A section for the buckets of a serving trace or for ranks, where the run has them."""
    parts = [
        table(listing.title, listing.columns, [[escape(cell) for cell in row] for row in listing.rows])
        + "".join(hint(note) for note in listing.notes)
        for listing in breakdowns.listings(run, facts.policy_names([run]))
    ]
    if not parts:
        return []
    title = "Serving steps" if run.ranks is None else "Ranks"
    return [("breakdown", title, section("breakdown", title, *parts))]


def _gain(run: Run, placed: Figures) -> str:
    if run.addressable.share_of_busy.low is None:
        return section("gain", "What a gain could bring", f"<p>{units.NOT_MEASURED}</p>")
    basis = figures.amdahl_basis([run])
    picture = placed.place(
        figures.amdahl([run]),
        f"Amdahl: end-to-end speed-up over the addressable share of {basis}",
        "Speed-up curves over the addressable fraction; thick marks are this workload's interval under each policy, "
        "which the policy table lists.",
    )
    note = (
        "Projected from the accounts of one run, not measured: real gains differ both ways, because fused kernels "
        "also remove gaps and change clocks and caches."
    )
    return section(
        "gain",
        "What a gain could bring",
        picture,
        hint(note),
        _targets(run),
        _break_even(run),
    )


def _targets(run: Run) -> str:
    rows = [
        (
            kernel_name(target.name),
            escape(target.op),
            escape(target.provider),
            units.count(target.launches),
            units.microseconds(target.device_us),
            units.percent(target.share_of_busy),
            units.speedup(target.speedup_if_free),
        )
        for target in run.projection.targets
    ]
    if not rows:
        return ""
    columns = ["target", "computes", "owner", ">launches", ">time a step", ">of busy", ">speed-up of busy if free"]
    return table("Targets, most microseconds first", columns, rows)


def _break_even(run: Run) -> str:
    """One row a class; one column for each gain asked for."""
    gains = sorted({row.for_gain for row in run.projection.break_even})
    by_class: dict[Op, dict[float, BreakEven]] = {}
    for row in run.projection.break_even:
        by_class.setdefault(row.op, {})[row.for_gain] = row
    rows = []
    for op, by_gain in by_class.items():
        first = next(iter(by_gain.values()))
        held = [units.microseconds(first.device_us), facts.range_percent(first.share_of_busy, units.DASH)]
        rows.append([escape(op), *held, *(_needed(by_gain.get(gain)) for gain in gains)])
    if not rows:
        return ""
    columns = ["class", ">holds", ">of busy", *(f">for {units.percent(gain)}" for gain in gains)]
    return table("Break-even: how much faster a class must become for an end-to-end gain", columns, rows)


def _needed(row: BreakEven | None) -> str:
    if row is None:
        return units.DASH
    return "impossible" if row.class_speedup is None else units.speedup(row.class_speedup)


def _times(run: Run, placed: Figures) -> str:
    parts = []
    if run.wall is not None:
        parts.append(
            placed.place(
                figures.samples(run),
                "Unprofiled step times",
                "Step times in the order taken, with the median and its 95 % interval; medians in the table below.",
            )
        )
    if any(step.busy_us for step in run.accounts.steps):
        parts.append(
            placed.place(
                figures.profiled_steps(run),
                "Addressable share in each profiled step",
                "The interval of the addressable share of busy in each profiled step; the table below has the numbers.",
            )
        )
    pictures = f'<div class="two">{"".join(f"<div>{part}</div>" for part in parts)}</div>' if parts else ""
    return section("times", "Step times", pictures, _wall_table(run), _steps_table(run))


def _wall_table(run: Run) -> str:
    if run.wall is None:
        return hint("No unprofiled step time was measured, so no share of wall is given.")
    clocks = (("device events", run.wall.device), ("host clock", run.wall.host), ("CUDA graph replay", run.wall.graph))
    rows = [
        (
            name,
            units.microseconds(times.median_us),
            units.microseconds_range(times.low_us, times.high_us) if len(times.samples_us) > 1 else units.DASH,
            units.count(len(times.samples_us)),
            escape(times.method),
        )
        for name, times in clocks
        if times is not None
    ]
    note = "" if run.wall.graph is not None else hint(facts.graph_line(run))
    distortion = units.significant(run.accounts.distortion) if run.accounts.distortion is not None else units.DASH
    columns = ["clock", ">median", ">95 % of the median", ">samples", "method"]
    return (
        table("Unprofiled step", columns, rows)
        + note
        + hint(f"Distortion, profiled span over unprofiled wall: {distortion}.")
    )


def _steps_table(run: Run) -> str:
    rows = [
        (
            escape(row["step"]),
            units.count(row["launches"]),
            units.microseconds(row["span_us"]),
            units.microseconds(row["busy_us"]),
            units.microseconds(row["gap_us"]),
            units.microseconds(row["overlap_us"]),
            units.microseconds(row["residual_us"]),
            units.percent_range(row["share_low"], row["share_high"], units.DASH) if row["busy_us"] else units.DASH,
        )
        for row in tables.steps(run).to_dict("records")
    ]
    if not rows:
        return ""
    columns = ["step", ">launches", ">span", ">busy", ">gaps", ">overlap", ">residual", ">addressable of busy"]
    return table(f"Profiled steps, policy {run.addressable.policy}", columns, rows)


# --- environment and trace ----------------------------------------------------------------------------------


def _environment(run: Run) -> str:
    environment = run.environment
    if environment is None:
        text = "The trace does not say which versions and settings it was recorded with."
        return section("environment", "Environment", f"<p>{escape(facts.device(run))}. {text}</p>")
    pairs = [
        ("device", environment.device),
        ("memory", units.bytes_(environment.device_memory_bytes, "")),
        ("multiprocessors", units.count(environment.multiprocessors, "")),
        ("L2", units.bytes_(environment.l2_bytes, "")),
        ("driver", environment.driver),
        ("host CPU", environment.host_cpu),
        ("Python", environment.python),
        ("platform", environment.platform),
        ("parameters", units.quantity(run.parameters, missing="")),
        ("peak device memory", units.bytes_(run.peak_memory_bytes, "")),
        *facts.facts_extra(run),
    ]
    left = "<h3>Machine and model</h3>" + definitions(pairs)
    right = (
        "<h3>Versions</h3>"
        + definitions(sorted(environment.versions.items()))
        + "<h3>Settings in force</h3>"
        + (definitions(sorted(environment.settings.items())) or "<p>none recorded</p>")
    )
    columns = f'<div class="two"><div>{left}</div><div>{right}</div></div>'
    return section("environment", "Environment", columns, _states(environment.states))


def _states(states: Sequence[DeviceState]) -> str:
    def megahertz(clock: int | None) -> str:
        return units.DASH if clock is None else f"{units.count(clock)} MHz"

    rows = [
        (
            escape(state.when),
            megahertz(state.sm_clock_mhz),
            megahertz(state.memory_clock_mhz),
            units.DASH if state.temperature_c is None else f"{state.temperature_c} °C",
            units.DASH if state.power_w is None else f"{units.significant(state.power_w)} W",
            escape(", ".join(state.throttle_reasons) or "none"),
            units.DASH if state.other_processes is None else units.count(state.other_processes),
        )
        for state in states
    ]
    if not rows:
        return ""
    columns = ["when", ">SM clock", ">memory clock", ">temperature", ">power", "throttled by", ">other processes"]
    return table("Device state, read and never set", columns, rows)


def _trace(run: Run) -> str:
    losses = [
        (escape(loss.what), units.count(loss.count), escape(loss.remedy) or units.DASH) for loss in run.grade.losses
    ]
    lost = (
        table("Lost or unusable", ["what", ">how many", "recorder setting that mends it"], losses)
        if losses
        else hint("Nothing of the trace was lost.")
    )
    pairs = [
        ("trace", facts.trace_line(run)),
        ("window", run.window),
        ("saved", f"{run.created} by addrfrac {run.version}"),
    ]
    command = (
        "<h3>Command</h3>"
        f'<div class="command"><code id="command">{escape(run.command)}</code>'
        '<button type="button" data-copy="command">Copy</button></div>'
    )
    notes = "<h3>Notes</h3>" + bullets(run.notes) if run.notes else ""
    return section("trace", "Trace and notes", definitions(pairs), lost, notes, command)
