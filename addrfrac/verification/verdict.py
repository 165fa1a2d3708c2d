"""Findings in, a verdict out: which failure names it, which labels stand beside it."""

from __future__ import annotations

from typing import Any

from addrfrac.verification.candidate import ORDER, Findings, Result
from addrfrac.verification.exam import Exam
from addrfrac.verification.records import Check, Credit, Label, PrecisionClass, Speed, Status
from addrfrac.verification.schema import other_layout

SEVERITY = (
    Status.NOT_LOADED,
    Status.TAMPERED,
    Status.CRASHED,
    Status.TIMEOUT,
    Status.OUT_OF_MEMORY,
    Status.RAISED,
    Status.WRONG_SCHEMA,
    Status.ALIASED,
    Status.NOT_WRITTEN,
    Status.CHANGED_STATE,
    Status.IGNORES_PARAMETERS,  # noted only where the values were right before the parameters changed
    Status.WRONG_VALUES,
    Status.UNSTABLE,
    Status.SHAPE_SPECIALISED,
    Status.WRONG_GRADIENTS,
    Status.LOWER_PRECISION,
    Status.PARAMETERS_NOT_VARIED,
    Status.TIMING_DISAGREEMENT,
    Status.TOO_FAST,
    Status.UNVERIFIABLE,
    Status.WEAK_PROBLEM,
    Status.INCOMPLETE,
    Status.TOO_SMALL_TO_TIME,
)
"""The first of these that any check failed with is the status; a rate too small to time is the mildest."""
_HALVES = ("bfloat16", "float16")
NOT_ON_A_CPU = "not measured on a CPU"


def unmeasured(why: str) -> Speed:
    """A speed that was not measured, with the reason."""
    return Speed(
        verdict=why,
        speedup=None,
        low=None,
        high=None,
        least_detectable=None,
        noise_floor=None,
        best_baseline="",
        baselines=(),
        candidate=None,
        warm_us=None,
        cold_us=None,
        peak_persistent_bytes=None,
        peak_transient_bytes=None,
        setup_s=None,
    )


def decide(findings: Findings, exam: Exam | None) -> tuple[Status, str]:
    """Status and reason; a pass needs every planned check to have run."""
    failed = [check for check in findings.checks if not check.passed]
    if failed:
        worst = min(failed, key=lambda check: SEVERITY.index(check.status))
        explained = worst.status in _BY_PRECISION and exam is not None
        precision = _precision_check(findings, exam, published=True) if explained and exam is not None else None
        if precision is not None:
            return precision[0], f"{precision[1]}; {worst.name}: {worst.detail}"
        return worst.status, f"{worst.name}: {worst.detail}"
    if exam is None:
        return Status.INCOMPLETE, "no exam was held"
    if exam.unverifiable:
        return Status.UNVERIFIABLE, exam.unverifiable
    missing = missing_checks(findings, exam)
    if missing:
        return Status.INCOMPLETE, f"did not run: {', '.join(missing)}"
    precision = _precision_check(findings, exam)
    if precision is not None:
        return precision
    if exam.weak:
        return Status.WEAK_PROBLEM, f"the decoy '{exam.weak}' passes every trial of this problem too"
    return Status.PASSED, f"{len(findings.checks)} checks, {findings.facts.get('distributions', 0)} distributions"


def missing_checks(findings: Findings, exam: Exam) -> list[str]:
    """Planned checks without an entry."""
    done = {check.name for check in findings.checks}
    planned = ["distributions at initial parameters", "writes", "stability", "repeats", "endurance", "tripwires"]
    planned.append("processes")
    if any(t.kind in ("probe", "swap") for t in exam.trials):
        planned.append("probes")
    return [name for name in planned if name not in done]


_BY_PRECISION = (Status.SHAPE_SPECIALISED, Status.WRONG_GRADIENTS)
"""What a class that is too coarse at the published shape already explains."""


def allowed_classes(exam: Exam) -> frozenset[PrecisionClass]:
    """Classes that the problem's dtype and operations allow."""
    if exam.dtype in _HALVES:
        return frozenset({PrecisionClass.HALF, PrecisionClass.EXACT, PrecisionClass.FP32})
    wide = {PrecisionClass.FP32, PrecisionClass.EXACT}
    return frozenset(wide | {PrecisionClass.TF32} if exam.matmul else wide)


def _precision_check(findings: Findings, exam: Exam, *, published: bool = False) -> tuple[Status, str] | None:
    """Whether the class reached is one that the problem's dtype allows; with `published`, at the published shape."""
    results = findings.results
    reached = findings.precision
    if published:
        results = [r for r in results if r.trial.kind in ("distribution", "probe", "swap", "coarse")]
        reached = max((r.precision for r in results if r.status is Status.PASSED), key=ORDER.index, default=reached)
    if reached in allowed_classes(exam):
        return None
    worst = max((r for r in results if r.precision is reached), key=lambda r: r.figure, default=None)
    where = f" ({worst.trial.name}: {worst.detail})" if worst else ""
    return Status.LOWER_PRECISION, f"class {reached} where the problem asks for {exam.dtype}{where}"


def labels_of(findings: Findings, exam: Exam | None) -> tuple[Label, ...]:
    """Labels that stand beside any status."""
    found: list[Label] = []
    facts = findings.facts
    wide = exam is not None and exam.dtype not in _HALVES
    if findings.precision is PrecisionClass.TF32:
        found.append(Label.TF32)
    elif findings.precision is PrecisionClass.HALF and wide:
        found.append(Label.HALF)
    elif findings.precision is PrecisionClass.APPROX:
        found.append(Label.APPROXIMATE)
    if facts.get("inference_only"):
        found.append(Label.INFERENCE_ONLY)
    if facts.get("special"):
        found.append(Label.SPECIAL_VALUES)
    if facts.get("settings"):
        found.append(Label.SETTINGS_CHANGED)
    if any(entry.startswith(("shape", "built", "number")) for entry in findings.refused):
        found.append(Label.REFUSES_SHAPES)
    if any(entry.startswith("layout") for entry in findings.refused):
        found.append(Label.REFUSES_LAYOUTS)
    if any(_lies_otherwise(result) for result in findings.results):
        found.append(Label.OTHER_LAYOUT)
    if exam is not None and exam.constructs[0].entries and findings.mapping == "none":
        found.append(Label.PARAMETERS_NOT_VARIED)
    found += _evidence_labels(facts, exam)
    return tuple(found)


def _lies_otherwise(result: Result) -> bool:
    """Whether an output was accepted in another layout than the reference's, for inputs as they are published."""
    accepted = result.status is Status.PASSED and result.trial.kind == "distribution"
    return accepted and result.output is not None and other_layout(result.output, result.trial.native)


def _evidence_labels(facts: dict[str, Any], exam: Exam | None) -> list[Label]:
    found: list[Label] = []
    traced = facts.get("traced", {})
    if traced.get("swallowed"):
        found.append(Label.SWALLOWED_EXCEPTION)
    imports = facts.get("imports", frozenset())
    elsewhere = not traced.get("computes", True) and (
        not _PACKAGES.isdisjoint(imports) or (not _BY_ADDRESS.isdisjoint(imports) and _BUILDERS.isdisjoint(imports))
    )
    if traced.get("library") or elsewhere or _library_share(traced) > 0.5:
        found.append(Label.LIBRARY)
    if exam is None:
        return found
    theirs = exam.operations
    if traced.get("sequence") and _repeats(_operations(traced), _operations(theirs)):
        found.append(Label.NO_CHANGE)
    mine, other = traced.get("elements", 0), theirs.get("elements", 0)
    if other and mine and mine < 0.5 * other and len(theirs.get("operations", [])) > 1:
        found.append(Label.REDUNDANT_PROBLEM)
    reference_bytes = sum(e.value.numel() * e.value.element_size() for e in exam.constructs[0].entries)
    kept = max(facts.get("state_bytes", 0), facts.get("live_bytes", 0)) > 1.5 * reference_bytes + 65_536
    hidden = exam.device == "cpu" and facts.get("private_bytes", 0) > _HIDDEN_BYTES + 2 * reference_bytes
    if kept or hidden or facts.get("wide_storage"):
        found.append(Label.EXTRA_MEMORY)
    mine_bytes, theirs_bytes = facts.get("device_bytes", (None, None))
    if None not in (mine_bytes, theirs_bytes) and mine_bytes > 1.5 * theirs_bytes + _EXTRA_DEVICE_BYTES:
        found.append(Label.EXTRA_MEMORY)
    if facts.get("setup_s", 0.0) > 0.5:
        found.append(Label.SETUP_COMPUTES)
    return list(dict.fromkeys(found))


_EXTRA_DEVICE_BYTES = 256 << 20
"""Libraries and kernels that are loaded when first used take this much of a device without being anybody's memory."""


def _library_share(traced: dict[str, Any]) -> float:
    """Share of device time in library kernels; 0 where no kernel was seen."""
    shares = library_shares(traced)
    return sum(shares.values())


def library_shares(traced: dict[str, Any]) -> dict[str, float]:
    """Library kernels, by name or launched within an operation of torch's, with their shares of the device time."""
    times = [(str(name), float(us)) for name, us in traced.get("kernels", [])]
    total = sum(us for _, us in times)
    within = traced.get("within", {})
    return {name: us / total for name, us in times if total and (is_library_kernel(name) or name in within)}


_HIDDEN_BYTES = 128 << 20
"""Private memory of a candidate's process beyond this is not explained by packages and free blocks."""
_PACKAGES = frozenset({"numpy", "scipy", "numba", "cupy", "jax", "sklearn", "pandas", "mkl", "cv2", "tensorflow"})
"""Packages whose own libraries may do the work where no torch operation does."""
_BY_ADDRESS, _BUILDERS = frozenset({"ctypes", "cffi"}), frozenset({"subprocess", "triton", "cuda", "cupy"})
"""Ways to call native code that is there already, and to make some of one's own."""
_ARITHMETIC = ("mul", "add", "sub", "div", "neg", "where", "mul_", "add_")
_COSMETIC = ("clone", "contiguous", "view", "_unsafe_view", "reshape", "alias", "lift_fresh", "zeros_like", "_to_copy")


def _operations(traced: dict[str, Any]) -> list[str]:
    """The sequence of operations that do work, less copies and reshapes."""
    sequence = [str(entry) for entry in traced.get("sequence", [])]
    return [entry for entry in sequence if entry.partition("[")[0] not in _COSMETIC]


def _repeats(mine: list[str], theirs: list[str]) -> bool:
    """Whether the same operations are done in the same order, with at most a little arithmetic between them."""
    rest = list(theirs)
    for entry in mine:
        if rest and entry == rest[0]:
            rest.pop(0)
        elif entry.partition("[")[0] not in _ARITHMETIC:
            return False
    return not rest and bool(theirs or not mine)


def credit_of(findings: Findings) -> Credit:
    """Who did the work, in one line."""
    traced = findings.facts.get("traced", {})
    operations = tuple(str(o) for o in traced.get("operations", []))
    library = tuple(str(o) for o in traced.get("library", []))
    kernels = [(str(name), float(us)) for name, us in traced.get("kernels", [])]
    libraries = library_shares(traced)
    share = 1.0 - sum(libraries.values()) if kernels else None
    if share is not None:
        line = f"{share:.0%} of device time in kernels of its own"
        if libraries:
            largest = max(libraries, key=lambda name: libraries[name])
            within = traced.get("within", {}).get(largest, "")
            by = f" ({within})" if within else ""
            does = "a library does the work: " if share < 0.5 else "the rest in "
            line += f"; {does}{largest[:60]}{by}, {libraries[largest]:.0%}"
    elif library:
        line = f"library calls: {', '.join(library)}"
    elif operations:
        line = f"torch operations: {', '.join(operations[:6])}"
    else:
        line = "no torch operation seen: its own code does the work"
    return Credit(own_share=share, kernels=tuple(name for name, _ in kernels), operations=operations, line=line)


_LIBRARY_KERNELS = (
    "cublas",
    "cutlass",
    "nvjet",
    "at::native",
    "cudnn",
    "xmma",
    "sm80_",
    "sm90_",
    "gemm",
    "memcpy",
    "memset",
    "flash_fwd",
    "fmha",
    "splitkreduce",
    "cub::",
    "at_cuda_detail",
)


def is_library_kernel(name: str) -> bool:
    """Whether a device kernel's name is a library's."""
    lowered = name.lower()
    return any(token in lowered for token in _LIBRARY_KERNELS)


def failure(status: Status, name: str, detail: str) -> Check:
    """A check that failed."""
    return Check(name=name, passed=False, status=status, detail=detail)
