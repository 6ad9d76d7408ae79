import pytest
import torch

from skiplens.report.lenses import find
from tests.report.readings import at, signal


def only(rule, **changes):
    found = [found for found in find([signal(**changes)]) if found.rule == rule]
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize(("order", "fires"), [(2, False), (3, True), (4, True)])
def test_three_zero_factors_in_series_are_flat(order, fires):
    found = only("flat_branches", zero_factors=at(8, 3, order).long())
    assert (found is not None) == fires
    if found:
        assert found.severity == "critical" and found.where == ("b3",) and found.number == order
        assert f"1 of 8 branches starts at a flat point, with {order} zero factors in series" in found.sentence


def test_the_remedy_of_a_flat_branch_leaves_the_last_layer_at_zero():
    remedy = only("flat_branches", zero_factors=at(8, 3, 3).long()).remedy
    assert remedy.parameters["drawn"] == ("b3.0.weight",)
    assert set(remedy.parameters["zeros"]) == {"b3.0.bias", "b3.1.bias", "b3.1.weight"}


def test_a_branch_without_gradient_is_dead():
    found = only("dead_branches", branch_gradients=at(8, 2, 0.0, 1.0))
    assert found.severity == "critical" and found.where == ("b2",)
    assert "1 of 8 branches gets no gradient and cannot learn (block b2)" in found.sentence


def test_a_small_gradient_is_not_dead():
    assert only("dead_branches", branch_gradients=at(8, 2, 1e-6, 1.0)) is None
    assert only("dead_branches", branch_gradients=at(8, 2, 1e-8, 1.0)) is not None  # below float32's rounding


def test_a_branch_that_learns_as_slowly_as_all_before_a_small_scale_is_not_dead():
    """As before the class attention of CaiT, behind which the stream is multiplied by 1e-4."""
    small = torch.tensor([1e-9] * 4 + [1.0] * 5)[:, None].expand(9, 4)
    weak = {"branch_gradients": torch.tensor([1e-9] * 3 + [1.0] * 5), "gradient": small}
    assert only("dead_branches", **weak) is None
    inner = {"outermost": (True, False, True, True, True, True, True, True), "gradient": small[1:]}
    assert only("dead_branches", **weak | inner) is None
    assert only("dead_branches", **weak | {"branch_gradients": at(8, 1, 1e-17, 1.0)}) is not None


def test_a_few_units_may_be_shut_by_chance():
    changes = {"branch_gradients": at(8, 2, 0.0, 1.0), "dead_units": at(8, 2, 1.0)}
    assert only("dead_branches", **changes, dead_widths=torch.full((8,), 10)).severity == "critical"
    assert only("dead_branches", **changes, dead_widths=torch.full((8,), 9)).severity == "note"


def test_without_statistics_shut_units_are_noted():
    assert only("dead_branches", branch_gradients=at(8, 2, 0.0, 1.0), fresh_norms=("bn",)).severity == "note"
    assert only("dead_units", dead_units=at(8, 1, 0.8), fresh_norms=("bn",)).severity == "note"


@pytest.mark.parametrize(
    "changes",
    [
        {"gradient": torch.zeros(9, 4), "branch_gradients": torch.zeros(8)},
        {"branch_gradients": torch.zeros(8)},
        {"branch_gradients": at(8, 2, 0.0, 1.0), "matrices": ((),) * 8},
        {"branch_gradients": at(8, 2, 0.0, 1.0), "broken": ("output",)},
        {"branch_gradients": at(8, 2, 0.0, 1.0), "zero_factors": at(8, 2, 3).long()},
    ],
    ids=["a head of zeros", "no gradient anywhere", "nothing to learn", "not finite", "flat is told instead"],
)
def test_what_is_not_a_dead_branch(changes):
    assert only("dead_branches", **changes) is None


def test_dead_units_must_be_more_than_chance():
    """Four standard deviations above one half: 75 % of 64 units, and never fewer than 16 units."""
    assert only("dead_units", dead_units=at(8, 1, 0.74)) is None
    found = only("dead_units", dead_units=at(8, 1, 0.8))
    assert found.severity == "warning" and found.threshold == pytest.approx(0.75) and found.where == ("b1",)
    assert "80 % of the 64 ReLUs of a layer in block b1 are zero on all 4 samples" in found.sentence
    assert only("dead_units", dead_units=at(8, 1, 1.0), dead_widths=torch.full((8,), 8)) is None


def test_dead_units_of_a_dead_branch_are_told_once():
    changes = {"dead_units": at(8, 1, 1.0), "branch_gradients": at(8, 1, 0.0, 1.0)}
    assert only("dead_units", **changes) is None and only("dead_branches", **changes) is not None


def test_saturated_units():
    assert only("saturated_units", saturated_units=at(8, 1, 0.4)) is None
    found = only("saturated_units", saturated_units=at(8, 1, 0.9))
    assert found.severity == "warning" and "Up to 90 %" in found.sentence
