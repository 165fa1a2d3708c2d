"""Every problem of the suite: loads, computes something that is not degenerate, and stands a harness that casts ids."""

import pytest
import torch

from addrfrac import dlrm_bench
from addrfrac.dlrm_bench.draws import bag_offsets, ids, jagged_lengths
from addrfrac.errors import AddrfracError

PROBLEMS = dlrm_bench.problems()
NAMES = [problem.name for problem in PROBLEMS]


def build(module, indices="uniform", seed=0):
    torch.manual_seed(seed)
    model = module.Model(*module.get_init_inputs("tiny"))
    return model, module.get_inputs("tiny", indices)


def outputs(result):
    return result if isinstance(result, tuple) else (result,)


def test_there_are_at_least_sixteen_problems_numbered_without_gaps():
    assert [problem.number for problem in PROBLEMS] == list(range(1, len(PROBLEMS) + 1))
    assert len(PROBLEMS) >= 16


def test_a_problem_is_found_by_number_and_by_name_and_a_wrong_one_is_told_in_a_line():
    assert dlrm_bench.find_problem("8") is not None
    assert dlrm_bench.find_problem("08").name == dlrm_bench.find_problem("dot_interaction").name
    with pytest.raises(AddrfracError, match=r"no problem 'x'.*8 dot_interaction"):
        dlrm_bench.find_problem("x")


@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
@pytest.mark.parametrize("indices", ["uniform", "zipf"])
def test_outputs_are_finite_and_vary_with_inputs_and_parameters(problem, indices):
    module = problem.load()
    model, inputs = build(module, indices)
    first = outputs(model(*inputs))
    other_model, _ = build(module, indices, seed=1)
    torch.manual_seed(2)
    others = outputs(model(*module.get_inputs("tiny", indices)))
    for tensor in first:
        assert torch.isfinite(tensor.double()).all()
    assert any(tensor.double().std() > 0 for tensor in first if tensor.numel() > 1)
    assert any(a.shape != b.shape or not torch.equal(a, b) for a, b in zip(first, others, strict=True))
    if any(parameter.is_floating_point() for parameter in model.parameters()):
        changed = outputs(other_model(*inputs))
        assert any(not torch.equal(a, b) for a, b in zip(first, changed, strict=True))


@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
def test_a_harness_that_casts_every_input_to_fp32_gets_the_same(problem):
    module = problem.load()
    model, inputs = build(module)
    twin, _ = build(module)
    for mine, theirs in zip(outputs(model(*inputs)), outputs(twin(*(x.float() for x in inputs))), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
def test_a_plain_kernelbench_harness_loads_the_text(problem):
    """KernelBench executes a file's text in an empty namespace and takes three names from it."""
    namespace: dict[str, object] = {}
    exec(compile(problem.path.read_text(), problem.path.name, "exec"), namespace)
    assert isinstance(namespace["Model"], type)
    assert callable(namespace["get_inputs"])
    assert callable(namespace["get_init_inputs"])


@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
def test_every_size_is_there_and_work_is_at_least_the_output(problem):
    module = problem.load()
    assert tuple(module.SIZES) == dlrm_bench.SIZES
    model, inputs = build(module)
    moved, flops = module.work(model, *inputs)
    result = outputs(model(*inputs))
    shown = ("p16", "p17")  # the update of 16 moves whole rows; 17 returns so little that the items dwarf it
    least = 0 if problem.module.split(".")[-1][:3] in shown else sum(t.numel() * t.element_size() for t in result)
    assert moved >= least
    assert flops >= 0


def test_int8_and_int4_rows_have_the_bytes_that_their_layout_says():
    for name, columns_a_byte in (("quantised_bag_int8", 1), ("quantised_bag_int4", 2)):
        model, _ = build(dlrm_bench.find_problem(name).load())
        assert model.table.shape[1] == 4 + 32 // columns_a_byte


def test_the_update_of_the_training_bag_is_torch_s_own_autograd_and_adagrad_by_hand():
    module = dlrm_bench.find_problem("bag_backward_adagrad").load()
    model, (indices, offsets, gradient) = build(module)
    weight = model.weight.clone().requires_grad_(True)
    bag = torch.nn.functional.embedding_bag(indices, weight, offsets, mode="sum", include_last_offset=True)
    bag.backward(gradient)
    momentum = model.momentum + weight.grad.square().mean(1)
    step = module.LEARNING_RATE * weight.grad / (momentum.sqrt() + module.EPS).unsqueeze(1)
    expected = weight.detach() - step
    model(indices, offsets, gradient)
    torch.testing.assert_close(model.weight, expected)
    torch.testing.assert_close(model.momentum, torch.where(weight.grad.abs().sum(1) > 0, momentum, model.momentum))


def test_zipf_repeats_rows_and_uniform_seldom_does():
    torch.manual_seed(0)
    uniform, zipf = ids(20_000, 1_000_000, "uniform"), ids(20_000, 1_000_000, "zipf")
    assert len(uniform.unique()) > 19_000
    assert len(zipf.unique()) < 14_000
    assert int(zipf.min()) >= 0
    assert int(zipf.max()) < 1_000_000
    with pytest.raises(ValueError, match="uniform or zipf"):
        ids(1, 10, "normal")


def test_jagged_lengths_have_empty_bags_and_offsets_close():
    torch.manual_seed(0)
    lengths = jagged_lengths(5_000, 20, 200)
    assert 0.07 < float((lengths == 0).double().mean()) < 0.13
    assert int(lengths.max()) <= 200
    assert 16 < float(lengths[lengths > 0].double().mean()) < 24
    assert int(bag_offsets(lengths)[-1]) == int(lengths.sum())
