import pytest
import torch

from skiplens.linalg.operator import DenseOperator
from skiplens.linalg.trace import draw, gaussian, sphere
from tests.linalg.signs import rademacher
from tests.tolerances import STANDARD_ERRORS


@pytest.mark.parametrize("law", [rademacher, gaussian, sphere])
def test_covariance_is_the_identity(law, generator):
    count = 20_000
    probes = law(4, count, generator)
    products = probes[:, None] * probes[None, :]
    error = products.std(-1) / count**0.5
    # Signs have squares of exactly one: no scatter, no deviation.
    assert ((products.mean(-1) - torch.eye(4)).abs() <= STANDARD_ERRORS * error + 1e-12).all()


def test_signs_are_signs_and_spheres_have_their_radius(generator):
    assert set(rademacher(50, 3, generator).unique().tolist()) == {-1.0, 1.0}
    torch.testing.assert_close(sphere(9, 5, generator).norm(dim=0), torch.full((5,), 3.0))


@pytest.mark.parametrize("law", [rademacher, gaussian, sphere])
def test_same_generator_same_probes(law, seed):
    first, second = (law(5, 2, torch.Generator().manual_seed(seed)) for _ in range(2))
    assert torch.equal(first, second)


def test_drawn_probes_take_the_operators_dtype(generator):
    operator = DenseOperator(torch.eye(3, dtype=torch.float32))
    assert draw(operator, 2, generator).dtype == torch.float32
