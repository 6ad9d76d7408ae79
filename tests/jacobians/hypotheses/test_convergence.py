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
    changes = [row["what would make it hold"] for row in convergence_section(reading).rows]
    assert changes == ["Change S1.", "Change S5.", "", "Change G1."]
    assert find([reading]) == ()
