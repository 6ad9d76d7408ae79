"""Figures 2 and 9: networks, norms and claims."""

import dataclasses
import math

import pytest
import torch

from skiplens.papers.li2016_shortcuts import fig2_fig9
from skiplens.papers.li2016_shortcuts.fig2_fig9 import ITEMS, SIZES, ShortcutTraining
from skiplens.papers.li2016_shortcuts.study import STUDY
from skiplens.papers.reproduction import ReproductionEffort, reproduce
from skiplens.readings.reading import Measurement, Provenance
from tests.papers.li2016_shortcuts.fake_readings import judged

TINY = ShortcutTraining(data="digits", depth=8, epochs=2, milestones=(1,), images=32, test_images=20, side=8, width=4)
PARAMETERS = {38: 561_370, 110: 1_727_962}


def reading(settings: ShortcutTraining, **arrays) -> Measurement:
    """What a run with these settings would have measured."""
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in arrays.items()}
    provenance = Provenance.begin(settings.to_json(), 0, "cpu").end()
    return Measurement(name="images.measure:shortcut_training", arrays=tensors, provenance=provenance)


def trained(epochs=164, **settings) -> ShortcutTraining:
    return ShortcutTraining(epochs=epochs, **settings)


@pytest.mark.parametrize(("depth", "shortcut_depth"), [(38, 1), (38, 2), (38, 3), (38, 4), (38, 6), (110, 1), (110, 4)])
def test_the_parameters_are_those_of_the_table_at_every_shortcut_depth(depth, shortcut_depth):
    network = fig2_fig9.network_of(ShortcutTraining(depth=depth, shortcut_depth=shortcut_depth))
    assert sum(parameter.numel() for parameter in network.parameters()) == PARAMETERS[depth]


def test_first_norms_are_those_of_the_law():
    """‖W‖_F is √(2 inputs) in the mean: N(0, 2/(9 outputs)) has 9 inputs outputs entries."""
    network = fig2_fig9.network_of(ShortcutTraining(depth=38))
    inputs = [3] + [16] * 12 + [16] + [32] * 11 + [32] + [64] * 11
    expected = sum(math.sqrt(2 * count) for count in inputs) / len(inputs)
    assert fig2_fig9.mean_convolution_norm(network) == pytest.approx(expected, rel=0.02)


def test_the_norm_is_recorded_at_the_start_and_after_each_epoch():
    found = fig2_fig9.shortcut_training(TINY)
    start = fig2_fig9.mean_convolution_norm(fig2_fig9.network_of(TINY).float())
    assert found["norm"].shape == (3,) and float(found["norm"][0]) == pytest.approx(start, rel=1e-6)
    assert len(set(found["norm"].tolist())) == 3
    assert torch.isnan(found["epoch_loss"][0]) and bool(torch.isfinite(found["epoch_loss"][1:]).all())
    assert 0 <= float(found["error"]) <= 1


def test_the_same_run_gives_the_same_bits_and_another_replicate_others():
    first, again = (fig2_fig9.shortcut_training(TINY)["norm"] for _ in range(2))
    other = fig2_fig9.shortcut_training(dataclasses.replace(TINY, replicate=1))["norm"]
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_batch_norm_takes_the_scale_of_the_convolutions_out():
    network = fig2_fig9.network_of(TINY)
    images = torch.randn(10, 3, 8, 8)
    assert fig2_fig9.change_when_halved(network, images) < 1e-3
    bare = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3, bias=False), torch.nn.Flatten())
    assert float(fig2_fig9.change_when_halved(bare, images)) == pytest.approx(0.5)


def test_the_paper_trains_on_a_gpu_with_its_own_milestones(monkeypatch):
    sizes = dataclasses.replace(SIZES["paper"], base=dataclasses.replace(TINY, gpu=True))
    monkeypatch.setitem(SIZES, "paper", sizes)
    run = fig2_fig9.fig2_runs(fig2_fig9.SIZES["paper"], 0)[0]
    assert run.needs.gpus == 1 and run.settings.milestones == (5, 7) and run.settings.epochs == 10
    recipe = fig2_fig9.recipe_of(run.settings)
    assert (recipe.precision, recipe.channels_last, recipe.cuda_graph) == ("bfloat16", True, True)


SHORT = [(10, -0.5, "reproduced"), (10, 0.5, "not attempted"), (51, 0.5, "not attempted")]


@pytest.mark.parametrize(
    ("epochs", "step", "verdict"), [(164, -0.5, "reproduced"), (164, 0.5, "opposite"), (52, 0.5, "opposite"), *SHORT]
)
def test_norms_must_fall_with_depth_and_short_runs_refute_nothing(epochs, step, verdict):
    readings = [
        reading(trained(epochs, depth=depth, replicate=r), norm=[7.0, *[4 + step * place + 0.001 * r] * epochs])
        for place, depth in enumerate((20, 32, 44))
        for r in range(4)
    ]
    for claim in fig2_fig9.FIG2[:2]:
        found = claim.judge(readings)
        assert found.verdict == verdict
        assert ("Only from 52 epochs on" in found.explanation) == (verdict == "not attempted")


def errors(by_depth, **settings):
    """Test errors by depth and shortcut depth, with a little scatter."""
    return [
        reading(trained(depth=d, shortcut_depth=k, replicate=r, **settings), error=value + 1e-4 * (-1) ** r)
        for d, by_length in by_depth.items()
        for k, value in by_length.items()
        for r in range(10)
    ]


AS_PRINTED = {218: {1: 0.07, 2: 0.06, 3: 0.065, 4: 0.07, 6: 0.1}, 434: {1: 0.09, 2: 0.05, 3: 0.07, 4: 0.08, 6: 0.2}}
OTHERWISE = {218: {1: 0.07, 2: 0.06, 3: 0.065, 4: 0.07, 6: 0.05}, 434: {1: 0.05, 2: 0.07, 3: 0.06, 4: 0.06, 6: 0.05}}


@pytest.mark.parametrize(
    ("found", "verdict"), [(AS_PRINTED, ["reproduced"] * 3), (OTHERWISE, ["differs", "opposite", "opposite"])]
)
def test_errors_are_compared_as_the_paper_does(found, verdict):
    readings = errors(found)
    assert [claim.judge(readings).verdict for claim in fig2_fig9.FIG9[1:]] == verdict


def test_shallow_networks_say_nothing_about_extreme_depth():
    readings = errors({38: AS_PRINTED[218], 110: AS_PRINTED[434]})
    found = {claim.name: claim.judge(readings) for claim in fig2_fig9.FIG9[1:]}
    assert found["gain"].verdict == "not attempted" and "has 110 layers, more than 400" in found["gain"].explanation
    assert found["best"].verdict == "reproduced"


def test_another_number_of_parameters_is_noticed():
    readings = [reading(trained(depth=38, shortcut_depth=k), parameters=561_370 + (k == 3)) for k in (1, 2, 3, 4)]
    assert judged(fig2_fig9.FIG9, "parameters", readings).verdict == "differs"


def test_without_cifar_nothing_is_attempted_and_nothing_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("SKIPLENS_CACHE", str(tmp_path))
    monkeypatch.delenv("SKIPLENS_DATA", raising=False)
    found = reproduce([(STUDY, item) for item in ITEMS], tmp_path / "out", ReproductionEffort("laptop"))
    assert {verdict.verdict for verdict in found.verdicts} == {"not attempted"}
    assert all("skiplens data get cifar10" in verdict.explanation for verdict in found.verdicts)
    assert not any(result.problems or result.figures for result in found.results)


@pytest.mark.slow
def test_both_items_run_at_the_smallest_preset(tmp_path, seed):
    found = reproduce([(STUDY, item) for item in ITEMS], tmp_path, ReproductionEffort("smoke", seed))
    assert not [problem for result in found.results for problem in result.problems]
    assert all(result.figures and result.tables for result in found.results)
    words = {f"{verdict.item}/{verdict.claim}": verdict.verdict for verdict in found.verdicts}
    assert words.pop("fig2/responses") == "corrected" and words.pop("fig9/parameters") == "reproduced"
    assert set(words.values()) == {"not attempted"}
