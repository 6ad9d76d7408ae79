"""The number that is taken again is the one that the finding told, and it moves when the fault is gone."""

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.report.lenses import QUANTITIES, RULES, find
from skiplens.signal.reading import Growth, SignalReading
from tests.report import planted
from tests.report.readings import signal
from tests.sample_readings import jacobians, structure


def told_and_measured(readings, rule: str) -> tuple[float, float]:
    (finding,) = (found for found in find(readings) if found.rule == rule)
    (asked,) = (one for one in RULES if one.name == rule)
    needed = [next(r for r in readings if type(r) is kind) for kind in asked.needs]
    return finding.number, QUANTITIES[rule].measure(finding, *needed)


@pytest.mark.parametrize(
    ("rule", "net"),
    [
        ("signal_growth", planted.exploding),
        ("flat_branches", planted.triple_zero),
        ("dead_branches", planted.dead),
        ("dropout_on", lambda: nn.Sequential(planted.healthy(2), planted.Thinning())),
    ],
)
def test_it_is_the_number_of_the_finding(rule, net):
    told, measured = told_and_measured(sl.inspect(net(), planted.data(), lenses=["structure"]).readings, rule)
    assert measured == pytest.approx(told, rel=1e-12)


def test_growth_of_the_gradient():
    told, measured = told_and_measured([signal(blocks=8, back=1.5)], "gradient_growth")
    assert measured == pytest.approx(told, rel=1e-12)


def test_projections_and_lost_directions():
    values = {"a": torch.tensor([1.5, 1.0]), "b": torch.tensor([2.0, 0.0]), "network": torch.tensor([2.0, 1.0, 0.5])}
    readings = [structure(), jacobians(singular_values=values)]
    assert told_and_measured(readings, "projection_shortcuts") == (1, 1)
    assert told_and_measured(readings, "lost_directions") == (0.5, 0.5)


def test_every_quantity_belongs_to_a_rule():
    assert set(QUANTITIES) <= {rule.name for rule in RULES}


def test_a_growth_over_all_blocks_is_the_one_that_was_measured():
    """A jump that the median of slopes passes over is in the total, and in the words of the finding."""
    values = torch.tensor([2.0**place for place in range(9)])[:, None].repeat(1, 4)
    values[-1] *= 10
    grown: SignalReading = signal(blocks=8, signal=values)
    assert grown.signal_growth.over(8) == pytest.approx(2560)
    assert grown.signal_growth.over(4) == pytest.approx(16) and "×2,560 over all 8" in signal_rule(grown).sentence
    assert Growth(100.0, 100.0, 100.0).over(8) == float("inf")


def signal_rule(reading: SignalReading):
    (finding,) = (found for found in find([reading]) if found.rule == "signal_growth")
    return finding
