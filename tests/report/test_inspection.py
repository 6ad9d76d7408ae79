import copy

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.base.errors import InvalidInputError, NotResidualError
from skiplens.base.memory import budget_bytes
from skiplens.base.words import in_words
from skiplens.graph.lens import Lens
from skiplens.readings.finding import Finding
from skiplens.report import Report
from skiplens.report.page import Problem
from skiplens.signal.layers import LayerStates
from skiplens.signal.reading import SignalReading
from skiplens.signal.structure import StructureLens, StructureReading
from skiplens.tangent.reading import TangentReading
from tests.lens_cases import subject
from tests.sample_readings import structure


class Undecided(nn.Module):
    """Goes one way or the other by what NumPy makes of its input, which `torch.export` cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if x.detach().numpy().sum() > 0 else -self.layer(x)


def test_all_lenses_report_on_a_healthy_model(tmp_path):
    looked_at = subject()
    before = copy.deepcopy(looked_at.model.state_dict())
    report = sl.inspect(looked_at.model, looked_at.batch)
    assert report.problems == () and report.title == "Sequential"
    assert report.reading(StructureReading) is not None and report.reading(TangentReading) is not None
    assert all(torch.equal(before[name], value) for name, value in looked_at.model.state_dict().items())
    assert 6e5 < report.save(tmp_path / "report.html").stat().st_size < 2.6e6


def test_only_the_wanted_lenses_and_those_that_always_come_look():
    looked_at = subject()
    report = sl.inspect(looked_at.model, looked_at.batch, lenses=["structure"])
    assert [type(reading) for reading in report.readings] == [StructureReading, SignalReading, LayerStates]


def test_what_one_lens_cannot_measure_is_a_problem_and_the_others_go_on(tmp_path):
    looked_at = subject()
    report = sl.inspect(Undecided(), looked_at.batch, name="undecided")
    problems = {problem.lens: problem.message for problem in report.problems}
    assert problems.keys() == {"paths", "jacobians", "convergence"}
    assert all("cannot be exported" in message for message in problems.values())
    assert "Healthy." not in report.verdict
    assert report.reading(StructureReading) is not None and report.reading(TangentReading) is not None
    assert "Could not be measured" in report.save(tmp_path / "r.html").read_text()


def test_an_interruption_leaves_a_report_of_what_was_finished():
    looked_at = subject()

    def stop(label, done, total):
        if label == "tangent: tangent kernel":
            raise KeyboardInterrupt

    report = sl.inspect(looked_at.model, looked_at.batch, lenses=["tangent"], progress=stop)
    assert [type(reading) for reading in report.readings] == [StructureReading, SignalReading, LayerStates]
    assert report.problems[0].lens == "tangent" and "interrupted" in report.problems[0].message
    assert report.verdict.startswith("Not enough measured (2 of 3): the lens tangent did not finish.")


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        ("a string", (torch.ones(2, 4), torch.tensor([0, 1])), "a torch.nn.Module instance was wanted"),
        (nn.Linear(3, 2), (torch.ones(2, 4), torch.tensor([0, 1])), "cannot be called with these inputs"),
        (nn.Linear(4, 2), (torch.ones(2, 4, dtype=torch.int64), torch.tensor([0, 1])), "cannot be called with these"),
        (nn.Linear(4, 2), 7, r"Wanted \(inputs, targets\)"),
        (nn.Linear(4, 2), [], "no batches"),
        (nn.Linear(4, 2), (torch.ones(2, 4), torch.tensor([0, 1, 1])), "2 inputs but 3 targets"),
    ],
)
def test_bad_input_is_one_clear_error(model, data, message):
    with pytest.raises(InvalidInputError, match=message):
        sl.inspect(model, data)


def test_an_unknown_lens_is_named():
    looked_at = subject()
    with pytest.raises(InvalidInputError, match=r"There is no lens 'tangnt'\. Did you mean tangent"):
        sl.inspect(looked_at.model, looked_at.batch, lenses=["tangnt"])


class Starving(Lens):
    """Runs out of memory until its budget is at most a quarter of the usual one."""

    name, question = "starving", "Is there enough?"

    def __call__(self, subject, randomness, progress):
        if budget_bytes("cpu", 1024) > 256:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return StructureLens()(subject, randomness, progress)


class Faulty(Lens):
    """Has a bug."""

    name, question = "faulty", "Does it work?"

    def __call__(self, subject, randomness, progress):
        return in_words("block 7")


def test_a_lens_that_runs_out_of_memory_looks_again_in_smaller_pieces(monkeypatch):
    monkeypatch.setattr("skiplens.report.inspection.choose", lambda names: (Starving(),))
    looked_at, told = subject(), list[str]()
    report = sl.inspect(looked_at.model, looked_at.batch, progress=lambda label, done, total: told.append(label))
    assert report.problems == () and report.reading(StructureReading) is not None
    assert "starving: out of memory, again with 25.0 % of the budget." in told


def test_a_fault_in_one_lens_does_not_lose_what_the_others_saw(monkeypatch, tmp_path):
    monkeypatch.setattr("skiplens.report.inspection.choose", lambda names: (Faulty(), StructureLens()))
    looked_at = subject()
    report = sl.inspect(looked_at.model, looked_at.batch)
    assert report.reading(StructureReading) is not None
    assert "Please report it (TypeError: " in report.problems[0].message
    said = "Nothing serious was found in what was measured."
    assert report.verdict == f"Not known to be healthy: the lens faulty did not finish. {said}"
    assert 'class="verdict severity-unknown"' in report.save(tmp_path / "report.html").read_text()


def test_a_lens_for_other_models_leaves_the_network_healthy_as_far_as_could_be_measured(monkeypatch, tmp_path):
    class Elsewhere(Faulty):
        def __call__(self, subject, randomness, progress):
            raise NotResidualError("There is no join.")

    monkeypatch.setattr("skiplens.report.inspection.choose", lambda names: (Elsewhere(), StructureLens()))
    looked_at = subject()
    report = sl.inspect(looked_at.model, looked_at.batch)
    assert report.verdict == "Healthy as far as could be measured: faulty cannot look at this model with this data."
    report.write(tmp_path)
    assert Report.load(tmp_path).verdict == report.verdict
    assert 'class="verdict severity-none"' in (tmp_path / "report.html").read_text()


def test_what_was_found_goes_before_what_could_not_be_measured():
    found = Finding("rule", "warning", "It is so.", 1.0, 0.0, "source", "change")
    report = Report("net", (structure(),), (Problem("faulty", "It broke."),), (found,))
    assert report.verdict == "Warning: It is so."
