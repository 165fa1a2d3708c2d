"""The reference's process as the trusted side sees it: inputs, states, native outputs and the fp64 truth."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from typing import Any, Self

import torch

from addrfrac.verification import channel
from addrfrac.verification.answers import tensor_facts
from addrfrac.verification.parameters import Entry
from addrfrac.verification.processes import Group, Server, WorkerFailure
from addrfrac.verification.records import Status
from addrfrac.verification.sources import Source


class ReferenceRaised(Exception):
    """The problem's own code raised, for these inputs or at all."""

    @property
    def of_the_device(self) -> bool:
        """Whether a kernel of it failed, as of misaligned memory: CUDA answers nothing more in that process."""
        return "CUDA error" in str(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What a model is called with: a tree of plain values and its tensors."""

    tree: Any
    tensors: list[torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one call gave."""

    tree: Any
    infos: list[dict[str, Any]]
    tensors: list[torch.Tensor]
    """Those of `infos` that have bytes, in order of their slots."""
    rng: str
    inputs_after: list[torch.Tensor]
    elapsed_s: float
    facts: dict[str, Any]


class Handle:
    """A loaded worker of either role with the requests both understand."""

    def __init__(
        self, server: Server | Group, source: Source, *, role: str, case: int = 0, timeout_s: float = 60.0
    ) -> None:
        self.opened = server, source, role, case, timeout_s
        self.worker = server.worker(timeout_s=timeout_s)
        self.private_at_start = self.worker.private_bytes()
        self.arenas: dict[int, channel.Arena] = {}
        text = source.text.encode()
        request: dict[str, Any] = {"op": "load", "role": role, "case": case}
        if source.module:
            answer = self.worker.ask(request | {"kind": "named", "name": source.module})
        else:
            fd = channel.memory_file(max(1, len(text)), sealed=True)
            channel.write_all(fd, text, 0)
            name = "module_" + secrets.token_hex(4)
            answer = self.worker.ask(request | {"kind": "source", "name": name, "size": len(text)}, (fd,))
            os.close(fd)
        self.loaded = raised_or(answer)

    def reopen(self) -> None:
        """Begin again in a fresh process, where this one has ended."""
        self.close()
        server, source, role, case, timeout_s = self.opened
        Handle.__init__(self, server, source, role=role, case=case, timeout_s=timeout_s)

    def ask(self, request: dict[str, Any], tensors: list[torch.Tensor] | None = None) -> dict[str, Any]:
        """One request with tensors; raises `ReferenceRaised` where the module's code raised."""
        if tensors is None:
            return raised_or(self.worker.ask(request))
        fd, slots = channel.pack(tensors)
        try:
            return raised_or(self.worker.ask(request | {"slots_in": slots}, (fd,)))
        finally:
            os.close(fd)

    def entries(self) -> list[Entry]:
        """Parameters and buffers as they are now."""
        answer = self.ask({"op": "state"})
        return [
            Entry(name=raw["name"], kind=raw["kind"], value=value)
            for raw, value in zip(answer["entries"], answer["tensors"], strict=True)
        ]

    def build(
        self, init: Arguments, *, seed: int, dtype: str, reseed: int | None = None, train: bool | None = None
    ) -> Any:
        """Construct the model."""
        request: dict[str, Any] = {"op": "build", "tree": init.tree, "seed": seed, "dtype": dtype, "reseed": reseed}
        if train is not None:
            request["train"] = train
        return self.ask(request, init.tensors)

    def place(self, arguments: Arguments, *, spare: bool = False) -> channel.Arena:
        """The arena of these shapes and strides, filled; the same storage serves every call of the same layout.

        A spare one holds further contents beside it.
        """
        key = hash((_layout_key(arguments), spare)) if spare else _layout_key(arguments)
        if key in self.arenas:
            self.arenas[key].write(arguments.tensors)
        else:
            arena = channel.Arena(arguments.tensors)
            raised_or(self.worker.ask({"op": "arena", "arena": arena.describe(), "tree": arguments.tree}, (arena.fd,)))
            self.arenas[key] = arena
        return self.arenas[key]

    def place_of(self, arguments: Arguments) -> channel.Arena | None:
        """The arena that serves such arguments, if one was made."""
        return self.arenas.get(_layout_key(arguments))

    def call(self, arguments: Arguments, *, seed: int, **options: Any) -> Output:
        """Call the model once."""
        arena = self.place(arguments)
        return self.call_placed(arena, seed=seed, **options)

    def call_placed(self, arena: channel.Arena, *, seed: int, **options: Any) -> Output:
        """Call it on what the arena holds now."""
        answer = raised_or(self.worker.ask({"op": "call", "key": arena.key, "seed": seed, **options}))
        facts = {key: value for key, value in answer.items() if key not in ("tree", "infos", "tensors")}
        try:
            infos = tensor_facts(answer.get("infos"), len(answer["tensors"]))
        except ValueError as error:
            raise WorkerFailure(Status.TAMPERED, f"an answer that does not fit together: {error}") from error
        return Output(
            tree=answer.get("tree"),
            infos=infos,
            tensors=answer["tensors"],
            rng=str(answer.get("rng")),
            inputs_after=arena.tensors,
            elapsed_s=float(answer["elapsed_s"]),
            facts=facts,
        )

    def set_values(self, names: list[str], values: list[torch.Tensor], *, how: str) -> dict[str, Any]:
        """Give parameters and buffers new values."""
        return self.ask({"op": "set_state", "how": how, "names": names}, values)

    def gradients(
        self,
        arguments: Arguments,
        *,
        seed: int,
        cotangents: list[int],
        names: list[str],
        double: bool,
        dtype: str = "float32",
    ) -> dict[str, Any]:
        """Gradients of inputs and named parameters for the cotangents, and whether outputs were attached."""
        arena = self.place(arguments)
        request = {"op": "call", "key": arena.key, "seed": seed, "grad": cotangents, "double": double}
        return self.ask(request | {"parameters": names, "dtype": dtype})

    def close(self) -> None:
        """End the process and drop its arenas."""
        self.worker.end()
        for arena in self.arenas.values():
            arena.close()
        self.arenas = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _layout_key(arguments: Arguments) -> int:
    layouts = tuple((tuple(t.shape), t.stride(), t.dtype, channel.misalignment(t)) for t in arguments.tensors)
    return hash((repr(arguments.tree), layouts))


def raised_or(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, unless the module's code raised."""
    if "raised" in answer:
        raised = answer["raised"]
        raise ReferenceRaised(f"{raised.get('type')}: {raised.get('text')}")
    return answer


class Reference(Handle):
    """The reference's worker."""

    def __init__(self, server: Server | Group, source: Source, *, case: int = 0, timeout_s: float = 60.0) -> None:
        super().__init__(server, source, role="reference", case=case, timeout_s=timeout_s)

    def inputs(self, seed: int, dtype: str = "") -> Arguments:
        """Fresh inputs of the problem's generator."""
        answer = self.ask({"op": "inputs", "seed": seed, "dtype": dtype})
        return Arguments(tree=answer["tree"], tensors=answer["tensors"])

    def init_inputs(self) -> Arguments:
        """The constructor's arguments."""
        answer = self.ask({"op": "init_inputs"})
        return Arguments(tree=answer["tree"], tensors=answer["tensors"])

    def truth(self, arguments: Arguments, *, how: str, seed: int, dtype: str) -> list[torch.Tensor]:
        """Outputs in fp64, inputs and parameters exact or rounded to a class."""
        return self.truths(arguments, hows=[how], seed=seed, dtype=dtype)[0]

    def truths(self, arguments: Arguments, *, hows: list[str], seed: int, dtype: str) -> list[list[torch.Tensor]]:
        """Outputs in fp64 for each way to round, in one request."""
        arena = self.place(arguments)
        answer = self.ask({"op": "truth", "key": arena.key, "hows": hows, "seed": seed, "dtype": dtype})
        tensors: list[torch.Tensor] = answer["tensors"]
        found = []
        for count in answer["counts"]:
            found.append(tensors[: int(count)])
            tensors = tensors[int(count) :]
        return found

    def traced(self, arguments: Arguments, seed: int) -> dict[str, Any]:
        """Operations of one call."""
        arena = self.place(arguments)
        return self.ask({"op": "traced", "key": arena.key, "seed": seed})
