"""The published protocols, as their harnesses have it: one process, known seeds, tensors shared with the candidate.

They stand here for comparison. What they accept is reported as theirs; the process that says so is the candidate's.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import Any

import torch

from addrfrac.verification import channel
from addrfrac.verification.foreign import Raised, attempt
from addrfrac.verification.processes import Server, Worker, WorkerFailure
from addrfrac.verification.protocols import PROTOCOLS
from addrfrac.verification.records import Check, Credit, Hint, PrecisionClass, Protocol, Status, Verdict
from addrfrac.verification.sources import Target
from addrfrac.verification.targets import Loaded

SCALES = {"published": 1.0, "x3": 3.0, "x0.01": 0.01, "negated": -1.0}


def run_published(
    problem: Loaded, solution: Loaded, protocol: dict[str, Any], device: torch.device, dtype: str
) -> dict[str, Any]:
    """In the worker: whether the protocol's own comparison accepts the candidate."""
    details: list[str] = []
    for seed in protocol["seeds"]:
        torch.manual_seed(seed)
        init = problem.get_init_inputs()
        torch.manual_seed(seed)
        model = placed(problem.build(*init), device, dtype)
        torch.manual_seed(seed)
        new = attempt(solution.build, *init)
        if isinstance(new, Raised):
            return {"accepted": False, "detail": f"constructor raised {new.type}: {new.text}"}
        new = placed(new, device, dtype)
        torch.manual_seed(seed)
        base = list(problem.get_inputs())
        for name in protocol["distributions"]:
            inputs = [scaled(value, SCALES[name], device, dtype) for value in base]
            accepted, detail = _one(model, new, inputs, protocol, dtype)
            details.append(f"seed {seed} {name}: {detail}")
            if not accepted:
                return {"accepted": False, "detail": details[-1]}
    return {"accepted": True, "detail": details[-1] if details else "nothing compared"}


def placed(model: Any, device: torch.device, dtype: str) -> Any:
    if isinstance(model, torch.nn.Module):
        model = model.to(device)
        return model.to(getattr(torch, dtype)) if dtype else model
    return model


def scaled(value: Any, scale: float, device: torch.device, dtype: str) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    value = value.to(device)
    if not value.is_floating_point():
        return value
    value = value.to(getattr(torch, dtype)) if dtype else value
    return value * scale if scale != 1.0 else value.clone()


def _one(model: Any, new: Any, inputs: list[Any], protocol: dict[str, Any], dtype: str) -> tuple[bool, str]:
    with torch.no_grad():
        expected = attempt(model, *inputs)
        if isinstance(expected, Raised):
            return True, f"skipped: the reference raised {expected.type}"
        found = attempt(new, *inputs)
    if isinstance(found, Raised):
        return False, f"raised {found.type}: {found.text[:100]}"
    ours = expected if isinstance(expected, (list, tuple)) else [expected]
    theirs = found if isinstance(found, (list, tuple)) else [found]
    if len(ours) != len(theirs):
        return False, "another number of outputs"
    detail = "nothing compared"
    for reference, output in zip(ours, theirs, strict=True):
        if not isinstance(reference, torch.Tensor):
            continue
        verdict = attempt(_compare, reference, output, protocol, dtype or str(reference.dtype).removeprefix("torch."))
        if isinstance(verdict, Raised):
            return False, f"comparison raised {verdict.type}: {verdict.text[:100]}"
        accepted, detail = verdict
        if not accepted:
            return False, detail
    return True, detail


def _compare(reference: torch.Tensor, output: Any, protocol: dict[str, Any], dtype: str) -> tuple[bool, str]:
    if reference.shape != output.shape:
        return False, f"shape {tuple(output.shape)}, not {tuple(reference.shape)}"
    if protocol["metric"] == "allclose":
        tolerance = protocol["tolerance"].get(dtype, 1e-2)
        ours, theirs = (t if t.is_floating_point() else t.float() for t in (reference, output))
        accepted = bool(torch.allclose(theirs, ours.to(theirs.dtype), atol=tolerance, rtol=tolerance))
        return accepted, f"allclose at {tolerance:g} is {accepted}"
    if not torch.isfinite(reference.float()).all():
        return True, "skipped: the reference overflows"
    error = output.double() - reference.double()
    relative = float(error.norm() / reference.double().norm())
    maximum = float(error.abs().max() / reference.double().abs().max())
    wrong = not (relative < protocol["relative_frobenius"] and maximum < protocol["normalised_max"])
    if wrong:
        return False, f"relative Frobenius {relative:.2e}, normalised max {maximum:.2e}"
    if protocol["written_fraction"]:
        ours, theirs = ((t != 0).double().mean().item() for t in (reference, output))
        if theirs < 0.95 * ours:
            return False, f"written fraction {theirs:.3f}, the reference's {ours:.3f}"
    if protocol["invariants"] and reference.ndim and reference.shape[-1] > 1:
        sums = reference.double().sum(-1)
        if bool(((sums - 1).abs() < 1e-4).all()) and not bool(((output.double().sum(-1) - 1).abs() < 1e-3).all()):
            return False, "rows do not sum to one"
    return True, f"relative Frobenius {relative:.2e}, normalised max {maximum:.2e}"


def accepted_by_published(server: Server, target: Target, *, timeout_s: float) -> dict[str, bool | None]:
    """What each published protocol says of a target, its modules loaded anew for each; one process while it lives."""
    found: dict[str, bool | None] = {}
    worker: Worker | None = None
    for protocol in PROTOCOLS.values():
        if not protocol.in_process:
            continue
        worker = Worker(server, timeout_s=timeout_s) if worker is None else worker
        try:
            found[protocol.name] = _ask(worker, target, protocol)[0]
        except WorkerFailure:
            found[protocol.name] = False
            worker.end()
            worker = None
    if worker is not None:
        worker.end()
    return found


def published_accepts(
    server: Server, target: Target, protocol: Protocol, *, timeout_s: float = 60.0
) -> tuple[bool, str, Worker]:
    """What the protocol says of a target, and the ended worker it was said in."""
    worker = Worker(server, timeout_s=timeout_s)
    try:
        accepted, detail = _ask(worker, target, protocol)
    except WorkerFailure as error:
        return False, error.reason, worker
    finally:
        worker.end()
    return accepted, detail, worker


def _ask(worker: Worker, target: Target, protocol: Protocol) -> tuple[bool, str]:
    texts = [target.problem.text.encode(), target.solution.text.encode()]
    fds = []
    for text in texts:
        fd = channel.memory_file(max(1, len(text)), sealed=True)
        channel.write_all(fd, text, 0)
        fds.append(fd)
    plain = asdict(protocol)
    plain["checks"] = []
    try:
        answer = worker.ask(
            {
                "op": "published",
                "sizes": [len(text) for text in texts],
                "module": target.solution.module,
                "case": target.case,
                "protocol": plain,
                "dtype": target.dtype,
            },
            tuple(fds),
        )
    finally:
        for fd in fds:
            os.close(fd)
    if "raised" in answer:
        return False, f"{answer['raised'].get('type')}: {answer['raised'].get('text')}"
    return bool(answer.get("accepted")), str(answer.get("detail"))


def published_verdict(
    server: Server,
    target: Target,
    protocol: Protocol,
    *,
    hints: tuple[Hint, ...],
    timeout_s: float,
    started: float,
) -> Verdict:
    """A verdict record of a published protocol."""
    from addrfrac.verification.verdict import NOT_ON_A_CPU, unmeasured

    accepted, detail, worker = published_accepts(server, target, protocol, timeout_s=timeout_s)
    status = Status.PASSED if accepted else Status.WRONG_VALUES
    return Verdict(
        name=target.name,
        protocol=protocol.name,
        status=status,
        reason=detail,
        labels=(),
        precision=PrecisionClass.NONE,
        checks=(Check(name=protocol.metric, passed=accepted, status=status, detail=detail),),
        distributions_checked=len(protocol.distributions),
        distributions_planned=len(protocol.distributions),
        replaced=(),
        speed=unmeasured(NOT_ON_A_CPU if server.device == "cpu" else "not measured under a published protocol"),
        credit=Credit(own_share=None, kernels=(), operations=(), line="not looked at by this protocol"),
        hints=hints,
        isolation=worker.layers,
        device=server.device,
        dtype=target.dtype,
        seconds=time.monotonic() - started,
        seed="known: " + ", ".join(str(seed) for seed in protocol.seeds),
        source_sha256=target.solution.sha256,
        notes=("judged in the candidate's own process, as this protocol has it",),
    )
