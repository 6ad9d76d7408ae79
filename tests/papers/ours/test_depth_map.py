"""When training makes a network deeper: networks alike but for one thing, and judges that say what numbers say."""

import math

import pytest
import torch
from torch import nn

from skiplens.base.randomness import Randomness
from skiplens.papers.ours.depth_map import BODIES, CLAIMS, VARIED, Learner, figures, learnt, network_of, trunks
from tests.papers.li2016_shortcuts.fake_readings import fake, judged

REPLICATES = 8
GROWTH = {"pooled": 1.0, "flattened": -0.3, "dense": -1.5}  # by body
ALONE = {"pooled": 2.2, "flattened": 0.2, "dense": 0.1}  # loss of its trunk


def readings(growth=GROWTH, frozen_gain=0.8, plain_gain=1.5):
    """Runs whose depth grows by what the body says, more where the stem is frozen or nothing is normalised."""
    found, noise = [], torch.Generator().manual_seed(0)
    for replicate in range(REPLICATES):
        for body in BODIES:
            for changed in VARIED.values():
                settings = Learner(body=body, replicate=replicate, **changed).to_json()
                gain = frozen_gain * settings["frozen"] + plain_gain * (not settings["normalised"])
                grown = growth[body] + gain + 0.01 * torch.randn((), generator=noise, dtype=torch.float64)
                found.append(fake("learnt", settings, depth=torch.stack([2 + 0 * grown, 2 + grown]), loss=0.3))
            for frozen in (False, True):
                settings = Learner(body=body, replicate=replicate, blocks=0, frozen=frozen).to_json()
                found.append(fake("learnt", settings, loss=ALONE[body] + 0.5 * frozen))
    return found


def test_what_was_planted_is_what_every_claim_says():
    assert {claim.name: claim.judge(readings()).verdict for claim in CLAIMS} == {
        claim.name: "reproduced" for claim in CLAIMS
    }


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("pooled_usual", {"growth": {**GROWTH, "pooled": -1.0}}),
        ("dense_large_head", {"growth": {**GROWTH, "dense": 1.0}}),
        ("head", {"growth": {**GROWTH, "flattened": 2.0}}),
        ("stem", {"frozen_gain": -0.5}),
        ("norm", {"plain_gain": -0.5}),
        ("trunk", {"growth": {"pooled": -1.0, "flattened": 1.0, "dense": 1.0}, "frozen_gain": 0.0}),
    ],
)
def test_the_contrary_is_said_where_it_is_planted(name, planted):
    assert judged(CLAIMS, name, readings(**planted)).verdict == "opposite"


def test_the_slope_over_the_trunks_is_that_of_least_squares():
    alone, deepening = trunks(readings())
    assert alone.shape == deepening.shape == (REPLICATES, 6)
    centred = alone - alone.mean(1, keepdim=True)
    slopes = (centred * deepening).sum(1) / centred.square().sum(1)
    assert judged(CLAIMS, "trunk", readings()).ours == pytest.approx(float(slopes.mean()), rel=1e-12)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("changed", [*VARIED.values(), {"blocks": 0}], ids=str)
def test_networks_of_a_replicate_start_alike_but_for_what_is_changed(body, changed):
    usual, other = (
        network_of(settings, Randomness(0)).state_dict()
        for settings in (Learner(body=body), Learner(body=body, **changed))
    )
    shrunk = 1.0 if changed.get("normalised", True) else 1 / Learner().blocks
    for name, weights in other.items():
        if "blocks" in name and name.endswith("branch.0.weight") and "widening" not in changed:
            torch.testing.assert_close(weights, usual[name] * shrunk, rtol=1e-6, atol=0.0)  # one rounding of float32
        if "stem" in name and "widening" not in changed:
            assert torch.equal(weights, usual[name])
    assert any("blocks" in name for name in other) == (changed != {"blocks": 0})


def test_a_frozen_stem_is_not_trained_and_the_head_is_scaled():
    assert not any(p.requires_grad for p in network_of(Learner(frozen=True), Randomness(0)).stem.parameters())
    usual, large = (network_of(Learner(head=head), Randomness(0)).head[-1].weight for head in (1.0, 10.0))
    torch.testing.assert_close(large, 10 * usual)


def test_only_the_head_tells_a_pooled_network_from_a_flattened_one():
    pooled, flattened = (network_of(Learner(body=body), Randomness(0)) for body in BODIES[:2])
    assert torch.equal(pooled.stem[0].weight, flattened.stem[0].weight)
    assert [type(part) for part in pooled.head] == [nn.AdaptiveAvgPool2d, nn.Flatten, nn.Linear]
    assert [type(part) for part in flattened.head] == [nn.Flatten, nn.Linear]


def test_a_run_tells_depth_before_and_after_and_a_trunk_alone_its_loss():
    found = learnt(Learner(body="dense", steps=2))
    assert found["depth"].shape == (2,) and 0 < float(found["depth"].min()) <= Learner().blocks
    alone = learnt(Learner(body="dense", steps=2, blocks=0))
    assert set(alone) == {"loss"} and math.isfinite(float(alone["loss"]))


def test_the_figures_show_what_was_measured():
    by_change, by_trunk = figures(readings())
    assert [bars.name for bars in by_change.marks] == list(BODIES)
    assert by_change.marks[0].y[0] == pytest.approx(GROWTH["pooled"], abs=0.02)
    assert all(0 < error < 0.02 for bars in by_change.marks for error in bars.error)
    assert {points.name: points.x for points in by_trunk.marks} == {
        body: pytest.approx([loss, loss + 0.5]) for body, loss in ALONE.items()
    }
    assert by_trunk.marks[2].y == pytest.approx([GROWTH["dense"], GROWTH["dense"] + 0.8], abs=0.02)
