"""A user's TOML of rules in, a rule set out: new rules stand before the built-in ones, a known name replaces its rule.

[[op]]                       # what a kernel computes, by its name
name = "my-norm"             # a built-in rule of this name is replaced where it stands
pattern = "^my_rms"          # a regular expression, searched in the normalised name
value = "normalization"      # an op class
role = "main"                # or "aux"
could_be = ["softmax"]       # classes that the launching op may make of it

[[provider]]                 # whose code it is
name = "my-library"
pattern = "^my_"
value = "my_library"
incumbent = "tuned"          # closed, tuned, compiler, generic, system

[[stack]]                    # what a frame of the op stack says
name = "my-op"
pattern = "mylib::.*norm.*"  # must match the whole frame
value = "normalization"
encloses = ["elementwise"]   # classes that count as `value` inside this frame

[incumbents]                 # how hard a provider is to beat
my_library = "tuned"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from addrfrac.classify.builtin import BUILT_IN
from addrfrac.classify.normalise import normalise
from addrfrac.classify.rules import OpRule, ProviderRule, RuleSet, StackRule
from addrfrac.errors import AddrfracError
from addrfrac.records import Incumbent, Op, Role

_FIELDS = {
    "op": {"name", "pattern", "value", "role", "could_be", "catch_all", "example"},
    "provider": {"name", "pattern", "value", "incumbent", "evidence", "example"},
    "stack": {"name", "pattern", "value", "helper", "encloses", "provider", "example"},
}
_TABLES = (*_FIELDS, "incumbents")
AnyRule = TypeVar("AnyRule", OpRule, ProviderRule, StackRule)


def load_rules(path: Path | str, base: RuleSet = BUILT_IN) -> RuleSet:
    """The base rules, extended and overridden by a file; what is wrong in it is said with file and rule."""
    path = Path(path)
    tables = read_toml(path)
    for table in tables:
        if table not in _TABLES:
            raise AddrfracError(
                f"{path}: unknown table '{table}': use {', '.join(f'[[{t}]]' for t in _FIELDS)} or [incumbents]"
            )
    op_rules = [_op_rule(path, entry) for entry in _entries(path, tables, "op")]
    providers = [_provider_rule(path, entry) for entry in _entries(path, tables, "provider")]
    stacks = [_stack_rule(path, entry) for entry in _entries(path, tables, "stack")]
    incumbents = {str(name): _member(path, name, value, Incumbent) for name, value in _incumbents(path, tables).items()}
    for rule in providers:
        if rule.provider not in base.incumbents and rule.provider not in incumbents:
            incumbents[rule.provider] = rule.incumbent or Incumbent.GENERIC
    rules = RuleSet(
        ops=_merged(op_rules, base.ops),
        providers=_merged(providers, base.providers),
        stacks=_merged(stacks, base.stacks),
        incumbents={**base.incumbents, **incumbents},
    )
    _check_examples(path, rules, op_rules, providers, stacks)
    return rules


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AddrfracError(f"cannot read {path}: {error.strerror}; give the path of a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AddrfracError(f"{path} is not valid TOML: {error}") from error


def _merged(own: Sequence[AnyRule], built_in: Sequence[AnyRule]) -> tuple[AnyRule, ...]:
    """Own rules of new names first, in their order; those of known names in the place of the rule they override."""
    by_name = {rule.name: rule for rule in own}
    known = {rule.name for rule in built_in}
    merged: list[AnyRule] = [rule for rule in own if rule.name not in known]
    merged += [by_name.get(rule.name, rule) for rule in built_in]
    return tuple(merged)


def _entries(path: Path, tables: dict[str, Any], table: str) -> list[dict[str, Any]]:
    entries = tables.get(table, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise AddrfracError(f"{path}: write each rule as a table of its own, [[{table}]]")
    for number, entry in enumerate(entries, 1):
        where = f"{path}: [[{table}]] rule {_name_of(entry, number)}"
        for field in entry:
            if field not in _FIELDS[table]:
                raise AddrfracError(f"{where}: unknown field '{field}': use {', '.join(sorted(_FIELDS[table]))}")
        for field in ("name", "pattern", "value"):
            if not isinstance(entry.get(field), str) or not entry[field]:
                raise AddrfracError(f"{where}: '{field}' is missing or no text")
        try:
            re.compile(entry["pattern"])
        except re.error as error:
            raise AddrfracError(f"{where}: pattern is no regular expression: {error}") from error
    names = [entry["name"] for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise AddrfracError(f"{path}: two [[{table}]] rules are called '{name}'; names tell rules apart")
    return entries


def _name_of(entry: dict[str, Any], number: int) -> str:
    return f"'{entry['name']}'" if isinstance(entry.get("name"), str) else str(number)


def _incumbents(path: Path, tables: dict[str, Any]) -> dict[str, Any]:
    table = tables.get("incumbents", {})
    if not isinstance(table, dict):
        raise AddrfracError(f'{path}: write [incumbents] as a table of provider = "tuned"')
    return table


Member = TypeVar("Member", Op, Role, Incumbent)


def _member(path: Path, rule: str, value: Any, vocabulary: type[Member]) -> Member:
    try:
        return vocabulary(value)
    except ValueError:
        known = ", ".join(member.value for member in vocabulary)
        raise AddrfracError(f"{path}: rule '{rule}': '{value}' is none of {known}") from None


def _ops(path: Path, entry: dict[str, Any], field: str) -> frozenset[Op]:
    values = entry.get(field, [])
    if not isinstance(values, list):
        raise AddrfracError(f"{path}: rule '{entry['name']}': '{field}' must be a list of op classes")
    return frozenset(_member(path, entry["name"], value, Op) for value in values)


def _text(entry: dict[str, Any], field: str) -> str:
    return str(entry.get(field, ""))


def _op_rule(path: Path, entry: dict[str, Any]) -> OpRule:
    return OpRule(
        name=entry["name"],
        pattern=entry["pattern"],
        op=_member(path, entry["name"], entry["value"], Op),
        example=_text(entry, "example"),
        role=_member(path, entry["name"], entry.get("role", "main"), Role),
        could_be=_ops(path, entry, "could_be"),
        is_catch_all=bool(entry.get("catch_all", False)),
    )


def _provider_rule(path: Path, entry: dict[str, Any]) -> ProviderRule:
    incumbent = entry.get("incumbent")
    return ProviderRule(
        name=entry["name"],
        pattern=entry["pattern"],
        provider=entry["value"],
        example=_text(entry, "example"),
        incumbent=_member(path, entry["name"], incumbent, Incumbent) if incumbent is not None else None,
        evidence=_text(entry, "evidence"),
    )


def _stack_rule(path: Path, entry: dict[str, Any]) -> StackRule:
    return StackRule(
        name=entry["name"],
        pattern=entry["pattern"],
        op=_member(path, entry["name"], entry["value"], Op),
        example=_text(entry, "example"),
        is_helper=bool(entry.get("helper", False)),
        encloses=_ops(path, entry, "encloses"),
        provider=_text(entry, "provider"),
    )


def _check_examples(
    path: Path,
    rules: RuleSet,
    op_rules: Sequence[OpRule],
    providers: Sequence[ProviderRule],
    stacks: Sequence[StackRule],
) -> None:
    """A rule's own example must reach it: a rule before it, or a typing error, else hides it without a word."""
    found: list[tuple[OpRule | ProviderRule | StackRule, OpRule | ProviderRule | StackRule | None]] = []
    found += [(rule, rules.op_rule(normalise(rule.example).text)) for rule in op_rules if rule.example]
    found += [(rule, rules.provider_rule(normalise(rule.example).text)) for rule in providers if rule.example]
    found += [(rule, rules.stack_rule(rule.example)) for rule in stacks if rule.example]
    for rule, first in found:
        if first is not rule:
            instead = f"rule '{first.name}' matches it first" if first is not None else "no rule matches it"
            raise AddrfracError(
                f"{path}: rule '{rule.name}': its example does not reach it, {instead}; "
                f"normalised it reads '{normalise(rule.example).text[:100]}'"
            )
