import math

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture, complexity, total_complexity
from skiplens.papers.littwin2016_ensembles.spin_glass.energy_levels import (
    complexity_at_energy,
    complexity_below_energy,
    most_numerous_energy,
)

MIXTURES = [
    Mixture(torch.tensor([0.3, 0.2, 0.5, 0.1])),
    Mixture(torch.tensor([0.9, 0.2, 0.1])),
    Mixture(torch.tensor([0.0, 0.5, 0.0, 0.8])),
    Mixture(torch.tensor([0.99, 0.2])),
    Mixture.of_network(20, 0.5),
]


def by_search(mixture, u, index):
    """The supremum over the shift, on a fine grid."""
    x = torch.linspace(-14, 14 if index is None else -2, 400_001)
    y = x.abs().clamp(min=2)
    m = (y - torch.sqrt(y.square() - 4)) / 2
    potential = torch.where(x.abs() < 2, x.square() / 4 - 0.5, m.square() / 2 - m.log())
    cost = y * torch.sqrt(y.square() - 4) / 4 - torch.log((y + torch.sqrt(y.square() - 4)) / 2)
    gap = math.sqrt(mixture.curvature) * x - mixture.slope * u
    rate = potential - (index or 0) * cost - gap.square() / (2 * mixture.spread)
    return (0.5 + 0.5 * math.log(mixture.curvature_ratio) - u * u / 2 + rate).max().item()


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("index", [0, 1, 3, None])
def test_closed_form_equals_a_search(mixture, index):
    for u in (-3.0, -1.5, -0.5, 0.0, 1.0):
        # the grid misses the maximum by at most half its step, squared, times the curvature v''/(2 α²)
        grid = (28 / 400_000) ** 2 * (1 + mixture.curvature / mixture.spread)
        assert complexity_at_energy(mixture, u, index).item() == pytest.approx(by_search(mixture, u, index), abs=grid)


@pytest.mark.parametrize("mixture", [*MIXTURES, Mixture.pure(3), Mixture.pure(10)])
@pytest.mark.parametrize("index", [0, 1, 4])
def test_most_numerous_level_has_the_complexity_of_all_levels(mixture, index):
    best = most_numerous_energy(mixture, index)
    expected = complexity(mixture.curvature_ratio, index).item()
    assert complexity_at_energy(mixture, best, index).item() == pytest.approx(expected, abs=1e-13)
    assert complexity_at_energy(mixture, best - 0.01, index).item() < expected
    assert complexity_below_energy(mixture, best + 0.3, index).item() == pytest.approx(expected, abs=1e-13)
    lower = complexity_at_energy(mixture, best - 0.2, index)
    assert complexity_below_energy(mixture, best - 0.2, index) == lower


@pytest.mark.parametrize("mixture", [*MIXTURES, Mixture.pure(4)])
def test_all_indices_together(mixture):
    best = most_numerous_energy(mixture, None)
    expected = total_complexity(mixture.curvature_ratio).item()
    assert complexity_at_energy(mixture, best, None).item() == pytest.approx(expected, abs=1e-13)
    energies = torch.linspace(-4, 4, 801)
    rates = complexity_at_energy(mixture, energies, None)
    assert rates.max() <= expected + 1e-13
    assert torch.allclose(rates, rates.flip(0), atol=1e-13)
    assert (rates >= complexity_at_energy(mixture, energies.clamp(max=-2.0), 0).amin() - 1e-12).any()


@pytest.mark.parametrize(
    ("order", "ground", "first"),
    [
        (3, 1.6569983635, 1.6528731981),
        (4, 1.7940850282, 1.7833003013),
        (5, 1.8879888264, 1.8705756355),
        (10, 2.1353638005, 2.0921424910),
    ],
)
def test_printed_ground_states_of_pure_models(order, ground, first):
    # no point of the index is expected below: the rate passes through zero there, where it rises with u
    for index, level in ((0, -ground), (1, -first)):
        below, above = (complexity_at_energy(Mixture.pure(order), level + step, index) for step in (-1e-10, 1e-10))
        assert below < 0 < above
    assert most_numerous_energy(Mixture.pure(order)) == pytest.approx(-2 * math.sqrt((order - 1) / order), rel=1e-14)


def test_energies_outside_the_support_are_refused():
    with pytest.raises(InvalidInputError, match=r"pure 3-spin model .* energies up to -1\.63299 per spin; got -1"):
        complexity_at_energy(Mixture.pure(3), -1.0)
    assert torch.isfinite(complexity_at_energy(Mixture.pure(3), -1.0, None))
    with pytest.raises(InvalidInputError, match="Energies per spin must be finite"):
        complexity_at_energy(MIXTURES[0], math.nan)
    with pytest.raises(InvalidInputError, match="purely linear mixture has one minimum and one maximum"):
        complexity_at_energy(Mixture.pure(1), -1.0)
