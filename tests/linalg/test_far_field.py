import pytest
import torch

from skiplens.linalg.low_rank_update import windows
from tests.tolerances import assert_close


@pytest.mark.parametrize("kind", ["even", "random", "clustered"])
def test_windows_cover_all_intervals_and_near_poles_are_all_within_one_width(kind, generator):
    fence = {
        "even": torch.linspace(0, 1, 500),
        "random": torch.rand(500, generator=generator).sort().values,
        "clustered": torch.cat([1e-6 * torch.rand(250, generator=generator), torch.rand(250, generator=generator)])
        .sort()
        .values,
    }[kind]
    found = windows(fence)
    assert [row for window in found for row in range(window.rows.start, window.rows.stop)] == list(range(499))
    for window in found:
        poles, high = fence[:-1], window.low + window.width
        inside = (poles > window.low - window.width) & (poles < high + window.width)
        assert set(inside.nonzero().flatten().tolist()) <= set(range(window.near.start, window.near.stop))


def test_far_poles_are_met_to_rounding_by_the_polynomial(generator):
    fence = torch.rand(600, generator=generator).sort().values
    weights = torch.rand(599, generator=generator)
    for window in windows(fence)[::5]:
        coefficients = window.far_field(fence[:-1], weights[:, None], weights)
        places = window.width * torch.rand(7, generator=generator)
        far = torch.ones(599, dtype=torch.bool)
        far[window.near] = False
        gaps = (fence[:-1][far] - window.low)[None, :] - places[:, None]
        found = window.evaluate(coefficients, places)[:, 0]
        # Both are sums of terms of both signs, so the error is relative to the sum of their sizes.
        assert float((found - gaps.reciprocal() @ weights[far]).abs().max()) < 1e-14 * float(
            (gaps.reciprocal().abs() @ weights[far]).max()
        )


def test_a_polynomial_comes_back_as_it_is():
    window = windows(torch.linspace(0, 2, 200))[1]
    nodes, places = window.nodes(torch.zeros(1)), window.width * torch.linspace(0, 1, 9)
    cubic = torch.stack([nodes**3 - nodes, 2 + 0 * nodes], 1)
    expected = torch.stack([places**3 - places, 2 + 0 * places], 1)
    assert_close(window.evaluate(window.coefficients(cubic), places), expected)
