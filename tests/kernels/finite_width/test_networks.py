from fractions import Fraction

import pytest

from skiplens.base.errors import InvalidInputError
from skiplens.kernels.finite_width.networks import DenseNet, ResNet, Vanilla, as_written, require_layer


@pytest.mark.parametrize("make", [ResNet, DenseNet, Vanilla])
@pytest.mark.parametrize("depth", [0, -3])
def test_depth_must_be_positive(make, depth):
    with pytest.raises(InvalidInputError, match=rf"depth must be a whole number of at least 1, got {depth}"):
        make(depth, 8)


@pytest.mark.parametrize("make", [ResNet, DenseNet, Vanilla])
def test_width_must_be_positive(make):
    with pytest.raises(InvalidInputError, match=r"width must be a whole number of at least 1, got 0"):
        make(3, 0)


def test_branches_must_exist():
    with pytest.raises(InvalidInputError, match=r"branch_depth must be a whole number of at least 1, got 0"):
        ResNet(3, 8, 0)


@pytest.mark.parametrize("scale", [-0.1, float("nan"), float("inf")])
def test_scale_must_be_finite_and_not_negative(scale):
    with pytest.raises(
        InvalidInputError, match=r"branch_scale must be a finite number and not negative, got .*0 switches"
    ):
        ResNet(3, 8, 2, scale)


def test_a_decimal_means_what_is_written():
    assert as_written(0.3) == Fraction(3, 10)
    assert as_written(Fraction(1, 3)) == Fraction(1, 3)


def test_layers_and_sources_that_do_not_exist():
    with pytest.raises(InvalidInputError, match=r"layer must be between 1 and the depth 3, got 4"):
        require_layer(Vanilla(3, 8), 4, None)
    with pytest.raises(InvalidInputError, match=r"Only a DenseNet has one matrix per source; leave source out, got 1"):
        require_layer(ResNet(3, 8), 2, 1)
    with pytest.raises(InvalidInputError, match=r"Layer 2 of a DenseNet reads the sources 0 to 1, got 2"):
        require_layer(DenseNet(3, 8), 2, 2)
