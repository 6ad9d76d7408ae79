from skiplens.jacobians.hypotheses.report import HypothesesReading, convergence_section
from skiplens.report.lenses import find


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
    assert said == ("S1 fails. Change S1.", "S5 fails. Change S5.", "G1 fails. Change G1.")
    assert find([reading]) == ()
