"""Counting without the matrix against dense eigenvalues and against the closed form at zero."""

import pytest
import torch

from skiplens.base.errors import InvalidInputError, TooLargeError
from skiplens.linalg.second_moments import second_moments
from skiplens.papers.li2016_shortcuts.hessian import activations, linear_inertia
from skiplens.papers.li2016_shortcuts.hessian.at_zero import hessian_at_zero
from skiplens.papers.li2016_shortcuts.hessian.linear import linear_hessian, plain_units, shortcut_units
from skiplens.papers.li2016_shortcuts.hessian.linear_inertia import linear_spectrum
from skiplens.papers.li2016_shortcuts.hessian.spectrum import spectrum_of
from tests.papers.li2016_shortcuts.hessian.reference import data, random_task
from tests.papers.li2016_shortcuts.hessian.test_toeplitz_count import between

CASES = {"n=1": 1, "n=2": 2, "n=3": 3, "plain": 0}


def units_of(weights, branch_depth):
    return shortcut_units(weights, branch_depth) if branch_depth else plain_units(weights)


@pytest.mark.parametrize("scale", [0.003, 0.3, 1.0])
@pytest.mark.parametrize("case", CASES)
def test_counts_are_those_of_the_eigenvalues(case, scale, generator):
    weights = scale * torch.randn(12, 3, 3, generator=generator)
    units, moments = units_of(weights, CASES[case]), second_moments(*random_task(generator))
    eigenvalues = torch.linalg.eigvalsh(linear_hessian(units, moments))
    counted = linear_spectrum(units, moments)
    assert counted.size == len(eigenvalues)
    for level, below in between(eigenvalues, generator):
        assert counted.count_below(level) == below


def test_statistics_by_bisection(generator):
    units = shortcut_units(0.3 * torch.randn(8, 3, 3, generator=generator))
    moments = second_moments(*random_task(generator))
    dense, counted = spectrum_of(linear_hessian(units, moments)), linear_spectrum(units, moments)
    for name in ("smallest", "largest", "condition_number", "index"):
        assert getattr(counted, name) == pytest.approx(getattr(dense, name), rel=1e-10)


@pytest.mark.parametrize("accuracy", [1e-3, 1e-7])
def test_accuracy_that_was_asked_for(accuracy, generator):
    units = shortcut_units(0.3 * torch.randn(4, 3, 3, generator=generator))
    moments = second_moments(*random_task(generator))
    dense, counted = spectrum_of(linear_hessian(units, moments)), linear_spectrum(units, moments, accuracy)
    allowed = accuracy * counted.bound
    errors = [abs(counted.eigenvalue(rank) - dense.eigenvalue(rank)) for rank in (1, 9, 20, 36)]
    assert max(errors) <= allowed and max(errors) > 1e-6 * allowed  # no more digits than were paid for


def test_accuracy_beyond_float64():
    with pytest.raises(InvalidInputError, match="accuracy must lie between float64's rounding and 1; got 1e-20"):
        linear_spectrum(shortcut_units(torch.zeros(2, 3, 3)), second_moments(*data(3, 8)), 1e-20)


def test_deep_network_at_zero_agrees_with_the_closed_form():
    x, y = data(3, 8)
    counted = linear_spectrum(shortcut_units(torch.zeros(200, 3, 3), 1), second_moments(x, y))
    closed = hessian_at_zero(x, y, 200, branch_depth=1).spectrum
    for level in (-20.0, -1.0, -0.1, 0.0, 0.05, 0.3, 100.0):
        assert counted.count_below(level) == closed.count_below(level)


def test_zero_weights_of_two_matrices_are_counted_with_their_pairs():
    moments = second_moments(*data(3, 8))
    assert linear_spectrum(shortcut_units(torch.zeros(40, 3, 3)), moments).index == 0.5


@pytest.mark.parametrize("resolution", [1e-9, 1e-13, 1e-30])
def test_eliminating_larger_groups_gives_the_same_counts(resolution, monkeypatch, generator):
    monkeypatch.setattr(linear_inertia, "_RESOLUTION", resolution)  # 1e-30 is never reached: all units at once
    units = shortcut_units(0.5 * torch.randn(10, 3, 3, generator=generator))
    moments = second_moments(*random_task(generator))
    eigenvalues = torch.linalg.eigvalsh(linear_hessian(units, moments))
    counted = linear_spectrum(units, moments)
    assert all(counted.count_below(level) == below for level, below in between(eigenvalues, generator))


def test_groups_that_do_not_fit_are_refused(monkeypatch, generator):
    monkeypatch.setattr(linear_inertia, "_RESOLUTION", 1e-30)
    monkeypatch.setattr(activations, "budget_bytes", lambda device: 2**14)
    units = shortcut_units(torch.randn(8, 3, 3, generator=generator))
    with pytest.raises(TooLargeError, match=r"dense Hessian of 36 parameters.*ask for a level further"):
        linear_spectrum(units, second_moments(*random_task(generator))).count_below(0.0)


def test_float32_weights_are_counted_in_float64(generator):
    weights = (0.3 * torch.randn(6, 3, 3, generator=generator)).float()
    x, y = (part.float() for part in random_task(generator))
    counted = linear_spectrum(shortcut_units(weights), second_moments(x, y))
    exact = linear_spectrum(shortcut_units(weights.double()), second_moments(x.double(), y.double()))
    assert counted.index == exact.index
