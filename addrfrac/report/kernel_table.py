"""Kernels of one or several runs in, the sortable and filterable table of a page out (drawn by page.js)."""

from __future__ import annotations

from collections.abc import Sequence

from addrfrac import units
from addrfrac.records import Certainty, KernelRow, Run
from addrfrac.report import facts
from addrfrac.report.markup import data, escape, hint, section
from addrfrac.report.names import clipped, one_line, short_kernel

CERTAINTY_WORDS = {
    Certainty.AGREE: "name + op",
    Certainty.NAME: "name only",
    Certainty.OP: "op only",
    Certainty.CONFLICT: "conflict",
}
KERNELS_OF_EACH = 25
"""Kernels that a comparison lists for each of its runs; a run's own page lists all."""


def kernels_section(runs: Sequence[Run]) -> str:
    """The place of the table; the script fills it from `kernels_data`."""
    noun = f"{facts.kernel_noun(runs[0])}s"
    if not any(run.kernels for run in runs):
        return section("kernels", noun.capitalize(), f"<p>No {noun} in this window.</p>")
    caption = f"{noun.capitalize()}, means a step" + (
        f"; the {KERNELS_OF_EACH} largest of each run" if len(runs) > 1 else ""
    )
    policy = escape(runs[0].addressable.policy)
    return section(
        "kernels",
        noun.capitalize(),
        f'<div id="kernel-table" data-caption="{escape(caption)}" data-policy="{policy}"></div>',
        hint(
            "Open a row for its rules, op stack and evidence. Shares of busy can sum above 100 % where kernels overlap."
        ),
    )


def kernels_data(runs: Sequence[Run]) -> list[str]:
    """The table's rows as a script element; none where no kernel ran."""
    limit = None if len(runs) == 1 else KERNELS_OF_EACH
    labels = [""] if len(runs) == 1 else facts.labels(runs)
    rows = [(row, label) for run, label in zip(runs, labels, strict=True) for row in run.kernels[:limit]]
    if not rows:
        return []
    policies = list(dict.fromkeys(policy for row, _ in rows for policy in row.bounds))
    texts = Texts()
    content = {
        "noun": facts.kernel_noun(runs[0]),
        "policies": [one_line(policy) for policy in policies],
        "rows": [_kernel(row, label, policies, texts) for row, label in rows],
        "texts": texts.known,
    }
    return [data("kernel-rows", content)]


class Texts:
    """Each distinct text once, by number: names, rules and op stacks repeat, and pages are published in numbers."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(one_line(text), len(self.numbers))

    @property
    def known(self) -> list[str]:
        return list(self.numbers)


def _kernel(row: KernelRow, label: str, policies: Sequence[str], texts: Texts) -> list[Sequence[float]]:
    """One row for the script, texts by number: [columns and name, figures to sort by, their texts, bounds, evidence].

    page.js knows this order (`unpacked`).
    """
    columns = (label, row.name, clipped(short_kernel(row.name), 160), row.op, row.provider, row.bound, row.phase)
    figures = [row.launches, row.device_us, row.share_of_busy]
    shown = (
        units.count(row.launches),
        units.microseconds(row.device_us),
        units.percent(row.share_of_busy),
        CERTAINTY_WORDS[row.certainty],
    )
    bounds = [texts.number(row.bounds.get(policy, row.bound)) for policy in policies]
    return [
        [texts.number(text) for text in columns],
        [float(f"{figure:.6g}") for figure in figures],
        [texts.number(text) for text in shown],
        bounds,
        [texts.number(text) for pair in _evidence(row) for text in pair],
    ]


def _evidence(row: KernelRow) -> list[tuple[str, str]]:
    """Everything known of a kernel as term and text; what is not known is left out."""
    steps = ", ".join(units.microseconds(us) for us in row.device_us_by_step[:20])
    pairs = [
        ("name", row.name),
        ("owner", f"{row.provider} ({row.incumbent}), by rule {row.provider_rule}"),
        ("computes", f"{row.op} ({row.role}), by rule {row.op_rule}"),
        ("certainty", str(row.certainty)),
        ("under policies", ", ".join(f"{policy}: {bound}" for policy, bound in row.bounds.items())),
        ("launched by", row.launching_op or ""),
        ("op stack", " › ".join(row.op_stack)),
        ("fused ops", ", ".join(row.fused_ops)),
        ("evidence", "; ".join(row.evidence)),
        ("inputs", row.inputs),
        ("median launch", units.microseconds(row.median_launch_us)),
        ("queued gaps before it", f"{units.microseconds(row.queued_gap_us)} a step" if row.queued_gap_us else ""),
        ("time by step", steps + (", …" if len(row.device_us_by_step) > 20 else "")),
    ]
    return [(term, one_line(text)) for term, text in pairs if text]
