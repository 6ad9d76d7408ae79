"""Figures 3 to 6 and tables 1 to 3: pairs of networks and what is said about them."""

import dataclasses

import pytest
import torch

from skiplens.papers.images import training_and_test
from skiplens.papers.macdonald2023_regularity import fig3_to_fig6, images
from skiplens.papers.macdonald2023_regularity.fig3_to_fig6 import ITEMS, TABLES, items, tables
from skiplens.papers.macdonald2023_regularity.images import SIZES, ImageTraining, Sizes
from skiplens.papers.macdonald2023_regularity.study import STUDY
from skiplens.papers.reproduction import ReproductionEffort, reproduce
from skiplens.readings.reading import Measurement, Provenance

NAMES = ["fig3", "fig4", "table1", "fig5", "table2", "fig6", "table3"]
TINY = ImageTraining(
    data="digits", epochs=2, milestones=(1,), images=32, test_images=20, side=8, width=4, batch_size=16
)


def reading(settings: ImageTraining, losses: list[float], accuracy: float = 0.9) -> Measurement:
    """What a run with these settings would have measured."""
    numbers = {"epoch_loss": losses, "accuracy": accuracy, "accuracy_batch_statistics": accuracy}
    return Measurement(
        name="images.measure:image_training",
        arrays={name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()},
        provenance=Provenance.begin(settings.to_json(), 0, "cpu").end(),
    )


def trials(original: float, modified: float, rate: float = 0.1, count: int = 10, **settings) -> list[Measurement]:
    """Final losses with a scatter that both networks of a trial share, and a little of their own."""
    return [
        reading(
            ImageTraining(modified=flag, learning_rate=rate, replicate=trial, **settings),
            [1.0, level * (1 + 0.1 * (trial % 3) + 0.01 * ((trial + flag) % 2))],
            0.9 + 0.0001 * trial,
        )
        for flag, level in ((False, original), (True, modified))
        for trial in range(count)
    ]


def judged(readings: list[Measurement], name: str, group=fig3_to_fig6.TABLE1):
    return next(claim for claim in group if claim.name == name).judge(readings)


def test_no_item_of_the_images_is_missing():
    assert [item.name for item in ITEMS] == NAMES
    assert set(NAMES) <= {item.name for item in STUDY.items}


def test_both_networks_of_a_trial_start_alike_and_draw_alike():
    original, modified = (dataclasses.replace(TINY, modified=flag) for flag in (False, True))
    first, second = (dict(images.network_of(s).named_parameters()) for s in (original, modified))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    assert images.recipe_of(original) == images.recipe_of(modified)
    other = dataclasses.replace(TINY, replicate=1)
    assert images.recipe_of(other).seed != images.recipe_of(original).seed


@pytest.mark.parametrize(("classes", "count"), [(10, 11_171_146), (100, 11_217_316)])
def test_the_network_has_as_many_parameters_as_the_paper_s(classes, count):
    network = images.network_of(ImageTraining(classes=classes, modified=True))
    assert sum(parameter.numel() for parameter in network.parameters()) == count


def test_a_run_gives_losses_and_accuracies_and_the_same_bits_again():
    first, again = (images.image_training(TINY) for _ in range(2))
    assert first["epoch_loss"].shape == (2,) and bool(torch.isfinite(first["epoch_loss"]).all())
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(
        first["epoch_loss"], images.image_training(dataclasses.replace(TINY, modified=True))["epoch_loss"]
    )


def test_a_run_that_diverges_has_no_losses_from_there_on():
    found = images.image_training(dataclasses.replace(TINY, learning_rate=1e30))
    assert torch.isnan(found["epoch_loss"][-1]) and 0 <= float(found["accuracy"]) <= 1


def test_the_training_is_that_of_the_authors_program():
    recipe = images.recipe_of(ImageTraining(gpu=True))
    assert (recipe.momentum, recipe.weight_decay, recipe.milestone_factor) == (0.0, 0.0, 0.2)
    assert (recipe.milestones, recipe.epochs, recipe.batch_size) == ((30, 60), 90, 128)
    assert (recipe.precision, recipe.channels_last, recipe.cuda_graph) == ("bfloat16", True, True)
    imagenet = images.recipe_of(ImageTraining(data="imagenet", classes=1000))
    assert (imagenet.momentum, imagenet.weight_decay, imagenet.milestone_factor) == (0.9, 1e-4, 0.1)
    assert imagenet.augmentation == "resized_crop_flip" and imagenet.batch_size is None


def test_runs_of_the_paper_preset_want_a_gpu_and_share_their_trials(monkeypatch):
    monkeypatch.setattr(images, "missing", lambda data: "")
    of_table = images.all_rates("cifar10", SIZES["paper"], 0)
    assert len(of_table) == 4 * 12 * 2 + 5 * 2 + 28 and {run.needs.gpus for run in of_table} == {1}
    of_figure = images.shown_rates(SIZES["paper"], 0)
    assert {run.key for run in of_figure if run.settings.data == "cifar10"} <= {run.key for run in of_table}
    imagenet = [run.settings for run in of_figure if run.settings.data == "imagenet"]
    assert len(imagenet) == 6 and {s.batch_size for s in imagenet} == {256}


@pytest.mark.parametrize(("modified", "verdict"), [(0.0022, "reproduced"), (0.0050, "opposite")])
def test_losses_are_compared_within_trials(modified, verdict):
    readings = trials(0.0032, modified)
    assert judged(readings, "final_loss_0_1").verdict == verdict
    assert judged(readings, "cifar10", fig3_to_fig6.FIG3).verdict == verdict
    assert judged(readings, "rate_0_1", fig3_to_fig6.FIG4).verdict == verdict


def test_at_the_smallest_rate_the_printed_loss_is_higher():
    assert judged(trials(0.0112, 0.0125, 0.02), "final_loss_0_02").verdict == "reproduced"
    assert judged(trials(0.0125, 0.0112, 0.02), "final_loss_0_02").verdict == "opposite"


def test_printed_losses_are_met_within_three_of_their_deviations():
    printed = TABLES["cifar10"][0.1].loss

    def cells(shift):
        return [
            reading(
                ImageTraining(modified=flag, replicate=trial),
                [number + (shift + 0.1 * (-1) ** trial) * deviation],
            )
            for flag, number, deviation in ((False, *printed[:2]), (True, *printed[2:]))
            for trial in range(10)
        ]

    assert judged(cells(1), "values_0_1").verdict == "reproduced"
    assert judged(cells(5), "values_0_1").verdict == "differs"


def test_a_diverged_network_takes_its_trial_out():
    readings = trials(0.0032, 0.0022)
    readings[0] = reading(ImageTraining(replicate=0), [1.0, torch.nan])
    assert judged(readings, "final_loss_0_1").verdict == "reproduced"
    assert judged(readings[:1] + readings[10:11], "final_loss_0_1").explanation.endswith("Too few trials ended.")


def test_the_share_of_networks_that_fail():
    assert judged(trials(0.003, 0.002, 0.2, count=40), "unstable").verdict == "differs"
    few = judged(trials(0.003, 0.002, 0.2), "unstable")  # none of ten: six of ten are not ruled out
    assert (few.verdict, few.ours) == ("not attempted", 0.0) and few.uncertainty > 0.6
    assert judged(trials(0.003, 0.002, 0.2, epochs=3), "unstable").verdict == "not attempted"
    failing = [
        reading(
            ImageTraining(data="imagenet", classes=1000, modified=True, learning_rate=0.2, replicate=t), [torch.nan]
        )
        for t in range(30)
    ]
    assert judged(failing, "unstable", fig3_to_fig6.FIG6).verdict == "reproduced"
    assert judged(failing[:3], "unstable", fig3_to_fig6.FIG6).verdict == "not attempted"


@pytest.mark.parametrize(("spread", "verdict"), [(1.0, "reproduced"), (3.0, "opposite"), (1.3, "differs")])
def test_whether_the_learning_rate_matters_on_cifar100(spread, verdict):
    readings = [
        run
        for rate, factor in ((0.2, 1.0), (0.1, 1.0), (0.05, 1.0), (0.02, spread))
        for run in trials(0.015 * factor, 0.012 * factor, rate, data="cifar100", classes=100)
    ]
    assert judged(readings, "learning_rates", fig3_to_fig6.TABLE2).verdict == verdict


def test_small_runs_decide_nothing_and_say_why():
    small = trials(0.0032, 0.0022, images=256, width=8)
    found = judged(small, "final_loss_0_1")
    assert found.verdict == "not attempted" and "width 8 on 256 images" in found.explanation
    found = judged(trials(0.0032, 0.0022, data="digits"), "final_loss_0_1")
    assert "trains on embedded digits, not on cifar10" in found.explanation
    few = judged(trials(0.0032, 0.0022, epochs=3), "values_0_1")
    assert few.verdict == "not attempted" and "have 3 epochs instead of 90" in few.explanation


def test_the_table_of_means_has_the_paper_s_numbers_beside_ours():
    _, means = tables(trials(0.0030, 0.0020))
    first, second = means.rows
    assert (first["printed_final_loss"], second["printed_final_loss"]) == (0.0032, 0.0022)
    assert first["final_loss"] == pytest.approx(0.0030 * (1 + 0.09 + 0.005), rel=1e-6) and first["trials"] == 10
    assert tables([]) == ()


def test_a_figure_has_both_networks_and_says_what_was_trained_on():
    figure = fig3_to_fig6.rate_curves(trials(0.003, 0.002, images=256), "cifar10", "Figure 4")[0]
    assert [mark.name for mark in figure.marks if mark.name] == [name for _, name in fig3_to_fig6.SERIES]
    assert "256 images of CIFAR-10" in figure.title


def test_a_learning_rate_at_which_all_diverge_is_drawn_as_a_gap():
    readings = [
        reading(ImageTraining(modified=flag, replicate=trial, learning_rate=rate), [2.0, loss])
        for flag in (False, True)
        for trial in range(3)
        for rate, loss in ((0.2, torch.nan), (0.1, 0.1))
    ]
    points = fig3_to_fig6.final_losses(readings, "cifar10", "Table 1")[0].marks[0]
    assert points.y[0] == pytest.approx(0.1) and points.y[1] != points.y[1]
    assert tables(readings)[1].rows[0]["diverged"] == 3


def test_without_the_data_nothing_is_attempted_and_nothing_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("SKIPLENS_CACHE", str(tmp_path))
    monkeypatch.delenv("SKIPLENS_DATA", raising=False)
    found = reproduce([(STUDY, item) for item in ITEMS], tmp_path / "out", ReproductionEffort("laptop"))
    assert {verdict.verdict for verdict in found.verdicts} == {"not attempted"}
    said = {verdict.item: verdict.explanation for verdict in found.verdicts}
    assert "skiplens data get cifar10" in said["table1"] and "skiplens data get cifar100" in said["table2"]
    assert "name the folder above with SKIPLENS_DATA" in said["table3"]
    assert not any(result.problems or result.figures for result in found.results)


def test_imagenet_is_trained_on_where_there_is_a_folder(tmp_path, monkeypatch):
    """A dozen coloured images of two classes: the whole way from files to figures."""
    image = pytest.importorskip("PIL.Image")
    for split in ("train", "val"):
        for name, colour in (("n01", (200, 30, 30)), ("n02", (30, 30, 200))):
            (tmp_path / "imagenet" / split / name).mkdir(parents=True)
            for index in range(4):
                image.new("RGB", (50 + index, 45), colour).save(tmp_path / "imagenet" / split / name / f"{index}.png")
    monkeypatch.setenv("SKIPLENS_DATA", str(tmp_path))
    training_and_test.cache_clear()
    tiny = dataclasses.replace(SIZES["smoke"].training, epochs=1, batch_size=4, width=2)
    small = Sizes(2, tiny, digits=True, learning_rates=(0.1,))
    chosen = [item for item in items({"smoke": small}) if item.name in ("fig6", "table3")]
    found = reproduce([(STUDY, item) for item in chosen], tmp_path / "out", ReproductionEffort("smoke"))
    assert not [problem for result in found.results for problem in result.problems]
    assert all(result.figures and result.tables for result in found.results)
    assert {verdict.verdict for verdict in found.verdicts} == {"not attempted"}
    training_and_test.cache_clear()


def every_item_runs(chosen, folder, seed):
    found = reproduce([(STUDY, item) for item in chosen], folder, ReproductionEffort("smoke", seed))
    assert not [problem for result in found.results for problem in result.problems]
    drawn = {result.item.name for result in found.results if result.figures and result.tables}
    assert drawn == set(NAMES) - {"fig6", "table3"}
    assert {verdict.verdict for verdict in found.verdicts} == {"not attempted"}


def test_every_item_runs_with_tiny_networks(tmp_path, monkeypatch, seed):
    monkeypatch.delenv("SKIPLENS_DATA", raising=False)
    tiny = dataclasses.replace(TINY, epochs=1, images=16, width=2)
    every_item_runs(items({"smoke": Sizes(2, tiny, digits=True, learning_rates=(0.1, 0.05))}), tmp_path, seed)


@pytest.mark.slow
def test_every_item_runs_at_the_smallest_preset(tmp_path, monkeypatch, seed):
    monkeypatch.delenv("SKIPLENS_DATA", raising=False)
    every_item_runs(ITEMS, tmp_path, seed)
