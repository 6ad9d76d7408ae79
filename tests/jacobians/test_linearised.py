import pytest
import torch
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.graph.functional import transformable
from skiplens.jacobians.part_spectrum import Linearised, couples_samples, sample_jacobians, whole_jacobian
from tests.networks import drawn, mlp, noise
from tests.tolerances import assert_close


def dense(function, point):
    jacobian = torch.func.jacrev(function)(point)
    return jacobian.detach().reshape(-1, point.numel())


CASES = {
    "mlp": (lambda: drawn(mlp()), noise(4, 3)),
    "convolution": (lambda: drawn(nn.Sequential(nn.Conv2d(2, 3, 3, stride=2), nn.ReLU())), noise(2, 2, 5, 5)),
    "max pool": (lambda: nn.MaxPool2d(2), noise(2, 2, 4, 4)),
    "layer norm": (lambda: nn.LayerNorm(5), noise(3, 5)),
    "batch norm": (lambda: drawn(nn.BatchNorm1d(3, track_running_stats=False)), noise(6, 3)),
    "attention": (lambda: drawn(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)), noise(2, 3, 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_products_are_those_of_the_dense_jacobian(name, seed):
    build, point = CASES[name]
    generator = torch.Generator().manual_seed(seed + 1000)  # not that of the point: a norm loses its own direction
    model = build()
    with transformable():
        J = dense(model, point)
        linearised = Linearised(model, point)
        assert (linearised.rows, linearised.columns) == tuple(J.shape)
        assert linearised.forward(torch.zeros(0, J.shape[1])).shape == (0, J.shape[0])
        for count in (1, 3):
            right, left = (torch.randn(count, size, generator=generator) for size in reversed(J.shape))
            assert_close(linearised.forward(right), right @ J.T)
            assert_close(linearised.adjoint(left), left @ J)
        assert_close(whole_jacobian(linearised), J)


@pytest.mark.parametrize("name", ["mlp", "convolution", "layer norm", "attention"])
def test_jacobians_of_samples_are_the_diagonal_blocks(name, generator):
    build, point = CASES[name]
    model, samples = build(), len(point)
    with transformable():
        linearised, J = Linearised(model, point), dense(model, point)
        found = sample_jacobians(linearised, samples)
        rows, columns = J.shape[0] // samples, J.shape[1] // samples
        blocks = J.reshape(samples, rows, samples, columns)
        assert_close(found, torch.stack([blocks[i, :, i] for i in range(samples)]))
        assert not couples_samples(linearised, samples, generator)


def test_wide_and_tall_jacobians_agree(generator):
    """More outputs than inputs go column by column, fewer go row by row."""
    for outputs in (2, 9):
        layer = drawn(nn.Linear(4, outputs))
        assert_close(sample_jacobians(Linearised(layer, noise(3, 4)), 3), layer.weight.detach().expand(3, -1, -1))


@pytest.mark.parametrize("samples", [2, 3, 5])
def test_coupling_of_any_two_samples_is_seen(samples, generator):
    for giver in range(samples):
        for taker in set(range(samples)) - {giver}:

            def function(x, giver=giver, taker=taker):
                mask = torch.zeros(samples, 1)
                mask[taker] = 1
                return x + mask * x[giver]

            assert couples_samples(Linearised(function, noise(samples, 2)), samples, generator)


def test_one_sample_is_never_coupled(generator):
    assert not couples_samples(Linearised(lambda x: x.sum(0, keepdim=True), noise(1, 2)), 1, generator)


def test_a_constant_function_has_the_zero_jacobian():
    for function in (lambda x: torch.ones(2, 3), lambda x: torch.relu(x - 100)):
        linearised = Linearised(function, noise(2, 3))
        assert float(whole_jacobian(linearised).abs().max()) == 0
        assert float(linearised.forward(torch.ones(2, 6)).abs().max()) == 0


def test_empty_and_integer_inputs_are_refused():
    with pytest.raises(InvalidInputError, match=r"from shape \(0, 3\) to shape \(0, 3\) has no entries"):
        Linearised(lambda x: x, torch.zeros(0, 3))
    with pytest.raises(InvalidInputError, match=r"from shape \(2, 3\) to shape \(2, 0\) has no entries"):
        Linearised(lambda x: x[:, :0], torch.zeros(2, 3))
    with pytest.raises(InvalidInputError, match="needs a floating-point input"):
        Linearised(lambda x: x, torch.zeros(2, 3, dtype=torch.int64))
