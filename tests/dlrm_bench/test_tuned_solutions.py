"""Every tuned solution under Triton's interpreter: odd sizes, strides, with and without the inputs' gradients."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from addrfrac import dlrm_bench

FOLDER = Path(dlrm_bench.__file__).resolve().parent / "solutions" / "tuned"
BAG_SIZES = [
    {"rows": 1, "dimension": 1, "batch": 1, "pooling": 1},
    {"rows": 53, "dimension": 131, "batch": 11, "pooling": 37},
]
CODE_SIZES = [
    {"rows": 1, "dimension": 8, "batch": 1, "pooling": (1,)},
    {"rows": 23, "dimension": 72, "batch": 5, "pooling": (29, 1, 3)},
]
ODD_SIZES = {
    "embedding_bag_sum": BAG_SIZES,
    "table_batched_bag": [
        {"rows": 1, "dimension": 1, "batch": 1, "pooling": (1,), "half": False},
        {"rows": 23, "dimension": 130, "batch": 9, "pooling": (29, 1, 3), "half": True},
    ],
    "weighted_bag": BAG_SIZES,
    "mean_bag_jagged": [{"rows": 37, "dimension": 131, "batch": 33, "mean": 20, "most": 60}],
    "quantised_bag_int8": CODE_SIZES,
    "quantised_bag_int4": CODE_SIZES,
    "half_bag": BAG_SIZES,
    "jagged_to_padded": [
        {"batch": 3, "mean": 20, "most": 37, "dimension": 530},
        {"batch": 1, "mean": 1, "most": 1, "dimension": 1},
    ],
    "hash_and_bucketise": [
        {"rows": 1, "shards": 1, "batch": 1, "pooling": (1,)},
        {"rows": 16_777_259, "shards": 7, "batch": 1_500, "pooling": (1, 1)},
    ],
    "permute_pooled": [{"widths": (3, 1, 5), "batch": 7}, {"widths": (96, 32, 64), "batch": 131}],
    "bag_backward_adagrad": [
        {"rows": 1, "dimension": 1, "batch": 1, "pooling": 1},
        {"rows": 40, "dimension": 130, "batch": 30, "pooling": 9},
    ],
    "dot_interaction": [{"features": 1, "dimension": 1, "batch": 1}, {"features": 17, "dimension": 130, "batch": 3}],
    "low_rank_cross": [
        {"width": 1, "rank": 1, "layers": 1, "batch": 1},
        {"width": 131, "rank": 37, "layers": 3, "batch": 67},
    ],
    "bottom_mlp": [{"widths": (13, 70, 33, 21), "batch": 131}, {"widths": (5, 7), "batch": 3}],
    "target_attention": [
        {"batch": 3, "history": 33, "dimension": 20, "hidden": (80, 40)},
        {"batch": 1, "history": 1, "dimension": 1, "hidden": (1, 1)},
    ],
    "bce_with_logits": [{"batch": 1, "tasks": 1}, {"batch": 1_025, "tasks": 5}],
    "top_k_scoring": [
        {"items": 16_500, "dimension": 3, "users": 9, "best": 100},
        {"items": 5, "dimension": 40, "users": 1, "best": 5},
    ],
    "hstu_attention": [{"batch": 5, "mean": 50, "most": 133, "heads": 1, "width": 20}],
    "swish_layer_norm": [{"batch": 1, "width": 1}, {"batch": 13, "width": 5}, {"batch": 3, "width": 1_025}],
    "expert_gates": [
        {"batch": 3, "width": 7, "experts": 5, "tasks": 9, "output": 300},
        {"batch": 1, "width": 1, "experts": 1, "tasks": 1, "output": 1},
    ],
}
"""Beside each problem's own smallest size: ones, primes, and more than a block or a program holds."""
NAMES = [problem.name for problem in dlrm_bench.problems() if problem.name in ODD_SIZES]
PROGRAM = """
import copy, importlib, json, sys
import torch
torch.set_num_threads(1)

def outputs(result):
    return result if isinstance(result, tuple) else (result,)

def spread(tensor):
    wide = torch.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1], dtype=tensor.dtype)
    wide[..., ::2] = tensor
    return wide[..., ::2]

for number, name, sizes in json.loads(sys.argv[1]):
    problem = importlib.import_module(f"addrfrac.dlrm_bench.p{number:02d}_{name}")
    solution = importlib.import_module(f"addrfrac.dlrm_bench.solutions.tuned.s{number:02d}_{name}")
    if hasattr(solution, "PROGRAMS"):
        solution.PROGRAMS = 2  # few enough that each takes several rows or users
    ways = (True, False) if hasattr(solution, "tile") else (True,)
    for tf32, shape in ((tf32, shape) for shape in [problem.SIZES["tiny"], *sizes] for tf32 in ways):
        problem.SIZES["tiny"] = shape
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.manual_seed(7)
        model = problem.Model(*problem.get_init_inputs("tiny"))
        inputs = [spread(x) for x in problem.get_inputs("tiny")]
        mine = solution.ModelNew(*problem.get_init_inputs("tiny"))
        mine.load_state_dict(copy.deepcopy(model.state_dict()))
        truth = copy.deepcopy(model).double()
        wide = [x.double() if x.is_floating_point() else x for x in inputs]
        pairs = list(zip(outputs(mine(*inputs)), outputs(truth(*wide)), strict=True))
        for with_inputs in (False, True) if problem.TRAINS else ():
            ours, theirs = [[x.detach().requires_grad_(with_inputs) for x in xs] for xs in (inputs, wide)]
            found, expected = mine(*ours), truth(*wide if not with_inputs else theirs)
            cotangent = torch.randn(found.shape)
            asked = list(mine.parameters()) + ours * with_inputs, list(truth.parameters()) + theirs * with_inputs
            pairs += zip(
                torch.autograd.grad(found, asked[0], cotangent),
                torch.autograd.grad(expected, asked[1], cotangent.double()),
                strict=True,
            )
        for a, b in pairs:
            assert a.shape == b.shape, (name, shape, a.shape, b.shape)
            a, b = a.detach().double(), b.detach().double()
            error = float((a - b).norm() / b.norm().clamp_min(1e-6))
            assert error < 4e-6, (name, shape, tf32, error)
"""


@pytest.mark.parametrize("half", [0, 1])
def test_tuned_solutions_are_right_at_odd_sizes_and_strides(half):
    """In a process of its own, because triton reads the switch when it is imported."""
    asked = [(p.number, p.name, ODD_SIZES[p.name]) for p in [dlrm_bench.find_problem(name) for name in NAMES][half::2]]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(asked)], env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-2000:]


LEVELS = """
import torch
from addrfrac.dlrm_bench.solutions.tuned.s17_top_k_scoring import GROUP, picked
torch.set_num_threads(1)
torch.manual_seed(0)
scores = torch.randn(2, 20_000 * GROUP)
scores[1] = scores[1].round()  # many are equal
found = picked(scores, scores.unflatten(1, (-1, GROUP)).amax(2), 100)[:, :100]
for mine, places in zip(scores, found):
    assert len(places.unique()) == 100
    assert torch.equal(mine[places].sort(descending=True).values, mine.topk(100).values)
"""


def test_the_best_of_millions_are_picked_through_groups_of_groups_and_ties_give_no_place_twice():
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", LEVELS], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]


HASHED = """
import torch
from addrfrac.dlrm_bench import p11_hash_and_bucketise as problem
from addrfrac.dlrm_bench.solutions.tuned.s11_hash_and_bucketise import ModelNew
torch.set_num_threads(1)
most = torch.iinfo(torch.int64).max
raw = torch.cat([torch.tensor([0, 1, -1, most, -most - 1]), torch.randint(-most, most, (300,))])
lengths = torch.tensor([3, 0, 302])
for rows, shards in ((1, 1), (2, 2), (97, 3), (1 << 20, 8), ((1 << 31) + 11, 5), ((1 << 40) + 15, 16)):
    found, expected = ModelNew(rows, shards)(raw, lengths), problem.Model(rows, shards)(raw, lengths)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)), rows
"""


def test_remainders_by_reciprocals_are_exact_for_every_number_of_64_bits():
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", HASHED], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_tuned_solution_is_of_a_problem_and_says_who_wrote_it():
    known = {f"s{problem.number:02d}_{problem.name}" for problem in dlrm_bench.problems()}
    found = {path.stem: path.read_text() for path in FOLDER.glob("s*.py")}
    assert set(found) <= known
    assert set(NAMES) <= {stem.partition("_")[2] for stem in found}
    for text in found.values():
        assert "By Claude (Anthropic)" in text
        assert "super().forward" not in text
