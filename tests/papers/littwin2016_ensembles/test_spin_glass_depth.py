import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.papers.littwin2016_ensembles.dynamics import spin_glass_depth
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture
from skiplens.papers.littwin2016_ensembles.spin_glass.hamiltonian import SpinGlass, random_points
from skiplens.paths.weights import path_moments
from tests.tolerances import assert_close

SPINS, DEPTH, RATIO = 6, 5, 0.5


@pytest.fixture
def glass(generator):
    return SpinGlass.sample(Mixture.of_network(DEPTH, RATIO), SPINS, generator)


@pytest.fixture
def start(generator):
    return random_points(1, SPINS, generator)[0]


def test_eulers_identity_and_the_growth_of_the_norm_hold_at_each_step(glass, start):
    history = spin_glass_depth(glass, start, learning_rate=0.01, steps=12)
    assert_close(history.radial_slope, history.radial_slope_measured, relative=1e-11)
    assert_close(history.norm_change, history.norm_change_measured, relative=1e-9)
    grown = (SPINS * history.weight_scale.square()).diff()
    assert_close(grown, history.norm_change_measured[:-1], relative=1e-9)
    assert history.steps.tolist() == list(range(13)) and bool((history.losses.diff() < 0).all())


def test_theorem_four_is_the_leading_order(glass, start):
    errors = []
    for rate in (1e-4, 1e-5):
        history = spin_glass_depth(glass, start, rate, steps=1)
        errors.append(float(abs(history.scale_drive_measured[0] / history.scale_drive[0] - 1)))
    assert errors[1] < 0.02 and errors[1] == pytest.approx(errors[0] / 10, rel=0.2)


def test_depth_is_that_of_the_mixture_at_the_present_scale(glass, start):
    """C multiplies β: on the sphere C = 1, and the depth is E r of ε²(β C)."""
    history = spin_glass_depth(glass, start, learning_rate=0.01, steps=6, every=3)
    for scale, depth in zip(history.weight_scale.tolist(), history.mean_depth.tolist(), strict=True):
        assert depth == pytest.approx(float(path_moments(DEPTH, RATIO * scale).mean), rel=1e-10)
    assert float(history.weight_scale[0]) == pytest.approx(1.0)
    grows = history.weight_scale.diff() > 0
    assert torch.equal(grows, history.mean_depth.diff() > 0)


def test_a_run_that_leaves_the_numbers_ends(glass, start):
    history = spin_glass_depth(glass, start, learning_rate=10.0, steps=100)
    assert history.outcome.startswith("diverged after") and history.moments < 100


def test_bad_input(glass, start):
    with pytest.raises(InvalidInputError, match=r"shape \(3,\); wanted one point of 6 spins"):
        spin_glass_depth(glass, start[:3], 0.1, 2)
    with pytest.raises(InvalidInputError, match=r"learning_rate=-1.0, steps=2.*above 0"):
        spin_glass_depth(glass, start, -1.0, 2)
