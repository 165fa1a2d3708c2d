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
    if len(runs) == 1:
        rows = [_kernel(row, runs[0]) for row in runs[0].kernels]
    else:
        rows = [
            _kernel(row, run, label)
            for run, label in zip(runs, facts.labels(runs), strict=True)
            for row in run.kernels[:KERNELS_OF_EACH]
        ]
    return [data("kernel-rows", rows)] if rows else []


def _kernel(row: KernelRow, run: Run, label: str = "") -> dict[str, object]:
    """One row for the script: plain values to sort by, texts to show, and the evidence as term and text."""
    return {
        "noun": facts.kernel_noun(run),
        "run": label,
        "name": one_line(row.name),
        "short": clipped(short_kernel(row.name), 160),
        "op": row.op,
        "provider": one_line(row.provider),
        "bound": row.bound,
        "bounds": {one_line(policy): bound for policy, bound in row.bounds.items()},
        "phase": row.phase,
        "launches": row.launches,
        "device_us": row.device_us,
        "share_of_busy": row.share_of_busy,
        "certainty": row.certainty,
        "text": {
            "launches": units.count(row.launches),
            "device_us": units.microseconds(row.device_us),
            "share_of_busy": units.percent(row.share_of_busy),
            "certainty": CERTAINTY_WORDS[row.certainty],
        },
        "detail": _evidence(row),
    }


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
