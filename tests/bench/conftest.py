"""An evaluation and what a worker says, as little of each as a test needs."""

from __future__ import annotations

import pytest

from addrfrac.bench.records import Evaluation, Judged
from addrfrac.records import Range


@pytest.fixture
def blank() -> Evaluation:
    nothing = Range(low=None, high=None)
    return Evaluation(
        schema=1, key="k", number=1, problem="embedding_bag_sum", size="tiny", indices="uniform", solution="first",
        sample=0, judged=Judged(protocol="addrfrac", status="passed", reason="", precision="", labels=(), seconds=0.0),
        error=None, error_limit=None, agrees=None, arms=(), best_baseline="", over_eager=None, over_best=None,
        over_library=None, clock_ratio=None, bytes=None, flops=None, floor_us=nothing, peak_bytes=None,
        baseline_peak_bytes=None, failure="", seconds=0.0, extra={"library": ["fbgemm"]},
    )  # fmt: skip
