"""Verdicts and self-tests as a section of HTML, or a page of their own without scripts."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

from addrfrac.verification.protocols import PROTOCOLS
from addrfrac.verification.records import SelfTestResult, Verdict
from addrfrac.verification.render import accepted_by_family, rate_words, speed_words
from addrfrac.verification.store import Saved

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .8rem;border-bottom:1px solid #d8dee4;text-align:left;
vertical-align:top}.passed{color:#116329}.failed{color:#a40e26}details{margin:.4rem 0}code{font-size:90%}
.note{color:#57606a}"""


def write_page(result: Saved, path: Path) -> None:
    """A page of its own."""
    title = "Self-test of the verifier" if isinstance(result, SelfTestResult) else "Verification"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}</title>"
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{section(result)}</body></html>"
    )


def section(result: Saved) -> str:
    """The part that another page can hold."""
    return "".join(_selftest(result) if isinstance(result, SelfTestResult) else _verdicts(result))


def _row(cells: Iterable[str], tag: str = "td") -> str:
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def _verdicts(verdicts: tuple[Verdict, ...]) -> Iterable[str]:
    if not verdicts:
        yield "<p>Nothing was verified.</p>"
        return
    passed = sum(verdict.passed for verdict in verdicts)
    where = f"{escape(verdicts[0].protocol)} on {escape(verdicts[0].device)}"
    yield f"<p>{passed} of {len(verdicts)} passed under {where}.</p>"
    yield "<table>" + _row(("case", "verdict", "class", "speed", "credit", "labels"), "th")
    for v in verdicts:
        word = f"<span class='{'passed' if v.passed else 'failed'}'>{escape(v.status.value)}</span>"
        labels = ", ".join(label.value for label in v.labels)
        yield _row(
            (escape(v.name), word, v.precision.value, *(escape(t) for t in (speed_words(v), v.credit.line, labels)))
        )
    yield "</table>"
    for v in verdicts:
        yield f"<details><summary>{escape(v.name)}: {escape(v.reason)}</summary><table>"
        yield _row(("check", "", "figure", "limit", "detail"), "th")
        for check in v.checks:
            figure = "" if check.figure is None else f"{check.figure:.3g}"
            limit = "" if check.limit is None else f"{check.limit:.3g}"
            yield _row((escape(check.name), "ok" if check.passed else "not", figure, limit, escape(check.detail)))
        yield "</table>"
        for note in (*v.replaced, *v.notes, *(f"line {h.line} {h.what}: {h.text}" for h in v.hints)):
            yield f"<p class='note'>{escape(note)}</p>"
        yield "</details>"
    for layer in verdicts[0].isolation:
        if not layer.active:
            yield f"<p class='note'>Isolation: no {escape(layer.name)}: {escape(layer.detail)}.</p>"


def _selftest(result: SelfTestResult) -> Iterable[str]:
    names = list(PROTOCOLS)
    accepted = accepted_by_family(result)
    yield f"<p>Caught {rate_words(result.caught['all'])}; false alarms {rate_words(result.false_alarms)}; "
    yield f"{len(result.outcomes)} cases in {result.seconds:.0f} s on {escape(result.device)}.</p>"
    yield "<table>" + _row(("family", "caught", *(f"accepted by {escape(name)}" for name in names)), "th")
    for family, rate in sorted(result.caught.items(), key=lambda item: (item[0] == "all", item[0])):
        yield _row((family, rate_words(rate), *(str(accepted[name].get(family, 0)) for name in names)))
    yield "</table>"
    if result.mutation:
        yield "<table>" + _row(("protocol", "mutants killed", "survivors"), "th")
        for score in result.mutation:
            yield _row((escape(score.protocol), rate_words(score.killed), escape(", ".join(score.survivors[:40]))))
        yield "</table>"
    yield "<details><summary>Every case</summary><table>" + _row(("case", "status", "as expected", "reason"), "th")
    for o in result.outcomes:
        yield _row((escape(o.id), escape(o.status), "yes" if o.right else "NO", escape(o.reason)))
    yield "</table></details><details><summary>Rows of the catalogue without a fixture here</summary><table>"
    for row, reason in result.not_tested.items():
        yield _row((row, escape(reason)))
    yield "</table></details>"
