"""Recorded runs in, all that is published of them out: pages, index, README table, the runs that the wheel ships.

    python reports/build.py RECORDED

RECORDED is what `reports/record.sh` left. Without it the pages are rendered anew from the run.json.gz files here.
"""

from __future__ import annotations

import base64
import re
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import msgspec

from addrfrac import stats, store, units
from addrfrac.analysis import Options, build_run
from addrfrac.device_model import load_device_model
from addrfrac.parse import read_trace
from addrfrac.profiling import whole
from addrfrac.recorded import NOT_COMPARED, answers
from addrfrac.records import ArmTimes, Configuration, DeviceModel, Range, Run, Wall
from addrfrac.report import (
    IndexEntry,
    facts,
    render,
    render_index,
    render_index_markdown,
    render_ladder_markdown,
    shared_files,
    shared_in,
)
from addrfrac.report.picture import render_picture

HERE = Path(__file__).parent
ROOT = HERE.parent
SHIPPED = ROOT / "addrfrac" / "recorded"

PICTURED = (
    "resnet50-infer-bf16-graph",
    "resnet50-train",
    "vit-l16",
    "bert-large",
    "gpt2-medium-train",
    "llama3-8b-prefill",
    "llama3-8b-decode",
    "mixtral-8x7b-prefill",
    "dlrm-infer-bag",
    "dlrm-infer-fbgemm",
    "dlrm-dcnv2-train-fbgemm",
)
"""Folders of the runs in the README's picture."""

STUDY = (
    ("ResNet-50 inference", "46-55 %", ("resnet50-infer-bf16/",)),
    ("Transformers", "8.9-16.8 %", ("vit-l16", "bert-large/", "llama3-8b-prefill/")),
    ("70B inference", "8.9 %", ("llama3-70b-prefill",)),
    ("DLRM inference", "58.2 %", ("dlrm-infer-", "ladder/dlrm-bag", "ladder/dlrm-fbgemm")),
)
"""arXiv 2609.21058: its figures, and which of our pages answer them."""


RUN = "run.json.gz"
PLOTLY = "plotly.min.js"
"""plotly.js's basic bundle, from its npm package; what is committed is `packed`."""
INFLATED = b"""
window.plotlyReady = (async () => {
  const bytes = Uint8Array.from(atob("%s"), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
})();
"""
LADDERS = "ladder"
"""Folder of the ladders: a folder a row, best-library in a folder of its own within it."""


def main() -> None:
    if len(sys.argv) > 1:
        take_over(Path(sys.argv[1]))
    for name, text in shared_files().items():
        store.write_whole(HERE / name, text.encode())
    store.write_whole(HERE / PLOTLY, packed(HERE / PLOTLY))
    folders = [file.parent for file in HERE.rglob(RUN)]
    entries = sorted((render_page_of(folder) for folder in folders), key=in_order)
    comparisons = list(render_comparisons(entries))
    store.write_whole(HERE / "index.html", render_index(entries, comparisons, shared_in(".")).encode())
    write_readme(entries)
    ship([entry.run for entry in entries])


def packed(script: Path) -> bytes:
    """A script that inflates the given one, a third as large; a page awaits its `plotlyReady`."""
    source = script.read_bytes()
    if b"plotlyReady" in source:
        return source
    licence = source[: source.index(b"*/") + 2]
    data = base64.b64encode(zlib.compress(source, 9))
    return licence + INFLATED % data


def take_over(recorded: Path) -> None:
    """Bring each run, compact, to its place here; where its trace is left, with the accounts of the present code.

    A run at a depth that only feeds an extrapolation stays out.
    """
    for file in sorted(recorded.rglob("run.json")):
        if not file.parent.name.startswith("layers-"):
            run = in_nanoseconds(accounted(file.parent))
            store.write_whole(HERE / file.parent.relative_to(recorded) / RUN, store.encode_small(run))
    if (recorded / "device.json").exists():
        store.write_whole(HERE / "device.json", (recorded / "device.json").read_bytes())


def in_nanoseconds(run: Run) -> Run:
    """Raw step times of arms without digits below a nanosecond: no clock has them, and they fill files."""
    if run.applied is not None:
        run = replace(run, applied=replace(run.applied, arms=tuple(map(rounded, run.applied.arms))))
    if run.ladder is None:
        return run
    rungs = [replace(rung, times=None if rung.times is None else rounded(rung.times)) for rung in run.ladder.rungs]
    arms = tuple(map(rounded, run.ladder.arms))
    return replace(run, ladder=replace(run.ladder, rungs=tuple(rungs), arms=arms))


def rounded(times: ArmTimes) -> ArmTimes:
    blocks = tuple(tuple(tuple(round(us, 3) for us in block) for block in process) for process in times.blocks_us)
    return replace(times, blocks_us=blocks)


def accounted(folder: Path) -> Run:
    """The run of a folder, its accounts made anew from its trace; as recorded where the trace is not there."""
    depths = sorted(folder.glob("layers-*"), key=lambda depth: int(depth.name.partition("-")[2]))
    if depths:
        command, layers = published_command(folder)
        return whole([accounted(depth) for depth in depths], command, layers)
    recorded, trace, capture = store.load(folder), folder / "trace.json.gz", folder / "capture.json.gz"
    if recorded.kind == "ceiling":
        return recorded  # its accounts rest on the graph that was captured, not on a trace alone
    if not trace.exists():
        print(f"no trace beside {folder / 'run.json'}: published as recorded, intervals taken anew")
        return replace(recorded, wall=retaken(recorded.wall))
    model = recorded.floors.device_model if recorded.floors is not None else None
    options = Options(
        command=recorded.command, capture=capture if capture.exists() else None, device_model=model or measured(folder)
    )
    built = build_run(read_trace(trace), options, kind=recorded.kind)
    return replace(built, ladder=recorded.ladder, applied=recorded.applied)


def measured(folder: Path) -> DeviceModel | None:
    """The device model that was recorded with the ladders that a folder is of."""
    files = [parent / "device.json" for parent in folder.parents if LADDERS in folder.parts]
    return next((load_device_model(file) for file in files if file.exists()), None)


def retaken(wall: Wall | None) -> Wall | None:
    """The same samples with the present intervals."""
    if wall is None:
        return None
    clocks = {"device": wall.device, "host": wall.host, "graph": wall.graph}
    anew = {name: stats.times(times.samples_us, times.method) for name, times in clocks.items() if times is not None}
    return replace(wall, **anew)


def published_command(folder: Path) -> tuple[str, int]:
    """Command and full depth of an extrapolated run, whatever version of the record it was saved in."""
    saved = msgspec.json.decode((folder / "run.json").read_bytes())
    return saved["command"], saved["extrapolation"]["full_depth"]


def render_page_of(folder: Path) -> IndexEntry:
    """The page of one run, beside it; of best-library the record alone is published, the ladder's page tells of it."""
    run, place = store.load(folder), folder.relative_to(HERE)
    if folder.name == facts.BEST:
        return IndexEntry(run=run, page=f"{place.as_posix()}/{RUN}")
    page = render([run], "html", shared_folder="/".join([".."] * len(place.parts)))
    store.write_whole(folder / "report.html", page.encode())
    return IndexEntry(run=run, page=f"{place.as_posix()}/report.html")


def in_order(entry: IndexEntry) -> tuple[str, int, str]:
    """Ladders among themselves; a sweep by its batch size."""
    batch = entry.run.configuration.batch if entry.run.configuration is not None else 0
    return top_folder(entry), 0 if top_folder(entry) == LADDERS else batch, entry.page


def top_folder(entry: IndexEntry) -> str:
    return entry.page.partition("/")[0]


def render_comparisons(entries: list[IndexEntry]) -> Iterator[tuple[str, str]]:
    """A page over each folder of several runs: the sweeps, and all ladders side by side. Yields title and address."""
    for name, grouped in groupby(entries, key=top_folder):
        runs = [entry.run for entry in grouped if name != LADDERS or entry.run.ladder is not None]
        if len(runs) > 1:
            store.write_whole(HERE / name / "report.html", render(runs, "html", shared_folder="..").encode())
            yield name, f"{name}/report.html"


def write_readme(entries: list[IndexEntry]) -> None:
    """Put the real output, the tables and the comparison between the marks of both READMEs."""
    runs = {top_folder(entry): entry.run for entry in entries}
    placed = [IndexEntry(run=entry.run, page=f"reports/{entry.page}") for entry in entries]
    demo = next(entry.run for entry in entries if "resnet50-infer-b64-bf16" in entry.page)
    text = (ROOT / "README.md").read_text()
    text = between_marks(text, "demo", f"```console\n$ addrfrac profile resnet50 --batch 64\n{first_screen(demo)}```\n")
    text = between_marks(text, "runs", headline_table(placed))
    text = between_marks(text, "study", study_table(entries))
    store.write_whole(ROOT / "README.md", text.encode())
    others = [entry for entry in entries if top_folder(entry) != LADDERS]
    text = between_marks((HERE / "README.md").read_text(), "runs", render_index_markdown(others))
    store.write_whole(HERE / "README.md", text.encode())
    store.write_whole(HERE / "picture.svg", render_picture([runs[name] for name in PICTURED if name in runs]).encode())


def headline_table(entries: list[IndexEntry]) -> str:
    """Every ladder with its trio; before there is one, every run."""
    pages = {entry.page: entry for entry in entries}
    climbed = [entry for entry in entries if entry.run.ladder is not None]
    if not climbed:
        return render_index_markdown(entries)
    return render_ladder_markdown([(entry, pages.get(best_page(entry.page))) for entry in climbed])


def best_page(page: str) -> str:
    return f"{page.removesuffix('report.html')}{facts.BEST}/{RUN}"


def between_marks(text: str, mark: str, content: str) -> str:
    pattern = rf"<!-- {mark} -->.*<!-- /{mark} -->"
    changed, count = re.subn(pattern, lambda _: f"<!-- {mark} -->\n{content}<!-- /{mark} -->", text, flags=re.DOTALL)
    assert count == 1, f"a README has lost the marks around its {mark}"
    return changed


def first_screen(run: Run) -> str:
    """The terminal report down to where its accounts begin."""
    lines = [line.rstrip() for line in render([run], "terminal").splitlines()]
    end = next(number for number, line in enumerate(lines) if line.startswith("Where the step goes"))
    return "\n".join(lines[:end]).rstrip() + "\n"


def study_table(entries: list[IndexEntry]) -> str:
    """The study's fractions beside ours, from the runs as they lie here."""
    rows = ["| workload | study, A100 | here, H200, policy paper |", "| --- | --- | --- |"]
    for name, study, pages in STUDY:
        ours = [
            f"{units.percent_range(share.low, share.high)} ({facts.title(entry.run)})"
            for entry in entries
            for share in [full_depth_share(entry.run)]
            if any(entry.page.startswith(page) for page in pages) and not facts.is_best_library(entry.run)
        ]
        rows.append(f"| {name} | {study} | {'<br>'.join(ours) or 'not run'} |")
    return "\n".join(rows) + "\n"


def full_depth_share(run: Run) -> Range:
    return run.extrapolation.full_share_of_busy if run.extrapolation is not None else run.addressable.share_of_busy


def ship(runs: list[Run]) -> None:
    """One compressed file for each configuration; `addrfrac profile` shows them where there is no GPU."""
    for old in SHIPPED.glob("*.json.gz"):
        old.unlink()
    measured_first = sorted(runs, key=lambda run: run.extrapolation is not None)
    shipped: set[str] = set()
    for run in measured_first:
        if run.configuration is None or run.kind != "profile" or facts.is_best_library(run):
            continue
        name = file_name(answers(run.configuration, run.extrapolation is not None))
        if name not in shipped:
            (SHIPPED / f"{name}.json.gz").write_bytes(store.encode_small(run))
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
