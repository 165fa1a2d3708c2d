"""Trace columns in, a label with its evidence for each kernel out."""

from addrfrac.classify.builtin import BUILT_IN
from addrfrac.classify.columns import classify
from addrfrac.classify.names import classify_name, classify_rows
from addrfrac.classify.policies import POLICIES, bound, load_policy, policy_named
from addrfrac.classify.rules import RuleSet

__all__ = [
    "BUILT_IN",
    "POLICIES",
    "RuleSet",
    "bound",
    "classify",
    "classify_name",
    "classify_rows",
    "load_policy",
    "policy_named",
]
