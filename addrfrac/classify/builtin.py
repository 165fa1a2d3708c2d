"""The built-in tables as one rule set."""

from addrfrac.classify.op_rules import OP_RULES
from addrfrac.classify.provider_rules import INCUMBENTS, PROVIDER_RULES
from addrfrac.classify.rules import RuleSet
from addrfrac.classify.stack_rules import STACK_RULES

BUILT_IN = RuleSet(ops=OP_RULES, providers=PROVIDER_RULES, stacks=STACK_RULES, incumbents=INCUMBENTS)
