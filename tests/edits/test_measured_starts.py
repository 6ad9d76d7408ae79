"""Starts that are measured on data, against what hooks of the test see in the network that comes out."""

import copy
import math

import pytest
import torch
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.edits import initialisation
from skiplens.edits.initialisation import HEAD, looks_linear, torch_default, unit_variance
from skiplens.edits.structure import add_norms


def mlp(depth=6, width=16, activation=nn.ReLU, bias=True):
    torch.manual_seed(0)
    layers = [nn.Linear(5, width, bias), activation()]
    for _ in range(depth):
        layers += [nn.Linear(width, width, bias), activation()]
    return nn.Sequential(*layers, nn.Linear(width, 3, bias)).double()


def convolutional():
    torch.manual_seed(0)
    body = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5), nn.Conv2d(8, 8, 3, padding=1)]
    return nn.Sequential(*body, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)).double()


def inputs(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5


def outputs_of_layers(network, given):
    """What each linear or convolution layer gives, by name."""
    seen = {}
    hooks = [
        layer.register_forward_hook(lambda layer, given, output, name=name: seen.__setitem__(name, output.detach()))
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Linear | nn.Conv2d)
    ]
    network(given)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize("law", ["orthogonal", "he", "xavier", None])
def test_every_layer_has_variance_one_and_the_last_one_is_small(law):
    X, network = inputs(64, 5), mlp()
    made = unit_variance(network, X, Randomness(0), law=law) if law else unit_variance(network, X)
    sizes = [float(values.square().mean().sqrt()) for values in outputs_of_layers(made, X).values()]
    assert sizes == pytest.approx([1.0] * (len(sizes) - 1) + [HEAD], rel=1e-12)


def test_layers_that_are_near_enough_stay_as_they_are():
    X, network, stayed = inputs(64, 5), mlp().requires_grad_(False), []
    for place, factor in ((2, 9.0), (4, 2.0), (8, 0.1), (12, 5.0)):
        network[place].weight.mul_(factor)
    made, x = unit_variance(network, X, near=3.0), X
    for old, new in zip(network, made, strict=True):
        if isinstance(old, nn.Linear):
            size, wanted = float(old(x).square().mean().sqrt()), HEAD if old is network[-1] else 1.0
            stayed.append(wanted / 3 < size < 3 * wanted)
            assert torch.equal(old.weight, new.weight) == torch.equal(old.bias, new.bias) == stayed[-1]
            assert stayed[-1] or float(new(x).square().mean().sqrt()) == pytest.approx(wanted, rel=1e-12)
        x = new(x)
    assert any(stayed) and not all(stayed)


def test_without_a_draw_the_directions_stay():
    X, network = inputs(64, 5), mlp(bias=False)
    made = unit_variance(network, X)
    for old, new in zip(network.parameters(), made.parameters(), strict=True):
        ratio = new / old
        assert torch.allclose(ratio, ratio.flatten()[0].expand_as(ratio), rtol=1e-10, atol=0)


def test_centred_units_have_mean_zero():
    X, network = inputs(64, 5), mlp()
    made = unit_variance(network, X, Randomness(0), centred=True)
    *hidden, _ = outputs_of_layers(made, X).values()
    for values in hidden:
        assert values.mean(0).abs().max() < 1e-12
        assert float(values.square().mean()) == pytest.approx(1.0, rel=1e-12)


def test_convolutions_with_batch_norm_and_dropout():
    X, network = inputs(16, 3, 6, 6), convolutional()
    before = copy.deepcopy(network.state_dict())
    made = unit_variance(network, X, Randomness(0))
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert torch.equal(made[1].running_mean, network[1].running_mean) and made.training and made[3].training
    made[3].eval()  # measured without dropout, with the statistics of the batch
    sizes = [float(values.square().mean().sqrt()) for values in outputs_of_layers(made, X).values()]
    assert sizes == pytest.approx([1.0, 1.0, HEAD], rel=1e-12)


@pytest.mark.parametrize("depth", [3, 30])
def test_a_network_of_relus_starts_as_a_linear_isometry(depth):
    X, network = inputs(7, 5), mlp(depth)
    made = looks_linear(network, X, Randomness(0))
    assert torch.allclose(made(X + X.flip(0)), made(X) + made(X.flip(0)), atol=1e-12)
    J = torch.func.jacrev(made)(X[0]).detach()
    # Widths 5 -> 8 pairs -> 3: every step multiplies by an orthogonal matrix, times √(8/5) at the first, HEAD last.
    hidden = torch.func.jacrev(made[:-2])(X[0]).detach()
    assert torch.linalg.svdvals(hidden) == pytest.approx([math.sqrt(8 / 5 * 2)] * 5, rel=1e-10)
    assert torch.linalg.svdvals(J).max() <= HEAD * math.sqrt(8 / 5) + 1e-12


def test_convolutions_start_linear_too():
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 6, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(216, 4),
    ).double()
    X = inputs(5, 3, 6, 6)
    made = looks_linear(network, X, Randomness(0))
    assert torch.allclose(made(X + X.flip(0)), made(X) + made(X.flip(0)), atol=1e-12)
    assert float(made(X).detach().std()) > 0.01


def test_the_draw_is_named_by_the_seed():
    X, network = inputs(8, 5), mlp()
    one, same, other = (looks_linear(network, X, Randomness(seed))(X) for seed in (0, 0, 1))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_layers_in_the_order_of_their_calls():
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.second, self.first = nn.Linear(4, 2), nn.Linear(3, 4)

        def forward(self, x):
            return self.second(self.first(x))

    X, network = inputs(50, 3), Backwards().double()
    made = unit_variance(network, X).requires_grad_(False)
    assert float(made.first(X).square().mean()) == pytest.approx(1), "the first that is called, not the first by name"
    assert float(made(X).square().mean().sqrt()) == pytest.approx(HEAD)


def test_what_cannot_be_drawn_is_one_sentence():
    with pytest.raises(InvalidInputError, match="no law 'none'"):
        unit_variance(mlp(), inputs(2, 5), Randomness(0), law="none")
    with pytest.raises(InvalidInputError, match="calls no linear or convolution layer"):
        unit_variance(nn.LayerNorm(5), torch.ones(2, 5))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.cells = nn.Embedding(100, 16), nn.GRU(16, 25, 2)
        self.attention, self.norm = nn.MultiheadAttention(25, 5), nn.LayerNorm(25)
        self.frozen, self.free = nn.Linear(25, 4).requires_grad_(False), nn.Parameter(torch.full((3,), 7.0))


def test_torchs_own_start_reaches_every_layer_of_torch():
    network = Reader()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(50).add_(3)
    before = copy.deepcopy(network.state_dict())
    made = torch_default(network, Randomness(1)).requires_grad_(False)
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    bound = 25**-0.5  # of a recurrent layer with 25 units: uniform between ±1/√25
    drawn = made.cells.weight_hh_l1.abs()
    assert 0.99 * bound < float(drawn.max()) <= bound and made.cells.bias_ih_l0.abs().max() <= bound
    glorot = math.sqrt(6 / (25 + 3 * 25))  # of the three matrices of attention, which torch draws as one
    assert 0.99 * glorot < float(made.attention.in_proj_weight.abs().max()) <= glorot
    assert not made.attention.out_proj.bias.any() and not made.norm.bias.any()
    assert torch.equal(made.norm.weight, torch.ones(25))
    spread = float(made.tokens.weight.var())
    assert abs(spread - 1) < 4 * math.sqrt(2 / 1600)  # N(0, 1), four standard errors
    for name in ("frozen.weight", "frozen.bias", "free"):
        assert torch.equal(made.get_parameter(name), network.get_parameter(name))
    same, other = torch_default(network, Randomness(1)), torch_default(network, Randomness(2))
    assert torch.equal(same.tokens.weight, made.tokens.weight) != torch.equal(other.tokens.weight, made.tokens.weight)


STARTS = {
    "he": lambda network, given: initialisation.he(network, Randomness(0)),
    "orthogonal": lambda network, given: unit_variance(network, given, Randomness(0)),
    "scaled": lambda network, given: unit_variance(network, given, centred=True),
    "looks linear": lambda network, given: looks_linear(network, given, Randomness(0)),
    "norms": lambda network, given: add_norms(network, ["0", "2"], "layer"),
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_the_linear_layer_of_gpt2_starts_as_any_other(start):
    conv1d = pytest.importorskip("transformers.pytorch_utils").Conv1D
    usual = mlp(depth=1, width=16)
    stored_otherwise = copy.deepcopy(usual)
    for name in ("0", "2", "4"):
        layer = usual.get_submodule(name)
        other = conv1d(layer.out_features, layer.in_features).double()
        other.weight.data, other.bias.data = layer.weight.detach().T.clone(), layer.bias.detach().clone()
        stored_otherwise.set_submodule(name, other)
    X = inputs(64, 5)
    assert torch.allclose(start(stored_otherwise, X)(X), start(usual, X)(X), rtol=0, atol=1e-12)
    assert not torch.allclose(start(usual, X)(X), usual(X), rtol=0, atol=1e-3)
