"""Build reports/dlrm_bench: `python reports/build_dlrm_bench.py [RUN...]`, folders or bench.json files; later ones win.

RUN are what `reports/record_dlrm_bench.sh` left. They are put together into one compressed file, from which the page is
made; without arguments the page is made anew from the file that lies there. MODELS are the published runs onto which
the suite's wins are projected.
"""

from __future__ import annotations

import gzip
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from addrfrac.bench import page, results
from addrfrac.bench.records import Evaluation, Suite
from addrfrac.records import ArmTimes
from addrfrac.report.document import Shared

REPORTS = Path(__file__).parent
HERE, KEPT = REPORTS / "dlrm_bench", "bench.json.gz"
MODELS = ("dlrm-infer-bag", "dlrm-infer-fbgemm", "dlrm-dcnv2-train-fbgemm")
MOST_BYTES = 400_000


def main() -> None:
    """Take over what was recorded, then render."""
    HERE.mkdir(exist_ok=True)
    paths = [Path(argument) for argument in sys.argv[1:]]
    if paths:
        suite = results.load_several(paths)
        packed = replace(suite, evaluations=tuple(map(shortened, suite.evaluations)))
        (HERE / KEPT).write_bytes(gzip.compress(results.encode(packed), mtime=0))
    if not (HERE / KEPT).exists():
        raise SystemExit(f"{HERE.name}/{KEPT} is not there: name the folders that record_dlrm_bench.sh left")
    suite = msgspec.json.decode(gzip.decompress((HERE / KEPT).read_bytes()), type=Suite)
    models = [str(REPORTS / name) for name in MODELS if (REPORTS / name).is_dir()]
    shared = Shared(plotly="../plotly.min.js", style="../page.css", script="../page.js")
    (HERE / "report.html").write_text(page.page_of(suite, models, shared))
    total = sum(file.stat().st_size for file in HERE.iterdir())
    print(f"{HERE.name}/report.html; {len(suite.evaluations)} evaluations, {total:,} bytes in all")
    if total > MOST_BYTES:
        raise SystemExit(f"more than {MOST_BYTES:,} bytes: shorten what is kept")


def shortened(evaluation: Evaluation) -> Evaluation:
    """With the median of each block in place of its steps: what every interval here is made of."""
    return replace(evaluation, arms=tuple(map(_of_medians, evaluation.arms)))


def _of_medians(arm: ArmTimes) -> ArmTimes:
    import statistics

    blocks = tuple(tuple((round(statistics.median(block), 4),) for block in process) for process in arm.blocks_us)
    return replace(arm, blocks_us=blocks, method=f"{arm.method}; the median of each block is kept")


if __name__ == "__main__":
    main()
