import math

import pytest
import torch

from skiplens.base.randomness import Randomness
from skiplens.linalg.density import (
    DensityOptions,
    SpectralDensity,
    absolute_quantile_interval,
    ratio_of_means,
    share_below_interval,
    spectral_density,
)
from skiplens.linalg.operator import DenseOperator
from tests.linalg.coverage import least_covered, spread_factor
from tests.linalg.matrices import with_spectrum
from tests.linalg.signs import rademacher
from tests.tolerances import assert_close

SPECTRUM = torch.cat([torch.linspace(-0.4, 1, 29, dtype=torch.float64), torch.tensor([3.0]).double()])
"""A quarter is negative; a tenth of the absolute values lies below 0.08."""


@pytest.mark.parametrize("steps", [8, 30], ids=["few steps", "all steps"])
def test_intervals_cover_the_truth_in_95_of_100_repeats(steps, generator):
    operator = DenseOperator(with_spectrum(SPECTRUM, generator))
    negative = (SPECTRUM < 0).double().mean().item()
    quantile = SPECTRUM.abs().sort().values[math.ceil(0.1 * 30) - 1].item()
    mass = (SPECTRUM[SPECTRUM < 0].abs().sum() / SPECTRUM.abs().sum()).item()
    covered = torch.zeros(3)
    for repeat in range(200):
        density = spectral_density(operator, Randomness(repeat), DensityOptions(6, steps))
        low, high = share_below_interval(density)
        least, most = absolute_quantile_interval(density, 0.1)
        share, error = ratio_of_means(density, lambda x: (-x).clamp_min(0), torch.abs)
        covered += torch.tensor(
            # Nodes are eigenvalues up to rounding when all steps are taken.
            [
                low <= negative <= high,
                least - 1e-9 <= quantile <= most + 1e-9,
                abs(share - mass) <= spread_factor(6) * error,
            ]
        )
    assert covered.min() >= least_covered(200), covered


def test_intervals_shrink_with_the_work(generator):
    operator = DenseOperator(with_spectrum(torch.linspace(-0.5, 1, 400), generator))
    rough, fine = (
        share_below_interval(spectral_density(operator, Randomness(0), DensityOptions(8, steps))) for steps in (6, 60)
    )
    assert fine[1] - fine[0] < 0.5 * (rough[1] - rough[0])
    assert fine[0] < 1 / 3 < fine[1]


def test_eigenvalues_that_may_be_zero_leave_the_quantile_open(generator):
    operator = DenseOperator(with_spectrum(torch.cat([torch.zeros(50), torch.linspace(0.5, 1, 50)]), generator))
    least, most = absolute_quantile_interval(spectral_density(operator, Randomness(0), DensityOptions(4, 8)), 0.1)
    assert least == 0 and most >= 0


def test_hand_made_quadratures_give_hand_made_intervals():
    """So many eigenvalues that two probes are as good as all: the intervals are the inequalities alone."""
    density = SpectralDensity(
        nodes=torch.tensor([[-2.0, 1.0, 3.0]] * 2),
        weights=torch.tensor([[0.25, 0.5, 0.25]] * 2),
        residuals=torch.ones(2, 3),
        size=10**12,
    )
    assert share_below_interval(density) == pytest.approx(
        (0.0, 0.75), abs=1e-5
    )  # before −2 nothing is sure; up to 1 at most both weights
    # Right after zero the weight of [−2, 1] may lie there; only beyond 3 is a tenth sure.
    assert absolute_quantile_interval(density, 0.1) == (0.0, 3.0)
    value, error = ratio_of_means(density, lambda x: (-x).clamp_min(0), torch.abs)
    assert_close(torch.tensor(value), torch.tensor(0.5 / 1.75))
    assert error < 1e-12


def test_the_jackknife_is_that_of_its_definition():
    generator = torch.Generator().manual_seed(0)
    density = SpectralDensity(torch.randn(5, 4, generator=generator), torch.full((5, 4), 0.25), torch.ones(5, 4), 9)
    above, below = density.nodes.square().mean(1), density.nodes.abs().mean(1)
    left_out = [
        above[[j for j in range(5) if j != i]].mean() / below[[j for j in range(5) if j != i]].mean() for i in range(5)
    ]
    expected = (4 / 5 * (torch.stack(left_out) - torch.stack(left_out).mean()).square().sum()).sqrt()
    value, error = ratio_of_means(density, torch.square, torch.abs)
    assert_close(torch.tensor([value, error]), torch.stack([above.mean() / below.mean(), expected]))


def test_few_samples_need_wider_intervals():
    assert spread_factor(2) == pytest.approx(12.706, abs=1e-3)  # Student's table
    assert spread_factor(10_000) == pytest.approx(1.960, abs=1e-3)


def test_the_variance_of_a_share_is_at_most_what_the_intervals_count_with(generator):
    """The worst case and a harmless one: a projection spread over all axes, and one along axes."""
    spread = torch.linalg.qr(torch.randn(30, 30, generator=generator)).Q[:, :6]
    for basis, exact in ((spread, False), (torch.eye(30)[:, :6], True)):
        shares = (basis.T @ rademacher(30, 20_000, generator)).square().sum(0) / 30
        bound = 2 * 0.2 * 0.8 / 30
        # The variance of 20,000 draws is known to 1 %; kurtosis makes it 2 %.
        assert shares.var() <= 1e-20 if exact else shares.var() <= bound * 1.05


def test_an_interval_is_wilsons():
    """Textbook: 12 of 60 draws; here one probe in four quarters of a matrix of size 30."""
    density = SpectralDensity(torch.tensor([[-1.0, 1.0]] * 4), torch.tensor([[0.2, 0.8]] * 4), torch.zeros(4, 2), 30)
    assert share_below_interval(density) == pytest.approx((0.118, 0.318), abs=1e-3)
