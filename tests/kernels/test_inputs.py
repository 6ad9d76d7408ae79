import numpy as np
import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.kernels.architectures import DenseNetKernel
from skiplens.kernels.inputs import directions, require_inputs

KERNEL = DenseNetKernel(2)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_refused_by_row(bad):
    X = torch.ones(5, 3)
    X[3, 1] = bad
    with pytest.raises(
        InvalidInputError, match="1 of 5 inputs hold NaN or infinite values, the first of them is row 3"
    ):
        KERNEL.ntk(X)
    with pytest.raises(InvalidInputError, match="NaN or infinite"):
        KERNEL.ntk(torch.ones(2, 3), X)
    with pytest.raises(InvalidInputError, match="NaN or infinite"):
        KERNEL.diagonal(X)


def test_different_features_are_refused():
    with pytest.raises(InvalidInputError, match="X has 3 features and Y has 4"):
        KERNEL.nngp(torch.ones(2, 3), torch.ones(2, 4))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16, torch.complex64])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(InvalidInputError, match=rf"X must be float32 or float64, got {str(dtype)[6:]}.*X\.float\(\)"):
        KERNEL.ntk(torch.ones(2, 3).to(dtype))


def test_other_shapes_are_refused():
    with pytest.raises(InvalidInputError, match=r"shape \(samples, features\), got \(2, 3, 4\).*flatten"):
        KERNEL.ntk(torch.ones(2, 3, 4))
    with pytest.raises(InvalidInputError, match=r"got \(2, 0\)"):
        KERNEL.ntk(torch.ones(2, 0))


def test_arrays_are_refused():
    with pytest.raises(InvalidInputError, match=r"X must be a torch tensor, got ndarray.*torch\.as_tensor"):
        require_inputs(np.ones((2, 3)))


def test_mixed_devices_are_refused():
    with pytest.raises(InvalidInputError, match=r"X is on cpu and Y is on meta.*Y\.to\(X\.device\)"):
        KERNEL.ntk(torch.ones(2, 3), torch.ones(2, 3, device="meta"))


def test_mixed_precisions_are_refused():
    with pytest.raises(InvalidInputError, match=r"X is torch.float32 and Y is torch.float64"):
        KERNEL.ntk(torch.ones(2, 3).float(), torch.ones(2, 3))


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300])
def test_directions_and_lengths(scale):
    found = directions(scale * torch.tensor([[3.0, 0.0, 4.0, 0.0]]))
    torch.testing.assert_close(found.unit, torch.tensor([[0.6, 0.0, 0.8, 0.0]]))
    assert float(found.length) == pytest.approx(scale * 2.5)


def test_rows_that_differ_by_a_factor_have_the_same_direction_in_double_precision(generator):
    x = torch.randn(1, 50, generator=generator).float()
    found = directions(torch.cat([x, 4 * x])).double().unit
    assert torch.equal(found[0], found[1])
