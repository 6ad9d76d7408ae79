import math
from dataclasses import replace

import pytest
import torch

from skiplens.kernels import architectures
from skiplens.kernels.architectures import DenseNetKernel, ResNetKernel, VanillaKernel, quick_table_of
from skiplens.kernels.tables import quick_table


# of the rounding of a cosine near 1, not of the look-up: the angle there is its square root
@pytest.mark.parametrize(("dtype", "wanted", "rounding"), [(torch.float32, 3e-7, 2e-6), (torch.float64, 1e-13, 2e-13)])
def test_a_known_function_of_the_angle(dtype, wanted, rounding):
    lookup = quick_table(torch.cos, dtype)
    cosine = torch.linspace(-1, 1, 1001, dtype=dtype).view(7, 143)
    assert lookup.error <= wanted
    torch.testing.assert_close(lookup(cosine.clone()), cosine, rtol=0, atol=rounding)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cosines_rounded_beyond_one(dtype):
    lookup = quick_table(lambda angle: angle, dtype)
    found = lookup(torch.tensor([[1 + 1e-6, -1 - 1e-6]], dtype=dtype))
    assert found.flatten().tolist() == pytest.approx([0, math.pi], abs=1e-6)


def test_a_steep_kernel_gets_more_nodes_near_equal_inputs():
    steep = quick_table_of(ResNetKernel(2000, 2, 1.0, normalise=True), "ntk", torch.float32)
    flat = quick_table_of(ResNetKernel(1, 2, 1.0), "ntk", torch.float32)
    assert steep.error <= 3e-7 and flat.error <= 3e-7
    assert steep.pieces.focus < flat.pieces.focus


def test_a_function_no_table_can_follow_gets_the_best_one():
    lookup = quick_table(lambda angle: torch.sin(1e7 * angle), torch.float32)
    assert lookup.error > 0.1 and torch.isfinite(lookup.coefficients).all()


@pytest.mark.parametrize(
    "kernel",
    [
        ResNetKernel(10, 2, 10**-0.5, trained="all"),
        ResNetKernel(1000, 2, 1.0, normalise=True),
        ResNetKernel(3, 3, 0.7),
        DenseNetKernel(100),
        VanillaKernel(3),
    ],
    ids=repr,
)
@pytest.mark.parametrize("quantity", ["ntk", "nngp"])
def test_many_entries_in_float64_are_those_of_the_recursion(kernel, quantity, generator, monkeypatch):
    monkeypatch.setattr(architectures, "_MANY_ENTRIES", 1)
    X = torch.randn(40, 3, generator=generator)
    X = torch.cat([X, X[:5] * 2, X[:5] + 1e-9, -X[:5]])  # equal, nearly equal and opposite directions
    exact = getattr(replace(kernel, evaluation="recursion"), quantity)(X)
    size = exact.diagonal().sqrt()
    deviation = (getattr(kernel, quantity)(X) - exact).abs() / torch.outer(size, size)
    assert float(deviation.max()) < 2e-12  # the table's accuracy, and the rounding of a cosine


def test_an_accuracy_that_a_look_up_has_not_is_had_without():
    assert quick_table_of(DenseNetKernel(100, accuracy=1e-13), "ntk", torch.float64) is None
    assert quick_table_of(DenseNetKernel(100), "ntk", torch.float64) is not None
