import pytest
import torch

from tests.sample_readings import curvature
from tests.tolerances import assert_close


def test_numbers_of_a_hand_made_spectrum():
    reading = curvature()
    assert reading.largest_absolute == 4.0 and reading.condition_number == 8.0
    assert reading.index == 0.4 and reading.negative_mass == pytest.approx(1.5 / 8.0)
    assert reading.flat_share == 0.0 and reading.share_below(1.0) == 0.6
    assert reading.index_beyond_rounding == 0.4 and reading.matrix_name == "Hessian"


def test_weights_count_where_eigenvalues_are_sampled():
    reading = curvature(method="lanczos", weights=torch.tensor([0.5, 0.2, 0.1, 0.1, 0.1]), rounding=0.75)
    assert reading.index == pytest.approx(0.7) and reading.index_beyond_rounding == pytest.approx(0.5)
    assert reading.condition_number == 8.0


def test_vectors_are_cut_at_the_parameters():
    vectors = torch.arange(10.0).reshape(5, 2)
    reading = curvature(vectors=vectors, parameter_shapes={"a": (2, 2), "b": (1,)})
    parts = reading.vector(1)
    assert_close(parts["a"], torch.tensor([[1.0, 3.0], [5.0, 7.0]]))
    assert_close(parts["b"], torch.tensor([9.0]))


def test_blocks_are_spectra_again():
    inner = curvature(largest=7.0)
    reading = curvature(block_values={"block": inner.values()})
    assert reading.blocks["block"].largest == 7.0 and reading.blocks["block"].condition_number == 14.0
