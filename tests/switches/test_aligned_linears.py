import pytest

from addrfrac.switches import find_switch
from addrfrac.switches.aligned_linears import ALIGNED_LINEARS
from addrfrac.workloads.step import Step

torch = pytest.importorskip("torch")
functional = torch.nn.functional


@pytest.mark.parametrize(("name", "mode"), [("dlrm", "infer"), ("dlrm", "train"), ("resnet50", "infer")])
def test_padded_layers_give_the_same(relative_error, name, mode):
    assert relative_error(name, mode, "aligned-linears", dtype="bf16") < 2e-2


class Language(torch.nn.Module):
    """Thirteen features a word, 21 words, tied."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(21, 16)
        self.narrow = torch.nn.Linear(16, 13)
        self.wide = torch.nn.Linear(13, 16)
        self.head = torch.nn.Linear(16, 21, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        return self.head(self.wide(torch.relu(self.narrow(self.words(tokens)))))


def trained(configured, switched, make, steps=4):
    torch.manual_seed(1)
    model = Language()
    tokens = torch.randint(21, (4, 6))
    optimizer = make(model.parameters())
    step = Step(run=lambda: None, samples=1, parameters=0, model=model, optimizer=optimizer)
    configuration = configured("gpt2-medium", "train", dtype="amp-bf16")
    if switched:
        assert ALIGNED_LINEARS.why_not(step, configuration) == ""
        ALIGNED_LINEARS.apply(step, configuration)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(tokens).reshape(-1, 21), tokens.reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return model, losses


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
    ],
)
def test_a_tied_vocabulary_trains_to_the_same_and_its_padding_stays_zero(configured, make):
    _, expected = trained(configured, False, make)
    model, losses = trained(configured, True, make)
    assert losses == pytest.approx(expected, rel=1e-4)
    assert losses[-1] < losses[0]
    assert model.head.weight is model.words.weight
    assert model.head.weight.shape == (24, 16)
    assert not model.head.weight[21:].any()
    assert not model.wide.weight[:, 13:].any()


def test_it_says_why_it_does_not_apply(why_not):
    assert "fp32 does not use" in why_not("aligned-linears", "dlrm", "infer")
    assert "multiples of 8" in why_not("aligned-linears", "bert-large", "infer", dtype="bf16")


def test_a_weight_that_a_stranger_reads_too_is_left_alone(step_of, configured):
    class Stranger(torch.nn.Module):
        def __init__(self, weight):
            super().__init__()
            self.weight = weight

        def forward(self, values):
            return values @ self.weight

    odd = torch.nn.Linear(16, 13)
    step = step_of(torch.nn.Sequential(odd, Stranger(odd.weight)), torch.randn(2, 16))
    assert "multiples" in find_switch("aligned-linears").why_not(step, configured("dlrm", "infer", dtype="bf16"))
