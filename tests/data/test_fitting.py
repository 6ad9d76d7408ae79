import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.data.images import ImageSet
from skiplens.data.loading import ImageBatches, LoadOptions, fit_to, load
from skiplens.graph.batch import take


@pytest.fixture
def digits():
    return load("sample", LoadOptions(samples=100, batch_size=30))


def test_images_that_fit_are_left_alone(digits):
    assert torch.equal(take(fit_to(digits, (1, 28, 28)), 100).inputs, take(digits, 100).inputs)


def test_images_are_scaled_and_their_channel_repeated(digits):
    fitted = take(fit_to(digits, (3, 32, 32)), 100)
    assert fitted.inputs.shape == (100, 3, 32, 32)
    assert torch.equal(fitted.inputs[:, 0], fitted.inputs[:, 2])
    assert torch.equal(fitted.targets, take(digits, 100).targets)


def test_scaling_a_constant_gives_the_constant():
    """The oracle: any interpolation keeps a constant image as it is."""
    images = ImageSet(torch.full((1, 1, 28, 28), 51, dtype=torch.uint8), torch.tensor([3]), ("a", "b", "c", "d"))
    plain = ImageBatches("grey", images, torch.arange(1), LoadOptions(standardise=False))
    assert torch.allclose(take(fit_to(plain, (3, 40, 20)), 1).inputs, torch.tensor(0.2), rtol=0, atol=1e-12)


def test_vectors_are_flattened_or_whitened(digits):
    assert torch.equal(take(fit_to(digits, (784,)), 100).inputs, take(digits, 100).inputs.flatten(1))
    everything = fit_to(load("sample"), (10,))
    white = take(everything, 2000).inputs
    covariance = white.T @ white / 2000
    assert torch.allclose(covariance, torch.eye(10), atol=1e-10, rtol=0)  # rounding of 2000 float64 terms
    assert torch.allclose(white.mean(0), torch.zeros(10), atol=1e-10, rtol=0)


def test_what_cannot_fit_is_refused(digits):
    with pytest.raises(InvalidInputError, match="sample cannot be brought to samples of shape 4×4"):
        fit_to(digits, (4, 4))


def test_the_description_says_what_was_done(digits):
    assert fit_to(digits, (3, 8, 8)).description == "sample, scaled to 3×8×8"
    assert fit_to(digits, (5,)).description == "sample, whitened to 5 principal components"
