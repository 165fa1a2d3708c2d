"""What a rule is, and a set of them; the tables themselves are data in `op_rules`, `provider_rules`, `stack_rules`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Generic, TypeVar

from addrfrac.classify.literals import required_literals
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


@dataclass(frozen=True, eq=False)
class RuleSet:
    """The three ordered tables, first match wins, and who is how hard to beat."""

    ops: tuple[OpRule, ...]
    providers: tuple[ProviderRule, ...]
    stacks: tuple[StackRule, ...]
    incumbents: dict[str, Incumbent] = field(default_factory=dict)
    _ops: Table[OpRule] = field(init=False)
    _providers: Table[ProviderRule] = field(init=False)
    _stacks: Table[StackRule] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ops", Table(self.ops))
        object.__setattr__(self, "_providers", Table(self.providers))
        object.__setattr__(self, "_stacks", Table(self.stacks))

    def op_rule(self, text: str) -> OpRule | None:
        """First op rule that matches a normalised name."""
        return self._ops.first_match(text, re.Pattern.search)

    def provider_rule(self, text: str) -> ProviderRule | None:
        """First provider rule that matches a normalised name."""
        return self._providers.first_match(text, re.Pattern.search)

    def stack_rule(self, frame: str) -> StackRule | None:
        """First stack rule that matches a whole frame."""
        return self._stacks.first_match(frame, re.Pattern.fullmatch)


R = TypeVar("R", OpRule, ProviderRule, StackRule)


class Table(Generic[R]):
    """An ordered table that remembers its answers and tries only the rules whose words occur in a text."""

    def __init__(self, rules: tuple[R, ...]) -> None:
        self.rules: tuple[R, ...] = rules
        self.words: tuple[str, ...] = ()
        self.needed: tuple[frozenset[str] | None, ...] = ()
        self.answers: dict[str, R | None] = {}

    def first_match(self, text: str, how: Callable[[re.Pattern[str], str], re.Match[str] | None]) -> R | None:
        """The first rule whose pattern matches the text in this way."""
        if text not in self.answers:
            if not self.needed:
                self._read_words()
            present = frozenset([word for word in self.words if word in text])
            self.answers[text] = next(
                (
                    rule
                    for rule, needed in zip(self.rules, self.needed, strict=True)
                    if (needed is None or not needed.isdisjoint(present)) and how(compiled(rule.pattern), text)
                ),
                None,
            )
        return self.answers[text]

    def _read_words(self) -> None:
        literals = [required_literals(rule.pattern) for rule in self.rules]
        self.needed = tuple(None if each is None else frozenset(each) for each in literals)
        self.words = tuple({word for each in literals for word in each or ()})


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """A rule's pattern, compiled when it is first asked for."""
    return re.compile(pattern)
