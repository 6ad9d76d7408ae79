"""When the tangent kernel is a finding, and when it is not."""

import pytest
import torch
from torch import nn

from skiplens.base.progress import silent
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import Batch
from skiplens.graph.lens import Subject
from skiplens.tangent.report import TangentLens, judge_kernel_condition
from tests.networks import drawn
from tests.tangent.test_lens import reading_of


def found(model: nn.Module, inputs: torch.Tensor):
    looked_at = Subject(model, Batch(inputs, torch.arange(len(inputs)) % 2), "net")
    reading = TangentLens()(looked_at, Randomness(0), silent)
    return reading, list(judge_kernel_condition(reading))


def network() -> nn.Sequential:
    return drawn(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)))


def noise(count: int = 24) -> torch.Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(2))


def test_a_head_at_zero_has_a_kernel_of_few_directions_and_is_no_finding():
    model = network()
    nn.init.zeros_(model[2].weight)
    reading, findings = found(model, noise())
    assert torch.linalg.matrix_rank(reading.kernel.double(), rtol=1e-5) <= 9
    assert reading.condition_number > 1e6
    assert findings == []


def test_a_linear_model_of_few_inputs_is_no_finding():
    _, findings = found(drawn(nn.Linear(6, 2)), noise())
    assert findings == []


def test_samples_that_the_network_cannot_tell_apart_are_counted():
    inputs = noise(6)
    inputs[4:, 1:] = inputs[3, 1:]  # three samples that differ only in what the network does not see
    model = network()
    with torch.no_grad():
        model[0].weight[:, 0] = 0
    blind = nn.Sequential(Blind(), model)
    _, findings = found(blind, inputs)
    assert findings[0].severity == "warning" and findings[0].number == 3
    assert findings[0].sentence.startswith("3 pairs of different samples have the same gradient")
    assert found(model, inputs)[1] == []


def test_copies_are_no_fault_of_the_network():
    inputs = noise(6)
    inputs[4], inputs[5] = inputs[3], 2 * inputs[3]
    without_shifts = drawn(nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 2, bias=False)))
    reading, findings = found(without_shifts, inputs)
    assert reading.correlations[3, 5] > 1 - 1e-6 and findings == []


class Blind(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([0.0, 1, 1, 1, 1, 1])


@pytest.mark.parametrize(("condition", "said"), [(9e3, 0), (2e4, 1)])
def test_a_badly_conditioned_kernel_is_a_note(condition, said):
    findings = list(judge_kernel_condition(reading_of(torch.diag(torch.tensor([condition, 1.0])))))
    assert [finding.severity for finding in findings] == ["note"] * said
