import pytest
import torch
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.zoo.skips import (
    IsometricPool,
    PaddedAveragePool,
    ScaledAveragePool,
    StridedZeroPad,
    Truncation,
    patch_filters,
    skip_matrix,
)
from tests.tolerances import assert_close
from tests.zoo.small_networks import sines

ISOMETRIC = {
    "identity": (nn.Identity(), (5,)),
    "truncation": (Truncation(3), (5,)),
    "average pool": (ScaledAveragePool(2), (3, 4, 6)),
    "average pool with pixels left over": (ScaledAveragePool(3), (1, 8, 7)),
    "isometric pool, Haar": (IsometricPool(2, 3, 6), (3, 4, 6)),
    "isometric pool, DCT": (IsometricPool(3, 5, 20), (5, 6, 6)),
    "isometric pool, all filters": (IsometricPool(3, 1, 9), (1, 6, 3)),
    "isometric pool, mixed number of filters": (IsometricPool(2, 3, 7), (3, 4, 4)),
}


@pytest.mark.parametrize(("skip", "shape"), ISOMETRIC.values(), ids=ISOMETRIC)
def test_isometric_maps_have_all_singular_values_one(skip, shape):
    matrix = skip_matrix(skip.to(torch.float64), shape)
    assert matrix.shape[0] <= matrix.shape[1]
    assert_close(torch.linalg.svdvals(matrix), torch.ones(matrix.shape[0]))


@pytest.mark.parametrize(("skip", "shape"), ISOMETRIC.values(), ids=ISOMETRIC)
def test_the_matrix_is_the_map(skip, shape):
    inputs = sines(3, *shape)
    assert_close(inputs.flatten(1) @ skip_matrix(skip.to(torch.float64), shape).T, skip(inputs).flatten(1))


def test_an_average_pool_with_padding_is_not_isometric():
    # Values of the theory note for kernel 3, stride 2, padding 1 on 12 × 12 pixels.
    values = torch.linalg.svdvals(skip_matrix(nn.AvgPool2d(3, 2, 1), (1, 12, 12)))
    assert_close(values.min(), torch.tensor(0.117568485016), relative=1e-10)
    assert_close(values.max(), torch.tensor(0.530101339034), relative=1e-10)


@pytest.mark.parametrize(
    ("skip", "shape", "ones", "zeros"),
    [
        (PaddedAveragePool(3, 15), (5, 12, 12), 80, 240),
        (PaddedAveragePool(2, 4), (4, 6, 6), 36, 36),
        (PaddedAveragePool(1, 6), (2, 3, 3), 18, 0),
        (StridedZeroPad(2, 4), (4, 6, 6), 36, 36),
    ],
)
def test_zero_channels_add_zero_singular_values(skip, shape, ones, zeros):
    values = torch.linalg.svdvals(skip_matrix(skip, shape))
    assert_close(values, torch.cat([torch.ones(ones), torch.zeros(zeros)]))


def test_zero_channels_stand_in_front_and_behind():
    pooled = PaddedAveragePool(2, 3)(torch.ones(1, 1, 2, 2))
    assert_close(pooled.flatten(), torch.tensor([0.0, 2.0, 0.0, 0.0]))


def test_strided_zero_pad_picks_pixels_and_puts_zeros_behind():
    picked = StridedZeroPad(2, 1)(torch.arange(16.0).reshape(1, 1, 4, 4))
    assert_close(picked[0, 0], torch.tensor([[0.0, 2.0], [8.0, 10.0]]))
    assert_close(picked[0, 1], torch.zeros(2, 2))


def test_haar_filters_are_average_and_horizontal_difference():
    average, difference = patch_filters(2, 2)[:, 0]
    assert_close(average, torch.full((2, 2), 0.5))
    assert_close(difference, torch.tensor([[0.5, -0.5], [0.5, -0.5]]))


def test_output_channels_go_filter_by_filter():
    inputs = sines(1, 2, 2, 2)
    outputs = IsometricPool(2, 2, 4)(inputs)
    assert_close(outputs[:, :2], ScaledAveragePool(2)(inputs))
    differences = (inputs[..., 0] - inputs[..., 1]).sum(-1) / 2
    assert_close(outputs[:, 2:].flatten(), differences.flatten())


def test_filters_stay_exact_when_the_dtype_changes():
    torch.set_default_dtype(torch.float32)
    pool = IsometricPool(3, 1, 9)
    assert pool.filters.dtype == torch.float32
    assert torch.equal(pool.double().filters, patch_filters(3, 9))


def test_too_many_channels_for_an_isometric_pool_are_refused():
    with pytest.raises(InvalidInputError, match=r"at most 8 channels of 2; 9 were asked for"):
        IsometricPool(2, 2, 9)
