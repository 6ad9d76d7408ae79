import math

import pytest
import torch

from skiplens.signal.reading import growth_of


def test_an_exact_exponential_has_its_rate_and_no_uncertainty():
    values = torch.exp(0.3 * torch.arange(6.0))[:, None].expand(6, 2)
    growth = growth_of(values)
    assert growth.rate == pytest.approx(0.3) and growth.low == pytest.approx(0.3) and growth.high == pytest.approx(0.3)
    assert growth.surely == pytest.approx(0.3)


def test_a_decay_is_surely_negative():
    growth = growth_of(torch.exp(-0.5 * torch.arange(8.0))[:, None])
    assert growth.surely == pytest.approx(-0.5)


def test_one_jump_is_no_growth():
    """An embedding far smaller than what the first block adds: least squares would see a slope of 0.35 here."""
    values = torch.tensor([1e-3, *[1.0] * 9])[:, None]
    assert growth_of(values).rate == pytest.approx(0.0) and growth_of(values).surely == 0.0


def test_noise_is_surely_nothing(generator):
    values = torch.exp(torch.randn(20, 1, generator=generator))
    assert growth_of(values).low < 0 < growth_of(values).high and growth_of(values).surely == 0.0


def test_samples_are_averaged_in_log_space():
    rates = torch.tensor([0.1, 0.3])
    values = torch.exp(torch.arange(5.0)[:, None] * rates)
    assert growth_of(values).rate == pytest.approx(0.2)


@pytest.mark.parametrize("values", [torch.ones(1, 3), torch.ones(0, 3), torch.tensor([[1.0], [math.nan]])])
def test_what_cannot_be_measured_is_nan(values):
    growth = growth_of(values)
    assert math.isnan(growth.rate) and growth.surely == 0.0


def test_a_signal_that_dies_has_a_rate():
    assert growth_of(torch.tensor([[1.0], [0.0], [0.0], [0.0]])).rate < -100
