"""Trace columns in, a label with its evidence for each kernel out.

How a label comes about: the name is brought into one spelling (`normalise`), two ordered tables over it say what the
kernel computes (`op_rules`) and whose it is (`provider_rules`), a third over the frames of its op stack says what the
work is for (`stack_rules`), and `labelling` weighs the two verdicts. Conventions beyond the rules themselves:

- A building block (elementwise, copy, reduction, sort) belongs to what stands further out: a loss, the optimizer, an
  embedding, a normalisation, a rotary op; in backward also to what its forward op served.
- A driver copy or set stays one whatever op caused it. The bias copy that `addmm` makes is a copy, not an aux GEMM.
- `linear_attention` is replaceable under `paper` (hand-written kernels, no vendor's library), `rnn` is library (a
  cuDNN RNN kernel is a persistent GEMM with the cell fused in).
- Vendor libraries are `closed` though AMD and Intel publish their source: what runs is the vendor's binary.
- An Inductor kernel whose letters say pointwise or reduction is replaceable without an op list; a bare name is unknown.
- On a CPU the self time of wrappers, views and allocations is dispatch: class other, provider `aten_dispatch`, system.
"""

from addrfrac.classify.builtin import BUILT_IN
from addrfrac.classify.columns import classify
from addrfrac.classify.explain import explain
from addrfrac.classify.names import classify_name, classify_rows, read_names, write_names
from addrfrac.classify.policies import POLICIES, bound, load_policy
from addrfrac.classify.replay import certainty_shares, with_capture
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
    "with_capture",
    "write_names",
]
