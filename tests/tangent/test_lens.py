import math

import pytest
import torch
from torch import nn

from skiplens.base.progress import silent
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import Batch
from skiplens.graph.lens import Subject
from skiplens.tangent.reading import TangentReading
from skiplens.tangent.report import TangentLens
from tests.lens_cases import subject
from tests.tolerances import assert_close


def reading_of(kernel: torch.Tensor, targets: list[int] = ()) -> TangentReading:
    return TangentReading(
        kernel=kernel,
        targets=torch.tensor(targets, dtype=torch.int64),
        angles=torch.zeros(0, 0),
        parameters=1,
        batch_coupled=False,
    )


def test_the_kernel_is_that_of_the_jacobian():
    """Dense autograd: one gradient a sample and output."""
    looked_at = subject()
    reading = TangentLens()(looked_at, Randomness(0), silent)
    outputs = looked_at.model(looked_at.batch.inputs)
    rows = []
    for output in outputs.flatten():
        gradients = torch.autograd.grad(output, list(looked_at.model.parameters()), retain_graph=True)
        rows.append(torch.cat([g.flatten() for g in gradients]))
    jacobian = torch.stack(rows).reshape(*outputs.shape, -1)
    assert_close(reading.kernel, torch.einsum("nop,mop->nm", jacobian, jacobian), relative=1e-12)
    assert not reading.batch_coupled and reading.parameters == jacobian.shape[-1]


def test_batch_norm_in_training_couples_the_samples():
    reading = TangentLens(coupled_samples=4)(subject(training=True), Randomness(0), silent)
    assert reading.batch_coupled and reading.kernel.shape == (4, 4)


def test_angles_of_known_vectors():
    inputs = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 3.0], [-2.0, 0.0]])
    looked_at = Subject(nn.Linear(2, 2), Batch(inputs, torch.tensor([0, 1, 0, 1])), "linear")
    angles = TangentLens()(looked_at, Randomness(0), silent).angles
    assert_close(angles[0], torch.tensor([0.0, math.pi / 4, math.pi / 2, math.pi]), relative=1e-7)  # asin near 1


def test_eigenvalues_condition_and_rank_of_a_known_kernel():
    reading = reading_of(torch.diag(torch.tensor([1.0, 4.0, 2.0])))
    assert_close(reading.eigenvalues, torch.tensor([4.0, 2.0, 1.0]))
    assert reading.condition_number == pytest.approx(4.0, rel=1e-12)
    assert reading.effective_rank == pytest.approx(49 / 21, rel=1e-12)
    assert math.isinf(reading_of(torch.ones(3, 3)).condition_number)


def test_alignment_counts_pairs_of_different_samples_only():
    same = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert reading_of(same, [0, 0, 1]).alignment == pytest.approx(1.0)
    assert reading_of(torch.eye(3), [0, 1, 2]).alignment is None
    assert reading_of(torch.eye(3)).alignment is None
    opposite = torch.tensor([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5], [0.5, 0.5, 1.0]])
    assert reading_of(opposite, [0, 0, 1]).alignment == pytest.approx(-1.0)


def test_targets_that_are_no_classes_are_left_out():
    looked_at = Subject(nn.Linear(2, 1), Batch(torch.randn(3, 2), torch.randn(3, 1)), "regression")
    reading = TangentLens()(looked_at, Randomness(0), silent)
    assert reading.targets.numel() == 0 and reading.alignment is None
