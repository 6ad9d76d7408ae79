import pytest
import torch

from skiplens.curvature.reading import HessianSpectrum
from skiplens.curvature.report import RULES
from tests.sample_readings import curvature

(RULE,) = RULES


def hessian(condition: float) -> HessianSpectrum:
    """Ten eigenvalues, of which a tenth are 1/condition of the others."""
    values = torch.cat([torch.tensor([2 / condition]), torch.full((9,), 2.0)])
    extremes = {"largest": 2.0, "smallest": 2 / condition, "condition_interval": (condition, condition)}
    return curvature(eigenvalues=values, nodes=values, weights=torch.full((10,), 0.1), **extremes)


def test_ten_thousand_is_the_threshold():
    assert RULE([hessian(9e3)]) == []
    (found,) = RULE([hessian(2e4)])
    assert found.severity == "note" and found.number == pytest.approx(2e4)
    assert "2/|λ|max = 1," in found.change and "diverge" not in found.change


def test_what_chance_may_explain_is_not_told():
    assert RULE([curvature(condition_interval=(5e3, float("inf")))]) == []
