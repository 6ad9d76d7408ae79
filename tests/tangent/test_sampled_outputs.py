import pytest
import torch
from torch import nn

from skiplens.base.progress import silent
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import Batch
from skiplens.graph.lens import Subject
from skiplens.tangent.comparison import kernel_of_some_outputs
from skiplens.tangent.empirical import empirical_ntk
from skiplens.tangent.report import TangentLens, tangent_section
from tests.networks import drawn, noise
from tests.tolerances import STANDARD_ERRORS, assert_close


def network(outputs: int = 30) -> nn.Module:
    return drawn(nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, outputs)))


def test_all_outputs_give_the_kernel_itself(generator):
    model, inputs = network(), noise(4, 3)
    kernel, _ = kernel_of_some_outputs(model, inputs, torch.randperm(30, generator=generator), 30, False, silent)
    assert_close(kernel, empirical_ntk(model, inputs), relative=1e-12)


def test_the_estimate_is_unbiased_and_its_error_is_the_scatter(generator):
    """Every output alone, each an estimate of the sum: their mean is the kernel, their spread the error of one."""
    model, inputs = network(), noise(4, 3)
    each = torch.stack([30 * empirical_ntk(model, inputs, outputs=o) for o in range(30)])
    kernel, error = kernel_of_some_outputs(model, inputs, torch.arange(30), 30, False, silent)
    assert_close(kernel, each.mean(0), relative=1e-12)
    assert_close(error, each.std(0) / 30**0.5, relative=1e-12)
    estimate, scatter = kernel_of_some_outputs(
        model, inputs, torch.randperm(30, generator=generator)[:10], 30, False, silent
    )
    assert bool(((estimate - kernel).abs() <= STANDARD_ERRORS * scatter).all())


@pytest.mark.parametrize(("outputs", "sampled"), [(64, 0), (65, 8)])
def test_the_lens_samples_where_outputs_are_many_and_says_so(outputs, sampled):
    looked_at = Subject(network(outputs).eval(), Batch(noise(4, 3), torch.arange(4)), "wide")
    reading = TangentLens()(looked_at, Randomness(0), silent)
    assert (reading.outputs, reading.sampled_outputs) == (outputs, sampled)
    told = any("estimated from 8 of 65 outputs, drawn at random" in note for note in reading.notes)
    assert told == bool(sampled) and reading.kernel_error.numel() == 16 * bool(sampled)
    assert ("±" in dict(tangent_section(reading).facts)["mean of the diagonal"]) == bool(sampled)
