import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.data.preprocessing import Standardisation, measure_channels
from tests.tolerances import assert_close


@pytest.fixture
def images(generator):
    scale = torch.tensor([50, 200, 256])[:, None, None]
    return (torch.rand(20, 3, 5, 6, generator=generator) * scale).to(torch.uint8)


def test_statistics_are_those_of_all_pixels(images):
    measured = measure_channels(images.split(7))
    pixels = images.double() / 255
    assert_close(torch.tensor(measured.mean), pixels.mean((0, 2, 3)))
    assert_close(torch.tensor(measured.std), pixels.std((0, 2, 3), unbiased=False))


def test_standardised_images_have_mean_zero_and_variance_one(images):
    standardised = measure_channels([images])(images)
    assert_close(standardised.mean((0, 2, 3)) + 1, torch.ones(3))
    assert_close(standardised.var((0, 2, 3), unbiased=False), torch.ones(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_pixels_come_back_in_the_same_dtype(images, dtype):
    measured = measure_channels([images])
    pixels = (images / 255).to(dtype)
    mean, std = (torch.tensor(values, dtype=dtype)[:, None, None] for values in (measured.mean, measured.std))
    back = measured(pixels) * std + mean
    assert back.dtype == dtype
    assert_close(back, pixels)
    assert measured(images, torch.float32).dtype == torch.float32


def test_a_constant_channel_becomes_zero():
    measured = measure_channels([torch.full((2, 1, 3, 3), 51, dtype=torch.uint8)])
    assert measured == Standardisation((0.2,), (1.0,))


def test_wrong_channels_and_no_images_are_said(images):
    with pytest.raises(
        InvalidInputError, match=r"statistics are for 1 channels .* got images of shape \(20, 3, 5, 6\)"
    ):
        Standardisation((0.0,), (1.0,))(images)
    with pytest.raises(InvalidInputError, match="There are no images to measure channels of"):
        measure_channels([])
