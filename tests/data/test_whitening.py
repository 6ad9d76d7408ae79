import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.data.images import sample
from skiplens.data.preprocessing import fit_whitening
from tests.tolerances import RELATIVE, assert_close


@pytest.fixture
def inputs(generator):
    mixing = torch.randn(8, 8, generator=generator)
    return torch.randn(300, 8, generator=generator) @ mixing + 3.0


def test_outputs_have_mean_zero_and_unit_covariance(inputs):
    white = fit_whitening(inputs, 5)(inputs)
    assert_close(white.mean(0) + 1, torch.ones(5))
    # The rounding of an eigenvalue is relative to the largest one.
    assert_close(white.T @ white / 300, torch.eye(5), relative=1e-10)


def test_components_are_those_of_a_singular_value_decomposition(inputs):
    whitening = fit_whitening(inputs, 4)
    centred = inputs - inputs.mean(0)
    _, singular_values, VT = torch.linalg.svd(centred, full_matrices=False)
    assert_close(whitening.eigenvalues, singular_values[:4] ** 2 / 300, relative=1e-10)
    assert_close((whitening.components * VT[:4]).sum(1).abs(), torch.ones(4), relative=1e-10)


def test_the_entry_of_largest_magnitude_is_positive(inputs):
    for whitening in (fit_whitening(inputs, 8), fit_whitening(-inputs, 8)):
        largest = whitening.components.gather(1, whitening.components.abs().argmax(1, keepdim=True))
        assert (largest > 0).all()


def test_a_diagonal_case_by_hand():
    inputs = torch.tensor([[1.0, 5.0], [1.0, -5.0], [-1.0, 5.0], [-1.0, -5.0]]) + 7
    whitening = fit_whitening(inputs, 2)
    assert_close(whitening.eigenvalues, torch.tensor([25.0, 1.0]))
    assert_close(whitening(inputs), torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]))


def test_bytes_are_pixels_and_images_are_flattened(generator):
    images = torch.randint(256, (50, 1, 3, 2), generator=generator, dtype=torch.uint8)
    from_bytes, from_floats = fit_whitening(images, 3), fit_whitening((images / 255.0).flatten(1), 3)
    assert_close(from_bytes(images), from_floats((images / 255.0).flatten(1)), relative=1e-10)


def test_chunks_do_not_matter(inputs, monkeypatch):
    from skiplens.data import preprocessing as module

    whole = fit_whitening(inputs, 3)(inputs)
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", 7)
    assert_close(fit_whitening(inputs, 3)(inputs), whole, relative=1e-10)


def test_single_precision_comes_back_in_single_precision(inputs):
    white = fit_whitening(inputs.float(), 3)(inputs.float())
    assert white.dtype == torch.float32
    assert_close(white.double(), fit_whitening(inputs, 3)(inputs), relative=100 * RELATIVE[torch.float32])


def test_the_first_thousand_digits_give_the_reference_values():
    """Theory note of Li et al. 2016, section 5, last line: first 1000 MNIST images whitened by themselves."""
    digits = sample().first(1000)
    X, Y = fit_whitening(digits.images, 10)(digits.images), digits.one_hot()
    S_xx, S_yx = X.T @ X / 1000, Y.T @ X / 1000
    best = (1 - torch.trace(S_yx @ torch.linalg.solve(S_xx, S_yx.T))) / 2
    singular_values = torch.linalg.svdvals(S_xx - S_yx)
    assert best.item() == pytest.approx(0.326244356249556, rel=1e-12)
    assert ((X - Y) ** 2).sum().item() / 2000 == pytest.approx(5.226017705973566, rel=1e-12)
    assert (singular_values[0] / singular_values[-1]).item() == pytest.approx(1.558479010899168, rel=1e-12)


def test_what_cannot_be_whitened_is_said(inputs):
    with pytest.raises(InvalidInputError, match="Asked for 9 components of 8 features; ask for 1 to 8"):
        fit_whitening(inputs, 9)
    flat = torch.cat([inputs[:, :3], inputs[:, :1]], dim=1)
    with pytest.raises(InvalidInputError, match="Asked for 4 whitened components, but the inputs vary in 3 directions"):
        fit_whitening(flat, 4)
    with pytest.raises(InvalidInputError, match="This whitening is for 8 features; got 3"):
        fit_whitening(inputs, 2)(inputs[:, :3])
