import pytest
import torch

from skiplens.findings.curvature import RULES
from skiplens.readings import HessianSpectrum

(RULE,) = RULES


def hessian(condition: float) -> HessianSpectrum:
    """Ten eigenvalues from 1/condition to 1."""
    values = torch.cat([torch.tensor([1 / condition]), torch.ones(9)])
    return HessianSpectrum(
        of="hessian",
        method="exact",
        parameters=10,
        samples=1,
        loss=1.0,
        gradient_norm=1.0,
        eigenvalues=values,
        nodes=values,
        weights=torch.full((10,), 0.1),
        largest=1.0,
        smallest=1 / condition,
        trace=9.0,
        frobenius_norm=3.0,
        condition_interval=(condition, condition),
        index_interval=(0.0, 0.0),
        flat_interval=(0.0, 0.0),
        grid=torch.zeros(0),
        density=torch.zeros(0),
        density_error=torch.zeros(0),
        smoothing_width=1.0,
        rounding=1e-12,
    )


def test_ten_thousand_is_the_threshold():
    assert RULE([hessian(9e3)]) == []
    (found,) = RULE([hessian(2e4)])
    assert found.severity == "note" and found.number == pytest.approx(2e4)
    assert "2/|λ|max = 2 diverge" in found.change
