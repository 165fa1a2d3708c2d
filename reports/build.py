"""Recorded runs in, all that is published of them out: pages, index, README table, the runs that the wheel ships.

    python reports/build.py RECORDED

RECORDED is what `reports/record.sh` left. Without it the pages are rendered anew from the run.json files that lie here.
"""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path

import msgspec

from addrfrac import store
from addrfrac.analysis import Options, build_run
from addrfrac.parse import read_trace
from addrfrac.profiling import whole
from addrfrac.recorded import NOT_COMPARED, answers
from addrfrac.records import Configuration, Run
from addrfrac.report import render
from addrfrac.report.index import IndexEntry, render_index, render_index_markdown

HERE = Path(__file__).parent
ROOT = HERE.parent
SHIPPED = ROOT / "addrfrac" / "recorded"


def main() -> None:
    if len(sys.argv) > 1:
        take_over(Path(sys.argv[1]))
    names = sorted({file.relative_to(HERE).parts[0] for file in HERE.rglob("run.json")})
    entries = [entry for name in names for entry in render_pages(name)]
    store.write_whole(HERE / "index.html", render_index(entries).encode())
    write_readme_table(entries)
    ship([entry.run for entry in entries])


def take_over(recorded: Path) -> None:
    """Bring each run.json, compact, to its place here; where a trace is left, its accounts are those of the present code.

    A run at a depth that only feeds an extrapolation stays out.
    """
    for file in sorted(recorded.rglob("run.json")):
        if not file.parent.name.startswith("layers-"):
            store.write_whole(HERE / file.relative_to(recorded), msgspec.json.encode(accounted(file.parent)) + b"\n")


def accounted(folder: Path) -> Run:
    """The run of a folder, its accounts made anew from its trace; as recorded where the trace is not there."""
    depths = sorted(folder.glob("layers-*"), key=lambda depth: int(depth.name.partition("-")[2]))
    if depths:
        command, layers = published_command(folder)
        return whole([accounted(depth) for depth in depths], command, layers)
    recorded, trace, capture = store.load(folder), folder / "trace.json.gz", folder / "capture.json.gz"
    if not trace.exists():
        print(f"no trace beside {folder / 'run.json'}: published as recorded")
        return recorded
    options = Options(command=recorded.command, capture=capture if capture.exists() else None)
    return build_run(read_trace(trace), options, kind=recorded.kind)


def published_command(folder: Path) -> tuple[str, int]:
    """Command and full depth of an extrapolated run, whatever version of the record it was saved in."""
    saved = msgspec.json.decode((folder / "run.json").read_bytes())
    return saved["command"], saved["extrapolation"]["full_depth"]


def render_pages(name: str) -> list[IndexEntry]:
    """The page of each run in one folder, and one over all where it holds a sweep."""
    files = sorted((HERE / name).rglob("run.json"), key=lambda file: batch(store.load(file)))
    runs = [store.load(file) for file in files]
    entries = []
    for file, run in zip(files, runs, strict=True):
        shared = "../" * len(file.parent.relative_to(HERE).parts) + "plotly.min.js"
        store.write_whole(file.parent / "report.html", render([run], "html", shared_plotly=shared).encode())
        entries.append(IndexEntry(run=run, page=f"{file.parent.relative_to(HERE).as_posix()}/report.html"))
    if len(runs) > 1:
        store.write_whole(HERE / name / "report.html", render(runs, "html", shared_plotly="../plotly.min.js").encode())
    return entries


def batch(run: Run) -> int:
    return run.configuration.batch if run.configuration is not None else 0


def write_readme_table(entries: list[IndexEntry]) -> None:
    """Put the table between the README's two marks."""
    readme = ROOT / "README.md"
    placed = [IndexEntry(run=entry.run, page=f"reports/{entry.page}") for entry in entries]
    table = f"<!-- runs -->\n{render_index_markdown(placed)}<!-- /runs -->"
    text, count = re.subn(r"<!-- runs -->.*<!-- /runs -->", lambda _: table, readme.read_text(), flags=re.DOTALL)
    assert count == 1, "README.md has lost the marks around its table"
    store.write_whole(readme, text.encode())


def ship(runs: list[Run]) -> None:
    """One compressed file for each configuration; `addrfrac profile` shows them where there is no GPU."""
    for old in SHIPPED.glob("*.json.gz"):
        old.unlink()
    measured_first = sorted(runs, key=lambda run: run.extrapolation is not None)
    shipped: set[str] = set()
    for run in measured_first:
        if run.configuration is None or run.kind != "profile":
            continue
        name = file_name(answers(run.configuration, run.extrapolation is not None))
        if name not in shipped:
            (SHIPPED / f"{name}.json.gz").write_bytes(gzip.compress(msgspec.json.encode(run), mtime=0))
            shipped.add(name)


def file_name(configuration: Configuration) -> str:
    parts = [
        str(value)
        for name, value in msgspec.to_builtins(configuration).items()
        if name not in NOT_COMPARED and value not in (None, "", "random")
    ]
    return re.sub(r"[^A-Za-z0-9.-]+", "-", "-".join(parts))


if __name__ == "__main__":
    main()
