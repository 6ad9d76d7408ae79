import math

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture
from skiplens.papers.littwin2016_ensembles.spin_glass.critical_points import descend, find_critical_points
from skiplens.papers.littwin2016_ensembles.spin_glass.energy_levels import lowest_energy
from skiplens.papers.littwin2016_ensembles.spin_glass.hamiltonian import SpinGlass, random_points
from skiplens.papers.littwin2016_ensembles.spin_glass.streamed import StreamedSpinGlass
from tests.tolerances import assert_close


def test_descent_ends_at_the_minima_that_newton_finds(generator):
    glass = SpinGlass.sample(Mixture.pure(3), 4, generator)
    critical = find_critical_points(glass, generator)
    minima = critical.points[critical.indices == 0]
    found = descend(glass, random_points(40, 4, generator), steps=3000, tolerance=1e-8)
    assert found.converged.all()
    distance = torch.cdist(found.points, minima).min(1).values
    assert (distance < 1e-5).all()
    assert set(torch.cdist(found.points, minima).argmin(1).tolist()) == set(range(len(minima)))


def test_energies_never_rise_and_points_stay_on_the_sphere(generator):
    glass = SpinGlass.sample(Mixture.of_network(4, 1.0, shortest=2), 12, generator)
    found = descend(glass, 5 * torch.randn(8, 12, generator=generator), steps=200)
    assert (found.energies.diff(dim=0) <= 0).all()
    assert_close(found.points.norm(dim=1), torch.full((8,), math.sqrt(12)))
    assert_close(found.energies[-1], glass.energy(found.points))


def test_linear_model_has_its_minimum_in_closed_form(generator):
    glass = SpinGlass.sample(Mixture.pure(1), 6, generator)
    found = descend(glass, random_points(3, 6, generator), tolerance=1e-9)
    direction = -glass.gradient(torch.zeros(1, 6))[0]
    expected = math.sqrt(6) * direction / direction.norm()
    assert_close(found.points, expected.expand(3, 6), relative=1e-8)


def test_pure_three_spin_stops_between_its_ground_state_and_its_most_numerous_level(generator):
    spins = 40
    glass = SpinGlass.sample(Mixture.pure(3), spins, generator)
    found = descend(glass, random_points(6, spins, generator), steps=2000, tolerance=1e-4)
    levels = found.energies[-1] / spins
    # fluctuations of an energy level are of order 1/√spins
    assert levels.min() > lowest_energy(Mixture.pure(3)) - 3 / math.sqrt(spins)
    assert levels.mean() < -1.2


def test_streamed_spin_glass_descends_too():
    glass = StreamedSpinGlass(Mixture.pure(2), 8, Randomness(5))
    found = descend(glass, random_points(3, 8, torch.Generator().manual_seed(0)), steps=4000, tolerance=1e-7)
    # a quadratic form: the minimum is its lowest eigenvalue times the squared radius
    H = torch.stack([glass.energy_and_gradient(e[None])[1][0] for e in torch.eye(8)])
    lowest = torch.linalg.eigvalsh((H + H.T) / 4)[0].item() * 8
    assert found.energies[-1].tolist() == pytest.approx([lowest] * 3, rel=1e-9)


def test_stops_when_there_is_nothing_to_do(generator):
    glass = SpinGlass.sample(Mixture.pure(2), 3, generator)
    found = descend(glass, random_points(2, 3, generator), steps=0)
    assert found.energies.shape == (1, 2)
    assert not found.converged.any()


def test_bad_options(generator):
    glass = SpinGlass.sample(Mixture.pure(2), 3, generator)
    with pytest.raises(InvalidInputError, match="descend needs steps >= 0, first_step > 0, tolerance > 0; got -1"):
        descend(glass, random_points(2, 3, generator), steps=-1)
