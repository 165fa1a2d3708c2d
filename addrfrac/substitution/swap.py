"""A model in, the same model with verified kernels inside out; everything undone afterwards, after an error too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
import torch._dynamo
from torch.fx import GraphModule

from addrfrac.records import SiteDecision
from addrfrac.substitution import decide, verdicts
from addrfrac.substitution.optimizer import OptimizerSwap, optimizer_substituted
from addrfrac.substitution.pool import AUTO, find_kernels
from addrfrac.substitution.session import EAGER, Session

RECOMPILE_LIMIT = 64


@dataclass(slots=True, kw_only=True, eq=False)
class Swap:
    """A model with kernels in it."""

    model: torch.nn.Module
    session: Session
    decisions: tuple[SiteDecision, ...] = ()
    notes: list[str] = field(default_factory=list)
    optimizer: OptimizerSwap | None = None
    """What became of the optimizer's step, where one was given."""

    @property
    def sites(self) -> tuple[SiteDecision, ...]:
        """Every site that was found, with what was decided and why."""
        return self.decisions

    def engaged(self, run: Callable[[], object], steps: int = 2) -> tuple[SiteDecision, ...]:
        """The decisions with the calls of each kernel in steps of `run`; those that never ran say so."""
        self.decisions = decide.with_engagement(self.decisions, decide.engagement(self.session, run, steps))
        return self.decisions


@contextmanager
def installed(model: torch.nn.Module, session: Session) -> Iterator[None]:
    """The model runs as the session says; as it was afterwards.

    Dynamo's limit of compilations is eight for a piece of code, over all backends; the ninth would run eager unseen.
    """
    before = vars(model).get("_compiled_call_impl")
    config = torch._dynamo.config
    limits = config.recompile_limit, config.fail_on_recompile_limit_hit
    config.recompile_limit, config.fail_on_recompile_limit_hit = max(limits[0], RECOMPILE_LIMIT), True
    try:
        install(model, session)
        yield
    finally:
        object.__setattr__(model, "_compiled_call_impl", before)
        config.recompile_limit, config.fail_on_recompile_limit_hit = limits
        session.graphs.clear()


def install(model: torch.nn.Module, session: Session) -> None:
    """Let the model run as the session says, for good."""
    if type(model).__module__.startswith("torch."):  # Dynamo passes over the frames of torch's own modules

        def outside(*arguments: Any, **named: Any) -> Any:
            return model._call_impl(*arguments, **named)  # type: ignore[no-untyped-call]

        compiled = torch.compile(outside, backend=session.backend, dynamic=False)
        object.__setattr__(model, "_compiled_call_impl", compiled)
        return
    model.compile(backend=session.backend, dynamic=False)


@contextmanager
def substituted(
    model: torch.nn.Module,
    example_inputs: Sequence[Any] | Mapping[str, Any],
    kernels: str | Sequence[str] = AUTO,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    base: str = EAGER,
    need_gain: bool | None = None,
    use_cache: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Iterator[Swap]:
    """The model with verified kernels at its sites, while the block lasts.

    `kernels`: 'auto' for all installed, else names, files and folders. `base`: 'eager', or 'compiled' for Inductor
    around the kernels. `need_gain`: a kernel must also be faster at its site; left out, on a GPU it must, on a CPU,
    where Triton's interpreter runs, it need not. The model is called a few times with the example inputs; its buffers
    are put back. `optimizer`: its step is judged and taken over too; the gradients of one backward pass must be there.
    Raises AddrfracError for kernels that are not there.
    """
    device = _device(model)
    session = Session(kernels=find_kernels(kernels), base=base)
    positional, named = ((), example_inputs) if isinstance(example_inputs, Mapping) else (tuple(example_inputs), {})

    def run() -> object:
        return model(*positional, **named)

    with installed(model, session):
        with _buffers_kept(model):
            findings = decide.capture(session, run)
            findings.answers = verdicts.asked(
                decide.questions(session, findings), device.type, use_cache=use_cache, progress=progress
            )
            gain = device.type == "cuda" if need_gain is None else need_gain
            decide.try_places(session, run, findings, device, clock=gain or device.type == "cuda")
        decisions = decide.decided(session, findings, need_gain=gain)
        findings.examples.clear()
        swap = Swap(model=model, session=session, decisions=decisions, notes=session.notes)
        stepping = optimizer_substituted(optimizer, need_gain=gain) if optimizer is not None else nullcontext()
        with stepping as swap.optimizer:
            yield swap


def _device(model: torch.nn.Module) -> torch.device:
    tensors = [*model.parameters(), *model.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")


@contextmanager
def _buffers_kept(model: torch.nn.Module) -> Iterator[None]:
    """What the model learns of the example inputs (running statistics, counters) is forgotten again."""
    before = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, kept in before:
                buffer.copy_(kept)


# --- torch.compile(model, backend="addrfrac") ---------------------------------------------------------------------


@lru_cache(maxsize=2)
def _standing(device: str) -> Session:
    """The session behind the backend's name: installed kernels where a verdict is known."""
    known = verdicts.known(device)
    session = Session(kernels=find_kernels(AUTO))
    session.value = lambda site: 0.0 if known.get(site.group, _UNKNOWN).status == verdicts.PASSED else None
    return session


_UNKNOWN = verdicts.Answer(status="", reason="", cached=False)


def backend(captured: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """`torch.compile(model, backend="addrfrac")`: kernels at the sites whose verdict is kept from before.

    Nothing is verified here: `substituted` and `addrfrac apply` do that.
    """
    on_gpu = any(isinstance(each, torch.Tensor) and each.device.type == "cuda" for each in inputs)
    return _standing("cuda" if on_gpu else "cpu").backend(captured, inputs)
