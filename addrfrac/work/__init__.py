"""An op's name and recorded arguments in, the bytes and flops it cannot avoid out; pure, by one table of rules.

Counts are of the op call, whatever kernels it launches: a workspace, a split sum or a padded copy is the
implementation's choice and costs no floor.
"""

from __future__ import annotations

from addrfrac.records import OpInputs
from addrfrac.work import convolution, embedding, generated, matrix, memory
from addrfrac.work.record import Facts as Facts
from addrfrac.work.record import Rule as Rule
from addrfrac.work.record import Work as Work
from addrfrac.work.tensors import UnreadableArguments, read_arguments

RULES: dict[str, Rule] = {**memory.RULES, **matrix.RULES, **convolution.RULES, **embedding.RULES}
"""Op -> how to count it; `_foreach_` ops and generated kernels go by their prefix."""
FOREACH = "aten::_foreach_"
PRODUCTS = frozenset(matrix.RULES) | frozenset(convolution.RULES)
"""Ops that the `paper` policy leaves to libraries: matrix products, convolutions, attention."""


def work_of(op: str | None, inputs: OpInputs | None, facts: Facts) -> Work | str:
    """The work of one call, or why it is not known."""
    if op is None:
        return "no op is known that launched it"
    if inputs is None or not inputs.dims:
        return "shapes were not recorded"
    is_generated = op.startswith(generated.PREFIX)
    rule = memory.over_lists if op.startswith(FOREACH) else RULES.get(op)
    if rule is None and not is_generated:
        return f"no rule counts {op}"
    try:
        arguments = read_arguments(inputs)
    except UnreadableArguments as error:
        return f"recorded arguments are not readable: {error}"
    if is_generated:
        found = generated.generated(op, arguments, facts)
    else:
        assert rule is not None
        found = rule(arguments, facts)
    return found if found is not None else f"the recorded arguments of {op} do not tell"
