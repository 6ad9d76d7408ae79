import math

import pytest
import torch

from skiplens.kernels import ResNetKernel
from skiplens.kernels.lookup import linear_lookup


def test_a_known_function_of_the_angle():
    lookup = linear_lookup(torch.cos)
    cosine = torch.linspace(-1, 1, 1001, dtype=torch.float32).view(7, 143)
    assert lookup.error <= 3e-7
    torch.testing.assert_close(lookup.replace(cosine.clone()), cosine, rtol=0, atol=2e-6)


def test_cosines_rounded_beyond_one():
    lookup = linear_lookup(lambda angle: angle)
    found = lookup.replace(torch.tensor([[1 + 1e-6, -1 - 1e-6]], dtype=torch.float32))
    assert found.flatten().tolist() == pytest.approx([0, math.pi], abs=1e-6)


def test_a_steep_kernel_gets_more_nodes_near_equal_inputs():
    steep = ResNetKernel(2000, 2, 1.0, normalise=True)._lookup("ntk")
    flat = ResNetKernel(1, 2, 1.0)._lookup("ntk")
    assert steep.error <= 3e-7 and flat.error <= 3e-7
    assert steep.focus < flat.focus


def test_a_function_no_table_can_follow_gets_the_best_one():
    lookup = linear_lookup(lambda angle: torch.sin(1e7 * angle))
    assert lookup.error > 0.1 and torch.isfinite(lookup.values).all()
