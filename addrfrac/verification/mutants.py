"""Sources with one thing wrong, and how many of them each protocol kills.

Mutations are made in the syntax tree (Python and Triton alike): an operator swapped, a term dropped, a constant
changed, a comparison off by one, a block or a row skipped, an accumulation in half. A mutant that equals the original
on every input of a long random test is called equivalent and not counted.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from addrfrac.verification.check import Exams, check_target
from addrfrac.verification.fixtures.fixture import PREAMBLE
from addrfrac.verification.fixtures.mutation_sources import EQUIVALENT, SOURCES
from addrfrac.verification.fixtures.problems import PROBLEMS
from addrfrac.verification.inprocess import accepted_by_published
from addrfrac.verification.processes import Server
from addrfrac.verification.protocols import ADDRFRAC, PROTOCOLS
from addrfrac.verification.rates import clopper_pearson
from addrfrac.verification.records import MutationScore
from addrfrac.verification.sources import Source, Target

_SWAPS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
_CALLS = {"maximum": "minimum", "amax": "amin", "sum": "mean", "mean": "sum", "exp": "exp2", "rsqrt": "sqrt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One changed source."""

    name: str
    problem: str
    text: str


def mutate(text: str) -> Iterator[tuple[str, str]]:
    """(what was done, changed source) for every single change; only function bodies are changed."""
    tree = ast.parse(text)
    nodes = [node for function in ast.walk(tree) if isinstance(function, ast.FunctionDef) for node in _body(function)]
    for index, node in enumerate(nodes):
        for what, change in _changes(node):
            changed = copy.deepcopy(tree)
            found = [
                n for function in ast.walk(changed) if isinstance(function, ast.FunctionDef) for n in _body(function)
            ]
            change(found[index])
            ast.fix_missing_locations(changed)
            yield f"line {getattr(node, 'lineno', 0)}: {what}", ast.unparse(changed)


def _body(function: ast.FunctionDef) -> list[ast.AST]:
    if function.name == "__init__":
        return []
    return [node for statement in function.body for node in ast.walk(statement)]


def _changes(node: ast.AST):  # type: ignore[no-untyped-def]
    """Named in-place changes that a node allows."""
    if isinstance(node, ast.BinOp) and type(node.op) in _SWAPS:
        new = _SWAPS[type(node.op)]
        yield f"{type(node.op).__name__} for {new.__name__}", lambda n, new=new: setattr(n, "op", new())
        if isinstance(node.op, (ast.Add, ast.Sub)):
            yield "term dropped", lambda n: setattr(n, "right", ast.Constant(0))
        if isinstance(node.op, (ast.Mult, ast.Div)):
            yield "factor dropped", lambda n: setattr(n, "right", ast.Constant(1))
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        new_op = _COMPARISONS[type(node.ops[0])]
        yield "comparison off by one", lambda n, new=new_op: setattr(n, "ops", [new(), *n.ops[1:]])
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        value = node.value
        other = value + 1 if isinstance(value, int) else (value * 1.1 if value else 0.1)
        yield f"{value} became {other:.4g}", lambda n, other=other: setattr(n, "value", other)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CALLS:
        new_name = _CALLS[node.func.attr]
        yield f"{new_name} for {node.func.attr}", lambda n, name=new_name: setattr(n.func, "attr", name)
    elif isinstance(node, ast.Return) and node.value is not None:
        yield "rounded to half", _rounded
        yield "last row skipped", _last_row_skipped


def _rounded(node: ast.AST) -> None:
    assert isinstance(node, ast.Return)
    half = ast.parse("(VALUE).bfloat16().float()", mode="eval").body
    node.value = _substituted(half, node.value)


def _last_row_skipped(node: ast.AST) -> None:
    assert isinstance(node, ast.Return)
    call = ast.parse("torch.cat([(VALUE)[:-1], torch.zeros_like((VALUE)[-1:])])", mode="eval").body
    node.value = _substituted(call, node.value)


def _substituted(template: ast.expr, value: ast.expr | None) -> ast.expr:
    class Fill(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.AST:
            return copy.deepcopy(value) if name.id == "VALUE" and value is not None else name

    filled: ast.expr = Fill().visit(template)
    return filled


def all_mutants() -> list[Mutant]:
    """Every mutant of every source, less those listed as equivalent."""
    found = []
    for problem, text in SOURCES.items():
        for what, changed in mutate(text):
            found.append(Mutant(name=f"{problem} {what}", problem=problem, text=PREAMBLE + changed))
    return found


def survivors_of(server: Server, problem: str) -> tuple[int, dict[str, list[str]]]:
    """Mutants of one source that count, and those that each protocol accepts."""
    counted = [m for m in all_mutants() if m.problem == problem and m.name not in EQUIVALENT]
    survivors: dict[str, list[str]] = {name: [] for name in PROTOCOLS}
    source = Source(text=PROBLEMS[problem])
    exams = Exams(server, source, quick=True)
    for mutant in counted:
        target = Target(name=mutant.name, problem=source, solution=Source(text=mutant.text))
        if check_target(server, target, exams=exams, quick=True, timeout_s=10.0, timing=False).passed:
            survivors[ADDRFRAC.name].append(mutant.name)
        for name, accepted in accepted_by_published(server, target, timeout_s=10.0).items():
            if accepted:
                survivors[name].append(mutant.name)
    return len(counted), survivors


def mutation_scores(found: Iterable[tuple[int, dict[str, list[str]]]]) -> tuple[MutationScore, ...]:
    """Share of all mutants that each protocol kills, survivors by name."""
    parts = list(found)
    total = sum(count for count, _ in parts)
    scores = []
    for name in PROTOCOLS:
        alive = [mutant for _, survivors in parts for mutant in survivors[name]]
        killed = clopper_pearson(total - len(alive), total)
        scores.append(MutationScore(protocol=name, killed=killed, survivors=tuple(alive)))
    return tuple(scores)
