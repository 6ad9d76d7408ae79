import pytest

from skiplens.base.errors import InvalidInputError
from skiplens.kernels.finite_width.matrix_free import sample_reduced_outputs
from skiplens.kernels.finite_width.networks import DenseNet, ResNet, Vanilla
from skiplens.kernels.finite_width.reduced_moments import reduced_moments
from skiplens.kernels.finite_width.simulation import estimate
from tests.tolerances import STANDARD_ERRORS


@pytest.mark.parametrize(
    ("network", "layer", "source"),
    [
        (ResNet(20, 50, 2, 0.3), 7, None),
        (ResNet(3, 40, 3, 0.5), 1, None),
        (ResNet(3, 40, 1, 0.5), 3, None),
        (DenseNet(4, 40), 1, None),
        (DenseNet(4, 40), 2, None),
        (DenseNet(4, 40), 4, None),
        (DenseNet(4, 40), 2, 0),
        (DenseNet(4, 40), 2, 1),
        (DenseNet(4, 40), 4, 3),
        (Vanilla(4, 40), 2, None),
    ],
)
def test_second_and_fourth_moment(network, layer, source, generator):
    found = sample_reduced_outputs(network, 10_000, generator, layer, source)
    exact = reduced_moments(network, layer, source)
    assert estimate(found).deviation(0.0).abs() < STANDARD_ERRORS
    assert estimate(found.square()).deviation(exact.second).abs() < STANDARD_ERRORS
    assert estimate(found.pow(4)).deviation(exact.fourth).abs() < STANDARD_ERRORS


def test_a_layer_that_does_not_exist(generator):
    with pytest.raises(InvalidInputError, match=r"layer must be between 1 and the depth 4, got 5"):
        sample_reduced_outputs(Vanilla(4, 40), 10, generator, 5)
