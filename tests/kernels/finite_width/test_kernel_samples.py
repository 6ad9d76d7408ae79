import numpy as np
import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.kernels.finite_width.simulation import KernelSamples, chunks, estimate, require_same_device, unit_inputs
from tests.tolerances import assert_close


def test_estimates_equal_numpy(generator):
    drawn = torch.randn(50, 2, 2, generator=generator)
    samples, array = KernelSamples(drawn), drawn.numpy()
    assert_close(samples.mean.value, torch.tensor(array.mean(0)))
    assert_close(samples.mean.standard_error, torch.tensor(array.std(0, ddof=1) / np.sqrt(50)))
    assert_close(samples.second_moment.value, torch.tensor((array**2).mean(0)))
    assert_close(samples.variance.value, torch.tensor(array.var(0, ddof=1)))
    squares = (array - array.mean(0)) ** 2
    assert_close(samples.variance.standard_error, torch.tensor(squares.std(0, ddof=1) / np.sqrt(50) * 50 / 49))
    assert_close(samples.mean.deviation(1.0), (samples.mean.value - 1.0) / samples.mean.standard_error)


def test_one_draw_has_no_error():
    with pytest.raises(InvalidInputError, match=r"at least 2 draws, got 1\. Draw more networks"):
        estimate(torch.ones(1))


def test_unit_inputs():
    unit, scale = unit_inputs(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    assert_close(unit, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))
    assert_close(scale, torch.tensor([[12.5, 0.0], [0.0, 0.0]]))


@pytest.mark.parametrize("bad", [torch.ones(3), torch.ones(2, 3, dtype=torch.int64), torch.ones(0, 3)])
def test_inputs_must_be_a_matrix_of_numbers(bad):
    with pytest.raises(InvalidInputError, match=r"matrix of floating-point numbers \(samples, features\), got torch"):
        unit_inputs(bad)


def test_inputs_must_be_finite():
    with pytest.raises(InvalidInputError, match=r"infinite or undefined numbers"):
        unit_inputs(torch.tensor([[1.0, float("nan")]]))


def test_generator_elsewhere(generator):
    with pytest.raises(InvalidInputError, match=r"generator is on cpu and the inputs are on meta; make the generator"):
        require_same_device(torch.ones(1, 1, device="meta"), generator)


@pytest.mark.parametrize(("networks", "largest"), [(1, 5), (10, 3), (200, 64), (7, 7)])
def test_chunks_are_whole_and_even(networks, largest):
    sizes = chunks(networks, largest)
    assert sum(sizes) == networks and max(sizes) <= largest and max(sizes) - min(sizes) <= 1


def test_no_networks():
    with pytest.raises(InvalidInputError, match=r"networks must be at least 1, got 0"):
        chunks(0, 3)
