import math

import pytest
import torch

from skiplens.base.errors import TooLargeError
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture
from skiplens.papers.littwin2016_ensembles.spin_glass.critical_points import CriticalPoints, find_critical_points
from skiplens.papers.littwin2016_ensembles.spin_glass.expected_counts import expected_critical_points
from skiplens.papers.littwin2016_ensembles.spin_glass.hamiltonian import SpinGlass, tangent_part
from tests.tolerances import STANDARD_ERRORS, assert_close

CASES = [  # spins, mixture, spin glasses in the quick and in the slow run
    (2, Mixture.pure(3), 300, 1500),
    (2, Mixture.of_network(5, 1.0), 300, 1500),
    (2, Mixture.of_network(10, 0.5, shortest=2), 100, 400),
    (3, Mixture.pure(3), 40, 300),
    (3, Mixture.of_network(4, 1.0, shortest=2), 25, 300),
    (3, Mixture.of_network(4, 0.3), 40, 300),
    (4, Mixture.pure(3), 30, 150),
    (4, Mixture.of_network(4, 1.0, shortest=2), 20, 100),
]


def assert_counts_match(spins, mixture, samples, generator):
    found = [find_critical_points(SpinGlass.sample(mixture, spins, generator), generator) for _ in range(samples)]
    assert all(points.is_consistent for points in found)
    counts = torch.stack([points.count_by_index() for points in found]).double()
    error = counts.std(0) / math.sqrt(samples)
    deviation = (counts.mean(0) - expected_critical_points(spins, mixture.curvature_ratio)).abs()
    assert (deviation < STANDARD_ERRORS * error).all()


@pytest.mark.parametrize(("spins", "mixture", "samples", "_many"), CASES)
def test_found_points_match_the_exact_expectation(spins, mixture, samples, _many, generator):
    assert_counts_match(spins, mixture, samples, generator)


@pytest.mark.slow
@pytest.mark.parametrize(("spins", "mixture", "_few", "samples"), CASES)
def test_many_found_points_match_the_exact_expectation(spins, mixture, _few, samples, generator):
    assert_counts_match(spins, mixture, samples, generator)


def test_pure_two_spin_points_are_eigenvectors(generator):
    glass = SpinGlass.sample(Mixture.pure(2), 4, generator)
    H = glass.hessian(torch.ones(1, 4))[0]
    eigenvalues, Q = torch.linalg.eigh(H)
    found = find_critical_points(glass, generator)
    assert found.count_by_index().tolist() == [2, 2, 2, 2]
    for index in range(4):
        points = found.points[found.indices == index]
        assert_close((points @ Q[:, index]).abs(), torch.full((2,), 2.0), relative=1e-7)
        assert_close(found.energies[found.indices == index], (2 * eigenvalues[index]).expand(2), relative=1e-9)


@pytest.mark.parametrize("spins", [1, 2, 3, 5])
def test_gradient_vanishes_and_the_linear_model_has_two_points(spins, generator):
    glass = SpinGlass.sample(Mixture.pure(1), spins, generator)
    found = find_critical_points(glass, generator)
    assert len(found.points) == 2
    assert_close(tangent_part(glass.gradient(found.points), found.points) + 1, torch.ones(2, spins), relative=1e-7)
    if spins > 1:
        assert sorted(found.indices.tolist()) == [0, spins - 1]


def test_euler_sum_shows_a_missing_point(generator):
    found = find_critical_points(SpinGlass.sample(Mixture.pure(3), 3, generator), generator)
    assert found.is_consistent
    fewer = CriticalPoints(found.points[1:], found.energies[1:], found.indices[1:])
    assert not fewer.is_consistent
    nothing = CriticalPoints(found.points[:0], found.energies[:0], found.indices[:0])
    assert not nothing.is_consistent


def test_more_starts_are_tried_while_points_are_missing(generator):
    glass = SpinGlass.sample(Mixture.pure(3), 3, generator)
    assert find_critical_points(glass, generator, starts=30).is_consistent


def test_too_many_points_to_search_for(generator):
    glass = SpinGlass.sample(Mixture.pure(4), 12, generator)
    with pytest.raises(
        TooLargeError, match=r"12 spins with B = 3 has about .* at most 3000\. Use expected_critical_points"
    ):
        find_critical_points(glass, generator)
