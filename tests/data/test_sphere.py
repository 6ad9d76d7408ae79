import math

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.data.synthetic import random_unit_vectors, vectors_at_angles, vectors_on_circle
from tests.tolerances import STANDARD_ERRORS, assert_close


def angle(u, v):
    """Kahan's formula, accurate for small and for large angles."""
    return 2 * torch.atan2(torch.linalg.vector_norm(u - v), torch.linalg.vector_norm(u + v))


def norms(vectors):
    return torch.linalg.vector_norm(vectors, dim=1)


def test_random_vectors_are_uniform_on_the_sphere(generator):
    vectors = random_unit_vectors(20_000, 3, generator)
    assert_close(norms(vectors), torch.ones(20_000))
    assert (vectors.mean(0).abs() < STANDARD_ERRORS / (3 * 20_000) ** 0.5).all()
    # On the sphere in three dimensions every coordinate is uniform on [-1, 1] (Archimedes): fourth moment 1/5.
    spread = math.sqrt(1 / 9 - 1 / 25) / 20_000**0.5
    assert ((vectors**4).mean(0) - 0.2).abs().max() < STANDARD_ERRORS * spread


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vectors_on_a_circle_have_the_chosen_angles(generator, dtype):
    angles = torch.tensor([0.0, 1e-3, 0.5, math.pi / 2, 3.0, math.pi], dtype=dtype)
    vectors = vectors_on_circle(angles, 10, generator)
    assert vectors.dtype == dtype
    assert_close(norms(vectors), torch.ones(6, dtype=dtype))
    assert_close(torch.stack([angle(vectors[0], v) for v in vectors]), angles)
    assert_close(angle(vectors[2], vectors[4]), angles[4] - angles[2])


def test_vectors_at_angles_have_every_pairwise_angle(generator):
    wanted = torch.tensor([[0.0, 0.3, 1.0], [0.3, 0.0, 0.9], [1.0, 0.9, 0.0]])
    vectors = vectors_at_angles(wanted, 7, generator)
    found = torch.stack([torch.stack([angle(u, v) for v in vectors]) for u in vectors])
    assert_close(found, wanted)


def test_flat_arrangements_fit_into_the_plane(generator):
    steps = torch.arange(5) * 0.4
    wanted = (steps[:, None] - steps).abs()
    vectors = vectors_at_angles(wanted, 2, generator)
    assert_close(vectors @ vectors.T, wanted.cos())


def test_the_same_seed_gives_the_same_vectors(seed):
    def draw():
        return vectors_on_circle(torch.tensor([0.0, 1.0]), 4, torch.Generator().manual_seed(seed))

    assert torch.equal(draw(), draw())


def test_impossible_angles_are_said(generator):
    with pytest.raises(InvalidInputError, match=r"No vectors have these angles: .* the eigenvalue -"):
        vectors_at_angles(torch.tensor([[0.0, 0.1, 3.0], [0.1, 0.0, 0.1], [3.0, 0.1, 0.0]]), 3, generator)
    with pytest.raises(InvalidInputError, match="symmetric matrix with zeros on its diagonal"):
        vectors_at_angles(torch.tensor([[0.0, 0.1], [0.2, 0.0]]), 3, generator)
    with pytest.raises(InvalidInputError, match="need 3 dimensions; got features=2"):
        vectors_at_angles((1 - torch.eye(3)) * math.pi / 2, 2, generator)
    with pytest.raises(InvalidInputError, match="A circle needs at least 2 features; got 1"):
        vectors_on_circle(torch.tensor([0.0]), 1, generator)
