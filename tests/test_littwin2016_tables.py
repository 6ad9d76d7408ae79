"""Numbers of the theory note's tables that no other test of the paths theory holds."""

import math

import pytest

from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture
from skiplens.paths.bands import BranchStatistics
from skiplens.paths.weights import log_normaliser


@pytest.mark.parametrize(
    ("depth", "ratio", "z"), [(5, 0.5, 1.369662937550695), (10, 0.5, 8.541406922151516), (10, 2.0, 17492.8013765663)]
)
def test_normalisers(depth, ratio, z):
    assert math.exp(log_normaliser(depth, ratio).item()) == pytest.approx(z, rel=1e-12)


@pytest.mark.parametrize(
    ("ratio", "curvature_ratio"),
    [
        (0.1, 1.2196789362306),
        (0.5, 3.1849400285128),
        (1.0, 4.7165951781728),
        (2.0, 6.2386635609917),
        (10.0, 8.4822034542067),
    ],
)
def test_curvature_ratios_of_ten_layers(ratio, curvature_ratio):
    assert Mixture.of_network(10, ratio, shortest=2).curvature_ratio == pytest.approx(curvature_ratio, rel=1e-12)


@pytest.mark.parametrize(
    ("variance", "ratio"), [(0.25, 0.25), (0.5, 0.353553), (1.0, 0.5), (2.0, 0.707107), (4.0, 1.0)]
)
def test_which_depth_ratio_the_paper_gives_a_rectified_network(variance, ratio):
    """The paper's β = ρ√σ² for Λ = n and ρ = 1/2; the table has six digits."""
    width = 100
    statistics = BranchStatistics(width=width, gate_probability=0.5, distinct_weights=width)
    assert statistics.depth_ratio(math.sqrt(variance / width)) == pytest.approx(ratio, abs=5e-7)
