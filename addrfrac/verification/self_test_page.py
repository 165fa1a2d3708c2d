"""Self-tests of one or several devices in, the page of catch rates, false alarms, protocols and mutants out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from addrfrac.report import shared_in
from addrfrac.report.document import document
from addrfrac.report.markup import escape, section, table
from addrfrac.verification.protocols import PROTOCOLS
from addrfrac.verification.records import FixtureOutcome, Layer, SelfTestResult
from addrfrac.verification.render import accepted_by_family, judged_by_family, rate_words

FAMILIES: dict[str, str] = {
    "A": "work not done",
    "B": "tolerance",
    "C": "reduced or approximate work",
    "D": "outputs not written",
    "E": "inputs changed",
    "F": "answers remembered",
    "G": "aliasing and late changes",
    "H": "container, dtype, layout",
    "I": "tampered objects",
    "J": "tampered harness",
    "K": "crashes, hangs, exits",
    "L": "parameters and buffers",
    "M": "shapes",
    "N": "who does the work",
    "O": "baselines",
    "P": "caches and buffers",
    "Q": "clock and device",
    "R": "randomness and races",
    "S": "graphs and streams",
    "T": "memory",
    "U": "the report itself",
    "all": "all families",
}
"""What each family is about, in a few words."""
_REASON = 170


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one verification took."""

    name: str
    device: str
    quick: bool
    wall_s: float
    """The whole command: start, import, every case."""
    cases: tuple[CaseCost, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCost:
    """What one case took, and what came of it."""

    name: str
    seconds: float
    status: str
    speed: str


def self_test_page(
    results: Sequence[SelfTestResult], costs: Sequence[Cost] = (), *, shared_folder: str | None = None
) -> str:
    """The whole page; it shares style and script with pages beside it where `shared_folder` says where they lie."""
    header = "<h1>How well the verifier verifies</h1>" + "".join(_plainly(result) for result in results)
    if not results:
        header += "<p class='plainly'>No self-test was run.</p>"
    sections = [*self_test_sections(results), *_cost_sections(costs)]
    shared = None if shared_folder is None else shared_in(shared_folder)
    return document("How well the verifier verifies", header, sections, [], shared)


def _plainly(result: SelfTestResult) -> str:
    honest = [o for o in result.outcomes if o.kind == "honest"]
    text = (
        f"On {result.device}: {rate_words(result.caught['all'])} planted faults caught, "
        f"{rate_words(result.false_alarms)} honest kernels refused, "
        f"{len(result.outcomes)} cases in {result.seconds:.0f} s ({result.created[:10]}, addrfrac {result.version})."
    )
    wrong = [o.id for o in result.outcomes if not o.right]
    said = f" Not as they should be: {', '.join(wrong)}." if wrong else ""
    said += "" if honest else " No honest kernel was run."
    return f"<p class='plainly'>{escape(text + said)}</p>"


def self_test_sections(results: Sequence[SelfTestResult]) -> list[tuple[str, str, str]]:
    """(id, link text, HTML) of each section."""
    found = [
        ("families", "Catch rate", section("families", "Catch rate by family", _two(map(_families, results)))),
        ("protocols", "Protocols", section("protocols", "What each protocol would accept", *map(_accepted, results))),
    ]
    if any(result.mutation for result in results):
        mutants = [_mutants(result) for result in results if result.mutation]
        found.append(("mutants", "Mutants", section("mutants", "Right kernels with one thing changed", *mutants)))
    found.append(("cases", "Every case", section("cases", "Every case", _cases(results))))
    untested = [_not_tested(result) for result in results if result.not_tested]
    found.append(("untested", "No fixture", section("untested", "Rows of the catalogue without a fixture", *untested)))
    layers = [_layers(result.device, result.isolation) for result in results if result.isolation]
    found.append(("isolation", "Isolation", section("isolation", "Isolation", *layers)))
    return found


def _two(tables: Iterable[str]) -> str:
    """Tables beside each other where the page is wide enough."""
    return f"<div class='two'>{''.join(f'<div>{each}</div>' for each in tables)}</div>"


def _in_order(result: SelfTestResult) -> list[str]:
    return sorted(result.caught, key=lambda family: (family == "all", family))


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f}"


def _families(result: SelfTestResult) -> str:
    rows, classes = [], []
    for family in _in_order(result):
        rate = result.caught[family]
        interval = f"{_percent(rate.low)}-{_percent(rate.high)}"
        name = family if family == "all" else f"{family} {FAMILIES.get(family, '')}"
        rows.append([escape(name), str(rate.total), str(rate.hits), _percent(rate.share), interval])
        classes.append("total" if family == "all" else "")
    alarms = result.false_alarms
    low, high = _percent(alarms.low), _percent(alarms.high)
    rows.append(
        ["honest kernels refused", str(alarms.total), str(alarms.hits), _percent(alarms.share), f"{low}-{high}"]
    )
    classes.append("total")
    columns = ["family", ">cases", ">caught", ">%", ">95 % interval"]
    return table(f"Planted faults caught, on {result.device} (Clopper-Pearson intervals)", columns, rows, classes)


def _accepted(result: SelfTestResult) -> str:
    accepted, judged = accepted_by_family(result), judged_by_family(result)
    asked = [name for name in PROTOCOLS if any(judged[name].values())]
    rows, classes = [], []
    for family in _in_order(result):
        if not any(judged[name].get(family) for name in asked):
            continue
        cells = [f"{accepted[name].get(family, 0)} of {judged[name].get(family, 0)}" for name in asked]
        rows.append([escape(family if family == "all" else f"{family} {FAMILIES.get(family, '')}"), *cells])
        classes.append("total" if family == "all" else "")
    honest = [o for o in result.outcomes if o.kind == "honest"]
    cells = []
    for name in asked:
        said = [o.accepted_by[name] for o in honest if o.accepted_by.get(name) is not None]
        cells.append(f"{sum(map(bool, said))} of {len(said)}")
    rows.append(["honest kernels", *cells])
    classes.append("total")
    return table(
        f"Faults that a protocol would have accepted, on {result.device}",
        ["family", *(f">{name}" for name in asked)],
        rows,
        classes,
    )


def _mutants(result: SelfTestResult) -> str:
    rows = [
        [
            escape(score.protocol),
            str(score.killed.total),
            str(score.killed.hits),
            "" if score.killed.share is None else f"{100 * score.killed.share:.1f}",
            f"{_percent(score.killed.low)}-{_percent(score.killed.high)}",
        ]
        for score in result.mutation
    ]
    columns = ["protocol", ">mutants", ">killed", ">%", ">95 % interval"]
    lists = []
    for score in result.mutation:
        if score.survivors:
            items = "".join(f"<li>{escape(name)}</li>" for name in score.survivors)
            summary = f"{len(score.survivors)} survive {score.protocol}"
            lists.append(f"<details><summary>{escape(summary)}</summary><ul class='plain'>{items}</ul></details>")
    if result.equivalent_mutants:
        items = "".join(f"<li>{escape(name)}</li>" for name in result.equivalent_mutants)
        lists.append(
            f"<details><summary>{len(result.equivalent_mutants)} equal the original and are not counted</summary>"
            f"<ul class='plain'>{items}</ul></details>"
        )
    return table(f"Mutants killed, on {result.device}", columns, rows) + "".join(lists)


def _cases(results: Sequence[SelfTestResult]) -> str:
    """One row a case, its verdict on each device, with a search field and choices that hide rows."""
    by_id: dict[str, dict[str, FixtureOutcome]] = {}
    for result in results:
        for outcome in result.outcomes:
            by_id.setdefault(outcome.id, {})[result.device] = outcome
    devices = [result.device for result in results]
    rows = [_case_row(name, found, devices) for name, found in by_id.items()]
    families = sorted({o.family for found in by_id.values() for o in found.values()})
    options = "".join(
        f"<option value='{escape(family)}'>{escape(' '.join((family, FAMILIES.get(family, ''))))}</option>"
        for family in families
    )
    heads = "".join(f"<th scope='col'>{escape(device)}</th>" for device in devices)
    return (
        "<div class='controls' id='case-controls' hidden>"
        "<label class='search'>Search<input id='case-search' type='search'></label>"
        f"<label>Family<select id='case-family'><option value=''>all</option>{options}</select></label>"
        "<label>As it should be<select id='case-right'><option value=''>all</option><option value='yes'>yes</option>"
        "<option value='no'>no</option></select></label><output id='case-count'></output></div>"
        "<div class='scroll' tabindex='0' role='region' aria-label='Every case'><table id='case-table'><thead><tr>"
        f"<th scope='col'>case</th>{heads}<th scope='col'>wanted</th><th scope='col'>in words</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div><script>{_FILTER}</script>"
    )


def _case_row(name: str, found: Mapping[str, FixtureOutcome], devices: Sequence[str]) -> str:
    first = list(found.values())[-1]
    right = all(outcome.right for outcome in found.values())
    cells = "".join(f"<td>{_status(found.get(device))}</td>" for device in devices)
    labels = f" [{', '.join(first.labels)}]" if first.labels else ""
    reason = first.reason if len(first.reason) <= _REASON else first.reason[:_REASON] + "…"
    return (
        f"<tr data-family='{escape(first.family)}' data-right='{'yes' if right else 'no'}'>"
        f"<th scope='row'>{escape(name)}</th>{cells}<td>{escape(first.expected)}</td>"
        f"<td>{escape(reason + labels)}</td></tr>\n"
    )


def _status(outcome: FixtureOutcome | None) -> str:
    if outcome is None:
        return ""
    return escape(outcome.status) if outcome.right else f"<span class='slower'>{escape(outcome.status)} (wrong)</span>"


_FILTER = """(() => {
  const $ = (id) => document.getElementById(id);
  const rows = [...$("case-table").tBodies[0].rows];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const filter = () => {
    const words = $("case-search").value.toLowerCase().split(/\\s+/).filter(Boolean);
    const family = $("case-family").value, right = $("case-right").value;
    let shown = 0;
    rows.forEach((row, i) => {
      const fits = words.every((w) => texts[i].includes(w)) && (!family || row.dataset.family === family) &&
        (!right || row.dataset.right === right);
      row.hidden = !fits;
      shown += fits;
    });
    $("case-count").textContent = `${shown} of ${rows.length} cases`;
  };
  $("case-controls").hidden = false;
  ["case-search", "case-family", "case-right"].forEach((id) => $(id).addEventListener("input", filter));
  filter();
})();"""


def _not_tested(result: SelfTestResult) -> str:
    reasons: dict[str, list[str]] = {}
    for row, reason in result.not_tested.items():
        reasons.setdefault(reason, []).append(row)
    rows = [[escape(", ".join(ids)), escape(reason)] for reason, ids in reasons.items()]
    return table(f"On {result.device}", ["rows", "why"], rows)


def _layers(device: str, layers: Sequence[Layer]) -> str:
    rows = [[escape(each.name), "yes" if each.active else "no", escape(each.detail)] for each in layers]
    return table(f"Between a candidate and the machine, on {device}", ["layer", "here", "what that means"], rows)


def _cost_sections(costs: Sequence[Cost]) -> Iterable[tuple[str, str, str]]:
    if not costs:
        return
    rows = [
        [
            escape(case.name),
            escape(cost.device),
            "quick" if cost.quick else "full",
            f"{case.seconds:.1f}",
            f"{cost.wall_s:.1f}",
            escape(case.status),
            escape(case.speed),
        ]
        for cost in costs
        for case in cost.cases
    ]
    columns = ["case", "device", "how", ">s a case", ">s the whole command", "verdict", "speed"]
    yield "cost", "Cost", section("cost", "What a verification costs", table("Seconds", columns, rows))
