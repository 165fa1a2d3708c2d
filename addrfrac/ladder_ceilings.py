"""An arm that a worker holds in, its ceiling out: only what all replaceable kernels together would give."""

from __future__ import annotations

from addrfrac import arms, capture
from addrfrac.analysis import Options
from addrfrac.measure import Held
from addrfrac.records import Ceiling


def of_held(held: Held, arm: str, options: Options) -> Ceiling:
    """The measured ceiling of a held arm. A reduced graph that faults ends the worker's use, not the ladder's."""
    from addrfrac.ceiling import Asked, measure_ceiling
    from addrfrac.ceiling_rows import Wanted

    asked = Asked(
        arm=arm,
        switches=held.arm.switches,
        options=options,
        wanted=Wanted(headline=True),
        sample_unit=held.workload.sample,
    )
    capture.release_memory(held.device)  # the step is captured once more, beside the arm's own graph
    try:
        with arms.settings(held.configuration):
            return measure_ceiling(
                held.step, held.configuration, held.device, asked, directory=None, progress=lambda line: None
            )
    finally:
        capture.release_memory(held.device)
