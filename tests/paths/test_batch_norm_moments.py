import math

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.paths.laws import second_moments
from tests.tolerances import assert_close


def test_printed_uncentred_moments():
    found = second_moments(torch.ones(7), "uncentred")
    printed = [1.466942, 4.525844, 10.178720, 19.767661, 35.113869, 58.655291, 93.613259]
    assert found.tolist() == pytest.approx(printed, abs=5e-7)
    assert found[0].item() == pytest.approx(math.pi / (math.pi - 1), rel=1e-14)


def test_printed_root_mean_square_moments_in_closed_form():
    layers = torch.arange(1.0, 31.0)
    found = second_moments(torch.ones(30), "root_mean_square")
    assert_close(found, layers + layers * (layers - 1) / math.pi)
    assert found[[0, 1, 2, 4, 9, 19, 29]].tolist() == pytest.approx([1, 2.64, 4.92, 11.4, 38.6, 141, 308], rel=0.005)


def test_centred_moments_add_up():
    assert second_moments(torch.tensor([2.0, 1.0, 3.0])).tolist() == [4, 5, 14]


@pytest.mark.parametrize("normalisation", ["centred", "uncentred", "root_mean_square"])
def test_a_common_factor_of_all_scales_only_scales_the_moments(normalisation):
    scales = torch.tensor([0.5, 1.0, 2.0, 0.7])
    assert_close(second_moments(3 * scales, normalisation), 9 * second_moments(scales, normalisation))


def simulated(scales, normalisation, width, batch, generator):
    """The second moment after each layer of one finite network."""
    stream, moments = torch.zeros(batch, width), []
    inputs = torch.randn(batch, width, generator=generator)
    for layer, scale in enumerate(scales.tolist()):
        W = torch.randn(width, width, generator=generator) / math.sqrt(width)
        active = ((stream if layer else inputs) @ W).relu()
        if normalisation == "root_mean_square":
            branch = active / active.square().mean().sqrt()
        else:
            deviation = active.var(0, correction=0).mean().sqrt()
            branch = (active - active.mean(0) if normalisation == "centred" else active) / deviation
        stream = stream + scale * branch
        moments.append(stream.square().mean())
    return torch.stack(moments)


@pytest.mark.parametrize("normalisation", ["centred", "uncentred", "root_mean_square"])
def test_wide_networks_have_these_moments(normalisation, generator):
    scales = torch.tensor([1.0, 0.8, 1.2, 1.0, 0.5])
    runs = torch.stack([simulated(scales, normalisation, 400, 200, generator) for _ in range(8)])
    error = runs.std(0) / math.sqrt(8)
    expected = second_moments(scales, normalisation)
    # width and batch are finite: a relative bias of a few 1/batch on top of the noise of eight networks
    assert ((runs.mean(0) - expected).abs() < 5 * error + 0.03 * expected).all()


def test_bad_input():
    with pytest.raises(InvalidInputError, match=r"Scales must be a list of finite numbers, .* first of them not 0"):
        second_moments(torch.tensor([0.0, 1.0]))
    with pytest.raises(
        InvalidInputError, match="normalisation must be one of centred, uncentred, root_mean_square; got"
    ):
        second_moments(torch.ones(2), "layer")
