import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.data.synthetic import GaussianClasses, gaussian_classes
from tests.tolerances import STANDARD_ERRORS, assert_close


def covariances(task):
    return task.factors @ task.factors.transpose(1, 2)


def test_the_papers_sizes_are_the_default(generator):
    task = gaussian_classes(generator)
    assert task.means.shape == (50, 20) and task.factors.shape == (50, 20, 20)


def test_task_of_means(generator):
    task = gaussian_classes(generator, "means", classes=400)
    u = torch.linalg.eigvalsh(covariances(task)).sqrt()
    assert 0.5 <= u.min() < 0.51 and 1.49 < u.max() <= 1.5
    error = STANDARD_ERRORS / (12 * u.numel()) ** 0.5  # a uniform number on an interval of length 1 has variance 1/12
    assert abs(u.mean().item() - 1) < error
    means = task.means.flatten()
    assert abs(means.mean().item()) < STANDARD_ERRORS / means.numel() ** 0.5
    assert abs(means.var().item() - 1) < STANDARD_ERRORS * (2 / means.numel()) ** 0.5


def test_task_of_covariances(generator):
    task = gaussian_classes(generator, "covariances", classes=400)
    assert not task.means.any()
    logarithms = (torch.linalg.eigvalsh(covariances(task)).log() / 2).flatten()
    assert abs(logarithms.mean().item()) < STANDARD_ERRORS / logarithms.numel() ** 0.5
    assert abs(logarithms.var().item() - 1) < STANDARD_ERRORS * (2 / logarithms.numel()) ** 0.5


def test_samples_have_the_class_means_and_covariances(generator):
    task = GaussianClasses(torch.tensor([[1.0, -2.0], [5.0, 0.0]]), torch.tensor([[[2.0, 0.0], [1.0, 0.5]]] * 2))
    count = 40_000
    inputs, labels = task.draw(count, generator)
    assert abs(labels.double().mean().item() - 0.5) < STANDARD_ERRORS * 0.5 / count**0.5
    for k in range(2):
        chosen = inputs[labels == k]
        deviation = chosen - task.means[k]
        standard_error = covariances(task)[k].diagonal().sqrt() / len(chosen) ** 0.5
        assert (deviation.mean(0).abs() < STANDARD_ERRORS * standard_error).all()
        wanted = torch.tensor([[4.0, 2.0], [2.0, 1.25]])
        # The variance of a product of two Gaussians: C_ii C_jj + C_ij².
        spread = (wanted.diagonal()[:, None] * wanted.diagonal() + wanted**2).sqrt() / len(chosen) ** 0.5
        assert ((deviation.T @ deviation / len(chosen) - wanted).abs() < STANDARD_ERRORS * spread).all()


def test_the_same_seed_gives_the_same_task_and_samples(seed):
    def draw(number):
        streams = Randomness(number)
        return gaussian_classes(streams.child("task").torch()).draw(5, streams.child("samples").torch())

    assert torch.equal(draw(seed).inputs, draw(seed).inputs)
    assert not torch.equal(draw(seed).inputs, draw(seed + 1).inputs)


def test_dtype_is_respected(generator):
    task = gaussian_classes(generator, dtype=torch.float32)
    batch = task.draw(3, generator)
    assert batch.inputs.dtype == torch.float32 and batch.targets.dtype == torch.int64
    Q = task.factors / torch.linalg.vector_norm(task.factors, dim=1, keepdim=True)
    assert_close(Q.transpose(1, 2) @ Q, torch.eye(20, dtype=torch.float32).expand(50, 20, 20))


def test_an_unknown_difference_is_named(generator):
    with pytest.raises(InvalidInputError, match="differ in 'means' or 'covariances'; got 'shapes'"):
        gaussian_classes(generator, "shapes")
