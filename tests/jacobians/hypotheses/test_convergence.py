from skiplens.base.randomness import Randomness
from skiplens.graph.batch import Batch
from skiplens.graph.lens import OPERATIONS, Subject
from skiplens.jacobians.hypotheses.model_check import PASSES, ConvergenceLens
from skiplens.jacobians.hypotheses.report import HypothesesReading, convergence_section
from skiplens.report.lenses import find
from tests.networks import LinearResidual, drawn, noise


def hypotheses(*verdicts: str) -> HypothesesReading:
    labels = ("S1", "S5", "R4", "G1")
    return HypothesesReading(
        model="Net",
        loss="cross-entropy",
        layers=(),
        labels=labels,
        statements=tuple(f"what {label} says" for label in labels),
        verdicts=verdicts,
        numbers=(1.0, None, None, None),
        meanings=("kinks", "", "", ""),
        where=("layer",) * 4,
        reasons=("",) * 4,
        changes=tuple(f"Change {label}." for label in labels),
        codes=("",) * 4,
        conclusion="Nothing is certified.",
    )


def test_failing_hypotheses_are_on_the_page_with_their_changes_and_are_no_finding():
    reading = hypotheses("fails", "fails", "holds", "fails")
    said = convergence_section(reading).notes[1:]
    assert said == tuple(f"“{reading[one]['statement']}” fails. Change {one}." for one in ("S1", "S5", "G1"))
    assert find([reading]) == ()


def test_slopes_of_a_costly_model_come_from_fewer_samples_and_it_is_said(monkeypatch):
    monkeypatch.setattr("skiplens.graph.lens.operations_of", lambda model, batch: OPERATIONS / PASSES)
    net, batch = drawn(LinearResidual(2, 3)).eval(), Batch(noise(5, 3), noise(5, 3))
    reading = ConvergenceLens()(Subject(net, batch, "costly"), Randomness(0))
    said = "A pass is costly, so the slopes of branches were measured with 1 instead of 4 samples."
    assert reading.notes == (said,) and said in convergence_section(reading).notes
    monkeypatch.undo()
    assert ConvergenceLens()(Subject(net, batch, "cheap"), Randomness(0)).notes == ()
