"""How loose the certificate is on digits (section 3.2 of the theory): 32 images, widths 784-32-16-10.

The theory does not say which 32 images it took, so its constant must look like one of those of random draws; ratios of
bounds hardly depend on the images.
"""

import math

import pytest
import torch

from tests.jacobians.systems.reference import residual_network


def loss_of(digits, chosen):
    from skiplens.jacobians.systems.affine import Affine
    from skiplens.jacobians.systems.costs import CrossEntropy
    from skiplens.jacobians.systems.parameterisation import EntryNormalised
    from skiplens.jacobians.systems.smoothness import TrainingLoss

    X = digits.images[chosen].flatten(1).T.double() / 255
    system = residual_network(Affine(EntryNormalised(32, 784)), widths=(32, 16, 10), hidden=16)
    return TrainingLoss(system, X, CrossEntropy(digits.labels[chosen], 10))


@pytest.fixture(scope="module")
def digits():
    from skiplens.data.images import sample

    return sample()


@pytest.fixture(scope="module")
def loss(digits):
    return loss_of(digits, slice(0, 32))


def start_of(loss, generator):
    """Uniform within ±1/sqrt(inputs) of each matrix."""
    inputs = [784] * 784 * 32 + [32] * 32 * 16 + [16] * (16 * 16 + 16 * 16 + 16 * 10)
    assert len(inputs) == loss.system.parameters == 26_272
    return (2 * torch.rand(len(inputs), generator=generator) - 1) / torch.tensor(inputs).sqrt()


def test_the_bound_of_single_samples_is_the_smallest(loss):
    from skiplens.jacobians.systems.smoothness import certified_smoothness

    found = certified_smoothness(loss)
    assert found.mode == "per_sample"
    assert found.joint / found.per_sample == pytest.approx(4.63e5 / 1.2025e5, rel=0.01)
    assert found.literal / found.per_sample == pytest.approx(6.17e5 / 1.2025e5, rel=0.01)
    assert float(torch.linalg.svdvals(loss.data)[-1]) > 1  # full rank


def test_the_constant_of_the_theory_is_one_of_those_of_random_images(digits, generator):
    from skiplens.jacobians.systems.smoothness import certified_smoothness

    draws = [torch.randperm(len(digits.images), generator=generator)[:32] for _ in range(30)]
    constants = torch.tensor([float(certified_smoothness(loss_of(digits, chosen)).constant) for chosen in draws])
    assert abs(1.2025e5 - constants.mean()) < 3 * constants.std()


@pytest.mark.slow
def test_certified_steps_hardly_move_and_far_longer_ones_still_descend(loss, generator):
    from skiplens.jacobians.systems.smoothness import certified_smoothness, local_smoothness
    from skiplens.papers.macdonald2023_regularity.counterexample import descend

    beta, start = certified_smoothness(loss).constant, start_of(loss, generator)
    assert 1e3 < beta / local_smoothness(loss, start, generator) < 1e5  # the theory's factor is 1.7e4
    certified, long = (
        torch.tensor([point.loss for point in descend(loss, start, step, 1000)]) for step in (1.9 / beta, 2e4 / beta)
    )
    assert bool((certified.diff() < 0).all()) and bool((long.diff() < 0).all())
    assert certified[0] == long[0] == pytest.approx(math.log(10), rel=0.1)
    assert 0.9 < certified[-1] / certified[0] < 1  # the theory's run: 2.4561 to 2.3925
    assert long[-1] < 0.02  # the theory's run: 0.0049
