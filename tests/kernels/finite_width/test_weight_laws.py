import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.kernels.finite_width.networks import weight_law
from skiplens.kernels.finite_width.simulation import estimate
from tests.tolerances import STANDARD_ERRORS


@pytest.mark.parametrize(
    ("name", "fourth"), [("gaussian", 3.0), ("uniform", 1.8), ("rademacher", 1.0), ("laplace", 6.0)]
)
def test_moments(name, fourth, generator):
    law = weight_law(name)
    drawn = law.draw((200_000,), torch.float64, generator)
    assert law.fourth_moment == fourth
    assert estimate(drawn).deviation(0.0).abs() < STANDARD_ERRORS
    if name == "rademacher":
        assert set(drawn.tolist()) == {-1.0, 1.0}
        return
    assert estimate(drawn.square()).deviation(1.0).abs() < STANDARD_ERRORS
    assert estimate(drawn.pow(4)).deviation(fourth).abs() < STANDARD_ERRORS


def test_same_generator_same_weights():
    law = weight_law("laplace")
    left, right = (law.draw((5,), torch.float32, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(left, right) and left.dtype == torch.float32


def test_unknown_law():
    with pytest.raises(InvalidInputError, match=r"There is no weight law 'gausian'\. Did you mean gaussian"):
        weight_law("gausian")
