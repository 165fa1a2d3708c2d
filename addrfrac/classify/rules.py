"""What a rule is, and a set of them; the tables themselves are data in `op_rules`, `provider_rules`, `stack_rules`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

from addrfrac.records import Incumbent, Op, Role


@dataclass(frozen=True, slots=True)
class OpRule:
    """A kernel whose normalised name matches `pattern` computes `op`."""

    name: str
    pattern: str
    """Searched in the normalised name (see `normalise`)."""
    op: Op
    example: str = ""
    """A real name for which this rule is the first match; a test holds every rule to it."""
    role: Role = Role.MAIN
    could_be: frozenset[Op] = frozenset()
    """Other classes that kernels of this name serve: an op stack that says one of them is believed."""
    is_catch_all: bool = False
    """The name says too little: counts as unknown unless the op stack knows."""


@dataclass(frozen=True, slots=True)
class ProviderRule:
    """A kernel whose normalised name matches `pattern` is the work of `provider`."""

    name: str
    pattern: str
    provider: str
    example: str = ""
    incumbent: Incumbent | None = None
    """Where it differs from what the provider's other kernels are."""
    evidence: str = ""
    """A fact that the match adds, in words."""


@dataclass(frozen=True, slots=True)
class StackRule:
    """A frame of an op stack that matches `pattern` says that what it launches serves `op`."""

    name: str
    pattern: str
    """Must match the whole frame."""
    op: Op | None
    """None: a frame that is transparent (a wrapper, a composite); look further out."""
    example: str = ""
    is_helper: bool = False
    """An op that others use as a building block: look further out for what it serves."""
    encloses: frozenset[Op] = frozenset()
    """Ops that count as `op` when anything inside this frame launched them."""
    absorbs_aux: frozenset[Op] = frozenset()
    """Kernels of these classes that the frame launches itself are aux kernels of `op`."""
    absorbs_main: frozenset[Op] = frozenset()
    """Kernels of these classes that the frame launches itself are the work of `op`."""
    provider: str = ""
    """Who launches from this frame, where the kernel's name does not say."""


@dataclass(frozen=True, slots=True, eq=False)
class RuleSet:
    """The three ordered tables, first match wins, and who is how hard to beat."""

    ops: tuple[OpRule, ...]
    providers: tuple[ProviderRule, ...]
    stacks: tuple[StackRule, ...]
    incumbents: dict[str, Incumbent] = field(default_factory=dict)
    _op_of: dict[str, OpRule | None] = field(default_factory=dict)
    _provider_of: dict[str, ProviderRule | None] = field(default_factory=dict)
    _stack_of: dict[str, StackRule | None] = field(default_factory=dict)

    def op_rule(self, text: str) -> OpRule | None:
        """First op rule that matches a normalised name."""
        if text not in self._op_of:
            self._op_of[text] = first_match(self.ops, text)
        return self._op_of[text]

    def provider_rule(self, text: str) -> ProviderRule | None:
        """First provider rule that matches a normalised name."""
        if text not in self._provider_of:
            self._provider_of[text] = first_match(self.providers, text)
        return self._provider_of[text]

    def stack_rule(self, frame: str) -> StackRule | None:
        """First stack rule that matches a whole frame."""
        if frame not in self._stack_of:
            matches = (rule for rule in self.stacks if compiled(rule.pattern).fullmatch(frame))
            self._stack_of[frame] = next(matches, None)
        return self._stack_of[frame]


R = TypeVar("R", OpRule, ProviderRule)


def first_match(rules: Iterable[R], text: str) -> R | None:
    """The first rule whose pattern occurs in the text."""
    return next((rule for rule in rules if compiled(rule.pattern).search(text)), None)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """A rule's pattern, compiled when it is first asked for."""
    return re.compile(pattern)
