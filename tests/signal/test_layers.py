"""The states of layers, against a loop in float64, closed forms and statistics."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from skiplens.base.errors import TooLargeError
from skiplens.graph.batch import Batch
from skiplens.plots.figure import Band, Line
from skiplens.signal import layer_states
from skiplens.signal.layer_report import layer_sizes
from skiplens.signal.seen import Spread
from tests.budget_calls import least_memory
from tests.networks import noise
from tests.tolerances import assert_close

WIDTH, SAMPLES = 12, 7


def batch(*shape: int) -> Batch:
    inputs = torch.randn(SAMPLES, *shape, generator=torch.Generator().manual_seed(3))
    return Batch(inputs, torch.arange(SAMPLES) % 3)


def chain(inplace: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [part for _ in range(3) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace), nn.LayerNorm(WIDTH))]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 3))


def cosine_distance(rows: torch.Tensor) -> float:
    pairs = itertools.combinations(rows.flatten(1), 2)
    return float(torch.stack([1 - F.cosine_similarity(a, b, dim=0) for a, b in pairs]).mean())


@pytest.mark.parametrize("inplace", [False, True])
def test_every_number_is_that_of_a_loop(inplace):
    net, data = chain(), batch(WIDTH)
    states = layer_states(chain(inplace), data)
    values = [data.inputs]
    for layer in net:
        values.append(layer(values[-1]))
        values[-1].retain_grad()
    loss = F.cross_entropy(values[-1], data.targets)
    loss.backward()
    assert states.loss == pytest.approx(loss.item()) and states.names == tuple(map(str, range(len(net))))
    for place, (layer, before, after) in enumerate(zip(net, values, values[1:], strict=False)):
        assert float(states.inputs[place]) == pytest.approx(before.square().mean().sqrt().item())
        assert float(states.outputs[place]) == pytest.approx(after.square().mean().sqrt().item())
        assert float(states.gradients[place]) == pytest.approx(float(after.grad.norm()))
        assert float(states.spreads[place]) == pytest.approx(cosine_distance(before.detach()))
        own = [p.grad.flatten() for p in layer.parameters()]
        if own:
            assert float(states.parameter_gradients[place]) == pytest.approx(float(torch.cat(own).norm()))
        if isinstance(layer, nn.ReLU):
            dead = [bool((after[:, unit] == 0).all()) for unit in range(WIDTH)]
            assert float(states.shut[place]) == pytest.approx(sum(dead) / WIDTH) and states.units[place] == WIDTH


def test_vectors_that_are_alike_to_rounding_keep_their_digits():
    rows = torch.tensor(
        [[1.0, 0.0], [1.0, 1e-5]], dtype=torch.float32
    )  # 1 − cosine is δ²/2, a thousandth of the rounding of float32
    assert float(Spread.of(rows, 2)) == pytest.approx(5e-11, rel=1e-4)
    assert math.isnan(Spread.of(rows, 1)) and math.isnan(Spread.of(torch.ones(3, 5), 2))
    assert float(Spread.of(rows.T[:, :, None].repeat(3, 1, 1)[:5], 2)) > 0  # five steps of time, two samples


def test_signal_of_gaussian_weights_grows_by_their_gain(seed):
    width, depth, gain = 256, 12, 1.5
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(depth)))
    with torch.no_grad():
        for layer in net:
            layer.weight.copy_(gain / width**0.5 * torch.randn(width, width, generator=generator))
    states = layer_states(net, Batch(torch.randn(SAMPLES, width, generator=generator), torch.zeros(SAMPLES, width)))
    # Each layer multiplies the power by gain²·χ²/width, whose logarithm has the variance 2/width.
    grown = float((states.outputs[-1] / states.outputs[0]).log())
    assert abs(grown - (depth - 1) * math.log(gain)) < 5 * (depth - 1) ** 0.5 * (2 / width) ** 0.5 / 2 + depth / width


def test_numbers_whose_squares_overflow():
    net = nn.Linear(1, 1, bias=False, dtype=torch.float32)
    with torch.no_grad():
        net.weight.fill_(1e30)
    states = layer_states(
        net, Batch(torch.ones(2, 1, dtype=torch.float32), torch.zeros(2, 1)), lambda outputs, _: outputs.mean() * 1e-30
    )
    assert float(states.outputs[0]) == pytest.approx(1e30, rel=1e-6)
    assert float(states.spreads[0]) == 0


class Functional(nn.Module):
    """Convolution, functional ReLU, pool, matrix; with a shift of the filters."""

    def __init__(self, shift: float = 0.0, size: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.filters, self.head = nn.Conv2d(1, 4, 3), nn.Linear(16, 3)
        with torch.no_grad():
            self.filters.weight.mul_(size)
            self.filters.bias.fill_(shift)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.max_pool2d(F.relu(self.filters(x)), 2).flatten(1))


def test_units_that_a_function_shut_are_seen_at_the_next_weights():
    data = batch(1, 6, 6)
    assert layer_states(Functional(-50.0), data).shut.tolist()[1] == 1
    assert layer_states(Functional(), data).shut.tolist()[1] == 0
    assert math.isnan(layer_states(Functional(size=0.0), data).shut[1])  # zero weights made the zeros
    assert math.isnan(layer_states(Functional(), data._replace(inputs=0 * data.inputs)).shut[0])  # data may be zero


def test_channels_are_the_units_of_convolutions():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    with torch.no_grad():
        net[0].bias.copy_(torch.tensor([-50.0, 50.0, -50.0, -50.0]))
    states = layer_states(net, batch(1, 6, 6))
    assert (float(states.shut[1]), int(states.units[1])) == (0.75, 4)
    assert states.kinds == ("weights", "activation", "other", "weights")
    assert math.isnan(states.shut[3])  # told once, at the ReLU


@pytest.mark.parametrize(
    ("layer", "flat"),
    [(nn.Tanh(), 2.9932), (nn.Sigmoid(), 5.9865), (nn.Softsign(), 9.0), (nn.Hardtanh(-2, 2), 2.0)],
    ids=["tanh", "sigmoid", "softsign", "hardtanh"],
)
def test_saturation_begins_where_the_slope_is_a_hundredth(layer, flat):
    # From the inverse slopes: 1/cosh² = 1 %, 4s(1 − s) = 1 %, (1 + |z|)⁻² = 1 %, and the corner.
    inputs = torch.tensor([[flat * 0.999, -flat * 1.001, flat * 1.001, 0.0]])
    states = layer_states(layer, Batch(inputs, torch.zeros(1, 4)))
    assert float(states.shut[0]) == 0.5


class Parts(nn.Module):
    """A part before a detach, one that is never called, a frozen one, a reached one and a side output."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.never, self.frozen, self.head, self.side = (nn.Linear(4, 4) for _ in range(4))
        self.frozen.requires_grad_(False)

    def forward(self, values: torch.Tensor, shift: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.head(self.frozen(self.cut(values).detach() + shift))
        return {"logits": scores, "side": self.side(scores)}


def test_parts_without_a_gradient_are_named_from_the_outside():
    data = Batch({"values": torch.randn(6, 4), "shift": torch.randn(6, 4)}, torch.arange(6) % 4)
    states = layer_states(Parts(), data)
    assert states.unreached == ("cut", "never", "side") and states.aside == ("side",)
    assert states.zero_gradients == () and states.trainable == 10


def test_a_layer_that_is_called_again_has_one_more_entry():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.attention = nn.Linear(4, 4), nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = checkpoint(self.layer, torch.tanh(self.layer(x)), use_reentrant=False)  # called again on the way back
            return self.attention(x, x, x)[0].mean(1)

    states = layer_states(Twice(), batch(5, 4))
    assert states.names == ("layer", "layer", "attention") and set(states.kinds) == {"weights"}
    assert bool(states.gradients.isfinite().all())


def test_sums_that_are_joins():
    class Joined(nn.Module):
        def __init__(self, residual: bool) -> None:
            super().__init__()
            self.layers, self.residual = nn.ModuleList(nn.Linear(4, 4) for _ in range(6)), residual
            self.shift = nn.Parameter(torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for first, second in zip(self.layers[::2], self.layers[1::2], strict=True):
                x = x + second(torch.tanh(first(x))) if self.residual else torch.tanh(first(x) + second(x))
            return x + self.shift

    data = Batch(torch.randn(6, 4), torch.arange(6) % 4)
    # The first shortcut is data, which has no graph.
    assert layer_states(Joined(True), data).joins == 2 and layer_states(Joined(False), data).joins == 0


def test_numbers_a_batch_norm_has_for_each_channel():
    net = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(36, 3), nn.BatchNorm1d(3))
    data = batch(1, 6, 6)
    assert layer_states(net.train(), data).statistics.tolist() == [SAMPLES * 36, 0, 0, SAMPLES]
    assert layer_states(net.eval(), data).statistics.tolist() == [0, 0, 0, 0]


def test_tokens_and_targets_that_fit_no_loss():
    tokens = torch.tensor([[0, 1], [0, 2], [0, 1]])
    net = nn.Sequential(nn.Embedding(3, 4), nn.Linear(4, 5))
    states = layer_states(net, Batch(tokens, torch.tensor([0, 1, 0])))
    assert states.input_spread == 0.5 and states.kinds[0] == "weights"
    assert states.loss == pytest.approx(float(net(tokens).square().mean().detach()))


def weighted(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss that is no mean and no sum over samples."""
    return (outputs.square().sum(1) * targets).sum().square()


@pytest.mark.parametrize("loss", [None, "cross_entropy", weighted])
def test_samples_in_pieces_have_the_states_of_all_together(loss):
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    nn.init.constant_(net[2].bias[:2], -9.0)  # two units are shut
    data = Batch(4 * noise(11, 4), torch.arange(11) % 3)
    whole = layer_states(net, data, loss)
    least = least_memory(lambda memory: layer_states(net, data, loss, memory=memory))
    assert whole.shut[3] == 0.4 and 0 < whole.shut[1] < 1
    for memory in (least, 2 * least, 100 * least):
        found = layer_states(net, data, loss, memory=memory)
        for name, value in whole.values().items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                assert_close(getattr(found, name).nan_to_num(-1), value.nan_to_num(-1))
            elif isinstance(value, torch.Tensor):
                assert torch.equal(getattr(found, name), value)
            else:
                assert getattr(found, name) == (pytest.approx(value) if isinstance(value, float) else value), name


def test_coupled_samples_that_do_not_fit_are_refused_with_the_least():
    net, data = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), batch(4)
    least = least_memory(lambda memory: layer_states(net, data, memory=memory))
    layer_states(net, data, memory=least)
    with pytest.raises(TooLargeError, match=f"the least that does is {least} "):
        layer_states(net, data, memory=least - 1)


def test_many_layers_are_drawn_some_in_a_row_together():
    """The two matrices of branches take turns: a line through both would fill the plot."""
    states = layer_states(nn.Sequential(*(nn.Linear(2, 2) for _ in range(482))), batch(2))
    sizes = torch.tensor([0.1, 0.001]).repeat(241)
    figure = layer_sizes(replace(states, outputs=sizes))
    assert figure is not None and "mean of 6 calls in a row" in figure.caption
    band, line = figure.marks[:2]
    assert isinstance(band, Band) and isinstance(line, Line) and len(line.x) == 81 and band.colour == line.colour
    assert line.y == pytest.approx([0.01] * 81, rel=1e-6), "the mean of logarithms"
    assert band.low == pytest.approx([0.001] * 81) and band.high == pytest.approx([0.1] * 81)
    few = layer_sizes(layer_states(chain(), batch(WIDTH)))
    assert few is not None and [len(mark.x) for mark in few.marks] == [4, 4, 4], "each by itself"
