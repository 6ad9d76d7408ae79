"""The printed formulas against values worked out elsewhere, the measures against exact moments, every item once."""

import math

import pytest
import torch

from skiplens.kernels.finite_width.networks import ResNet
from skiplens.kernels.finite_width.reduced_moments import reduced_moments
from skiplens.papers.littwin2020_tangent.common import SIZES, Diagonal, Sizes, diagonal
from skiplens.papers.littwin2020_tangent.duality import Duality, Layer, duality, layer
from skiplens.papers.littwin2020_tangent.errata import printed_densenet_kernel, printed_resnet_kernel
from skiplens.papers.littwin2020_tangent.kernels import Bundle, bundle, limit
from skiplens.papers.reproduction import ReproductionEffort, reproduce
from skiplens.papers.study import choose
from tests.tolerances import STANDARD_ERRORS

ITEMS = ["fig2", "fig4", "fig5", "thm1", "thm2", "thm3", "thm4", "thm5", "thm6", "cor1", "cor2"]
CERTAIN_AT_SMOKE = {
    "fig5/resnet": "reproduced",
    "thm1/convergence": "reproduced",
    "thm2/convergence": "reproduced",
    "thm2/diagonal": "corrected",
    "cor1/mean": "corrected",
}
"""What even the smallest preset decides, whatever the seed."""


def test_no_item_of_the_paper_is_missing():
    assert [item.name for _, item in choose("littwin2020_tangent")] == ITEMS


@pytest.mark.parametrize(("theta", "expected"), [(math.pi / 2, 1.9035), (1.0, 3.76518)])
def test_the_resnet_kernel_as_printed(theta, expected):
    """Reference values to four decimals, from another program."""
    found = printed_resnet_kernel(torch.tensor([theta]).cos(), 5, 2, 0.5)
    assert float(found) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(("depth", "expected"), [(1, 0.5), (2, 1.40625)])
def test_the_printed_resnet_kernel_on_the_diagonal(depth, expected):
    """By hand: K_1 = 2a and K_2 = K_1 (1 + a) + 2a (1 + a)² with a = 1/4."""
    assert float(printed_resnet_kernel(torch.tensor([1.0]), depth, 2, 0.5)) == pytest.approx(expected)


@pytest.mark.parametrize(("depth", "theta", "expected"), [(1, 1.0, 0.5403), (5, 2.2, 0.0581)])
def test_the_densenet_kernel_as_printed(depth, theta, expected):
    found = printed_densenet_kernel(torch.tensor([theta]).cos(), depth)
    assert float(found) == pytest.approx(expected, abs=5e-5)


def test_the_right_kernels_are_those_of_the_tables():
    """At θ = 0 and at the angles next to π/2, between which the table's value at ρ = 0 lies."""
    residual, dense = limit("resnet", 21), limit("densenet", 21)
    assert float(residual[0]) == pytest.approx(6.103515625, rel=1e-12)
    assert float(residual[10]) == pytest.approx(1.16213138752003, rel=1e-12)
    assert float(dense[10]) == pytest.approx(0.784648713741555, rel=1e-12)


@pytest.mark.parametrize("explicit", [False, True])
def test_bundles_scatter_around_the_limit(explicit, seed):
    drawn = bundle(Bundle(networks=200, angles=7, explicit_weights=explicit, seed=seed))["kernel"]
    assert drawn.shape == (200, 7)
    error = drawn[:, 0].std() / 200**0.5
    assert abs(drawn[:, 0].mean() - 6.103515625) < STANDARD_ERRORS * error


def test_a_layer_has_the_moments_of_its_reduced_network(seed):
    drawn = layer(Layer(depth=10, networks=4000, seed=seed))
    expected = float(reduced_moments(ResNet(10, 50, 2, 0.3)).second)
    assert 0 <= int(drawn["matrix"]) < 20
    for name in ("jacobian_squared", "output_squared"):
        error = drawn[name].std() / 4000**0.5
        assert abs(drawn[name].mean() - expected) < STANDARD_ERRORS * error


def test_dualities_have_one_moment_a_matrix(seed):
    drawn = duality(Duality(networks=50, seed=seed))
    assert {tuple(array.shape) for array in drawn.values()} == {(8,)}
    dense = duality(Duality(architecture="densenet", networks=50, seed=seed))
    assert dense["path_second"].shape == (4,)


def test_runs_have_streams_of_their_own_and_the_same_run_the_same_numbers():
    first, again, other = (diagonal(Diagonal(networks=20, replicate=i))["kernel"] for i in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_every_item_runs_with_tiny_samples(tmp_path, monkeypatch, seed):
    monkeypatch.setitem(SIZES, "smoke", Sizes(2, 3, 8, 8, 16, depths=(5, 10), layer_depths=(5, 10)))
    found = reproduce(choose("littwin2020_tangent"), tmp_path, ReproductionEffort("smoke", seed))
    assert not [problem for result in found.results for problem in result.problems]
    assert all(result.figures and result.tables for result in found.results)


@pytest.mark.slow
def test_the_smallest_preset_decides_what_is_certain(tmp_path, seed):
    found = reproduce(choose("littwin2020_tangent"), tmp_path, ReproductionEffort("smoke", seed))
    words = {f"{verdict.item}/{verdict.claim}": verdict.verdict for verdict in found.verdicts}
    assert {name: words[name] for name in CERTAIN_AT_SMOKE} == CERTAIN_AT_SMOKE
    assert "differs" not in words.values()
    assert not found.changed
