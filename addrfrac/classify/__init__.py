"""Trace columns in, a label with its evidence for each kernel out."""

from addrfrac.classify.builtin import BUILT_IN
from addrfrac.classify.columns import classify
from addrfrac.classify.explain import explain
from addrfrac.classify.names import classify_name, classify_rows, read_names, write_names
from addrfrac.classify.policies import POLICIES, bound, load_policy
from addrfrac.classify.replay import certainty_shares
from addrfrac.classify.rules import RuleSet
from addrfrac.classify.user_rules import load_rules

__all__ = [
    "BUILT_IN",
    "POLICIES",
    "RuleSet",
    "bound",
    "certainty_shares",
    "classify",
    "classify_name",
    "classify_rows",
    "explain",
    "load_policy",
    "load_rules",
    "read_names",
    "write_names",
]
