"""The measured sizes against the formula of each network, written out with plain tensors."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from tests import hugging_face
from tests.budget_calls import least_memory
from tests.networks import CrossAttending, Formula, LinearResidual, chain, drawn, linear, mlp, noise
from tests.signal.looking import look
from tests.tolerances import assert_close

X = noise(5, 3, seed=2)


def rms(value: torch.Tensor) -> torch.Tensor:
    return value.square().mean(1).sqrt()


def explicit(net: LinearResidual) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The signals and the gradients by hand: x ← x + sWx forwards, g ← g + sgW backwards."""
    steps = [net.scale * layer.weight.detach() for layer in net.layers]
    signals = [X]
    for step in steps:
        signals.append(signals[-1] + signals[-1] @ step.T)
    drawn_direction = torch.randn(5, 3, generator=Randomness(0).torch(), dtype=torch.float64)
    backward = [drawn_direction / 3**0.5]
    for step in reversed(steps):
        backward.insert(0, backward[0] + backward[0] @ step)
    return signals, backward


def test_signal_and_gradient_of_a_linear_network():
    net = drawn(LinearResidual(4, 3, scale=0.7))
    reading, (signals, backward) = look(net, X), explicit(net)
    assert reading.depths == ("input", *reading.block_names) and reading.depth == 4 and reading.samples == 5
    assert_close(reading.signal, torch.stack([rms(signal) for signal in signals]))
    assert_close(reading.gradient, torch.stack([gradient.norm(dim=1) for gradient in backward]))


def test_branch_shortcut_and_their_cosine():
    net = drawn(LinearResidual(3, 3, scale=-0.5))
    reading, (signals, _) = look(net, X), explicit(net)
    for index, layer in enumerate(net.layers):
        shortcut, branch = signals[index], -0.5 * signals[index] @ layer.weight.detach().T
        assert float(reading.branch_norms[index]) == pytest.approx(float(branch.square().mean().sqrt()))
        assert float(reading.shortcut_norms[index]) == pytest.approx(float(shortcut.square().mean().sqrt()))
        cosine = (branch * shortcut).sum() / branch.norm() / shortcut.norm()
        assert float(reading.alignments[index]) == pytest.approx(float(cosine))
    assert_close(reading.branch_ratios, reading.branch_norms / reading.shortcut_norms)


def test_the_gradient_by_a_branch_is_that_of_autograd():
    net = drawn(nn.Sequential(linear(), Formula(lambda m, x: x + m.f(x), f=mlp()), linear(3, 2)))
    direction = torch.randn(5, 2, generator=Randomness(0).torch(), dtype=torch.float64)
    (net(X) * direction / 2**0.5).sum().backward()
    squares = sum(float(p.grad.square().sum()) for p in net[1].parameters() if p.ndim > 1)
    net.zero_grad(set_to_none=True)
    assert float(look(net, X).branch_gradients[0]) == pytest.approx(squares**0.5)


def test_frozen_parameters_are_differentiated_and_stay_frozen():
    net = drawn(LinearResidual(2, 3))
    with_gradients = look(net, X)
    net.requires_grad_(False)
    assert torch.equal(look(net, X).branch_gradients, with_gradients.branch_gradients)
    assert not any(p.requires_grad for p in net.parameters())


@pytest.mark.parametrize(
    ("formula", "branch"),
    [
        (lambda m, x: x - m.f(x), lambda m, x: m.f(x)),
        (lambda m, x: 0.5 * m.f(x) + x, lambda m, x: 0.5 * m.f(x)),
        (lambda m, x: x + m.f(x) + m.g(x), lambda m, x: m.f(x) + m.g(x)),
        (lambda m, x: torch.add(x, m.f(x), alpha=3), lambda m, x: 3 * m.f(x)),
        (lambda m, x: torch.addcmul(x, m.f(x), m.g(x)), lambda m, x: m.f(x) * m.g(x)),
    ],
    ids=["minus", "swapped", "two branches", "alpha", "addcmul"],
)
def test_every_way_to_write_a_join(formula, branch):
    net = drawn(Formula(formula, f=mlp(), g=mlp()))
    reading = look(net, X)
    assert len(reading.block_names) == 1
    assert float(reading.branch_norms[0]) == pytest.approx(float(branch(net, X).detach().square().mean().sqrt()))
    assert float(reading.shortcut_norms[0]) == pytest.approx(float(X.square().mean().sqrt()))


def test_blocks_inside_of_others_are_no_depth():
    inner = Formula(lambda m, x: x + m.f(x), f=mlp())
    net = drawn(Formula(lambda m, x: x + m.last(m.inner(m.first(x))), first=linear(), inner=inner, last=linear()))
    reading = look(net, X)
    assert sorted(reading.outermost) == [False, True] and reading.depth == 1 and len(reading.signal) == 2


def test_without_blocks_there_is_no_depth():
    reading = look(chain(), X)
    assert reading.depths == () and reading.signal.shape == (0, 5) and "no residual join" in reading.notes[0]


def test_several_inputs_and_side_inputs():
    net = drawn(CrossAttending())
    inputs = {"x": noise(4, 2, 4), "context": noise(4, 3, 4, seed=1)}
    assert look(net, inputs).depth == 2


@pytest.mark.parametrize("build", [hugging_face.gpt2, hugging_face.bert], ids=lambda build: build.__name__)
def test_integer_inputs(build):
    reading = look(*hugging_face.built(build))
    assert reading.depth == 4 and bool((reading.gradient > 0).all())


def test_float32_agrees_with_float64():
    net = drawn(LinearResidual(4, 3))
    exact, rounded = look(net, X), look(net.float(), X.float())
    assert rounded.precision == "float32"
    assert_close(rounded.signal.float(), exact.signal.float())


def test_only_the_direction_is_random():
    net = drawn(LinearResidual(2, 3))
    first, second = look(net, X, seed=0), look(net, X, seed=1)
    assert torch.equal(first.signal, second.signal) and not torch.equal(first.gradient, second.gradient)


def test_outputs_without_a_gradient_are_named():
    net = drawn(Formula(lambda m, x: (x + m.f(x)).argmax(1), f=mlp()))
    with pytest.raises(InvalidInputError, match=r"returns int64 numbers, which have no gradient\. Hand in a model"):
        look(net, X)


@pytest.mark.parametrize("samples", [1, 2, 5])
def test_samples_in_pieces_have_the_signal_of_all_together(samples):
    net = drawn(Formula(lambda m, x: m.head(x + m.f(F.relu(m.g(x)))), f=nn.Linear(6, 3), g=nn.Linear(3, 6), head=mlp()))
    nn.init.constant_(net.g.bias[:2], -9.0)  # two units are shut
    inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(4))
    whole, least = look(net, inputs), least_memory(lambda memory: look(net, inputs, memory=memory))
    found = look(net, inputs, memory=samples * least)
    for name, value in whole.values().items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            assert_close(getattr(found, name).nan_to_num(-1), value.nan_to_num(-1))
        else:
            assert torch.equal(getattr(found, name), value) if isinstance(value, torch.Tensor) else True
    assert found.samples == 5 and found.block_names == whole.block_names and found.broken == whole.broken
    assert 0 < float(whole.dead_units[0]) < 1


def test_fewer_samples_where_the_machine_is_short(monkeypatch):
    net = drawn(LinearResidual(3, 3))
    monkeypatch.setattr("skiplens.signal.lens.MOST_BYTES", 2 * 9 * 3 * 8)  # nine operations, two samples
    monkeypatch.setattr("skiplens.signal.lens.ENOUGH", 1)
    reading = look(net, X)
    assert reading.samples == 2 and reading.signal.shape == (4, 2)
    assert_close(reading.signal, look(net, X[:2]).signal)


def test_enough_samples_go_through_in_pieces_where_fewer_fit_at_once(monkeypatch):
    net, whole = drawn(LinearResidual(3, 3)), look(drawn(LinearResidual(3, 3)), X)
    monkeypatch.setattr("skiplens.signal.lens.MOST_BYTES", 2 * 9 * 3 * 8)  # two samples
    reading = look(net, X)
    assert reading.samples == len(X) == 5
    assert_close(reading.signal, whole.signal)
    assert_close(reading.gradient, whole.gradient)
    assert_close(reading.branch_gradients, whole.branch_gradients)
