"""How many layers a shortcut should pass by: equal parameters, and judges that say what numbers say."""

import math

import pytest
import torch

from skiplens.papers.ours.shortcut_depth import CLAIMS, NORMS, SHORTCUTS, Spanned, ended, figures, runs
from skiplens.zoo.blueprint import Blueprint
from tests.papers.li2016_shortcuts.fake_readings import fake, judged

REPLICATES = 12


def readings(doubling=0.0, without=1.5, wrong=0):
    """ln(loss) that rises by `doubling` a doubled span, and is higher by `without`; `wrong` forecasts prefer none."""
    found, noise = [], torch.Generator().manual_seed(0)
    for norm in NORMS:
        for replicate in range(REPLICATES):
            for span in SHORTCUTS:
                level = without if span == 0 else doubling * math.log2(span)
                end = level + 0.02 * torch.randn((), generator=noise, dtype=torch.float64)
                score = -9.0 if span == 0 and replicate < wrong else level
                settings = Spanned(shortcut=span, norm=norm, replicate=replicate).to_json()
                found.append(fake("ended", settings, end=end, score=torch.tensor(score, dtype=torch.float64)))
    return found


def test_what_was_planted_is_what_every_claim_says():
    assert {claim.judge(readings()).verdict for claim in CLAIMS} == {"reproduced"}


@pytest.mark.parametrize(
    ("name", "planted", "word"),
    [
        ("needed_none", {"without": -1.5}, "opposite"),
        ("needed_batch", {"without": -1.5}, "opposite"),
        ("alike_none", {"doubling": 0.5}, "differs"),
        ("alike_batch", {"doubling": -0.5}, "differs"),
        ("forecast_knows", {"wrong": REPLICATES}, "differs"),
        ("forecast_knows", {"wrong": REPLICATES // 2}, "not attempted"),
    ],
)
def test_the_contrary_is_said_where_it_is_planted(name, planted, word):
    assert judged(CLAIMS, name, readings(**planted)).verdict == word


def test_a_doubling_is_the_slope_of_least_squares():
    assert judged(CLAIMS, "alike_none", readings(doubling=0.1)).ours == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("norm", NORMS)
def test_all_networks_of_a_norm_have_the_same_parameters(norm):
    counts = set()
    for span in SHORTCUTS:
        network = Blueprint("mlp", (256,), 10, 26, 48, span, "plain", norm).build(0)
        counts.add(sum(parameter.numel() for parameter in network.parameters()))
    assert len(counts) == 1


def test_a_run_tells_the_end_and_the_score():
    found = ended(Spanned(shortcut=2, steps=80))
    assert set(found) == {"end", "score"} and all(math.isfinite(float(value)) for value in found.values())


def test_every_span_is_run_with_and_without_norm():
    settings = {(run.settings.shortcut, run.settings.norm) for run in runs("laptop", 0)}
    assert settings == {(span, norm) for span in SHORTCUTS for norm in NORMS}


def test_the_figures_have_a_point_for_every_span():
    for figure in figures(readings()):
        assert [points.x for points in figure.marks] == [tuple(map(float, SHORTCUTS))] * 2
