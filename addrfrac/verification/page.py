"""Verdicts and self-tests as a page of their own, in the dress of the other reports, or as a section of another."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from addrfrac.report.document import document
from addrfrac.report.markup import definitions, escape, table
from addrfrac.report.markup import section as card
from addrfrac.verification.records import Check, Layer, SelfTestResult, Verdict
from addrfrac.verification.render import class_words, speed_words
from addrfrac.verification.self_test_page import self_test_page, self_test_sections
from addrfrac.verification.side_by_side import CaseVerdicts, by_case, differences, protocols_of
from addrfrac.verification.store import Saved


def write_page(result: Saved, path: Path) -> None:
    """A page of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page_of(result))


def page_of(result: Saved) -> str:
    """A page of its own, as text; it needs no network and no other file."""
    if isinstance(result, SelfTestResult):
        return self_test_page([result])
    sections = list(_verdict_sections(result))
    return document("Verification", _header(result), sections, [], None)


def section(result: Saved) -> str:
    """The part that another page can hold."""
    if isinstance(result, SelfTestResult):
        return "".join(html for _, _, html in self_test_sections([result]))
    return "".join(html for _, _, html in _verdict_sections(result))


def _header(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return "<h1>Verification</h1>"
    cases = by_case(verdicts)
    passed = sum(case.decisive.passed for case in cases)
    decisive = cases[0].decisive
    what = f"{passed} of {len(cases)} passed under {decisive.protocol} on {decisive.device}."
    plain = "Values only: a CPU times nothing." if decisive.device == "cpu" else ""
    return f"<h1>Verification</h1><p class='plainly'>{escape(what)} {escape(plain)}</p>"


def _verdict_sections(verdicts: tuple[Verdict, ...]) -> Iterable[tuple[str, str, str]]:
    if not verdicts:
        yield "verdicts", "Verdicts", card("verdicts", "Verdicts", "<p>Nothing was verified.</p>")
        return
    cases, protocols = by_case(verdicts), protocols_of(verdicts)
    yield "verdicts", "Verdicts", card("verdicts", "Verdicts", _overview(cases, protocols), _apart(cases))
    for index, case in enumerate(cases):
        yield f"case-{index}", case.name, card(f"case-{index}", case.name, *_case(case))
    layers = card("isolation", "Isolation", layers_table(cases[0].decisive.isolation))
    yield "isolation", "Isolation", layers


def word(verdict: Verdict) -> str:
    """The status in its colour."""
    return f"<span class='{'faster' if verdict.passed else 'slower'}'>{escape(verdict.status.value)}</span>"


def _overview(cases: Sequence[CaseVerdicts], protocols: Sequence[str]) -> str:
    rows = []
    for index, case in enumerate(cases):
        found = {verdict.protocol: verdict for verdict in case.verdicts}
        decisive = case.decisive
        rows.append(
            [
                f"<a href='#case-{index}'>{escape(case.name)}</a>",
                *(word(found[protocol]) if protocol in found else "" for protocol in protocols),
                escape(class_words(decisive)),
                escape(speed_words(decisive)),
                escape(", ".join(label.value for label in decisive.labels)),
            ]
        )
    columns = ["case", *(protocols if len(protocols) > 1 else ["verdict"]), "class", "speed", "labels"]
    return table("Every case", columns, rows)


def _apart(cases: Sequence[CaseVerdicts]) -> str:
    items = [
        f"<li><strong>{escape(case.name)}</strong>: {escape(line)}</li>" for case in cases for line in differences(case)
    ]
    return f"<h3>What sets the protocols apart</h3><ul class='plain'>{''.join(items)}</ul>" if items else ""


def _case(case: CaseVerdicts) -> Iterable[str]:
    verdict = case.decisive
    yield f"<p class='plainly'>{word(verdict)}: {escape(verdict.reason)}</p>"
    counted = f"{verdict.distributions_checked} of {verdict.distributions_planned}"
    yield definitions(
        [
            ("labels", ", ".join(label.value for label in verdict.labels)),
            ("credit", verdict.credit.line),
            ("precision class", class_words(verdict)),
            ("dtype", verdict.dtype),
            ("distributions", counted),
            ("speed", speed_words(verdict)),
            ("took", f"{verdict.seconds:.1f} s"),
            ("secret seed, told afterwards", verdict.seed),
            ("sha256 of the source", verdict.source_sha256),
        ]
    )
    if verdict.speed.candidate is not None:
        yield _baselines(verdict)
    yield _checks(case.verdicts)
    notes = [*(f"stood in: {entry}" for entry in verdict.replaced), *verdict.notes]
    if notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in notes)
        yield f"<details><summary>{len(notes)} notes</summary><ul class='plain'>{items}</ul></details>"
    if verdict.hints:
        rows = [[str(hint.line), escape(hint.what), f"<code>{escape(hint.text)}</code>"] for hint in verdict.hints]
        hints = table("What the source suggests; it decides nothing", ["line", "what", "text"], rows)
        yield f"<details><summary>{len(rows)} hints of the source</summary>{hints}</details>"


def _baselines(verdict: Verdict) -> str:
    speed = verdict.speed
    assert speed.candidate is not None
    candidate = statistics.median(us for process in speed.candidate.block_us for us in process)
    rows = [["candidate", f"{candidate:.2f}", "1.00", ""]]
    for baseline in speed.baselines:
        if baseline.name != "candidate" and baseline.samples_us:
            median = statistics.median(baseline.samples_us)
            rows.append([escape(baseline.name), f"{median:.2f}", f"{median / candidate:.2f}", escape(baseline.note)])
        elif baseline.name != "candidate":
            rows.append([escape(baseline.name), "not timed", "", escape(baseline.note)])
    return table("Times, cold L2, medians", ["side", ">us a call", ">over the candidate", "note"], rows)


def _checks(verdicts: Sequence[Verdict]) -> str:
    rows = [[escape(check.name), escape(v.protocol), *_check_cells(check)] for v in verdicts for check in v.checks]
    return table("Checks", ["check", "protocol", "", ">figure", ">limit", "detail"], rows)


def _check_cells(check: Check) -> list[str]:
    mark = "<span class='faster'>passed</span>" if check.passed else "<span class='slower'>failed</span>"
    figure = "" if check.figure is None else f"{check.figure:.3g}"
    limit = "" if check.limit is None else f"{check.limit:.3g}"
    return [mark, figure, limit, escape(check.detail)]


def layers_table(layers: Sequence[Layer]) -> str:
    """Each layer between a candidate and the machine, and whether this machine has it."""
    rows = [
        [
            escape(layer.name),
            "<span class='faster'>yes</span>" if layer.active else "<span class='slower'>no</span>",
            escape(layer.detail),
        ]
        for layer in layers
    ]
    return table("Layers between a candidate and this machine", ["layer", "here", "what that means"], rows)
