"""Runs in, compact GitHub markdown for a pull request out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from addrfrac import units
from addrfrac.records import Diff, DiffRow, KernelRow, Run, WhatIf
from addrfrac.report import applications, breakdowns, ceilings, facts, headroom, ladders, tables
from addrfrac.report.breakdowns import Listing
from addrfrac.report.names import clipped, clipped_middle, one_line, short_kernel

TOP_KERNELS = 10
NAME_WIDTH = 90
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~@&])")


def render_markdown(runs: Sequence[Run]) -> str:
    """One run's report, or a comparison of several."""
    blocks = _run(runs[0]) if len(runs) == 1 else _comparison(runs)
    return "\n\n".join(block for block in blocks if block) + "\n"


def plain(text: str) -> str:
    """Text from outside as markdown that reads as itself, on one line."""
    return _SPECIAL.sub(r"\\\1", one_line(text))


def code(text: str) -> str:
    """Text from outside as a code span, safe inside a table."""
    text = one_line(text)
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    padding = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{padding}{text}{padding}{fence}".replace("|", "\\|")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of ready cells; a column that starts with '>' is aligned right."""
    if not rows:
        return ""
    head = [column.removeprefix(">") for column in columns]
    rule = ["---:" if column.startswith(">") else "---" for column in columns]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def details(summary: str, body: str) -> str:
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>" if body else ""


# --- one run ------------------------------------------------------------------------------------------------


def _run(run: Run) -> list[str]:
    return [
        f"### {plain(facts.title(run))}",
        plain(facts.device_line(run)),
        *_banners([run]),
        f"**{plain(facts.headline(run))}**",
        _policies(run),
        "\n".join(f"- {word}: {plain(text)}" for word, text in _answer_lines(run) if text),
        _classes(run),
        *_breakdowns(run),
        *_ladder(run),
        *_applied(run),
        *_ceilings(run),
        *_floors(run),
        _kernels(run),
        _notes(run),
    ]


def _banners(runs: Sequence[Run]) -> list[str]:
    texts = [f"**RECORDED.** {plain(text)}" for text in dict.fromkeys(map(facts.recorded_line, runs)) if text]
    texts += [f"**CPU RUN.** {plain(text)}" for text in dict.fromkeys(map(facts.cpu_line, runs)) if text]
    return [f"> {text}" for text in texts]


def _policies(run: Run) -> str:
    rows = []
    for policy, share in facts.policies(run):
        cells = (
            plain(policy),
            facts.range_percent(share.share_of_busy, units.DASH),
            facts.range_percent(share.share_of_wall, units.DASH),
            facts.ceiling(share.speedup_of_busy, share.share_of_busy, units.DASH),
            facts.ceiling(share.speedup_of_wall, share.share_of_wall, units.DASH),
        )
        rows.append([f"**{cell}**" for cell in cells] if policy == run.addressable.policy else list(cells))
    return table(["policy", ">of busy", ">of wall", ">ceiling of busy", ">ceiling of wall"], rows)


def _answer_lines(run: Run) -> list[tuple[str, str]]:
    return [
        ("step", "; ".join(text for text in (facts.step_line(run), facts.graph_line(run)) if text)),
        ("rate", "" if facts.throughput(run) is None else facts.throughput_text(run)),
        ("busy", facts.busy_line(run)),
        ("host", facts.host_line(run)),
        ("note", facts.distortion_line(run)),
        ("depth", facts.extrapolation_line(run)),
    ]


def _classes(run: Run) -> str:
    if not run.accounts.span_us:
        return ""
    merged = {(row["op"], row["bound"]): row for row in tables.classes(run).to_dict("records")}
    rows = []
    for row in tables.accounts(run).to_dict("records"):
        members = merged.get((row["part"], row["bound"]))
        rows.append(
            [
                {"overlap": "two classes at once", "gap": f"gap: {row['part']}"}.get(row["kind"], row["part"]),
                plain(members["provider"]) if members else "",
                row["bound"],
                "" if row["number"] != row["number"] else units.count(row["number"]),
                units.microseconds(row["us"]),
                units.percent(row["share_of_span"]),
            ]
        )
    rows.append(["**profiled span**", "", "", "", f"**{units.microseconds(run.accounts.span_us)}**", "**100 %**"])
    return table(["class, while it ran alone", "owner", "bound", ">launches", ">a step", ">of span"], rows)


def _breakdowns(run: Run) -> list[str]:
    policies = facts.policy_names([run])
    return [block for listing in breakdowns.listings(run, policies) for block in _listing(listing)]


def _listing(listing: Listing) -> list[str]:
    return [f"**{plain(listing.title)}**", _listed(listing), _bullets(listing.notes)]


def _listed(listing: Listing) -> str:
    columns = [plain_column(column) for column in listing.columns]
    return table(columns, [[plain(cell) for cell in row] for row in listing.rows])


def _paragraphs(*blocks: str) -> str:
    return "\n\n".join(block for block in blocks if block)


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {plain(line)}" for line in lines if line)


def _ladder(run: Run) -> list[str]:
    if run.ladder is None:
        return []
    ladder = run.ladder
    skipped = [f"{name}: {reason}" for name, reason in ladders.inapplicable(ladder)]
    return [
        f"#### Free switches\n\n{plain(' '.join(ladders.words(run)))}",
        _listed(ladders.arms(run, narrow=False)),
        _listing(ladders.climbed(run))[1],
        details(
            "Every rung that was measured",
            _paragraphs(_listed(ladders.tried(run)), plain(ladders.parity_methods(ladder))),
        ),
        details("Not tried here", _bullets(skipped)),
        _bullets([ladders.noise_line(ladder), *ladder.notes]),
    ]


def _applied(run: Run) -> list[str]:
    if run.applied is None:
        return []
    return [
        f"#### Kernels in the model\n\n{plain(' '.join(applications.words(run.applied)))}",
        *(_listed(listing) for listing in applications.listings(run)),
        _bullets(run.applied.notes),
    ]


def _ceilings(run: Run) -> list[str]:
    last = ceilings.last_word(run)
    blocks = []
    for each in ceilings.ceilings(run):
        said = f"{plain(' '.join(ceilings.words(each)))}"
        graph = ceilings.graph_line(each)
        why = [f"{what}: {text}" for what, text in ceilings.explanations(each)]
        body = [_listed(ceilings.wide(each)), _bullets([graph, *each.notes, *why])]
        if each is last:
            blocks += [f"#### {plain(ceilings.title(each))}\n\n{said}", *body]
        else:
            blocks.append(details(plain(ceilings.title(each)), _paragraphs(said, *body)))
    return blocks


def _floors(run: Run) -> list[str]:
    floors = run.floors
    if floors is None:
        return []
    listing = headroom.listing(floors, narrow=False)
    rows = [
        [code(clipped_middle(short_kernel(row.name), NAME_WIDTH)), *map(plain, texts[1:])]
        for row, texts in zip(floors.rows, listing.rows, strict=False)
    ]
    return [
        f"#### Floors and headroom\n\n{plain(' '.join(headroom.words(run, floors)))}",
        _bullets([f"{word}: {text}" for word, text in headroom.floor_lines(floors)]),
        table([plain_column(column) for column in listing.columns], rows),
        _bullets(
            [*listing.notes, f"the card, as measured: {headroom.device_line(floors.device_model)}", *floors.notes]
        ),
    ]


def _kernels(run: Run) -> str:
    shown = run.kernels[:TOP_KERNELS]
    columns = [facts.kernel_noun(run), "bound", "owner", "computes", "why", ">launches", ">a step", ">of busy"]
    summary = f"Top {len(shown)} of {len(run.kernels)} {facts.kernel_noun(run)}s"
    return details(summary, table(columns, [_kernel(row) for row in shown]))


def _kernel(row: KernelRow) -> list[str]:
    return [
        code(clipped_middle(short_kernel(row.name), NAME_WIDTH)),
        row.bound,
        plain(row.provider),
        row.op,
        plain(f"{row.op_rule}, {row.provider_rule}; {row.certainty}"),
        units.count(row.launches),
        units.microseconds(row.device_us),
        units.percent(row.share_of_busy),
    ]


def _notes(run: Run) -> str:
    lines = [facts.trace_line(run), run.window, *(f"lost: {text}" for text in facts.losses(run)), *run.notes]
    listed = "\n".join(f"- {plain(line)}" for line in lines)
    return details("Trace, notes, command", f"{listed}\n\n{code(run.command)}")


# --- several runs -------------------------------------------------------------------------------------------


def _comparison(runs: Sequence[Run]) -> list[str]:
    runs = facts.ordered(runs)
    labels = facts.labels(runs)
    commands = "\n".join(f"- {plain(label)}: {code(run.command)}" for run, label in zip(runs, labels, strict=True))
    return [
        f"### {plain(facts.comparison_title(runs))}",
        *_banners(runs),
        headline_table(runs, [plain(label) for label in labels]),
        *(block for run in runs if run.ranks is not None for block in _breakdowns(run)),
        _class_columns(runs, labels),
        details("Commands", commands),
    ]


def headline_table(runs: Sequence[Run], first_cells: Sequence[str]) -> str:
    """The headline figures, one row a run behind ready first cells."""
    policies = facts.policy_names(runs)
    ends = ladders.end_columns(runs)
    rows = []
    for run, first in zip(runs, first_cells, strict=True):
        rows.append([first, *facts.headline_cells(run, policies), *(ladders.end_cells(run) if ends else [])])
        if run.extrapolation is not None:
            rows.append(
                [
                    plain(facts.extrapolated_title(run)),
                    *facts.extrapolated_cells(run, policies),
                    *[units.DASH] * len(ends),
                ]
            )
    return table(["run", *map(plain_column, [*facts.headline_columns(policies), *ends])], rows)


def plain_column(column: str) -> str:
    return f">{plain(column[1:])}" if column.startswith(">") else plain(column)


def _class_columns(runs: Sequence[Run], labels: Sequence[str]) -> str:
    rows = [
        [op, bound, *(units.microseconds(us, units.DASH) for us in times)]
        for (op, bound), times in tables.class_rows(tables.classes_of_all(runs))
    ]
    return table(["device time a step", "bound", *(f">{plain(clipped(label, 40))}" for label in labels)], rows)


# --- diff and what-if ---------------------------------------------------------------------------------------


def render_diff(record: Diff) -> str:
    """What moved between two runs."""
    slowdown = units.signed_percent_range(record.slowdown.low, record.slowdown.high, "no interval")
    shares = [
        [plain(policy), facts.range_percent(before, units.DASH), facts.range_percent(after, units.DASH)]
        for policy, (before, after) in record.shares.items()
    ]
    blocks = [
        f"### {plain(record.before)} → {plain(record.after)}",
        f"**The step is {record.step.verdict}**: {facts.moved(record.step)}; 95 % of the change {slowdown}. "
        f"Compared are {plain(record.basis)}.",
        table(["addressable share of busy", ">before", ">after"], shares),
        _diff_rows("class", record.classes),
        _diff_rows("gap", record.gaps),
        details(f"{TOP_KERNELS} kernels that moved most", _diff_rows("kernel", record.kernels[:TOP_KERNELS])),
        "\n".join(f"- {plain(note)}" for note in record.notes),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _diff_rows(what: str, rows: Sequence[DiffRow]) -> str:
    cells = [
        [
            code(clipped_middle(short_kernel(row.name), NAME_WIDTH)),
            units.microseconds(row.before_us, units.DASH),
            units.microseconds(row.after_us, units.DASH),
            units.signed_microseconds(row.change_us),
            units.signed_microseconds_range(row.interval_us.low, row.interval_us.high, units.DASH),
            row.verdict,
        ]
        for row in rows
    ]
    return table([what, ">before", ">after", ">change", ">95 % of the change", "verdict"], cells)


def render_what_if(record: WhatIf) -> str:
    """What a step would cost if some kernels were faster."""
    rows = [
        [
            code(row.what),
            units.speedup(row.speedup),
            units.count(row.kernels),
            units.microseconds(row.device_us),
            units.microseconds_range(row.saved_us.low, row.saved_us.high, units.DASH),
        ]
        for row in record.rows
    ]
    blocks = [
        f"### What if: {plain(record.title)}",
        "\n".join(f"- {word}: {text}" for word, text in facts.what_if_lines(record)),
        table(["assumed", ">faster", ">kernels", ">time a step", ">would save"], rows),
        "\n".join(f"- {plain(note)}" for note in record.notes),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"
