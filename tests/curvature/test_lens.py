import contextlib

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.base.memory import CEILING
from skiplens.base.progress import silent
from skiplens.base.randomness import Randomness
from skiplens.curvature.reading import HessianSpectrum
from skiplens.curvature.report import CurvatureEffort, CurvatureLens
from skiplens.graph.batch import Batch
from skiplens.graph.lens import OPERATIONS, Subject
from tests.lens_cases import Block, subject
from tests.networks import drawn, noise


@contextlib.contextmanager
def ceiling(size):
    token = CEILING.set(size)
    try:
        yield
    finally:
        CEILING.reset(token)


def looked(model, batch, **options):
    return CurvatureLens(**options)(Subject(model, batch, "net"), Randomness(0), silent)


def test_the_lens_samples_the_hessian_of_the_fitting_loss():
    looked_at = subject()
    reading = CurvatureLens()(looked_at, Randomness(0), silent)
    exact = sl.hessian_spectrum(looked_at.model, looked_at.batch, loss="cross_entropy")
    assert reading.method == "lanczos" and reading.loss == pytest.approx(exact.loss)
    assert reading.index_interval[0] <= exact.index_beyond_rounding <= reading.index_interval[1]
    # 16 steps of 124: the outermost nodes are within their residuals of eigenvalues.
    assert abs(reading.largest - exact.largest) <= reading.extreme_residuals[-1] + 1e-12
    assert set(reading.blocks) == {"0", "1"}
    assert "over 6 of 6 samples" in reading.notes[0] and "3 random vectors and 16 products" in reading.notes[0]


def test_numbers_as_targets_take_the_mean_square():
    model = drawn(nn.Sequential(nn.Linear(3, 2)))
    batch = Batch(noise(5, 3), noise(5, 2, seed=1))
    reading = looked(model, batch)
    assert reading.provenance.settings["loss"] == "mse" and reading.method == "exact" and reading.blocks == {}
    assert reading.loss == pytest.approx(nn.functional.mse_loss(model(batch.inputs), batch.targets).item())


def test_a_large_model_gets_less_effort():
    looked_at = subject()
    asked = {"large_from": 10, "large_effort": CurvatureEffort(samples=2, probes=2, steps=5)}
    reading = looked(looked_at.model, looked_at.batch, **asked)
    assert reading.samples == 2 and reading.steps == 5 and reading.blocks == {}


def test_a_large_model_whose_passes_are_cheap_gets_the_memory_for_a_few_vectors():
    """As AlexNet and VGG, of which the usual budget does not hold six vectors of all parameters."""
    looked_at = subject()
    size = sum(parameter.nbytes for parameter in looked_at.model.parameters())
    with ceiling(8 * size):
        reading = looked(looked_at.model, looked_at.batch, large_from=10)
    assert reading.steps == 12 and reading.samples == 6 and reading.method == "lanczos"


def test_many_blocks_are_not_looked_at_one_by_one():
    looked_at = subject()
    reading = looked(looked_at.model, looked_at.batch, most_blocks=1)
    assert reading.blocks == {} and reading.notes[-1] == "The 2 residual blocks were not looked at one by one."


def test_a_model_whose_graph_cannot_be_read_is_still_looked_at():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()

        def forward(self, x):
            return self.block(x) if x.detach().numpy().sum() > -1e9 else x

    batch = Batch(noise(6, 4), torch.tensor([0, 1, 2, 3, 0, 1]))
    reading = looked(drawn(Branching()).eval(), batch)
    assert reading.blocks == {} and "cannot be found" in reading.notes[-1]


def test_targets_that_do_not_fit_are_a_problem_of_the_report_alone():
    report = sl.inspect(subject().model, (noise(6, 4), noise(6, 3)), lenses=["curvature"])
    assert report.reading(HessianSpectrum) is None
    assert [problem.lens for problem in report.problems] == ["curvature"]
    assert "do not fit outputs of shape (6, 2)" in report.problems[0].message


def test_a_language_model_is_looked_at_through_its_tokens():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(5, 4), nn.Linear(4, 5)

        def forward(self, ids):
            return {"logits": self.head(self.embedding(ids))}

    ids = torch.tensor([[0, 1, 2], [3, 4, 0]])
    reading = looked(drawn(Tokens()), Batch(ids, ids.roll(-1, 1)))
    assert reading.samples == 2 and reading.largest > 0


def test_a_costly_model_gets_fewer_products_and_says_so(monkeypatch):
    """One sample and four steps for each of two vectors; trace and norm come from the density."""
    monkeypatch.setattr("skiplens.graph.lens.operations_of", lambda model, batch: OPERATIONS)
    looked_at = subject()
    reading = looked(looked_at.model.eval(), looked_at.batch, large_from=10)
    assert (reading.samples, reading.probes, reading.steps, reading.products) == (1, 2, 4, 8)
    assert "sampled with 2 random vectors and 4 products each" in reading.notes[0]
    assert any("1 instead of 6 samples" in note for note in reading.notes)
