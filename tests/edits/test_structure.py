"""Changed parts, against networks that were written that way by hand."""

import copy
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.edits import structure
from skiplens.edits.remedies import CALLS, apply_remedy, code_of
from skiplens.readings.finding import Remedy


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)).double()


X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_a_shortcut_passes_by(network):
    first, act, layer, _, last = network
    made = structure.add_shortcuts(network, [("1", "2")])
    h = first(X)
    assert torch.equal(made(X), last(torch.tanh(layer(act(h)) + h)))
    started = structure.add_shortcuts(network, [("1", "2")], zeros=["2.weight", "2.bias"])
    assert torch.equal(started(X), last(torch.tanh(h)))
    assert torch.equal(copy.deepcopy(made)(X), made(X)), "a copy has shortcuts of its own"
    assert not network[1]._forward_pre_hooks and not network[2]._forward_hooks


def test_a_branch_that_ends_in_an_added_norm_starts_at_zero_by_its_scale(network):
    normed = structure.add_norms(network, ["2"], "batch")
    made = structure.add_shortcuts(normed, [("1", "2")], zeros=["2.weight", "2.bias"])
    assert torch.equal(made(X), network[4](torch.tanh(network[0](X))))
    assert torch.equal(made[2].weight, network[2].weight) and not made[2].added_norm.weight.any()
    made(X).square().sum().backward()
    assert 0 < made[2].added_norm.weight.grad.abs().max() < 100  # through a layer of zeros it would be 1/√ε times that


def test_gradients_pass_shortcuts(network):
    made = structure.add_shortcuts(network, [("2", "2")], zeros=["2.weight"])
    made(X).sum().backward()
    assert made[0].weight.grad.abs().sum() > 0


class Pair(NamedTuple):
    signal: torch.Tensor
    answer: torch.Tensor


@pytest.mark.parametrize("kind", [tuple, list, Pair])
def test_a_shortcut_to_one_of_several_tensors(network, kind):
    class Fork(nn.Module):
        def forward(self, x):
            return Pair(2 * x, 3 * x) if kind is Pair else kind((2 * x, 3 * x))

    found = structure.add_shortcuts(nn.Sequential(Fork()), [("0", "0", 1)])(X)
    assert type(found) is kind and torch.equal(found[0], 2 * X) and torch.equal(found[1], 3 * X + X)
    with pytest.raises(InvalidInputError, match=r"A Fork gives 2 tensors; end its span with the number of one"):
        structure.add_shortcuts(nn.Sequential(Fork()), [("0", "0")])(X)


def test_a_shortcut_between_images_of_different_size_is_an_average_pool():
    torch.manual_seed(0)
    images, layer = torch.randn(2, 3, 8, 8, dtype=torch.float64), nn.Conv2d(3, 5, 3, 2, 1).double()
    added = structure.add_shortcuts(nn.Sequential(layer), [("0", "0")])(images) - layer(images)
    means = images.view(2, 3, 4, 2, 4, 2).mean((3, 5))
    assert torch.allclose(added[:, :3], means, rtol=1e-9, atol=1e-12) and not bool(added[:, 3:].abs().max() > 1e-12)
    narrow = nn.Conv2d(3, 2, 3, 2, 1).double()
    added = structure.add_shortcuts(nn.Sequential(narrow), [("0", "0")])(images) - narrow(images)
    assert torch.allclose(added, means[:, :2], rtol=1e-9, atol=1e-12)


def test_a_shortcut_between_tables_of_different_width_cuts_off_or_adds_zeros(network):
    added = structure.add_shortcuts(network, [("0", "0")])[0](X) - network[0](X)
    assert torch.allclose(added, F.pad(X, (0, 2)), rtol=1e-9, atol=1e-12)
    assert torch.equal(structure.fitted(X, (8, 3)), X[:, :3])


def test_a_learned_number_behind_a_layer(network):
    made = structure.add_scales(network, ["2"], 0.5)
    first, act, layer, _, last = network
    assert torch.allclose(made(X), last(torch.tanh(0.5 * layer(act(first(X))))), rtol=1e-12)
    assert dict(made.named_parameters()).keys() - dict(network.named_parameters()).keys() == {"2.added_scale.scale"}
    gradients = torch.autograd.grad(structure.add_scales(network, ["2"])(X).sum(), made[2].weight, allow_unused=True)
    assert gradients == (None,), "the copies are apart"
    made = structure.add_scales(network, ["2"])
    made(X).square().sum().backward()
    assert made[2].added_scale.scale.grad.abs() > 0 and not made[2].weight.grad.any(), "the number learns first"


@pytest.mark.parametrize(
    "norm",
    [
        lambda: nn.LayerNorm(6),
        lambda: nn.BatchNorm1d(6),
        lambda: nn.GroupNorm(2, 6),
        lambda: nn.RMSNorm(6),
        lambda: nn.LayerNorm(6, elementwise_affine=False),
    ],
)
def test_a_norm_that_is_removed_scales_and_shifts_alone(norm):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 6), norm(), nn.ReLU()).double()
    for parameter in network[1].parameters():
        nn.init.normal_(parameter)
    weight, bias = (getattr(network[1], name, None) for name in ("weight", "bias"))
    wanted = network[0](X) * (1 if weight is None else weight) + (0 if bias is None else bias)
    made = structure.remove_norms(network, ["1"])
    assert torch.allclose(made(X), wanted.relu(), rtol=1e-12)
    assert made.state_dict().keys() == network.state_dict().keys() and not torch.allclose(made(X), network(X))


def test_a_norm_of_images_that_is_removed_scales_channels():
    images, norm = torch.randn(2, 3, 4, 4), nn.BatchNorm2d(3)
    nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    wanted = images * norm.weight[:, None, None] + norm.bias[:, None, None]
    assert torch.allclose(structure.remove_norms(nn.Sequential(norm), ["0"])(images), wanted)


class NormsAfter(nn.Module):
    """Attention and perceptrons with norms after the sums; `first` moves them to the branches by hand."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))
        self.inner = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.norms = nn.ModuleList(nn.ModuleList(nn.LayerNorm(8) for _ in range(2)) for _ in range(2))
        self.head = nn.Linear(8, 3)

    def forward(self, x, first=False):
        def none(x):
            return x

        before = none
        for attention, inner, (one, two) in zip(self.attention, self.inner, self.norms, strict=True):
            h = before(x) if first else x
            x = x + attention(h, h, h)[0]
            x = x if first else one(x)
            x = x + inner(one(x) if first else x)
            x, before = (x, two) if first else (two(x), none)
        return self.head(before(x))


def test_norms_move_to_the_beginning_of_branches():
    model, tokens = NormsAfter().double(), torch.randn(3, 5, 8, dtype=torch.float64)
    moves = {"norms.0.0": ["inner.0"], "norms.0.1": ["attention.1"], "norms.1.0": ["inner.1"], "norms.1.1": ["head"]}
    made = structure.move_norms(model, moves)
    assert torch.allclose(made(tokens), model(tokens, first=True), rtol=1e-12)
    assert (
        torch.equal(copy.deepcopy(made)(tokens), made(tokens)) and made.state_dict().keys() == model.state_dict().keys()
    )
    twice = copy.deepcopy(made)
    nn.init.zeros_(twice.norms[1][1].weight)
    assert not torch.equal(twice(tokens), made(tokens)), "the hooks of a copy read the norms of the copy"


@pytest.mark.parametrize("kind", ["layer", "batch"])
def test_norms_follow_layers(network, kind):
    made = structure.add_norms(network, ["0", "2"], kind)
    norm = F.layer_norm if kind == "layer" else None
    h = network[0](X)
    h = norm(h, (6,)) if norm else F.batch_norm(h, None, None, training=True)
    h = network[2](torch.tanh(h))
    h = norm(h, (6,)) if norm else F.batch_norm(h, None, None, training=True)
    assert torch.allclose(made(X), network[4](torch.tanh(h)), rtol=1e-12)
    assert {"0.added_norm.weight", "2.added_norm.bias"} <= dict(made.named_parameters()).keys()


def test_norms_of_convolutions():
    layer = nn.Conv2d(2, 4, 3).double()
    images = torch.randn(3, 2, 5, 5, dtype=torch.float64)
    made = structure.add_norms(nn.Sequential(layer), ["0"])
    assert torch.allclose(made(images), F.layer_norm(layer(images), (4, 3, 3)), rtol=1e-10)


def test_a_norm_after_a_convolution_over_time_looks_at_no_other_time():
    torch.manual_seed(0)
    signal = torch.randn(3, 2, 7, dtype=torch.float64)
    layer = nn.Conv1d(2, 4, 1).double()
    made = structure.add_norms(nn.Sequential(layer), ["0"])
    values = layer(signal)
    mean, var = values.mean(1, keepdim=True), values.var(1, unbiased=False, keepdim=True)
    assert torch.allclose(made(signal), (values - mean) / (var + 1e-5).sqrt(), rtol=1e-10)
    later = signal.clone()
    later[..., 4:] += 1
    assert torch.equal(made(later)[..., :4], made(signal)[..., :4])


def test_norms_first_is_what_torch_calls_so():
    torch.manual_seed(0)
    after = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2)
    first = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True)
    wanted = nn.TransformerEncoder(first, 2, norm=nn.LayerNorm(8), enable_nested_tensor=False)
    wanted.load_state_dict(after.state_dict(), strict=False)
    tokens = torch.randn(3, 5, 8)
    made = structure.norms_first(after, ["layers.0", "layers.1"])
    assert torch.equal(made(tokens), wanted(tokens)) and not torch.equal(made(tokens), after(tokens))


def test_activations_are_replaced(network):
    made = structure.replace_activations(network, ["1", "3"], "relu")
    h = torch.relu(network[0](X))
    assert torch.equal(made(X), network[4](torch.relu(network[2](h))))


@pytest.mark.parametrize("count", [1, 4])
def test_inputs_are_standardised(network, count):
    mean, std = [0.5, 1.0, -1.0, 2.0][:count], [2.0, 3.0, 0.5, 1.0][:count]
    made = structure.standardise_inputs(network, mean, std)
    wanted = network((X - torch.tensor(mean)) / torch.tensor(std))
    assert torch.allclose(made(X), wanted, rtol=1e-6)
    assert torch.allclose(made(input=X), wanted, rtol=1e-6)


def test_images_are_standardised_by_channel():
    images = torch.randn(2, 3, 4, 4)
    made = structure.standardise_inputs(nn.Identity(), [1.0, 2.0, 3.0], [1.0, 2.0, 4.0])(images)
    assert torch.allclose(made[:, 2], (images[:, 2] - 3) / 4)


def test_cross_entropy_of_undone_probabilities_is_that_of_the_scores(network):
    targets = torch.arange(8) % 3
    made = structure.undo_softmax(nn.Sequential(network, nn.Softmax(-1)))
    assert torch.allclose(F.cross_entropy(made(X), targets), F.cross_entropy(network(X), targets), rtol=1e-12)


def test_other_shares_are_dropped_in_training_alone():
    model = nn.Sequential(nn.Dropout(0.9), nn.Linear(4, 4), nn.Dropout(0.0), nn.MultiheadAttention(4, 2, dropout=0.5))
    assert structure.drop_rates(model) == {"0": 0.9, "3": 0.5}
    made = structure.set_drop_rates(model, {"0": 0.25, "3": 0.0})
    assert structure.drop_rates(made) == {"0": 0.25} and structure.drop_rates(model)["0"] == 0.9
    torch.manual_seed(0)
    kept = made[0](torch.ones(100_000))
    assert float((kept > 0).double().mean()) == pytest.approx(0.75, abs=4 * (0.75 * 0.25 / 100_000) ** 0.5)
    ones = torch.ones(8, 4, dtype=model[1].weight.dtype)
    assert torch.equal(made.eval()[:3](ones), model.eval()[:3](ones))


_CALLED = {
    "set_drop_rates": {"rates": {}},
    "add_shortcuts": {"spans": [["1", "2"]], "zeros": ["2.weight"]},
    "add_norms": {"layers": ["0"], "kind": "layer"},
    "replace_activations": {"modules": ["1"], "by": "gelu"},
    "standardise_inputs": {"mean": [0.5], "std": [2.0]},
    "undo_softmax": {},
    "add_scales": {"modules": ["2"], "start": 0.5},
    "he": {"seed": 3},
    "xavier": {"seed": 3},
    "orthogonal": {"seed": 3},
    "unit_variance": {"seed": 3, "law": "he", "centred": True},
    "looks_linear": {"seed": 3},
    "torch_default": {"seed": 3},
}


def test_every_call_is_tried():
    others = {"add_average_pool_skips", "norms_first", "move_norms", "remove_norms"}  # they have tests of their own
    assert CALLS.keys() == _CALLED.keys() | others


@pytest.mark.parametrize("name", _CALLED)
def test_code_to_paste_makes_the_same_change(network, name):
    remedy = Remedy(name, _CALLED[name])
    pasted = {"model": network, "inputs": X}
    exec(code_of(remedy), pasted)
    assert torch.equal(apply_remedy(remedy, network, X)(X), pasted["model"](X)) or name == "undo_softmax"
    assert pasted["model"] is not network


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda n: structure.add_shortcuts(n, [("1", "9")]), "no module '9'"),
        (
            lambda n: structure.add_shortcuts(n.double(), [("0", "2")])(X.view(8, 1, 4)),
            r"from shape \(8, 1, 4\) to \(8, 1, 6\)",
        ),
        (lambda n: structure.add_norms(n, ["1"]), "'1' is a Tanh"),
        (lambda n: structure.add_scales(n, ["9"]), "no module '9'"),
        (lambda n: structure.set_drop_rates(n, {"1": 0.5}), "'1' cannot drop"),
        (lambda n: structure.set_drop_rates(nn.Sequential(nn.Dropout()), {"0": 1.0}), "a share of 1: name"),
        (lambda n: structure.remove_norms(n, ["1"]), "'1' is a Tanh; wanted a batch, layer"),
        (lambda n: structure.move_norms(n, {"0": ["1"]}), "'0' is a Linear; wanted a batch, layer"),
        (lambda n: structure.add_norms(n, ["0"], "group"), "wanted 'layer' or 'batch'"),
        (lambda n: structure.norms_first(n, ["0"]), "transformer layers of torch.nn"),
        (lambda n: structure.replace_activations(n, ["1"], "rely"), "no activation 'rely'.*relu"),
        (lambda n: structure.standardise_inputs(n, [0.0], [0.0]), "std above 0"),
        (lambda n: apply_remedy(Remedy("looks_linear", {"seed": 0}), n), "needs inputs"),
    ],
)
def test_what_cannot_be_changed_is_one_sentence(network, call, words):
    with pytest.raises(InvalidInputError, match=words):
        call(network)
