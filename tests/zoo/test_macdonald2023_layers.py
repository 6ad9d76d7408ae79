import math

import pytest
import torch

from skiplens.zoo.layers import uninitialised
from skiplens.zoo.macdonald2023 import (
    BatchNormalise,
    NormalisedConv2d,
    NormalisedLinear,
    Parameterisation,
    contraction_factor,
    entry_normalised,
    weight_normalised,
)
from skiplens.zoo.skips import skip_matrix
from tests.tolerances import assert_close
from tests.zoo.small_networks import sines

# Values of the theory note's table, row first.
WN = [
    0.645252577625392,
    -0.580327509405749,
    0.316018638420461,
    -0.249266417681885,
    -0.114590019326454,
    -0.858681187817002,
]
EN = [
    0.859685793568114,
    -0.834350643808399,
    0.636032542672283,
    -0.498996373626905,
    -0.255890408262907,
    -0.892941919014444,
]
BN = [1.29028413826652, -1.20586119643744, 0.619731662692791, -0.473545662345563, -0.230608942176309,
      -0.727296687230853, -0.677859802408731, 1.75819164794806, -0.256811695271221, -0.0962234630372563]  # fmt: skip


def test_weight_normalisation_of_the_note():
    assert_close(weight_normalised(sines(2, 3), 0.25).flatten(), torch.tensor(WN))


def test_entry_normalisation_of_the_note():
    assert_close(entry_normalised(sines(2, 3), 0.25).flatten(), torch.tensor(EN))


def test_batch_norm_of_the_note():
    # The note's rows are units and its columns samples.
    assert_close(BatchNormalise(0.1)(sines(2, 5).T).T.flatten(), torch.tensor(BN))


def test_batch_norm_jacobian_of_the_note():
    J = torch.func.jacrev(lambda x: BatchNormalise(0.1)(x.T).T.flatten())(sines(2, 5)).reshape(10, 10)
    wanted = [1.56177610763026] * 3 + [1.30007426283281] * 3 + [0.380939777552272, 0.219737653407114, 0, 0]
    assert_close(torch.linalg.svdvals(J), torch.tensor(wanted))


def test_batch_norm_of_images_takes_all_positions():
    images = sines(3, 2, 4, 5)
    assert_close(
        BatchNormalise(1e-3)(images), torch.nn.functional.batch_norm(images, None, None, training=True, eps=1e-3)
    )


@pytest.mark.parametrize("normalisation", ["weight", "entry"])
def test_scaling_law_in_epsilon(normalisation):
    weight = sines(4, 3)
    small, unit = Parameterisation(normalisation, 0.04), Parameterisation(normalisation, 1.0)
    assert_close(small(weight), unit(weight / 0.2))


@pytest.mark.parametrize("normalisation", ["weight", "entry"])
def test_linear_layer_is_the_transpose_of_the_notes(normalisation):
    layer = uninitialised(NormalisedLinear, 3, 2, Parameterisation(normalisation, 0.25, factor=0.5))
    layer.weight.data.copy_(sines(2, 3))
    P = torch.tensor(WN if normalisation == "weight" else EN).reshape(2, 3)
    X = sines(3, 4)
    assert_close(layer(X.T).detach(), (0.5 * P @ X).T)


@pytest.mark.parametrize("normalisation", ["weight", "entry"])
@pytest.mark.parametrize("shape", [(4, 3), (16, 16), (3, 7)])
def test_contraction_factor_bounds_every_matrix_and_is_nearly_attained(normalisation, shape, generator):
    factor = contraction_factor(shape, normalisation, margin=0.1)
    P = Parameterisation(normalisation, 1.0, factor)
    for scale in (0.1, 1.0, 100.0):
        assert torch.linalg.matrix_norm(P(scale * torch.randn(shape, generator=generator)), 2) <= 0.9
    # Long parallel rows: the supremum.
    assert_close(torch.linalg.matrix_norm(P(torch.full(shape, 1e6)), 2), torch.tensor(0.9), relative=1e-11)


def test_sixteen_parallel_rows_have_norm_four():
    assert_close(torch.linalg.matrix_norm(weight_normalised(1e3 * torch.ones(16, 5), 1.0), 2), torch.tensor(4.0), 1e-6)


@pytest.mark.parametrize("normalisation", ["weight", "entry"])
@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (1, 0), (2, 1), (3, 0)])
def test_contraction_factor_bounds_convolutions(normalisation, stride, padding):
    factor = contraction_factor((3, 2, 3, 3), normalisation, margin=0.2, stride=stride)
    parameterisation = Parameterisation(normalisation, 0.01, factor)
    layer = uninitialised(NormalisedConv2d, (2, 3), 3, parameterisation, stride=stride, padding=padding)
    layer.weight.data.copy_(sines(3, 2, 3, 3))
    T = skip_matrix(layer, (2, 6, 6)).detach()
    assert torch.linalg.matrix_norm(T, 2) <= 0.8
    kernel_bound = math.ceil(3 / stride) * torch.linalg.matrix_norm(
        parameterisation(layer.weight.detach()).flatten(1), 2
    )
    assert torch.linalg.matrix_norm(T, 2) <= kernel_bound * (1 + 1e-12)
    if stride == 3:
        assert_close(torch.linalg.matrix_norm(T, 2), kernel_bound)


def test_convolution_rows_are_output_channels():
    kernel = weight_normalised(sines(3, 2, 3, 3), 0.25)
    assert_close(kernel.flatten(1), weight_normalised(sines(3, 18), 0.25))
