"""Figures 5 and 6 of 'Demystifying ResNet' on whitened MNIST: criteria (i) and (iii) of the theory note."""

import pytest
import torch

from skiplens import zoo
from skiplens.data.preprocessing import fit_whitening
from skiplens.linalg.second_moments import second_moments
from skiplens.papers.li2016_shortcuts.hessian.exact import shortcut_hessian
from skiplens.papers.li2016_shortcuts.hessian.spectrum import spectrum_of
from skiplens.report.during_training.along import at_losses, readings_along
from skiplens.report.during_training.measurer import MeasureAlong
from skiplens.training.recipe import Recipe
from skiplens.zoo.li2016 import matrices
from tests.real_data import real

pytestmark = pytest.mark.slow

ORTHOGONAL_PROXY = 40.1
"""The smallest condition number of the note's six orthogonal runs at a loss of 2 or more."""


def few_samples_with_the_moments_of_all() -> tuple[torch.Tensor, torch.Tensor]:
    """Twenty samples with the second moments of 60,000: a linear network cannot tell them apart."""
    digits = real("mnist")
    inputs = fit_whitening(digits.images, 10)(digits.images).double()
    targets = torch.nn.functional.one_hot(digits.labels.long(), 10).double()
    triangle = torch.linalg.qr(torch.cat([inputs, targets], 1)).R * (20 / len(inputs)) ** 0.5
    return triangle[:, :10].contiguous(), triangle[:, 10:].contiguous()


def test_a_two_shortcut_network_is_well_conditioned_where_it_trains():
    data = few_samples_with_the_moments_of_all()
    assert second_moments(*data).lowest_loss().item() == pytest.approx(0.337141010751386, rel=1e-10)

    def spectrum(model):
        found = spectrum_of(shortcut_hessian(torch.stack([w.detach() for w in matrices(model)]), *data))
        return {"proxy": found.condition_number, "index": found.index}

    recipe = Recipe(loss="half_squared_error", learning_rate=0.1, steps=100)
    plan = MeasureAlong(spectrum, at_losses=(4.5, 3.0, 2.0, 1.5))
    networks = [zoo.build("shortcut_linear", seed=seed).double() for seed in (100, 101)]
    runs = [readings_along(network, data, recipe, plan) for network in networks]
    proxy, index = at_losses(runs, "proxy"), at_losses(runs, "index")
    assert proxy.places.tolist() == [4.5, 3.0, 2.0, 1.5]
    assert bool((proxy.highest[:3] < ORTHOGONAL_PROXY / 10).all())
    assert bool((proxy.mean.diff() > 0).all())  # it grows as the loss falls: 1.36, 2.03, 3.2 in the note
    assert bool(((index.by_run[:, 3] - 745 / 1600).abs() <= 1e-3).all())
