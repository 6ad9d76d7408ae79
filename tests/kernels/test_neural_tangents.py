"""Against neural-tangents; `record_neural_tangents.py` made the values."""

import json
from pathlib import Path

import pytest
import torch

from skiplens.kernels.arc_cosine import Correlation, correlation_of_angle, correlation_of_supplement
from skiplens.kernels.infinite_network import infinite_densenet, infinite_resnet, infinite_vanilla
from tests.tolerances import assert_close

RECORDED = json.loads(Path(__file__).with_name("neural_tangents.json").read_text())


def limit(case, outer):
    if case["name"] == "resnet":
        scales = torch.full((case["depth"],), case["branch_scale"]) ** case["branch_depth"]
        return infinite_resnet(scales, case["branch_depth"], outer)
    return {"densenet": infinite_densenet, "vanilla": infinite_vanilla}[case["name"]](case["depth"], outer)


def correlation():
    angles = torch.tensor(RECORDED["angles"])
    near, far = correlation_of_angle(angles), correlation_of_supplement(torch.pi - angles)
    return Correlation(*(torch.where(angles < 1.5, a, b) for a, b in zip(near, far, strict=True)))


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: f"{case['name']}{case['depth']}")
def test_same_kernels_as_neural_tangents(case):
    frozen, everything = limit(case, False), limit(case, True)
    scale = frozen.log_scale.exp()
    nngp, ntk = (scale * kernel for kernel in frozen.recursion(correlation()))
    for found, name in (
        (nngp, "nngp"),
        (ntk, "ntk_branches"),
        (scale * everything.recursion(correlation()).ntk, "ntk_all"),
    ):
        expected = torch.tensor(case[name])
        assert_close(found[1:], expected[1:])
        # at equal inputs neural-tangents takes arccos of 1 − 2e-16, an angle of 2e-8 that the slope multiplies
        assert_close(found[:1], expected[:1], relative=1e-7)
