"""A suite in, its page out: strip plots of speedups, the roofline, every evaluation with its reasons, fast_p."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from addrfrac import units
from addrfrac.bench import models, table
from addrfrac.bench.records import Centre, Evaluation, Score, Share, Suite
from addrfrac.records import Gain, Verdict
from addrfrac.report.document import Figures, Shared, document
from addrfrac.report.markup import bullets, escape, section
from addrfrac.report.markup import table as markup_table
from addrfrac.store import write_whole

if TYPE_CHECKING:
    import plotly.graph_objects as go

ROW = 24
"""Pixels of a problem in a strip plot."""
FASTER, SLOWER, LEVEL = "#2e8f7d", "#c2541e", "#8b95a3"
SERIES = ("#2e8f7d", "#2f6db5", "#c2541e", "#8a5fb5", "#7a7f36", "#b8457a")
COLOURS = {Verdict.FASTER: FASTER, Verdict.SLOWER: SLOWER, Verdict.SAME: LEVEL, Verdict.INCONCLUSIVE: LEVEL}
OVER = (("over the best baseline", "over_best"), ("over eager", "over_eager"), ("over the library", "over_library"))


def write(suite: Suite, path: Path, runs: Sequence[str] = ()) -> None:
    """The page as a file of its own."""
    write_whole(path, page_of(suite, runs).encode())


def page_of(suite: Suite, runs: Sequence[str] = (), shared: Shared | None = None) -> str:
    """The page as text; it needs no network, and no other file unless `shared` says so."""
    figures = Figures(_subject(suite))
    sections = [
        ("scores", "Scores", section("scores", "What the suite says", _scores(suite), _samples(suite))),
        ("speedups", "Speedups", section("speedups", "Speedups with their 95 % intervals", *_strips(suite, figures))),
        ("fast", "fast_p", section("fast", "Right and more than p times as fast as eager", *_fast(suite, figures))),
        ("roofline", "Roofline", section("roofline", "What the device allows", *_roofline(suite, figures))),
        ("problems", "Every problem", section("problems", "Every evaluation", *_evaluations(suite))),
        ("reasons", "Reasons", section("reasons", "What failed or is missing, in words", _reasons(suite))),
    ]
    projected = _projected(suite, runs)
    if projected:
        sections.insert(4, ("models", "Models", section("models", "From the suite to the model", projected)))
    sections.append(("notes", "Notes", section("notes", "How it was measured", bullets(_notes(suite)))))
    return document("DLRM-Bench", _header(suite), sections, figures.scripts, shared)


def _subject(suite: Suite) -> str:
    device = suite.environment.device if suite.environment is not None else "unknown device"
    return f"{device}, TF32 allowed to all, addrfrac {suite.version}"


def _header(suite: Suite) -> str:
    lines = []
    for score in suite.scores:
        lines.append(
            f"{_named(score)}: {score.passed.hits} of {score.passed.total} verified, "
            f"{table.share_words(score.wins_over_best)} faster than the best baseline, "
            f"{table.centre_words(score.median_over_best, 'median')} over it and "
            f"{table.centre_words(score.median_over_eager, 'median')} over eager."
        )
    plain = "".join(f"<p class='plainly'>{escape(line)}</p>" for line in lines or ["Nothing was evaluated."])
    device = suite.environment.device if suite.environment is not None else ""
    return f"<h1>DLRM-Bench</h1><p>{escape(device)} · {escape(suite.created)}</p>{plain}"


def _named(score: Score) -> str:
    ids = "" if score.indices == "-" else f", {score.indices} ids"
    return f"{score.solution}, {score.size}{ids}"


def _share(share: Share) -> str:
    return escape(table.share_words(share))


def _centre(centre: Centre) -> str:
    return escape(table.centre_words(centre, "").strip())


def _scores(suite: Suite) -> str:
    rows = [
        [
            escape(_named(score)),
            _share(score.passed),
            _share(score.wins_over_eager),
            _share(score.wins_over_best),
            _share(score.wins_over_library),
            _centre(score.median_over_eager),
            _centre(score.geometric_mean_over_eager),
            _centre(score.median_over_best),
            _centre(score.geometric_mean_over_best),
            _centre(score.geometric_mean_fixed),
        ]
        for score in suite.scores
    ]
    columns = [
        "solutions",
        "verified",
        "faster than eager",
        "faster than the best",
        "faster than the library",
        ">median over eager",
        ">geometric mean",
        ">median over the best",
        ">geometric mean",
        ">over eager, failures as 1",
    ]
    return markup_table("Shares of all problems with Wilson intervals; middles over problems, bootstrap", columns, rows)


def _samples(suite: Suite) -> str:
    rows = [
        [escape(solution), k, f"{100 * chance:.0f} %", _centre(suite.best_of.get(solution, {}).get(k, _NONE))]
        for solution, chances in suite.pass_at_k.items()
        for k, chance in chances.items()
    ]
    columns = ["solutions", ">k", ">pass@k", ">median of the best of k over eager"]
    return markup_table("Several samples a problem", columns, rows) if rows else ""


_NONE = Centre(value=None, low=None, high=None, count=0)


# --- figures --------------------------------------------------------------------------------------------------


def _strips(suite: Suite, figures: Figures) -> Iterable[str]:
    any_drawn = False
    for words, name in OVER:
        for solution, size in dict.fromkeys((e.solution, e.size) for e in suite.evaluations):
            rows = [e for e in suite.evaluations if (e.solution, e.size) == (solution, size) and _gain(e, name)]
            if rows:
                any_drawn = True
                title = f"{solution}, {size}: {words}"
                yield figures.place(_strip(rows, name), title, f"Speedup of every problem {words}, with intervals")
    if not any_drawn:
        yield "<p>Nothing was timed.</p>"


def _gain(row: Evaluation, name: str) -> Gain | None:
    found: Gain | None = getattr(row, name)
    return found


def _label(row: Evaluation) -> str:
    ids = "" if row.indices == "-" else f" {row.indices}"
    return f"{row.number:02d} {row.problem}{ids}"


def _strip(rows: Sequence[Evaluation], name: str) -> go.Figure:
    from addrfrac.report.figures import MUTED, blank, safe_text

    ordered = sorted(rows, key=lambda row: (row.number, row.indices, row.sample), reverse=True)
    figure = blank(height=110 + ROW * len(ordered))
    for verdict in Verdict:
        for counts in (True, False):
            mine = [
                (row, gain)
                for row in ordered
                if (gain := _gain(row, name)) is not None
                and gain.verdict is verdict
                and (row.judged.passed and not row.failure) is counts
            ]
            if mine:
                figure.add_scatter(
                    x=[gain.speedup for _, gain in mine],
                    y=[safe_text(_label(row)) for row, _ in mine],
                    mode="markers",
                    name=f"{verdict}" if counts else f"{verdict}, not verified",
                    marker={
                        "color": COLOURS[verdict],
                        "size": 9,
                        "symbol": "circle" if counts else "circle-open",
                    },
                    error_x={
                        "type": "data",
                        "symmetric": False,
                        "array": [max(0.0, gain.high - gain.speedup) for _, gain in mine],
                        "arrayminus": [max(0.0, gain.speedup - gain.low) for _, gain in mine],
                        "thickness": 1.5,
                        "color": COLOURS[verdict],
                    },
                    customdata=[
                        f"<b>{safe_text(_label(row))}</b><br>{gain.speedup:.3f}x ({gain.low:.3f}-{gain.high:.3f}), "
                        f"{safe_text(gain.before)} against {safe_text(gain.after)}"
                        for row, gain in mine
                    ],
                    hovertemplate="%{customdata}<extra></extra>",
                )
    figure.add_vline(x=1.0, line={"color": MUTED, "width": 1.5, "dash": "dash"})
    highs = [gain.high for row in ordered if (gain := _gain(row, name))]
    lows = [gain.low for row in ordered if (gain := _gain(row, name))]
    ticks = [t for t in (0.01, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64) if min(lows) / 1.5 <= t <= max(highs) * 1.5]
    figure.update_layout(showlegend=True)
    figure.update_xaxes(
        type="log",
        title_text="times as fast",
        tickvals=ticks,
        ticktext=[f"{t:g}x" for t in ticks],
    )
    figure.update_yaxes(
        type="category",
        categoryorder="array",
        categoryarray=list(dict.fromkeys(safe_text(_label(row)) for row in ordered)),
        range=[-0.7, len({_label(row) for row in ordered}) - 0.3],
    )
    return figure


def _fast(suite: Suite, figures: Figures) -> Iterable[str]:
    if not suite.scores:
        yield "<p>Nothing was evaluated.</p>"
        return
    from addrfrac.report.figures import blank, safe_text

    figure = blank(height=320)
    for number, score in enumerate(suite.scores):
        figure.add_scatter(
            x=[float(p) for p in score.fast_p],
            y=[100 * share for share in score.fast_p.values()],
            mode="lines+markers",
            name=safe_text(_named(score)),
            line={"color": SERIES[number % len(SERIES)], "shape": "hv"},
            hovertemplate="more than %{x:g}x: %{y:.0f} %<extra></extra>",
        )
    figure.update_layout(showlegend=True)
    ticks = [float(p) for p in suite.scores[0].fast_p]
    figure.update_xaxes(type="log", title_text="p", tickvals=ticks, ticktext=[f"{p:g}" for p in ticks])
    figure.update_yaxes(title_text="% of all problems", range=[0, 103])
    yield figures.place(figure, "fast_p", "Share of problems that are right and more than p times as fast as eager")


def _roofline(suite: Suite, figures: Figures) -> Iterable[str]:
    points = _points(suite)
    model = suite.device_model
    if not points or model is None:
        yield (
            "<p>No roofline: it needs a measured device. <code>addrfrac device -o device.json</code> measures one, "
            "<code>addrfrac bench dlrm --floors device.json</code> takes it.</p>"
        )
        return
    from addrfrac.report.bounds_figures import _memory_roof, _name_of_roof, _powers, _roof
    from addrfrac.report.figures import PAPER, blank, safe_text

    figure = blank(height=430)
    left, right = min(x for x, _, _ in points) / 3, max([x for x, _, _ in points] + [400.0]) * 3
    for fit in model.fits:
        if fit.access == "stream":
            _memory_roof(figure, fit, model, left, right)
    for number, peak in enumerate(model.peaks):
        _roof(figure, [left, right], [peak.tflops] * 2, f"{peak.dtype} matrix peak", "dash")
        _name_of_roof(figure, left * 4.5**number, peak.tflops, f"{peak.dtype} matrix peak", "top right")
    for number, name in enumerate(dict.fromkeys((row.solution, row.size) for _, _, row in points)):
        mine = [(x, y, row) for x, y, row in points if (row.solution, row.size) == name]
        figure.add_scatter(
            x=[x for x, _, _ in mine],
            y=[y for _, y, _ in mine],
            mode="markers",
            name=safe_text(", ".join(name)),
            marker={"color": SERIES[number % len(SERIES)], "size": 10, "line": {"color": PAPER, "width": 1}},
            customdata=[
                f"<b>{safe_text(_label(row))}</b><br>{y:.3g} TFLOP/s at {x:.3g} flops a byte" for x, y, row in mine
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    figure.update_layout(showlegend=True, hovermode="closest")
    figure.update_xaxes(type="log", title_text="flops a byte that must move", **_powers(left, right))
    top = max([y for _, y, _ in points] + [peak.tflops for peak in model.peaks])
    figure.update_yaxes(
        type="log", title_text="TFLOP/s achieved", **_powers(min(y for _, y, _ in points) / 2, top * 1.5)
    )
    yield figures.place(figure, "Roofline of the solutions", "Achieved rate of every problem over its intensity")
    yield "<p>Problems without flops (copies, gathers of ids) are in the table alone, as a share of their floor.</p>"


def _points(suite: Suite) -> list[tuple[float, float, Evaluation]]:
    """(flops a byte, TFLOP/s, evaluation) of what was timed and computes."""
    found = []
    for row in suite.evaluations:
        times = {arm.arm: arm for arm in row.arms}.get(row.over_best.after) if row.over_best else None
        if times is not None and row.flops and row.bytes and times.median_us > 0:
            found.append((row.flops / row.bytes, row.flops / times.median_us / 1e6, row))
    return found


# --- tables ---------------------------------------------------------------------------------------------------


def _evaluations(suite: Suite) -> Iterable[str]:
    columns = [
        "problem",
        "verdict",
        ">error",
        ">eager us",
        "best baseline",
        ">us",
        ">library us",
        ">solution us",
        ">over eager",
        ">over the best",
        ">over the library",
        ">% of floor",
        ">memory",
    ]
    for solution, size in dict.fromkeys((e.solution, e.size) for e in suite.evaluations):
        rows = [e for e in suite.evaluations if (e.solution, e.size) == (solution, size)]
        rows.sort(key=lambda row: (row.number, row.indices, row.sample))
        yield markup_table(f"{solution}, {size}: microseconds a call, medians", columns, [_cells(row) for row in rows])


def _cells(row: Evaluation) -> list[str]:
    times = {arm.arm: arm for arm in row.arms}
    mine = times.get(row.over_best.after) if row.over_best else None
    library = times.get(row.over_library.before) if row.over_library else None
    share = table.share_of_floor(row, mine)
    right = row.judged.passed and not row.failure
    word = row.judged.status if row.judged.status != "passed" or right else "failed"
    memory = ""
    if row.peak_bytes and row.baseline_peak_bytes:
        memory = f"{row.peak_bytes / row.baseline_peak_bytes:.2f} of eager's"
    return [
        escape(_label(row) + (f" sample {row.sample}" if row.sample else "")),
        f"<span class='{'faster' if right else 'slower'}'>{escape(word)}</span>",
        "" if row.error is None else f"{row.error:.1e}",
        _us(times.get("eager")),
        escape(row.best_baseline),
        _us(times.get(row.best_baseline)),
        _us(library),
        _us(mine) + (" graph" if mine is not None and mine.launch == "graph" else ""),
        _gain_cell(row.over_eager),
        _gain_cell(row.over_best),
        _gain_cell(row.over_library),
        "" if share is None else f"{100 * share:.0f}",
        memory,
    ]


def _us(times: object) -> str:
    from addrfrac.records import ArmTimes

    return units.significant(times.median_us) if isinstance(times, ArmTimes) else ""


def _gain_cell(gain: Gain | None) -> str:
    if gain is None:
        return ""
    kind = {Verdict.FASTER: "faster", Verdict.SLOWER: "slower"}.get(gain.verdict, "")
    text = f"{gain.speedup:.2f}x [{gain.low:.2f}-{gain.high:.2f}]"
    return f"<span class='{kind}'>{text}</span>" if kind else text


def _reasons(suite: Suite) -> str:
    lines = [
        f"{_label(row)}, {row.size}, {row.solution}{f' sample {row.sample}' if row.sample else ''}: {reason}"
        for row in suite.evaluations
        for reason in table.reasons(row)
    ]
    return bullets(lines) if lines else "<p>Nothing: every solution was verified and every arm was timed.</p>"


def _projected(suite: Suite, runs: Sequence[str]) -> str:
    rows = [
        [
            escape(one.model),
            escape(one.score),
            escape(one.over),
            models.percent(one.share),
            "" if one.embedding_share is None else f"{100 * one.embedding_share:.1f} %",
            f"{100 * one.win_rate:.0f} %",
            f"{one.median:.2f}x",
            models.percent(one.saved),
            models.speedup_words(one.speedup),
        ]
        for one in models.projections(suite, models.load_models(runs))
    ]
    columns = [
        "model",
        "solutions",
        "over",
        ">reachable",
        ">embedding",
        ">won",
        ">median win",
        ">saved",
        ">whole step",
    ]
    note = "share of busy time x win rate x (1 - 1 / median win), as arXiv 2609.21058 projects"
    return markup_table(note, columns, rows) + f"<p>{escape(models.NOT_YET)}.</p>" if rows else ""


def _notes(suite: Suite) -> list[str]:
    lines = [
        "every contestant is given the same parameters in the same memory, four sets of inputs in rotation",
        "baselines and solution take turns in blocks; best baseline and best launch are chosen on even blocks and "
        "told of odd ones",
        "intervals: 95 % hierarchical bootstrap over processes and blocks; shares: Wilson; middles: over problems",
        *suite.notes,
    ]
    if suite.command:
        lines.append(f"made by: {suite.command}")
    return lines
