"""Kernels are looked for where the workloads really have them, captured as they run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from addrfrac import registry  # noqa: E402
from addrfrac.substitution.pool import find_kernels  # noqa: E402
from addrfrac.substitution.session import Session  # noqa: E402
from addrfrac.substitution.swap import installed  # noqa: E402

SITES: dict[tuple[str, str, str], dict[str, int]] = {
    ("dlrm-dcnv2", "train", "fp32"): {"low_rank_cross": 3},
    ("llama3-8b", "decode", "bf16"): {"decode_attention": 4},
    ("resnet50", "infer", "fp16"): {"max_pool": 2, "global_average_pool": 1},
    ("resnet50", "train", "amp-bf16"): {"bn_relu_train": 13, "max_pool": 1, "global_average_pool": 1},
    ("mixtral-8x7b", "prefill", "bf16"): {"expert_order": 2, "packed_swiglu": 2, "expert_sum": 2},
}
"""Workload, mode and dtype at toy width -> places of each kernel. The stem's pool in evaluation is one of two: with its
norm, and alone; so is attention over a cache: with the repeat of keys and values, and without."""


def captured(name: str, mode: str, dtype: str, kernels: str) -> Counter[str]:
    """Places of each kernel in the graphs of a workload's step."""
    workload = registry.find_workload(name)
    asked: dict[str, Any] = {"batch": 2, "device": "cpu", "mode": mode, "dtype": dtype}
    asked |= {"seq_len": 16} if "seq_len" in workload.options and mode != "decode" else {}
    asked |= {"cache_len": 8} if mode == "decode" else {}
    asked |= {"rows": 1000} if "rows" in workload.options else {}
    step = workload.build(registry.configure(workload, **asked), torch.device("cpu"), tiny=True)
    session = Session(kernels=find_kernels(kernels))
    torch._dynamo.reset()
    with installed(step.model, session):
        step.run()
        return Counter(place.site.kernel for place in session.places)


@pytest.mark.parametrize(("name", "mode", "dtype"), SITES)
def test_a_workload_has_its_sites(name, mode, dtype):
    if name.startswith("dlrm"):
        pytest.importorskip("torchrec")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        wanted = SITES[name, mode, dtype]
        assert captured(name, mode, dtype, ",".join(wanted)) == wanted
    finally:
        torch.set_num_threads(before)
        torch._dynamo.reset()
