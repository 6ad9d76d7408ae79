"""Small pictures of samples, read back by another library."""

import base64
import io

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from skiplens.plots.thumbnails import MOST_PIXELS, PREFIX, thumbnails


def pixels(address: str) -> np.ndarray:
    return imread(io.BytesIO(base64.b64decode(address.removeprefix(PREFIX), validate=True)), "png")


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_has_the_pixels_of_the_sample_from_its_darkest_to_its_brightest(channels):
    image = torch.linspace(-3, 5, 12 * 16 * channels).reshape(1, channels, 12, 16)
    (address,) = thumbnails(image)
    wanted = ((image[0] + 3) / 8).permute(1, 2, 0).numpy()
    found = pixels(address)
    assert found.shape[:2] == (12, 16)
    assert found.reshape(wanted.shape) == pytest.approx(wanted, abs=0.5 / 255 + 1e-6)


def test_large_images_shrink_to_averages_and_keep_their_shape():
    image = torch.zeros(2, 1, 40, 80)
    image[:, :, :, 40:] = 1.0
    first, second = (pixels(address) for address in thumbnails(image))
    assert first.shape == (MOST_PIXELS // 2, MOST_PIXELS) and (first == second).all()
    assert (first[:, :10] == 0).all() and (first[:, 10:] == 1).all()


@pytest.mark.parametrize(
    "inputs", [torch.zeros(2, 20), torch.zeros(2, 5, 9, 9), torch.zeros(2, 1, 7, 9), (torch.zeros(2, 1, 9, 9),)]
)
def test_what_is_no_image_has_no_picture(inputs):
    assert thumbnails(inputs) == ()
    assert thumbnails(torch.zeros(2, 1, 9, 9, dtype=torch.int64)) == ()


def test_an_image_of_one_colour_or_without_numbers_is_black():
    for value in (3.0, float("nan")):
        (address,) = thumbnails(torch.full((1, 1, 8, 8), value))
        assert (pixels(address) == 0).all()
