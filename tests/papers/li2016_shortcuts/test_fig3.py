"""Figure 3: the measure at its start, the same networks at any preset, judges that can say no."""

import math

import pytest
import torch

from skiplens.papers.li2016_shortcuts import fig3_fig4
from skiplens.papers.li2016_shortcuts.fig3_fig4 import CLAIM_EPOCHS, NormHistory
from tests.papers.li2016_shortcuts.fake_readings import fake


@pytest.mark.parametrize("activation", ["identity", "relu"])
def test_norms_start_at_a_hundredth_of_xaviers(activation, seed):
    """‖W‖_F of 100 entries of variance 1e-5 is 0.0316 with a standard deviation of 7 %; 80 of them have 0.8 %."""
    settings = NormHistory(
        activation=activation, depth=16, networks=5, epochs=10, source="sample", samples=50, seed=seed
    )
    found = fig3_fig4.norm_history(settings)
    assert found["epoch"].tolist() == [0, 10]
    assert found["norm"].shape == found["loss"].shape == (2, 5)
    assert float(found["norm"][0].mean()) == pytest.approx(0.0316, rel=0.04)
    assert (found["loss"][1] < found["loss"][0]).all()


def histories(exponent: float) -> list:
    epochs = torch.tensor([0, *CLAIM_EPOCHS])
    return [
        fake(
            "norm_history",
            {"activation": "identity", "depth": depth},
            epoch=epochs,
            norm=torch.full((len(epochs), 3), 4.0 * depth**exponent),
        )
        for depth in (4, 16, 64)
    ]


@pytest.mark.parametrize(
    ("exponent", "decrease", "end"),
    [(-0.4, "reproduced", "reproduced"), (-0.1, "reproduced", "differs"), (0.1, "opposite", "differs")],
)
def test_the_judges_of_norms(exponent, decrease, end):
    readings = histories(exponent)
    assert fig3_fig4.judge_decrease(readings, "identity").verdict == decrease
    assert fig3_fig4.judge_end(readings, "identity").verdict == end
    assert fig3_fig4.judge_end(readings, "identity").ours == pytest.approx(exponent, rel=1e-9)


def test_every_panel_has_two_claims():
    names = [claim.name for claim in fig3_fig4.FIG3]
    assert names == ["linear_decrease", "linear_end", "relu_decrease", "relu_end"]
    assert math.isclose(fig3_fig4.EXPONENT.low, -0.5)
