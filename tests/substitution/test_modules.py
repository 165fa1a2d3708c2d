"""FBGEMM's lookup by a kernel: the same rows, calls counted, the module as it was afterwards.

In a process of its own: whether Triton interprets is settled when it is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("fbgemm_gpu")

TESTS = """
import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice
from fbgemm_gpu.split_table_batched_embeddings_ops_training import SplitTableBatchedEmbeddingBagsCodegen as Lookup
from addrfrac.kernels import embedding_bag
from addrfrac.substitution.modules import modules_substituted

torch.set_num_threads(1)


class Model(torch.nn.Module):
    def __init__(self, heights=(50, 50, 50), pooling=PoolingMode.SUM):
        super().__init__()
        tables = [(height, 16, EmbeddingLocation.HOST, ComputeDevice.CPU) for height in heights]
        self.lookup = Lookup(tables, pooling_mode=pooling)
        for table in self.lookup.split_embedding_weights():
            torch.nn.init.normal_(table)

    def forward(self, ids, offsets):
        return self.lookup(ids, offsets)


def told(model):
    with torch.no_grad(), modules_substituted(model) as (swap,):
        model(ids, offsets)
        return swap


ids, offsets = torch.randint(0, 50, (36,)), torch.arange(0, 37, 3)
model = Model()
with torch.no_grad():
    expected = model(ids, offsets)
    with modules_substituted(model) as (swap,):
        assert swap.reason == "it was never called"
        for _ in range(3):
            torch.testing.assert_close(model(ids, offsets), expected)
        assert (swap.where, swap.substituted, swap.calls, swap.fallbacks) == ("lookup", True, 2, 0), swap
        with torch.enable_grad():
            model(ids, offsets)
        assert (swap.calls, swap.fallbacks) == (2, 1)
assert "forward" not in vars(model.lookup)
print("same rows")

try:
    with modules_substituted(model):
        raise KeyError("of the body")
except KeyError:
    assert "forward" not in vars(model.lookup)
print("restored")

assert "one height" in told(Model((50, 60, 70))).reason
assert "does not sum" in told(Model(pooling=PoolingMode.MEAN)).reason
right = embedding_bag.embedding_bag
embedding_bag.embedding_bag = lambda *given: 1.001 * right(*given)
assert told(model).reason.startswith("refused")
print("refused")
"""


def test_a_lookup_runs_our_bag_where_it_is_right_and_is_as_it_was_afterwards():
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", TESTS], env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.splitlines() == ["same rows", "restored", "refused"]
