import math

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.paths.laws import LAWS, binomial, fit_law, fit_laws, fit_named_law, squared_binomial
from tests import wide_networks
from tests.tolerances import assert_close


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("parameter", [0.3, 1.0])
@pytest.mark.parametrize("blocks", [6, 20])
def test_each_law_recognises_itself(law, parameter, blocks):
    energies = law.energies(blocks, parameter)
    fit = fit_law(7.5 * energies)
    assert fit.name == law.name
    assert fit.parameter == pytest.approx(parameter, rel=1e-9)
    assert fit.distance < 1e-10
    assert_close(fit.energies, energies, relative=1e-9)


def test_binomial_laws_in_closed_form():
    choose = torch.tensor([float(math.comb(9, j)) for j in range(10)])
    for gain in (0.2, 3.0):
        powers = gain ** torch.arange(10.0)
        assert_close(binomial(9, gain), choose * powers / (choose * powers).sum())
        squares = (choose * powers).square()
        assert_close(squared_binomial(9, gain), squares / squares.sum())


def test_squared_law_has_half_the_variance():
    branches = torch.arange(201.0)
    variances = []
    for law in (binomial, squared_binomial):
        shares = law(200, 0.5)
        variances.append((shares @ (branches - shares @ branches).square()).item())
    assert variances[1] / variances[0] == pytest.approx(0.5, abs=0.005)


def test_fits_have_the_measured_mean_and_are_ordered():
    energy = torch.tensor([1.0, 4.0, 9.0, 5.0, 1.5, 0.2])
    mean = (energy @ torch.arange(6.0) / energy.sum()).item()
    fits = fit_laws(energy)
    assert {fit.name for fit in fits} == {law.name for law in LAWS}
    distances = [fit.distance for fit in fits]
    assert distances == sorted(distances)
    for fit in fits:
        assert (fit.energies @ torch.arange(6.0)).item() == pytest.approx(mean, abs=1e-8) or fit.name == "stirling"
        expected = 0.5 * (energy / energy.sum() - fit.energies).abs().sum()
        assert fit.distance == pytest.approx(expected.item(), rel=1e-12)


def test_printed_fits_of_rectified_networks():
    from skiplens.paths.laws import rectified_path_energies

    for variance, ratio, distance in [(1.0, 0.601, 0.019), (2.0, 0.947, 0.033)]:
        fits = {fit.name: fit for fit in fit_laws(rectified_path_energies(20, variance))}
        # the note fitted simulated networks by distance, here the mean-field by its mean
        assert fits["squared_binomial"].depth_ratio == pytest.approx(ratio, abs=0.01)
        assert fits["squared_binomial"].distance == pytest.approx(distance, abs=0.005)
        assert fits["binomial"].distance > 0.12


def test_zero_mean_branches_follow_the_plain_binomial(generator):
    def two_layers(W, stream):
        mask = (stream @ W > 0).double()
        V = torch.randn(W.shape, generator=generator) / math.sqrt(len(W) / 2)
        return lambda order: math.sqrt(0.5) * (mask * (order @ W)) @ V

    mean, _ = wide_networks.mean_and_error(two_layers, 13, 200, generator, networks=6)
    fit = fit_law(mean)
    others = {other.name: other.distance for other in fit_laws(mean)}
    assert others["binomial"] < 0.04
    assert others["squared_binomial"] > 0.1
    assert {other.name: other for other in fit_laws(mean)}["binomial"].depth_ratio == pytest.approx(0.5, abs=0.05)
    assert fit.distance <= others["binomial"]


def test_a_law_that_cannot_reach_the_mean_is_far_away():
    fits = {fit.name: fit for fit in fit_laws(binomial(30, 4.0))}
    assert fits["stirling"].distance > 0.9
    assert math.isfinite(fits["stirling"].parameter)


def test_many_blocks_leave_out_the_cubic_law():
    fits = fit_laws(squared_binomial(1000, 0.5))
    assert fits[0].name == "squared_binomial"
    assert fits[0].depth_ratio == pytest.approx(0.5, rel=1e-9)
    assert "rectified_mean_field" not in {fit.name for fit in fits}


def test_float32_energies_are_welcome():
    assert fit_law(squared_binomial(12, 0.4).float()).depth_ratio == pytest.approx(0.4, rel=1e-5)


@pytest.mark.parametrize(
    ("energy", "message"),
    [
        ([1.0, 2.0], r"0, 1 \.\. q branches with q >= 2; got shape \(2,\)"),
        ([1.0, -2.0, 3.0], "Energies must be finite and not negative"),
        ([1.0, math.nan, 3.0], "Energies must be finite and not negative"),
        ([1.0, 0.0, 0.0], "All the energy is in a single extreme order"),
        ([0.0, 0.0, 1.0], "All the energy is in a single extreme order"),
    ],
)
def test_bad_energies(energy, message):
    with pytest.raises(InvalidInputError, match=message):
        fit_law(torch.tensor(energy))


@pytest.mark.parametrize("name", [law.name for law in LAWS])
def test_one_law_alone_is_fitted_as_among_all(name):
    energies = binomial(6, 0.4) + 0.1 * squared_binomial(6, 2.0)
    among_all = {fit.name: fit for fit in fit_laws(energies)}[name]
    alone = fit_named_law(energies, name)
    assert (alone.name, alone.parameter, alone.distance) == (name, among_all.parameter, among_all.distance)


def test_an_unknown_law_is_refused():
    with pytest.raises(InvalidInputError, match=r"There is no law 'binomal'\. .*binomial"):
        fit_named_law(binomial(6, 0.4), "binomal")
