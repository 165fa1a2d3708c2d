"""Parity: honest rewrites pass, planted wrong ones do not, and what could not be judged says so."""

import copy

import pytest

from addrfrac import parity, registry
from addrfrac.records import Workload
from addrfrac.workloads.step import Step, inference, training

torch = pytest.importorskip("torch")
CPU = torch.device("cpu")


class Net(torch.nn.Module):
    """Two layers that end in 300 columns, as a small vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 64), torch.nn.Linear(64, 300)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, values):
        return self.second(self.dropout(torch.relu(self.first(values))))


def configuration(dtype="bf16"):
    workload = Workload(name="net", about="", build=None, defaults={"batch": 8}, modes=("infer",))
    return registry.configure(workload, device="cpu", dtype=dtype)


def made(dtype=torch.bfloat16, change=None):
    torch.manual_seed(3)
    model = Net().to(dtype)
    values = torch.randn(8, 16).to(dtype)
    if change is not None:
        model = change(model)
    return inference(model, (values,), configuration(), CPU, samples=8)


def trained(change=None, optimizer=torch.optim.SGD):
    torch.manual_seed(3)
    model = Net().to(torch.bfloat16)
    if change is not None:
        model = change(model)
    values, wanted = torch.randn(8, 16).to(torch.bfloat16), torch.randint(300, (8,))

    def loss():
        return torch.nn.functional.cross_entropy(model(values).float(), wanted)

    return training(model, loss, optimizer(model.parameters(), lr=0.1), configuration(), CPU, samples=8)


def saved(step, path, *, truth_of=None):
    if truth_of is not None:
        assert parity.upcast(step, truth_of) == ""
    inputs = parity.find_inputs(step)
    extra = parity.OWN_BATCHES if truth_of is not None else 0
    parity.record(step, inputs, training=step.optimizer is not None, extra_runs=extra, path=path)
    return path


@pytest.fixture
def judged(tmp_path):
    def judge(arm, base=None, truth=None, make=made, **options):
        base = saved(base or make(), tmp_path / "base")
        truth = saved(truth or make(), tmp_path / "truth", truth_of=configuration())
        return parity.judge(base, saved(arm, tmp_path / "arm"), truth, configuration(), **options)

    return judge


def with_forward(forward):
    def change(model):
        model.forward = forward.__get__(model)
        return model

    return change


def reordered(self, values):
    hidden = torch.relu(torch.nn.functional.linear(values.flip(1), self.first.weight.flip(1), self.first.bias))
    return torch.nn.functional.linear(hidden.flip(1), self.second.weight.flip(1), self.second.bias)


def test_another_order_of_the_same_sums_passes_on_at_least_thirty_samples(judged):
    found = judged(made(change=with_forward(reordered)))
    assert found.passed
    assert found.inputs >= 30
    assert 0.5 < found.error_ratio <= 1.5


def test_the_base_itself_passes_with_a_ratio_of_one(judged):
    found = judged(made())
    assert found.passed
    assert found.error_ratio == 1.0
    assert found.base_error > 0


def zeros(self, values):
    return torch.zeros(8, 300, dtype=values.dtype)


def without_a_bias(self, values):
    return torch.nn.functional.linear(torch.relu(self.first(values)), self.second.weight)


def stale(self, values):
    if not hasattr(self, "kept"):
        self.kept = Net.forward(self, values)
    return self.kept


def a_row_never_written(self, values):
    output = Net.forward(self, values).clone()
    output[-1] = 0
    return output


def in_eight_bits(self, values):
    output = Net.forward(self, values)
    return (output / output.abs().max() * 127).round() / 127 * output.abs().max()


def not_finite(self, values):
    output = Net.forward(self, values).clone()
    output[0, 0] = float("nan")
    return output


@pytest.mark.parametrize(
    "wrong", [zeros, without_a_bias, stale, a_row_never_written, in_eight_bits, not_finite], ids=lambda f: f.__name__
)
def test_a_planted_wrong_switch_is_refused(judged, wrong):
    assert judged(made(change=with_forward(wrong))).passed is False


def test_outputs_of_another_shape_are_refused(judged):
    assert judged(made(change=with_forward(lambda self, values: Net.forward(self, values)[:, :10]))).passed is False


def test_coarser_arithmetic_passes_by_its_own_error_only_where_it_is_meant(judged):
    def coarser(self, values):
        return Net.forward(self, values) * (1 + 2**-7)

    base = made()
    assert judged(made(change=with_forward(coarser)), base=base).passed is False
    found = judged(made(change=with_forward(coarser)), exact=False)
    assert found.passed
    assert "coarser" in found.method


def test_a_language_model_is_told_the_divergence_of_a_token_beside_the_base_s_own(judged):
    found = judged(made(change=with_forward(reordered)), language_model=True)
    assert "KL a token" in found.method
    assert "the base's own" in found.method


# --- training -------------------------------------------------------------------------------------------------


def test_an_honest_rewrite_of_a_training_step_passes(judged):
    assert judged(trained(), make=trained).passed


def test_an_optimizer_that_keeps_its_state_from_the_start_is_widened_with_the_weights(judged):
    def adagrad(parameters, lr):
        return torch.optim.Adagrad(parameters, lr=lr)

    found = judged(trained(optimizer=adagrad), make=lambda: trained(optimizer=adagrad))
    assert found.passed


class Stalled(torch.optim.SGD):
    """An optimizer that forgets to step."""

    def step(self, closure=None):
        return None


class TwiceAsFar(torch.optim.SGD):
    def step(self, closure=None):
        super().step()
        super().step()


@pytest.mark.parametrize("optimizer", [Stalled, TwiceAsFar])
def test_an_optimizer_that_takes_the_weights_elsewhere_is_refused(judged, optimizer):
    found = judged(trained(optimizer=optimizer), make=trained)
    assert found.passed is False


def test_a_wrong_backward_is_refused(judged):
    def forward(self, values):
        hidden = torch.relu(self.first(values))
        return self.second(hidden + (hidden - hidden.detach()))  # the value is right, its gradient twice as large

    assert judged(trained(change=with_forward(forward)), make=trained).passed is False


def test_dropout_is_as_it_was_after_a_training_step_was_judged(tmp_path):
    step = trained()
    saved(step, tmp_path / "arm")
    assert step.model.dropout.p == 0.5


# --- inputs ---------------------------------------------------------------------------------------------------


def test_ids_are_redrawn_within_their_range_and_offsets_masks_and_ignored_labels_stay():
    ids, offsets = torch.tensor([[5, 2, 9, 3]]), torch.tensor([0, 3, 6, 9])
    mask, labels = torch.ones(1, 4, dtype=torch.int64), torch.tensor([[1, -100, 7, 2]])
    kept = [each.clone() for each in (offsets, mask, labels)]
    inputs = parity.Inputs(places=parity.places([ids, offsets, mask, labels]), owns_batches=False)
    seen = []
    for turn in range(20):
        parity.redraw(inputs, turn)
        seen.append(ids.clone())
    assert min(int(each.min()) for each in seen) >= 2
    assert max(int(each.max()) for each in seen) <= 9
    assert len({tuple(each.flatten().tolist()) for each in seen}) > 10
    assert all(torch.equal(a, b) for a, b in zip((offsets, mask, labels), kept, strict=True))


def test_the_same_turn_draws_the_same_whatever_the_layout_and_the_dtype():
    plain = torch.randn(2, 3, 8, 8)
    other = plain.clone().to(memory_format=torch.channels_last)
    for tensor in (plain, other):
        parity.redraw(parity.Inputs(places=parity.places([tensor]), owns_batches=False), 5)
    assert torch.equal(plain, other)


def test_a_step_that_brings_its_own_batches_is_compared_batch_by_batch_wherever_it_begins(tmp_path):
    torch.manual_seed(0)
    model, batches = Net().eval().to(torch.bfloat16), [torch.randn(64, 16).to(torch.bfloat16) for _ in range(16)]

    def step_from(place, own):
        count = [place]

        def run():
            count[0] += 1
            with torch.no_grad():
                return own(batches[(count[0] - 1) % 16])

        return Step(run=run, samples=64, parameters=0, model=own, advance=lambda: None)

    base = saved(step_from(0, model), tmp_path / "base")
    truth = saved(step_from(0, copy.deepcopy(model)), tmp_path / "truth", truth_of=configuration())
    assert parity.judge(base, saved(step_from(5, model), tmp_path / "arm"), truth, configuration()).passed
    zero = step_from(5, lambda values: torch.zeros(64, 300))
    zero_file = saved(zero, tmp_path / "zero")
    assert parity.judge(base, zero_file, truth, configuration()).passed is False


# --- without a truth ------------------------------------------------------------------------------------------


def test_without_a_truth_nothing_passes_but_what_differs_too_much_fails(tmp_path):
    base = saved(made(), tmp_path / "base")
    same = saved(made(change=with_forward(reordered)), tmp_path / "same")
    wrong = saved(made(change=with_forward(zeros)), tmp_path / "wrong")
    found = parity.judge(base, same, None, configuration(), why_no_truth="too large")
    assert found.passed is None
    assert "too large" in found.method
    assert parity.judge(base, wrong, None, configuration(), why_no_truth="too large").passed is False


def test_a_step_without_a_model_has_no_truth_and_says_why():
    step = Step(run=lambda: torch.ones(3), samples=1, parameters=0)
    assert "no model" in parity.upcast(step, configuration())


def test_fp32_weights_are_widened_to_fp64_and_rounded_ones_to_fp32():
    step = made(torch.float32)
    assert parity.upcast(step, configuration("fp32")) == ""
    assert step.run().dtype is torch.float64
    step = made()
    assert parity.upcast(step, configuration()) == ""
    assert step.run().dtype is torch.float32


# --- weights as published -------------------------------------------------------------------------------------


def test_a_model_published_in_fp32_is_judged_against_the_weights_before_they_were_rounded():
    half = configuration("bf16")
    assert parity.truth_configuration(half, "fp32").dtype == "fp32"
    assert parity.truth_configuration(half).dtype == "bf16"
    assert parity.truth_configuration(configuration("amp-bf16"), "fp32").dtype == "fp32"
    assert not parity.as_published(configuration("amp-bf16"), "fp32")


def test_weights_rounded_after_a_rewrite_pass_beside_weights_rounded_before_it_and_a_wrong_rewrite_does_not(tmp_path):
    """A per-column factor multiplied into the weights (as batch norm is folded) rounds them once more."""
    factor = torch.rand(64, generator=torch.Generator().manual_seed(1)) + 0.5

    class Scaled(Net):
        def __init__(self):
            super().__init__()
            self.factor = torch.nn.Parameter(factor.clone())

        def forward(self, values):
            return self.second(torch.relu(self.first(values) * self.factor))

    def build(dtype, change=lambda model: model):
        torch.manual_seed(3)
        model = change(Scaled().to(dtype))
        return inference(model, (torch.randn(64, 16).to(dtype),), configuration(), CPU, samples=64)

    def folded(model, wrong=1.0):
        with torch.no_grad():
            model.first.weight.mul_(model.factor.unsqueeze(1))
            model.first.bias.mul_(model.factor * wrong)
            model.factor.fill_(1.0)
        return model

    base = saved(build(torch.bfloat16), tmp_path / "base")
    truth = saved(build(torch.float32), tmp_path / "truth", truth_of=configuration())
    good = saved(build(torch.bfloat16, folded), tmp_path / "good")
    bad = saved(build(torch.bfloat16, lambda model: folded(model, 1.05)), tmp_path / "bad")
    assert parity.judge(base, good, truth, configuration()).passed
    assert not parity.judge(base, bad, truth, configuration()).passed
