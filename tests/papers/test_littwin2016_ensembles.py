"""Whole-number sums against tables from elsewhere, measures against closed forms, every item once."""

import math
from fractions import Fraction

import pytest
import torch

from skiplens.base.errors import DidNotConverge
from skiplens.base.randomness import Randomness
from skiplens.graph.dissect import dissect
from skiplens.papers.littwin2016_ensembles import (
    depth_during_training,
    fig1abc,
    fig1d_fig1e,
    fig1f_thm5,
    lemma4,
    thm1_thm2,
    thm3_thm4,
)
from skiplens.papers.littwin2016_ensembles.common import SIZES, Sizes, judge_always
from skiplens.papers.littwin2016_ensembles.depth_during_training import (
    Images,
    image_network,
)
from skiplens.papers.littwin2016_ensembles.fig1abc import Weights
from skiplens.papers.littwin2016_ensembles.fig1d_fig1e import Gaussians, Moments
from skiplens.papers.littwin2016_ensembles.fig1f_thm5 import Counts, FiniteSize, Mixtures
from skiplens.papers.littwin2016_ensembles.lemma4 import Reach, Slopes
from skiplens.papers.littwin2016_ensembles.thm1_thm2 import Normaliser, PeakFormulas, Peaks, Spectra, Tails
from skiplens.papers.littwin2016_ensembles.thm3_thm4 import Descents, TwoPaths
from skiplens.papers.reproduction import ReproductionEffort, reproduce
from skiplens.papers.statistics import LEVEL
from skiplens.papers.study import choose
from skiplens.paths.laws import rectified_branch_energies
from skiplens.readings.reading import Measurement, Provenance
from tests.tolerances import STANDARD_ERRORS, assert_close

ITEMS = ["fig1a", "fig1b", "fig1c", "fig1d", "fig1e", "fig1f", "thm1", "thm2", "lemma4", "thm3", "thm4", "thm5"]
CERTAIN_AT_SMOKE = {
    "fig1a/peak": "reproduced",
    "fig1b/formula": "reproduced",
    "fig1c/side": "reproduced",
    "fig1f/increase": "reproduced",
    "fig1f/linear_term": "corrected",
    "thm1/limit": "reproduced",
    "thm1/proof": "corrected",
    "thm2/concentration": "reproduced",
    "thm2/speed": "reproduced",
    "thm2/legendre": "corrected",
    "lemma4/any_depth": "reproduced",
    "lemma4/derivative": "corrected",
    "thm3/unskipped": "reproduced",
    "thm3/skipped": "reproduced",
    "thm3/equation_41": "corrected",
    "thm4/dominant": "reproduced",
    "thm4/equation_45": "corrected",
    "thm4/always": "corrected",
    "thm5/maximiser": "reproduced",
    "thm5/equation_48": "corrected",
    "thm5/network": "reproduced",
}
"""What even the smallest preset decides, whatever the seed."""

HALF = Fraction(1, 2)


def test_no_item_of_the_paper_is_missing():
    assert [item.name for _, item in choose("littwin2016_ensembles")] == [*ITEMS, "depth_during_training"]


def test_whole_numbers_give_the_tabulated_weights():
    """Sixteen digits from another program."""
    expected = [0.3650533180770203, 0.7301066361540406, 0.5475799771155305, 0.1825266590385102, 0.02281583237981377]
    assert_close(fig1abc.exact_weights(5, HALF), torch.tensor(expected))
    assert_close(fig1abc.exact_weights(5, 1 / HALF).flip(0), torch.tensor(expected))


@pytest.mark.parametrize(
    ("depth", "ratio", "expected"),
    [
        (100, Fraction(1, 10), (10,)),
        (100, HALF, (34,)),
        (100, Fraction(2), (67,)),
        (99, HALF, (33, 34)),
        (1, HALF, (1,)),
    ],
)
def test_whole_numbers_give_the_tabulated_peaks(depth, ratio, expected):
    assert fig1abc.exact_peaks(depth, ratio) == expected


@pytest.mark.parametrize(
    ("depth", "ratio", "band", "outside"),
    [
        (100, Fraction(1, 10), (8, 10), 0.4759575),
        (100, HALF, (27, 40), 0.03614904),
        (1000, HALF, (267, 400), 2.669670e-10),
        (1000, Fraction(2), (534, 800), 2.113404e-35),
    ],
)
def test_whole_numbers_give_the_tabulated_tails(depth, ratio, band, outside):
    assert fig1abc.band_around_peak(depth, ratio, thm1_thm2.MARGIN) == band
    assert fig1abc.exact_energy_outside(depth, ratio, *band) == pytest.approx(outside, rel=1e-6)


@pytest.mark.parametrize(
    ("depth", "ratio", "shortest", "expected"),
    [
        (100, Fraction(1, 100), 2, 1.3338081727862),
        (100, Fraction(1, 100), 1, 0.98019801980198),
        (100, HALF, 2, 33.242168240387),
        (10, Fraction(1), 2, 4.7165951781728),
    ],
)
def test_whole_numbers_give_the_tabulated_curvature_ratios(depth, ratio, shortest, expected):
    assert fig1abc.exact_curvature_ratio(depth, ratio, shortest) == pytest.approx(expected, rel=1e-12)


def test_weights_are_those_of_whole_numbers():
    found = fig1abc.weights(Weights(depth=30, depth_ratio=0.3))
    assert_close(found["weight"], found["exact_weight"])
    assert found["length"].tolist() == list(range(1, 31))


def test_peaks_are_never_farther_than_one_length():
    found = thm1_thm2.peaks(Peaks(depth_ratio=0.7, depths=(10, 57, 1000)))
    assert found["peak"].tolist() == [5.0, 24.0, 412.0]
    assert float(found["lengths_off"].abs().max()) <= 1


def test_formulas_for_the_peak():
    """At p = 2 and β = 1 both lengths tie, and C(2, r) has its peak at r = 1 alone."""
    found = thm1_thm2.peak_formulas(PeakFormulas(largest=6))
    assert int(found["missed"]) == 0 < int(found["missed_by_proof"])
    assert int(found["cases"]) == 6 * len({Fraction(a, b) for a in range(1, 7) for b in range(1, 7)})
    assert fig1abc.exact_peaks(2, Fraction(1)) == (1, 2)
    assert fig1abc.exact_peaks(2, Fraction(1), top=0) == (1,)


def test_tails_are_those_of_whole_numbers():
    found = thm1_thm2.tails(Tails(depths=(100, 400, 2000), summed_up_to=400))
    assert_close(found["log_outside"][:2], found["exact_log_outside"][:2])
    assert found["exact_log_outside"][2].isnan()
    assert float(found["limiting_rate"]) == pytest.approx(2 * 9.7123e-3, rel=1e-4)


def test_the_normaliser_as_printed_has_one_term_too_many():
    found = thm1_thm2.normaliser(Normaliser())
    assert float(found["printed"] - found["proof_sum"]) == pytest.approx(1.0, abs=1e-12)
    assert float(found["corrected"]) == pytest.approx(0.2468996649, rel=1e-9)
    assert float(found["sum"]) == pytest.approx(0.2468996649, rel=1e-9)


def test_every_length_can_be_the_peak():
    found = lemma4.reach(Reach(depth=7))
    assert found["peak"].tolist() == found["wanted"].tolist() == list(range(1, 8))
    assert not found["tied"].any()


def test_slopes_of_the_weights_are_the_corrected_ones():
    found = lemma4.slopes(Slopes(depth=12, depth_ratio=0.4))
    assert_close(found["corrected"], found["difference"], relative=1e-8)
    assert float(found["corrected"][0]) < 0 < float(found["printed"][0])


@pytest.mark.parametrize(("short", "long", "spins"), [(2, 4, 8), (3, 5, 6)])
def test_layer_scales_grow_by_the_leading_order(short, long, spins, seed):
    found = thm3_thm4.layer_steps(TwoPaths(short=short, long=long, spins=spins, losses=3, seed=seed))
    for layer in ("unskipped", "skipped"):
        errors = (found[layer] / found[f"{layer}_predicted"][:, None] - 1).abs()
        assert float(errors[:, -1].max()) < 2e-3
        assert bool((errors[:, 0] > 20 * errors[:, -1]).all()), "the error falls with the step, so the order is right"


def test_the_slope_in_the_scale_is_equation_25(seed):
    found = thm3_thm4.scale_steps(TwoPaths(losses=4, seed=seed))
    assert_close(found["slope"][:, -1], found["predicted"], relative=2e-3)
    assert not torch.allclose(found["slope"][:, -1], found["printed_as_45"], rtol=0.01)
    assert_close(found["norm_growth"][:, 0], torch.ones(4), relative=1e-9)


def test_opposed_gradients_drive_the_scale_down(seed):
    """κ = 3/4 for m = 2, p = 4: (1 - κ)(pκ - m) = 1/4."""
    found = thm3_thm4.scale_steps(TwoPaths(losses=3, seed=seed))["opposed"]
    assert_close(found, torch.full((3,), 0.25), relative=1e-3)


def test_descents_start_flat_and_follow_the_scale(seed):
    found = thm3_thm4.descents(Descents(steps=10, every=5, seed=seed))
    assert found["step"].tolist() == [0, 5, 10]
    assert float(found["weight_scale"][0]) == pytest.approx(1.0)
    grown = found["weight_scale"].diff().sign()
    assert torch.equal(found["mean_length"].diff().sign(), grown)


@pytest.mark.parametrize(("order", "expected"), [(3, 0.01324025694663932), (10, 0.2986122886681097)])
def test_pure_models_have_the_tabulated_complexity(order, expected):
    pure = torch.zeros(1, order - 1)
    pure[0, -1] = 1.0
    assert float(fig1f_thm5.equation_46(pure)) == pytest.approx(expected, rel=1e-12)
    assert fig1f_thm5.equation_31(order - 1) == pytest.approx(expected, rel=1e-12)


def test_climbing_mixtures_end_at_the_pure_model(seed):
    found = fig1f_thm5.climbs(Mixtures(order=6, draws=50, starts=4, seed=seed))
    top = fig1f_thm5.equation_31(5)
    assert float(found["lowest_climbed"]) == pytest.approx(top, rel=1e-9)
    assert float(found["random"]) < top


def test_minima_are_as_many_as_expected(seed):
    """Pure 3-spin with two spins has √7 minima on average; counts spread by less than 1."""
    samples = 200
    found = fig1f_thm5.counts(Counts(depth=3, pure=True, samples=samples, seed=seed))
    assert float(found["expected_minima"]) == pytest.approx(math.sqrt(7), rel=1e-9)
    assert abs(float(found["minima"]) - math.sqrt(7)) < STANDARD_ERRORS / samples**0.5
    assert int(found["inconsistent"]) == 0


def test_minima_on_the_sphere_are_found_with_saddles(seed):
    """Pure 2-spin: two minima, two saddles, two maxima, always."""
    found = fig1f_thm5.counts(Counts(depth=2, pure=True, spins=3, samples=2, seed=seed))
    assert (float(found["minima"]), float(found["total"])) == (2.0, 6.0)


def test_the_linear_term_leaves_one_minimum():
    found = fig1f_thm5.finite_size(FiniteSize(spins=(5, 20)))
    assert float(found["printed"][0]) < 0 < float(found["log_minima"][1]) < float(found["log_minima"][0])


def test_random_networks_follow_their_laws(seed):
    relu = thm1_thm2.spectra(Spectra(width=100, blocks=8, samples=16, seed=seed))
    assert float(relu["squared_binomial_distance"]) < float(relu["binomial_distance"])
    zero_mean = thm1_thm2.spectra(Spectra(width=100, blocks=8, samples=16, branch="two_layer", seed=seed))
    assert float(zero_mean["binomial_distance"]) < float(zero_mean["squared_binomial_distance"])


def test_mean_squares_grow_by_one_only_where_branches_are_centred(seed):
    """From another program, for width 600: 1.48, 4.83, 11.6 as printed; 1, 2, 3 centred."""
    literal = fig1d_fig1e.moments(Moments(depth=3, seed=seed))["mean_square"]
    assert_close(literal, torch.tensor([1.48, 4.83, 11.6]), relative=0.1)
    centred = fig1d_fig1e.moments(Moments(depth=3, scaling="centred", seed=seed))["mean_square"]
    assert_close(centred, torch.tensor([1.0, 2.0, 3.0]), relative=0.1)


def test_factors_move_the_depth_and_leave_no_trace(seed):
    """A factor of the weights matters, one of batch-norm scales does not; the second factor 1 is like the first."""
    found = thm1_thm2.spectra(Spectra(width=32, blocks=4, samples=16, factors=(1.0, 5.0, 1.0), seed=seed))
    assert float(found["mean"][1]) > float(found["mean"][0]) + 0.5
    assert torch.equal(found["share"][0], found["share"][2])
    scaled = thm1_thm2.spectra(
        Spectra(width=32, blocks=4, samples=16, scaling="centred", factors=(1.0, 3.0, 1.0), seed=seed)
    )
    assert float(scaled["mean"][1]) == pytest.approx(float(scaled["mean"][0]), abs=1e-3)
    assert torch.equal(scaled["share"][0], scaled["share"][2])


def test_gaussians_start_as_theory_says(seed):
    """Scales at 1, weights of norm 0.3·√(64·10) (their law), and the mean-field length of a centred network."""
    plain = fig1d_fig1e.gaussians(Gaussians(setting="plain", looks=(0, 2), seed=seed))
    assert float(plain["weight_norm"][0]) == pytest.approx(0.3 * math.sqrt(640), rel=0.05)
    assert plain["scale"].shape == (2, 0)
    centred = fig1d_fig1e.gaussians(Gaussians(setting="centred", looks=(0, 2), seed=seed))
    assert torch.equal(centred["scale"][0], torch.ones(10))
    energies = rectified_branch_energies(torch.ones(10))
    expected = 1 + float(energies / energies.sum() @ torch.arange(len(energies), dtype=energies.dtype))
    assert float(centred["mean_length"][0]) == pytest.approx(expected, abs=0.6)
    assert not torch.equal(centred["scale"][1], torch.ones(10))


def test_a_run_that_diverges_is_an_error(monkeypatch):
    wild = fig1d_fig1e.GaussianSetting({"weight_scale": 3.0}, "means", 1e6, (0, 20))
    monkeypatch.setitem(fig1d_fig1e.SETTINGS, "plain", wild)
    with pytest.raises(DidNotConverge, match="The training run ended early"):
        fig1d_fig1e.gaussians(Gaussians(setting="plain", looks=(0, 20)))


@pytest.mark.parametrize(("network", "normalised"), [("conv", True), ("dense", True), ("dense", False)])
def test_images_are_followed_through_all_blocks(network, normalised):
    settings = Images(network=network, normalised=normalised, blocks=2, width=4, training=128, test=64, looks=(0, 2))
    found = depth_during_training.images(settings)
    assert found["share"].shape == (2, 3)
    assert_close(found["share"].sum(1), torch.ones(2))
    assert bool(found["mean_scale"].isnan().all()) != normalised
    if normalised:
        assert float(found["mean_scale"][0]) == pytest.approx(1.0)


def test_image_networks_without_batch_norm_start_shallow():
    depths = []
    for blocks in (2, 8):
        settings = Images(network="conv", normalised=False, blocks=blocks, looks=(0, 1), training=64, test=64)
        depths.append(float(depth_during_training.images(settings)["mean_depth"][0]) / blocks)
    assert depths[1] < depths[0] < 0.5


def test_image_networks_have_the_blocks_they_are_asked_for():
    for network in ("conv", "dense"):
        settings = Images(network=network, blocks=3, width=4)
        model = image_network(settings, (3, 8, 8), Randomness(0))
        assert len(dissect(model, torch.randn(4, 3, 8, 8, dtype=torch.float32)).blocks) == 3


def test_few_replicates_do_not_say_always():
    assert judge_always([torch.tensor(1.0)] * 4, "").verdict == "not attempted"
    assert judge_always([torch.tensor(1.0)] * 5, "").verdict == "reproduced"
    assert judge_always([torch.tensor(0.5)] * 5, "").verdict == "differs"
    once_not = judge_always([*[torch.tensor(1.0)] * 9, torch.tensor(0.5)], "Said.")
    assert (once_not.verdict, once_not.ours, once_not.explanation) == (
        *("differs", pytest.approx(0.95)),
        "Said. It held throughout 9 of 10 runs.",
    )
    assert 1 - judge_always([torch.tensor(1.0)] * 10, "").uncertainty == pytest.approx((LEVEL / 2) ** 0.1)


def trained(scales, lengths):
    """A reading of training on Gaussians with the given scales (looks, layers) and mean lengths (looks)."""
    arrays = {"scale": torch.tensor(scales), "mean_length": torch.tensor(lengths)}
    provenance = Provenance.begin({"setting": "literal"}, 0).end()
    return Measurement(name="x:gaussians", arrays=arrays, provenance=provenance)


@pytest.mark.parametrize(
    ("last", "growth", "every_layer", "first_layer"),
    [
        ((1.6, 1.3), "reproduced", "reproduced", "reproduced"),
        ((1.6, 0.9), "reproduced", "differs", "reproduced"),
        ((0.8, 0.9), "opposite", "differs", "opposite"),
    ],
)
def test_scales_are_judged_by_what_they_do(last, growth, every_layer, first_layer):
    readings = [
        trained([[1.0, 1.0], [last[0] + noise, last[1]]], [3.0, 2.0]) for noise in (0.0, 0.001, 0.002, 0.001, 0.0)
    ]
    assert fig1d_fig1e.judge_growth(readings, "literal").verdict == growth
    assert fig1d_fig1e.judge_every_layer(readings, "literal").verdict == every_layer
    assert fig1d_fig1e.judge_first_layer(readings, "literal").verdict == first_layer
    deeper = fig1d_fig1e.judge_deeper_with_scales(readings, "literal")
    assert "corrected statement" not in deeper.explanation
    assert (deeper.verdict, deeper.ours) == ("opposite", -1.0)


def test_runs_have_streams_of_their_own_and_the_same_run_the_same_numbers():
    first, again, other = (fig1f_thm5.climbs(Mixtures(order=4, draws=20, replicate=i))["random"] for i in (0, 0, 1))
    assert first == again != other


def test_without_data_nothing_is_attempted(monkeypatch):
    reason = "mnist is not on this machine; get it with: skiplens data get mnist"
    monkeypatch.setattr(depth_during_training, "missing", lambda name: reason)
    assert depth_during_training.runs("paper", 0) == []
    for claim in depth_during_training.CLAIMS:
        judgement = claim.judge([])
        assert judgement.verdict == "not attempted"
        assert "skiplens data get mnist" in judgement.explanation
    assert depth_during_training.figures([]) == ()


def test_the_paper_preset_asks_for_a_gpu_where_it_trains_on_images(monkeypatch):
    monkeypatch.setattr(depth_during_training, "missing", lambda name: "")
    asked = depth_during_training.runs("paper", 0)
    assert {run.needs.gpus for run in asked} == {1}
    assert {run.settings.images for run in asked} == {"mnist", "cifar10"}


@pytest.mark.slow
def test_every_item_runs_with_tiny_samples(tmp_path, monkeypatch, seed):
    monkeypatch.setitem(SIZES, "smoke", Sizes(2, 2, 2, 16, 50))
    monkeypatch.setitem(thm1_thm2.LARGEST, "smoke", 4)
    monkeypatch.setattr(fig1f_thm5, "ORDERS", (3, 10))
    monkeypatch.setitem(fig1f_thm5.COUNTED, "smoke", (3, 2))
    found = reproduce(choose("littwin2016_ensembles"), tmp_path, ReproductionEffort("smoke", seed))
    assert not [problem for result in found.results for problem in result.problems]
    assert all(result.figures and result.tables for result in found.results)


@pytest.mark.slow
def test_the_smallest_preset_decides_what_is_certain(tmp_path, seed):
    found = reproduce(choose("littwin2016_ensembles"), tmp_path, ReproductionEffort("smoke", seed))
    words = {f"{verdict.item}/{verdict.claim}": verdict.verdict for verdict in found.verdicts}
    assert {name: words[name] for name in CERTAIN_AT_SMOKE} == CERTAIN_AT_SMOKE
    assert "differs" not in words.values()
    assert not found.changed
