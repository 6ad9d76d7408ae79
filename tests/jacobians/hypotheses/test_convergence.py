from skiplens.jacobians.hypotheses.report import RULES, HypothesesReading

(RULE,) = RULES


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


def test_failing_hypotheses_are_named_with_their_changes():
    (found,) = RULE([hypotheses("fails", "fails", "holds", "fails")])
    assert found.severity == "note" and found.where == ("S1", "S5", "G1") and found.number == 3
    assert "3 of 4 hypotheses fail, above all S1." in found.sentence
    assert found.change == "S1 (what S1 says): Change S1."


def test_where_nothing_fails_nothing_is_said():
    assert RULE([hypotheses("holds", "holds", "cannot be decided", "cannot be decided")]) == []


def test_consequences_alone_are_told():
    (found,) = RULE([hypotheses("holds", "fails", "holds", "fails")])
    assert "above all S5, G1." in found.sentence
