"""A run's ladder, ceilings and floors in, sections of its page out."""

from __future__ import annotations

from addrfrac import units
from addrfrac.records import Bound, Ceiling, FloorRow, Run
from addrfrac.report import application_figures, applications, bounds_figures, ceilings, headroom, ladders
from addrfrac.report.breakdowns import Listing
from addrfrac.report.document import Figures
from addrfrac.report.markup import bound_mark, bullets, definitions, escape, hint, kernel_name, section, table

Section = tuple[str, str, str]


def sections(run: Run, placed: Figures) -> list[Section]:
    """(id, link text, HTML) of what the run has of ladder, ceilings and floors."""
    found = []
    if run.applied is not None:
        found.append(("kernels-applied", "Kernels in it", _applied(run, placed)))
    if run.ladder is not None:
        found.append(("ladder", "Ladder", _ladder(run, placed)))
    if ceilings.ceilings(run):
        found.append(("ceiling", "Ceiling", _ceilings(run, placed)))
    if run.floors is not None:
        found.append(("floors", "Floors", _floors(run, placed)))
    return found


def _sentences(texts: list[str]) -> str:
    return "".join(f'<p class="plainly">{escape(text)}</p>' for text in texts)


def _folded(summary: str, pairs: list[tuple[str, str]]) -> str:
    """A list that opens on a click."""
    return f"<details><summary>{escape(summary)}</summary>{definitions(pairs)}</details>" if pairs else ""


def _listed(listing: Listing, row_classes: list[str] | None = None) -> str:
    rows = [[escape(cell) for cell in row] for row in listing.rows]
    notes = "".join(hint(note) for note in listing.notes)
    return (table(listing.title, listing.columns, rows, row_classes) if rows else "") + notes


# --- kernels in the model ------------------------------------------------------------------------------------


def _applied(run: Run, placed: Figures) -> str:
    assert run.applied is not None
    applied = run.applied
    note = (
        "Sites are places of the captured model that compute what a kernel computes. A kernel stands only where it was "
        "verified and, on a GPU, faster as it runs in the model: caches evicted, the real producer run, then the site. "
        "One half of the samples chooses, the other is reported."
    )
    picture = (
        placed.place(
            application_figures.waterfall(applied),
            "What each group of sites was to save, and what was measured",
            "Horizontal waterfall from the step without kernels to the step with them; numbers in the tables below.",
        )
        if application_figures.can_draw(applied)
        else ""
    )
    return section(
        "kernels-applied",
        "What kernels are worth in this model",
        _sentences(applications.words(applied)),
        picture,
        *(_listed(listing) for listing in applications.listings(run)),
        hint(note),
        bullets(applied.notes),
    )


# --- ladder -------------------------------------------------------------------------------------------------


def _ladder(run: Run, placed: Figures) -> str:
    assert run.ladder is not None
    ladder = run.ladder
    picture = placed.place(
        bounds_figures.ladder(run),
        "Step time down the ladder of free switches",
        "Horizontal bars of step time: eager, each switch tried in order, best-library; numbers in the table below.",
    )
    arm_classes = ["own" if times.arm == ladders.BEST else "" for times in ladder.arms]
    rung_classes = ["" if rung.kept else "faint" for rung in ladders.measured(ladder)]
    noise = ladders.noise_line(ladder)
    note = (
        "A switch is a change that costs no kernel: another call of a library that is already installed. Each is tried "
        "on top of those kept before it. The arms of this table were measured anew, in processes of their own, so the "
        "best one is not chosen on the samples that it is reported with."
    )
    skipped = ladders.inapplicable(ladder)
    left_out = "<h3>Not tried here</h3>" + definitions(skipped) if skipped else ""
    return section(
        "ladder",
        "What free switches win",
        _sentences(ladders.words(run)),
        picture,
        _listed(ladders.arms(run, narrow=False), arm_classes),
        hint(note + (f" {noise[0].upper()}{noise[1:]}." if noise else "")),
        _listed(ladders.tried(run), rung_classes),
        hint(parity) if (parity := ladders.parity_methods(ladder)) else "",
        left_out,
        bullets(ladder.notes),
    )


# --- ceilings -----------------------------------------------------------------------------------------------


def _ceilings(run: Run, placed: Figures) -> str:
    found = ceilings.ceilings(run)
    last = ceilings.last_word(run) or found[-1]
    note = (
        "The step is captured as a CUDA graph, the nodes of these kernels are deleted and their edges joined, and both "
        "graphs are replayed in turns: gaps, overlap and clocks are in the measured figure. Amdahl's is 1 / (1 − f) on "
        "the profiled shares. A row for what is left when the library calls are removed is no gain: it shows what the "
        "replaceable part costs on its own."
    )
    ordered = [last, *(each for each in found if each is not last)]
    return section(
        "ceiling", "What kernels of no cost would win", *(_ceiling(each, placed) for each in ordered), hint(note)
    )


def _ceiling(ceiling: Ceiling, placed: Figures) -> str:
    picture = ""
    if any(row.gain is not None or row.amdahl_of_busy.low is not None for row in ceiling.rows):
        picture = placed.place(
            bounds_figures.ceiling(ceiling),
            f"Speed-up if kernels were free, above {ceiling.arm}"
            + ("" if ceiling.measured else ": Amdahl only, not measured"),
            "Measured speed-up with its interval beside Amdahl's for each row of the table below.",
        )
    row_classes = [{"all": "own", "complement": "faint"}.get(row.kind, "") for row in ceiling.rows]
    graph = ceilings.graph_line(ceiling)
    return (
        f"<h3>Above {escape(ceiling.arm)}</h3>"
        + _sentences(ceilings.words(ceiling))
        + picture
        + _listed(ceilings.wide(ceiling), row_classes)
        + _folded("Why measured and Amdahl differ, row by row", ceilings.explanations(ceiling))
        + (hint(f"The graph: {graph}.") if graph else "")
    )


# --- floors -------------------------------------------------------------------------------------------------


def _floors(run: Run, placed: Figures) -> str:
    floors = run.floors
    assert floors is not None
    parts = [_sentences(headroom.words(run, floors)), definitions(headroom.floor_lines(floors))]
    if any(row.floor_us.low is not None for row in floors.rows[: headroom.TOP]):
        parts.append(
            placed.place(
                bounds_figures.headrooms(floors),
                "Where device time lies above the floor",
                "Device time of the ten kernels with most headroom, split at the floor; numbers in the table below.",
            )
        )
    if bounds_figures.can_draw_roofline(floors):
        parts.append(
            placed.place(
                bounds_figures.roofline(floors),
                "Roofline of the step",
                "Achieved rate of each kernel over its arithmetic intensity, under the rates this card reached.",
            )
        )
        undrawn = bounds_figures.undrawn(floors)
        parts.append(
            hint(
                f"A larger mark holds more of the step. Left out: {units.plural(undrawn, 'kernel')} without counted "
                "flops or bytes."
            )
        )
    parts.append(_floor_table(floors.rows, headroom.listing(floors, narrow=False, limit=20)))
    parts.append(hint(f"The card, as measured: {headroom.device_line(floors.device_model)}."))
    return section("floors", "Floors and headroom", *parts, bullets(floors.notes))


def _floor_table(rows: tuple[FloorRow, ...], listing: Listing) -> str:
    cells = []
    for row, texts in zip(rows, listing.rows, strict=False):
        owner = [bound_mark(Bound(row.bound)) if number == 3 else escape(text) for number, text in enumerate(texts)]
        cells.append([kernel_name(row.name), *owner[1:]])
    return (table(listing.title, listing.columns, cells) if cells else "") + "".join(map(hint, listing.notes))
