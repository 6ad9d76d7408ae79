import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from skiplens.curvature.convolution import PlainConvolutions
from skiplens.curvature.operator import loss_operator
from tests.curvature.dense import FlatLoss, squared_error
from tests.networks import noise
from tests.tolerances import assert_close

# torch.func, which the oracle uses, remarks on its own inner workings at its first call.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

LAYERS = {
    "1 axis": (nn.Conv1d(2, 3, 3, padding=1), (4, 2, 6)),
    "2 axes": (nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)), (3, 2, 5, 4)),
    "3 axes": (nn.Conv3d(1, 2, 2, bias=False), (2, 1, 3, 3, 3)),
    "groups": (nn.Conv2d(4, 6, 3, groups=2, dilation=2), (3, 4, 6, 6)),
    "padding by name": (nn.Conv2d(2, 2, 3, padding="same"), (3, 2, 4, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("kind", ["hessian", "gauss_newton"])
def test_second_derivatives_of_two_convolutions(name, kind):
    layer, shape = LAYERS[name]
    layer = layer.double()
    inputs = noise(*shape)
    again = type(layer)(layer.out_channels, 2, 2).double()
    model = nn.Sequential(layer, nn.Tanh(), again, nn.Tanh())
    targets = torch.zeros_like(model(inputs))
    oracle = FlatLoss(model, inputs, squared_error(targets))
    expected = oracle.hessian() if kind == "hessian" else oracle.gauss_newton()
    operator = loss_operator(model, (inputs, targets), loss="mse", kind=kind)
    assert_close(operator.dense(), expected, 1e-10)
    operator._probes = 1
    assert_close(operator.dense(), expected, 1e-10)


NORMS = {
    "features": (nn.BatchNorm1d, nn.Linear, (), (6, 3)),
    "1 axis": (nn.BatchNorm1d, nn.Conv1d, (2,), (5, 3, 4)),
    "2 axes": (nn.BatchNorm2d, nn.Conv2d, (2,), (4, 3, 3, 2)),
    "own statistics only": (partial(nn.BatchNorm1d, track_running_stats=False), nn.Linear, (), (6, 3)),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("kind", ["hessian", "gauss_newton"])
@pytest.mark.parametrize("training", [True, False])
def test_second_derivatives_of_batch_norms(name, kind, training):
    norm, layer, size, shape = NORMS[name]
    parts = [norm(3), layer(3, 3, *size), norm(3), nn.Tanh(), layer(3, 3, *size[1:], *(1,) * len(size)), norm(3)]
    model = nn.Sequential(*parts, nn.Tanh()).double().train(training)
    for number, tensor in enumerate([*model.parameters(), *model.buffers()]):
        if tensor.ndim == 1:  # scales, shifts and statistics far from 1 and 0
            tensor.data = 1 + noise(len(tensor), seed=number).abs()
    inputs = 3 + 2 * noise(*shape)
    targets = torch.zeros_like(model(inputs))
    oracle = FlatLoss(model, inputs, squared_error(targets))
    # Reverse over reverse: torch's forward mode through the gradient of a batch norm in training mode is wrong.
    twice = torch.autograd.functional.hessian
    expected = twice(oracle, oracle.point) if kind == "hessian" else oracle.gauss_newton()
    operator = loss_operator(model, (inputs, targets), loss="mse", kind=kind)
    assert_close(operator.dense(), expected, 1e-10)
    operator._probes = 1
    assert_close(operator.dense(), expected, 1e-10)


def test_batch_norms_stay_and_refuse_as_they_do():
    x, layer = noise(4, 3, 2), nn.BatchNorm1d(3).double()
    twin = copy.deepcopy(layer)
    with PlainConvolutions():
        ours = layer(x)
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            layer(x[:1, :, 0])
        alone = nn.BatchNorm1d(3, affine=False).double()(x)
    assert torch.equal(ours, twin(x)) and torch.equal(layer.running_var, twin.running_var)
    assert "_Norm" in type(ours.grad_fn).__name__ and alone.grad_fn is None


def test_values_stay_and_samples_without_batch_axis_are_left_to_torch():
    x, w, b = noise(2, 3, 5, 5), noise(4, 3, 3, 3, seed=1), noise(4, seed=2)
    w.requires_grad_()
    with PlainConvolutions():
        ours = F.conv2d(x, w, b, stride=2, padding=1)
        alone = F.conv2d(x[0], w, bias=b, padding=1, groups=1)
    assert torch.equal(ours, F.conv2d(x, w, b, stride=2, padding=1))
    assert torch.equal(alone, F.conv2d(x[0], w, b, padding=1))
    assert "_Convolution" in type(ours.grad_fn).__name__
    assert "_Convolution" not in type(alone.grad_fn).__name__


class Experts(nn.Module):
    """Rows that are sorted by their expert, each group times the matrix of its own, twice; by hand or by torch."""

    def __init__(self, by_hand):
        super().__init__()
        self.by_hand = by_hand
        self.first = nn.Parameter(noise(3, 4, 8, dtype=torch.float32) / 2)
        self.second = nn.Parameter(noise(3, 8, 4, seed=1, dtype=torch.float32) / 3)

    def product(self, rows, matrices):
        if self.by_hand:
            groups = zip(rows.split([2, 0, 4]), matrices, strict=True)
            return torch.cat([group @ matrix for group, matrix in groups])
        return F.grouped_mm(rows, matrices, offs=torch.tensor([2, 2, 6], dtype=torch.int32))

    def forward(self, x):
        return self.product(torch.tanh(self.product(x, self.first)), self.second)


@pytest.mark.skipif(not hasattr(F, "grouped_mm"), reason="this torch has no grouped products")
@pytest.mark.parametrize("kind", ["hessian", "gauss_newton"])
def test_experts_have_second_derivatives(kind):
    data = noise(6, 4, dtype=torch.float32), noise(6, 4, seed=2, dtype=torch.float32)
    torch.set_default_dtype(torch.float32)
    found, expected = (
        loss_operator(Experts(by_hand), data, loss="mse", kind=kind).dense() for by_hand in (False, True)
    )
    assert float(expected.abs().max()) > 0.1
    assert_close(found, expected, 1e-5)
