import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.base.errors import InvalidInputError
from skiplens.jacobians.averages import SpectrumAverage, average_over_training
from tests.networks import LinearResidual, drawn, noise
from tests.tolerances import assert_close


def test_sorted_values_of_each_step_are_averaged():
    """The model is a matrix that each step doubles: the average over three steps is (1 + 2 + 4)/3 of the first."""
    layer = drawn(nn.Linear(3, 3, bias=False))
    first = torch.linalg.svdvals(layer.weight.detach().clone())

    def step():
        layer.weight.data.mul_(2)

    found = average_over_training(layer, noise(2, 3), step, iterations=3)
    assert found.readings == 3
    assert_close(found.singular_values["network"], first.repeat_interleave(2) * 7 / 3)
    edges = torch.linspace(0, 10, 5)
    assert found.histogram("network", edges).sum() == pytest.approx(1)


def test_densities_are_put_together():
    average = SpectrumAverage()
    for seed in (0, 1):
        model = drawn(LinearResidual(depth=1, width=20), seed)
        average.add(sl.jacobian_spectrum(model, noise(1, 20), method="lanczos", steps=5, probes=1))
    found = average.reading()
    assert len(found.singular_values["network"]) == 10 and bool((found.singular_values["network"].diff() <= 0).all())
    assert found.weights["network"].sum() == pytest.approx(1)
    assert found.without_shortcut["layers.0"].shape == (10,)


def test_other_models_are_refused():
    average = SpectrumAverage()
    with pytest.raises(InvalidInputError, match="nothing to average yet"):
        average.reading()
    average.add(sl.jacobian_spectrum(nn.Linear(3, 3), noise(1, 3)))
    with pytest.raises(InvalidInputError, match="cannot be averaged with one of"):
        average.add(sl.jacobian_spectrum(nn.Linear(3, 2), noise(1, 3)))
    with pytest.raises(InvalidInputError, match="iterations=0; ask for at least 1"):
        average_over_training(nn.Linear(3, 3), noise(1, 3), lambda: None, iterations=0)
