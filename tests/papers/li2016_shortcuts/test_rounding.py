import pytest
import torch

from skiplens.papers.li2016_shortcuts.common import judge_equality


@pytest.mark.parametrize(
    ("errors", "verdict"),
    [
        ([0.0, 0.0, 0.0], "reproduced"),
        ([1e-15, 2e-15, -3e-16, 1e-16, 5e-16, 4e-16], "reproduced"),
        ([1e-3, 2e-3, 1.5e-3, 1e-3], "differs"),
        ([1e-16, 1e-2, 1e-16, 1e-2], "not attempted"),
    ],
)
def test_errors_are_rounding_or_not(errors, verdict):
    assert judge_equality(torch.tensor(errors), "Something.").verdict == verdict
