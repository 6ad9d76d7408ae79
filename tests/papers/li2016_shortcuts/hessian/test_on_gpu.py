"""The same numbers on both devices."""

import pytest
import torch

from skiplens.linalg.second_moments import second_moments
from skiplens.papers.li2016_shortcuts.hessian.activations import BranchActivations
from skiplens.papers.li2016_shortcuts.hessian.at_zero import (
    hessian_at_zero,
    near_zero_rectified_spectrum,
    orthogonal_spectrum,
)
from skiplens.papers.li2016_shortcuts.hessian.exact import shortcut_hessian
from skiplens.papers.li2016_shortcuts.hessian.linear import linear_gradient, linear_hessian, shortcut_units
from skiplens.papers.li2016_shortcuts.hessian.linear_inertia import count_negative, linear_spectrum
from skiplens.papers.li2016_shortcuts.hessian.spectrum import spectrum_of
from skiplens.papers.li2016_shortcuts.small_weights import small_weight_network, surrogate_targets
from tests.papers.li2016_shortcuts.hessian.reference import data, stacked
from tests.papers.li2016_shortcuts.points import fibonacci
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
