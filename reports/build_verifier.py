"""Build reports/verifier: `python reports/build_verifier.py SELFTEST_CPU SELFTEST_GPU COSTS [CORPORA...]`, JSON files.

COSTS and CORPORA are what `reports/record_verifier.sh` left. Without arguments the page is made anew from the
files that lie in reports/verifier. A file called '-' is left out.
"""

from __future__ import annotations

import gzip
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from addrfrac.verification.rates import clopper_pearson
from addrfrac.verification.records import FixtureOutcome, SelfTestResult
from addrfrac.verification.self_test_page import Cost, self_test_page
from addrfrac.verification.store import load

HERE = Path(__file__).parent / "verifier"
KEPT = {"cpu": "selftest-cpu.json.gz", "cuda": "selftest-gpu.json.gz"}
COSTS = "costs.json.gz"
MOST_BYTES = 250_000


def main() -> None:
    """Take over what was recorded, then render."""
    HERE.mkdir(exist_ok=True)
    paths = [Path(argument) for argument in sys.argv[1:]]
    if paths:
        take_over(paths)
    page = self_test_page(kept_results(), kept_costs(), shared_folder="..")
    (HERE / "report.html").write_text(page)
    total = sum(file.stat().st_size for file in HERE.iterdir())
    print(f"{HERE.name}/report.html; {total:,} bytes in all")
    if total > MOST_BYTES:
        raise SystemExit(f"more than {MOST_BYTES:,} bytes: shorten what is kept")


def take_over(paths: list[Path]) -> None:
    """Each self-test with the corpora of its device, and the costs, compressed."""
    results = [load(path) for path in paths[:2] if path.name != "-"]
    for result in results:
        assert isinstance(result, SelfTestResult), "the first two files are self-tests"
        for corpora in paths[3:]:
            result = with_recorded_corpora(result, corpora)
        write(HERE / KEPT[result.device], {"schema": result.schema, "kind": "selftest", "result": result})
    if len(paths) > 2 and paths[2].name != "-":
        costs = msgspec.json.decode(paths[2].read_bytes(), type=list[Cost])
        write(HERE / COSTS, costs)


class Corpora(msgspec.Struct):
    """What `python -m addrfrac.verification.corpora` wrote."""

    outcomes: list[FixtureOutcome]
    missing: dict[str, str]
    device: str


def with_recorded_corpora(result: SelfTestResult, path: Path) -> SelfTestResult:
    """The self-test with corpora recorded apart from it, where they are of its device and not in it yet."""
    corpora = msgspec.json.decode(path.read_bytes(), type=Corpora)
    known = {outcome.id for outcome in result.outcomes}
    new = tuple(outcome for outcome in corpora.outcomes if outcome.id not in known)
    if corpora.device != result.device or not new:
        return result
    outcomes = (*result.outcomes, *new)
    honest = [outcome for outcome in outcomes if outcome.kind == "honest"]
    return replace(
        result,
        outcomes=outcomes,
        false_alarms=clopper_pearson(sum(not outcome.right for outcome in honest), len(honest)),
        not_tested=result.not_tested | corpora.missing,
    )


def kept_results() -> list[SelfTestResult]:
    """The self-tests that lie here, CPU first."""
    found = [load(HERE / name) for name in KEPT.values() if (HERE / name).exists()]
    return [result for result in found if isinstance(result, SelfTestResult)]


def kept_costs() -> list[Cost]:
    """The costs that lie here."""
    file = HERE / COSTS
    return msgspec.json.decode(gzip.decompress(file.read_bytes()), type=list[Cost]) if file.exists() else []


def write(path: Path, content: object) -> None:
    """Compressed JSON, the same bytes each time."""
    path.write_bytes(gzip.compress(msgspec.json.encode(content), mtime=0))


if __name__ == "__main__":
    main()
