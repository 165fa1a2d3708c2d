"""What the command line and `from addrfrac import check_kernel` call."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from addrfrac.errors import AddrfracError
from addrfrac.verification.check import check_target
from addrfrac.verification.processes import Server, start_server
from addrfrac.verification.protocols import ADDRFRAC, find_protocol
from addrfrac.verification.records import Protocol, Verdict
from addrfrac.verification.sources import Target, distinct, find_targets, pair

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
    protocol: str | Protocol | Sequence[str | Protocol] = "addrfrac",
    *,
    quick: bool = False,
    dtype: str = "",
    device: str = "cpu",
    jobs: int = 1,
    timeout: float = 60.0,
    directory: Path | str | None = None,
    progress: Progress | None = None,
) -> tuple[Verdict, ...]:
    """A verdict for each case of each target under each protocol, those of one case side by side.

    With `directory` they are saved there as `verdicts.json` and a page.
    """
    if dtype not in _DTYPES:
        raise AddrfracError(f"no dtype {dtype!r}: choose one of fp32, fp16, bf16, fp64")
    if not timeout > 0:
        raise AddrfracError(f"a timeout of {timeout:g} s: give more than 0")
    if jobs < 1:
        raise AddrfracError(f"{jobs} jobs: give 1 or more")
    _check_device(device)
    asked = [protocol] if isinstance(protocol, (str, Protocol)) else list(protocol)
    protocols = list(dict.fromkeys(each.name if isinstance(each, Protocol) else each for each in asked))
    own = {each.name: each for each in asked if isinstance(each, Protocol)}
    chosen = [own.get(name) or find_protocol(name) for name in protocols]
    names = [target for target in targets if isinstance(target, str)]
    cases = [target for target in targets if isinstance(target, Target)]
    cases += find_targets(names, _DTYPES[dtype]) if names or not cases else []
    if dtype:
        cases = [replace(case, dtype=case.dtype or _DTYPES[dtype]) for case in cases]
    cases = distinct(cases)
    verdicts = _verify_all(cases, chosen, quick, device, 1 if device != "cpu" else jobs, timeout, progress)
    if directory is not None:
        from addrfrac.verification.page import write_page
        from addrfrac.verification.store import save

        folder = Path(directory)
        try:
            save(verdicts, folder / "verdicts.json")
            write_page(verdicts, folder / "verdicts.html")
        except OSError as error:
            raise AddrfracError(f"cannot write to {folder}: {error.strerror}; give another folder") from error
    return verdicts


def _check_device(device: str) -> None:
    if device not in ("cpu", "cuda"):
        raise AddrfracError(f"no device {device!r}: choose cpu or cuda")
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise AddrfracError("no CUDA device here: use --device cpu for the value checks")


def _verify_all(
    cases: list[Target],
    protocols: list[Protocol],
    quick: bool,
    device: str,
    jobs: int,
    timeout_s: float,
    progress: Progress | None,
) -> tuple[Verdict, ...]:
    """Verdicts in the order of the cases, each told as it comes; on a GPU one case at a time."""
    done: dict[int, list[Verdict]] = {}

    def told(index: int, verdicts: list[Verdict]) -> None:
        done[index] = verdicts
        for verdict in verdicts if progress is not None else ():
            progress(f"{verdict.name} {verdict.protocol}: {verdict.status} ({verdict.seconds:.1f} s)")  # type: ignore[misc]

    if min(jobs, len(cases)) == 1:
        with start_server(device) as server:
            for index, case in enumerate(cases):
                told(index, _verify_case(server, case, protocols, quick, timeout_s))
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(jobs, len(cases)), mp_context=context) as pool:
            waiting = {
                pool.submit(_verify_apart, case, protocols, quick, device, timeout_s): index
                for index, case in enumerate(cases)
            }
            for future in as_completed(waiting):
                told(waiting[future], future.result())
    return tuple(verdict for index in range(len(cases)) for verdict in done[index])


_servers: dict[str, Server] = {}


def _verify_apart(case: Target, protocols: list[Protocol], quick: bool, device: str, timeout_s: float) -> list[Verdict]:
    """A case in a process of the pool, which keeps its server from case to case."""
    import torch

    torch.set_num_threads(1)
    if device not in _servers or _servers[device].process.poll() is not None:
        _servers[device] = start_server(device)
    return _verify_case(_servers[device], case, protocols, quick, timeout_s)


def _verify_case(
    server: Server, case: Target, protocols: list[Protocol], quick: bool, timeout_s: float
) -> list[Verdict]:
    return [check_target(server, case, protocol, quick=quick, timeout_s=timeout_s) for protocol in protocols]


def check_kernel(
    problem: Path | str,
    solution: Path | str | None = None,
    *,
    protocol: str | Protocol | Sequence[str | Protocol] = ADDRFRAC,
    quick: bool = False,
    dtype: str = "",
    device: str = "cpu",
    timeout: float = 60.0,
) -> tuple[Verdict, ...]:
    """Verdicts of a KernelBench-format pair, or of every case of one kernel module (`solution` left out).

    >>> from addrfrac import check_kernel
    >>> verdicts = check_kernel("softmax", quick=True)
    >>> [verdict.status.value for verdict in verdicts]
    ['passed', 'passed']
    """
    target: str | Target = str(problem)
    if solution is not None:
        target = pair(Path(problem), Path(solution), _DTYPES.get(dtype, dtype))
    return verify([target], protocol, quick=quick, dtype=dtype, device=device, timeout=timeout)
