"""What the command line and `from addrfrac import check_kernel` call."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from addrfrac.errors import AddrfracError
from addrfrac.verification.check import check_target
from addrfrac.verification.processes import start_server
from addrfrac.verification.protocols import ADDRFRAC, find_protocol
from addrfrac.verification.records import Protocol, Verdict
from addrfrac.verification.sources import Target, find_targets, pair

Progress = Callable[[str], None]
_DTYPES = {
    "": "",
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp64": "float64",
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float64": "float64",
}


def verify(
    targets: Sequence[str | Target],
    protocol: str | Protocol = "addrfrac",
    *,
    quick: bool = False,
    dtype: str = "",
    device: str = "cpu",
    jobs: int = 1,
    timeout: float = 60.0,
    directory: Path | str | None = None,
    progress: Progress | None = None,
) -> tuple[Verdict, ...]:
    """A verdict for each case of each target; with `directory`, saved there as `verdicts.json` and a page."""
    if dtype not in _DTYPES:
        raise AddrfracError(f"no dtype {dtype!r}: choose one of fp32, fp16, bf16, fp64")
    if timeout <= 0:
        raise AddrfracError("the timeout must be above 0 seconds")
    _check_device(device)
    chosen = protocol if isinstance(protocol, Protocol) else find_protocol(protocol)
    names = [target for target in targets if isinstance(target, str)]
    cases = [target for target in targets if isinstance(target, Target)]
    cases += find_targets(names, _DTYPES[dtype]) if names or not cases else []
    if dtype:
        cases = [replace(case, dtype=case.dtype or _DTYPES[dtype]) for case in cases]
    if not cases:
        raise AddrfracError("nothing to verify: name a kernel module, a folder of pairs, or --problem and --solution")
    jobs = 1 if device != "cpu" else max(1, min(jobs, len(cases)))
    if jobs == 1:
        verdicts = _verify_batch(cases, chosen, quick, device, timeout, progress)
    else:
        batches = [cases[i::jobs] for i in range(jobs)]
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, mp_context=context) as pool:
            count = len(batches)
            done = pool.map(
                _verify_batch, batches, [chosen] * count, [quick] * count, [device] * count, [timeout] * count
            )
            verdicts = [verdict for batch in done for verdict in batch]
        order = {target.name: index for index, target in enumerate(cases)}
        verdicts.sort(key=lambda verdict: order[verdict.name])
    if directory is not None:
        from addrfrac.verification.page import write_page
        from addrfrac.verification.store import save

        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        save(tuple(verdicts), folder / "verdicts.json")
        write_page(tuple(verdicts), folder / "verdicts.html")
    return tuple(verdicts)


def _check_device(device: str) -> None:
    if device not in ("cpu", "cuda"):
        raise AddrfracError(f"no device {device!r}: choose cpu or cuda")
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise AddrfracError("no CUDA device here: use --device cpu for the value checks")


def _verify_batch(
    cases: list[Target],
    protocol: Protocol,
    quick: bool,
    device: str,
    timeout_s: float,
    progress: Progress | None = None,
) -> list[Verdict]:
    verdicts = []
    with start_server(device) as server:
        for target in cases:
            verdict = check_target(server, target, protocol, quick=quick, timeout_s=timeout_s)
            verdicts.append(verdict)
            if progress is not None:
                progress(f"{verdict.name}: {verdict.status} ({verdict.seconds:.1f} s)")
    return verdicts


def check_kernel(
    problem: Path | str,
    solution: Path | str | None = None,
    *,
    protocol: str | Protocol = ADDRFRAC,
    quick: bool = False,
    dtype: str = "",
    device: str = "cpu",
    timeout: float = 60.0,
) -> tuple[Verdict, ...]:
    """Verdicts of a KernelBench-format pair, or of every case of one kernel module (`solution` left out)."""
    target: str | Target = str(problem)
    if solution is not None:
        target = pair(Path(problem), Path(solution), _DTYPES.get(dtype, dtype))
    return verify([target], protocol, quick=quick, dtype=dtype, device=device, timeout=timeout)
