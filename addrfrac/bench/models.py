"""From the suite to the model: what wins in a suite would give end to end, as the study projects it.

The study (arXiv 2609.21058) multiplies three numbers: the share of a step that replacement kernels reach, the share
of problems on which a kernel wins, and what a median win saves, 1 - 1 / median. It takes for granted that the sites of
a model are won as often and by as much as the problems of a suite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from addrfrac import store
from addrfrac.bench.records import Score, Suite
from addrfrac.records import Op, Range, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What one score would give one model."""

    model: str
    score: str
    """Solution set, size and index distribution."""
    over: str
    """'eager' or 'the best baseline'."""
    median: float
    """Of the problems that are verified and faster beyond the noise."""
    win_rate: float
    share: Range
    """Of the step's busy time that is replaceable under the run's policy."""
    embedding_share: float | None
    """Of the step's device time that is embedding lookups."""
    saved: Range
    """Share of the step's time."""

    @property
    def speedup(self) -> Range:
        """Of the whole step."""
        return Range(low=_speedup(self.saved.low), high=_speedup(self.saved.high))


def saved_share(share: float, win_rate: float, median: float) -> float:
    """Share of a step's time that the wins save: 0.582 x 0.417 x (1 - 1 / 1.552) = 8.63 % is the study's for DLRM.

    A median below 1 saves nothing: nobody would put such kernels in. Raises ValueError for what is no share or speedup.
    """
    if not (0.0 <= share <= 1.0 and 0.0 <= win_rate <= 1.0 and median > 0.0):
        raise ValueError(f"shares from 0 to 1 and a speedup above 0, not {share}, {win_rate}, {median}")
    return share * win_rate * max(0.0, 1.0 - 1.0 / median)


def projections(suite: Suite, models: Sequence[tuple[str, Run]]) -> list[Projection]:
    """Every score projected onto every model, over eager and over the best baseline."""
    return [
        found
        for name, run in models
        for score in suite.scores
        for over in ("eager", "the best baseline")
        if (found := _projection(name, run, score, over)) is not None
    ]


def _projection(name: str, run: Run, score: Score, over: str) -> Projection | None:
    centre = score.median_win_over_eager if over == "eager" else score.median_win_over_best
    wins = score.wins_over_eager if over == "eager" else score.wins_over_best
    share = run.addressable.share_of_busy
    if wins.value is None or share.low is None or share.high is None:
        return None
    median = centre.value if centre.value is not None else 1.0
    ids = "" if score.indices == "-" else f", {score.indices}"
    return Projection(
        model=name,
        score=f"{score.solution}, {score.size}{ids}",
        over=over,
        median=median,
        win_rate=wins.value,
        share=share,
        embedding_share=embedding_share(run),
        saved=Range(low=saved_share(share.low, wins.value, median), high=saved_share(share.high, wins.value, median)),
    )


def embedding_share(run: Run) -> float | None:
    """Of all kernels' device time that of embedding lookups and their backward; None where nothing ran."""
    whole = sum(kernel.device_us for kernel in run.kernels)
    mine = sum(kernel.device_us for kernel in run.kernels if kernel.op is Op.EMBEDDING)
    return mine / whole if whole > 0 else None


def _speedup(saved: float | None) -> float | None:
    return None if saved is None else 1.0 / (1.0 - saved) if saved < 1.0 else float("inf")


def load_models(paths: Sequence[str]) -> list[tuple[str, Run]]:
    """Saved runs with a name each. Raises AddrfracError for what is none."""
    places = [(path, Path(path).resolve()) for path in paths]
    return [(whole.name if whole.is_dir() else whole.parent.name, store.load(Path(path))) for path, whole in places]


def model_lines(suite: Suite, paths: Sequence[str]) -> list[str]:
    """The section for a terminal; nothing where no model was given."""
    found = projections(suite, load_models(paths))
    if not found:
        return []
    lines = ["from the suite to the model: share x win rate x (1 - 1 / median win), as the study projects"]
    for one in found:
        lines += [
            f"  {one.model}, {one.score}, over {one.over}",
            f"    {percent(one.share)} reachable x {100 * one.win_rate:.0f} % won x (1 - 1 / {one.median:.2f})"
            f" = {percent(one.saved)} saved, {speedup_words(one.speedup)}",
        ]
    return [*lines, "  " + NOT_YET, ""]


NOT_YET = "projected only: what verified sites give and what was measured stand in a substituted run"


def percent(share: Range) -> str:
    """A share or its interval."""
    low, high = 100 * (share.low or 0.0), 100 * (share.high or 0.0)
    return f"{low:.1f} %" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f}-{high:.1f} %"


def speedup_words(speedup: Range) -> str:
    """A speedup or its interval."""
    low, high = speedup.low or 1.0, speedup.high or 1.0
    return f"{low:.3f}x" if f"{low:.3f}" == f"{high:.3f}" else f"{low:.3f}-{high:.3f}x"
