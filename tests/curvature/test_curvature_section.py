import math

import pytest
import torch

from skiplens.curvature.report import curvature_section, curvature_sentence
from tests.sample_readings import curvature

ENDS = {"extreme_residuals": torch.zeros(2)}
FULL = "the steepest direction curves that many times more than the flattest tenth"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, f"The loss has condition number 8: {FULL}. It curves down in 40 % of all directions."),
        (
            {"condition_interval": (1e13, math.inf)},
            "At least a tenth of all directions is flat to working precision; the condition number is above 10¹³.",
        ),
        (
            {"method": "lanczos", **ENDS, "condition_interval": (20.0, math.inf), "index_interval": (0.0, 0.9)},
            "condition number of at least 20: ",
        ),
        (
            {"method": "lanczos", **ENDS, "condition_interval": (6.0, 9.0), "index_interval": (0.35, 0.45)},
            "between 6 and 9: " + FULL + ". It curves down in 35 to 45 % of all directions.",
        ),
        (
            {"method": "lanczos", **ENDS, "index_interval": (0.0, 0.9), "negative_mass_error": 0.02},
            "Of all its curvature 18.8 ± 2.0 % is downward; most directions are too flat to tell up from down.",
        ),
        ({"largest": 0.0, "smallest": 0.0, "nodes": torch.zeros(5)}, "does not curve at all"),
    ],
)
def test_the_spectrum_in_a_sentence(changes, words):
    assert words in curvature_sentence(curvature(**changes))


def test_the_facts_have_error_bars_where_they_are_sampled():
    reading = curvature(
        method="lanczos",
        trace_error=0.25,
        index_interval=(0.3, 0.5),
        condition_interval=(6.0, math.inf),
        extremes=torch.tensor([-1.0, 4.0]),
        extreme_residuals=torch.tensor([0.02, 0.01]),
    )
    facts = dict(curvature_section(reading).facts)
    assert facts["trace"] == "5.00 ± 0.25"
    assert facts["index (share of directions that lead down)"] == "40 % (95 %: 30 to 50 %)"
    assert facts["condition number (|λ|max over the 10 % quantile of |λ|)"] == "8 (95 %: 6 to ∞)"
    assert facts["largest eigenvalue"] == "4 (an eigenvalue lies within 0.01)"
    assert facts["smallest eigenvalue"] == "−1 (an eigenvalue lies within 0.02)"
    assert facts["step up to which the quadratic model of the loss falls (2/λmax)"] == "0.5"


def test_exact_facts_are_plain():
    facts = dict(curvature_section(curvature()).facts)
    assert facts["trace"] == "5" and facts["largest eigenvalue"] == "4"
    above = dict(curvature_section(curvature(condition_interval=(1e13, math.inf))).facts)
    assert above["condition number (|λ|max over the 10 % quantile of |λ|)"] == "above 10¹³"


def test_a_bowl_upside_down_has_no_largest_step():
    facts = dict(curvature_section(curvature(largest=-0.5, smallest=-1.0)).facts)
    assert facts["step up to which the quadratic model of the loss falls (2/λmax)"] == "any: no direction curves up"


def test_each_block_is_a_row():
    (row,) = curvature_section(curvature(block_values={"a": curvature().values()})).rows
    assert list(row.values()) == ["a", "5", "4", "−1"]
    sampled = curvature(method="lanczos", extreme_residuals=torch.tensor([0.25, 0.5]))
    (row,) = curvature_section(curvature(block_values={"a": sampled.values()})).rows
    assert list(row.values()) == ["a", "5", "4.00 ± 0.50", "−1.00 ± 0.25"]
