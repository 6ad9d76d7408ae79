"""The same numbers on both devices."""

import pytest
import torch

from skiplens.theory.shortcut_hessian import (
    BranchActivations,
    count_negative,
    hessian_at_zero,
    linear_gradient,
    linear_hessian,
    linear_spectrum,
    near_zero_rectified_spectrum,
    orthogonal_spectrum,
    second_moments,
    shortcut_hessian,
    shortcut_units,
    spectrum_of,
)
from skiplens.theory.small_weights import small_weight_network, surrogate_targets
from tests.theory.shortcut_hessian.reference import data, stacked
from tests.theory.small_weights.points import fibonacci
from tests.tolerances import assert_close

pytestmark = pytest.mark.gpu


def on(device):
    weights = stacked(3, 6, 0.4).to(device)
    x, y = (part.to(device) for part in data(3, 8))
    units, moments = shortcut_units(weights), second_moments(x, y)
    rotation = torch.linalg.qr(stacked(3, 1, 1.0)).Q.to(device)
    H = linear_hessian(units, moments)
    yield H
    yield linear_gradient(units, moments)
    for activations in (BranchActivations(mid="relu"), BranchActivations("tanh", "tanh", "tanh")):
        yield shortcut_hessian(weights, x, y, 2, activations)
    for branch_depth in (1, 2, 3):
        point = hessian_at_zero(x, y, 3, branch_depth)
        yield point.dense()
        yield torch.tensor([point.spectrum.largest, point.spectrum.absolute_quantile(), point.spectrum.index])
    yield hessian_at_zero(x, y, 3, bias=True).spectrum.expanded()
    yield near_zero_rectified_spectrum(weights[::2], x, y).values
    yield torch.tensor([orthogonal_spectrum(rotation, x, y).largest, linear_spectrum(units, moments).index])
    yield torch.tensor([count_negative(H), spectrum_of(H).count_below(0.0)], dtype=torch.float64)
    start, end = (points.to(device) for points in fibonacci())
    near = surrogate_targets(start, end, 0.1, torch.Generator().manual_seed(0))
    yield near
    yield small_weight_network(start, near, step=0.1).network(start)


def test_both_devices_agree():
    for cpu, cuda in zip(on("cpu"), on("cuda"), strict=True):
        assert_close(cuda.cpu(), cpu)
