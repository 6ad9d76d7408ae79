import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.curvature.problem import FlatOrder
from tests.networks import noise

ORDER = FlatOrder({"weight": (2, 3), "bias": (2,)})


def test_vector_holds_the_parameters_in_order_row_by_row():
    parts = {"bias": torch.tensor([7.0, 8.0]), "weight": torch.arange(1.0, 7).reshape(2, 3)}
    assert ORDER.flatten(parts).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert ORDER.size == 8


def test_columns_are_split_and_joined():
    block = noise(8, 5)
    parts = ORDER.split_columns(block)
    assert [tuple(part.shape) for part in parts] == [(5, 2, 3), (5, 2)]
    assert torch.equal(parts[0][3], block[:6, 3].reshape(2, 3))
    sums = block.clone()
    ORDER.add_columns(sums, parts)
    assert torch.equal(sums, 2 * block) and not parts
    fresh = torch.full_like(block, torch.nan)
    ORDER.add_columns(fresh, ORDER.split_columns(block), anew=True)
    assert torch.equal(fresh, block)


def test_wrong_shapes_and_names():
    with pytest.raises(InvalidInputError, match=r"at 1 names, first 'bias': shape \(3,\) came, \(2,\) was wanted"):
        ORDER.flatten({"weight": torch.zeros(2, 3), "bias": torch.zeros(3)})
    with pytest.raises(InvalidInputError, match=r"first 'bias': shape missing came"):
        ORDER.flatten({"weight": torch.zeros(2, 3)})
    with pytest.raises(InvalidInputError, match=r"first 'more': shape \(1,\) came, no such parameter was wanted"):
        ORDER.flatten({"weight": torch.zeros(2, 3), "bias": torch.zeros(2), "more": torch.zeros(1)})
    with pytest.raises(InvalidInputError, match=r"shape \(7,\) came; a vector of 8 entries was wanted"):
        ORDER.unflatten(torch.zeros(7))
