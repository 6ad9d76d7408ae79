import pytest

from skiplens.report.lenses import find
from tests.report.readings import signal


def rules(**changes):
    return {found.rule: found for found in find([signal(**changes)])}


def test_values_that_are_not_finite_are_critical():
    found = rules(broken=("parameter w", "output"))["not_finite"]
    assert found.severity == "critical" and "NaN or infinite: parameter w, output" in found.sentence


def test_dropout_is_a_warning_and_eval_removes_it():
    found = rules(dropout=("drop",), repeat_difference=0.5)
    assert set(found) == {"dropout_on"} and found["dropout_on"].code == "model.eval()"
    assert "in 1 place (drop)" in found["dropout_on"].sentence


@pytest.mark.parametrize(("difference", "fires"), [(1e-4, False), (1e-3, True)])
def test_calls_that_disagree_beyond_half_of_the_digits(difference, fires):
    assert ("not_repeatable" in rules(repeat_difference=difference)) == fires


def test_a_model_in_evaluation_mode_is_not_told_to_go_there():
    found = rules(repeat_difference=0.5, training=False)["not_repeatable"]
    assert not found.code and found.remedy is None and "in evaluation mode already" in found.change
    assert rules(repeat_difference=0.5, training=True)["not_repeatable"].code == "model.eval()"


def test_statistics_that_were_never_learned_are_a_note():
    found = rules(fresh_norms=("a", "b"))["fresh_statistics"]
    assert found.severity == "note" and found.sentence.startswith("2 batch norms are in evaluation mode")
    assert found.remedy.parameters["modules"] == ("a", "b")
