"""The piecewise Hessian of mid-ReLU networks against the note's table and autograd."""

import pytest
import torch

from skiplens.papers.li2016_shortcuts.hessian.at_zero import half_space_slopes, near_zero_rectified_spectrum
from skiplens.papers.li2016_shortcuts.hessian.rectified import rectified_hessian
from skiplens.papers.li2016_shortcuts.hessian.spectrum import spectrum_of
from tests.papers.li2016_shortcuts.hessian.reference import autograd_hessian, data, network_loss, random_task, stacked
from tests.tolerances import assert_close

RELU = ("identity", "relu", "identity")
# trace, Frobenius norm, H[0, 1], H[1, d² + d], H[-1, 2], largest, smallest, decile, negative, Gauss–Newton norm
TABLE = {
    3: (1.183030579608756, 2.058483841446154, 0.0261065056520, 0.2325529508122, 0.0000453134926, 0.891286756238401,
        -0.542074700995244, 0.0041358354030667, 25, 0.4222717392600086),
    10: (223.3118925825203, 57.93640345624641, 0.0968326751902, 1.1672320851180, 0.0681520047675, 29.8591483540322,
         -5.85873433332096, 0.0201226665258, 545, 31.47476878940527),
}  # fmt: skip


@pytest.mark.parametrize("d", TABLE)
def test_reference_table(d):
    trace, norm, *rest = TABLE[d]
    parts = rectified_hessian(stacked(d, 6 if d == 3 else 12, 0.4), *data(d, 8 if d == 3 else 40))
    H = parts.total()
    found = torch.stack([H.trace(), H.norm(), parts.gauss_newton.norm()])
    assert_close(found, torch.tensor([trace, norm, rest[-1]]))
    spectrum = spectrum_of(H)
    entries = torch.stack([H[0, 1], H[1, d * d + d], H[-1, 2]])
    assert (entries - torch.tensor(rest[:3])).abs().max() < 1e-12 * max(1, spectrum.largest)
    values = torch.tensor([spectrum.largest, spectrum.smallest, spectrum.absolute_quantile()])
    assert (values - torch.tensor(rest[3:6])).abs().max() < 1e-11 * max(1, spectrum.largest)
    assert spectrum.count_below(0.0) == rest[6]


@pytest.mark.parametrize("shortcut", [True, False])
@pytest.mark.parametrize("units", [1, 2, 4])
def test_hessian_is_that_of_autograd(units, shortcut, generator):
    x, y = random_task(generator, samples=11)
    weights = 0.6 * torch.randn(2 * units, 3, 3, generator=generator)
    expected = autograd_hessian(network_loss(x, y, 2, RELU, shortcut), list(weights))
    assert_close(rectified_hessian(weights, x, y, shortcut).total(), expected)


def test_many_samples_are_summed_in_chunks(generator):
    x, y = random_task(generator, samples=2400)
    weights = 0.6 * torch.randn(4, 3, 3, generator=generator)
    whole = rectified_hessian(weights, x, y)
    parts = [rectified_hessian(weights, a, b) for a, b in zip(x.split(400), y.split(400), strict=True)]
    assert_close(whole.total(), sum(part.total() for part in parts) / len(parts))
    assert whole.smallest_preactivation == min(part.smallest_preactivation for part in parts)


def test_distance_to_the_nearest_kink(generator):
    x, y = random_task(generator)
    weights = torch.randn(2, 3, 3, generator=generator)
    assert rectified_hessian(weights, x, y).smallest_preactivation == (x @ weights[0].T).abs().min().item()


def test_gauss_newton_part_is_positive_and_parts_are_symmetric(generator):
    x, y = random_task(generator, samples=30)
    parts = rectified_hessian(torch.randn(6, 3, 3, generator=generator), x, y)
    assert torch.equal(parts.residual, parts.residual.T)
    assert torch.linalg.eigvalsh(parts.gauss_newton).min() > -1e-12 * parts.gauss_newton.norm()


def test_float32(generator):
    x, y = random_task(generator)
    weights = torch.randn(4, 3, 3, generator=generator)
    single = rectified_hessian(weights.float(), x.float(), y.float()).total()
    assert_close(single, rectified_hessian(weights, x, y).total().float())


def test_beside_zero_reference():
    x, y = data(3, 8)
    slopes = half_space_slopes(stacked(3, 4, 1.0)[::2], x, y)
    expected = torch.tensor([[0.3422030594757, 0.2101150939970, 0.0889239892275],
                             [0.3711728519211, 0.1806808412980, 0.0254981878698]])  # fmt: skip
    assert_close(torch.linalg.svdvals(slopes[0, [0, 2]]), expected)


def test_beside_zero_is_the_limit_of_the_exact_hessian(generator):
    x, y = random_task(generator, samples=20)
    weights = torch.randn(6, 3, 3, generator=generator)
    tiny = 1e-6
    exact = spectrum_of(rectified_hessian(tiny * weights, x, y).total()).values
    limit = near_zero_rectified_spectrum(weights[::2], x, y)
    assert limit.size == 54
    # The Hessian differs from its limit by the weights' size times the data's moments.
    assert (limit.values - exact).abs().max() < 100 * tiny
