import math

import pytest
import torch

from skiplens.plots.figure import Band
from skiplens.plots.matplotlib_file import save_figure
from skiplens.readings.file import read_file, write_file
from skiplens.report.during_training.along import QuantityAlong, quantities_along
from skiplens.report.lenses import figures_of
from skiplens.training.history import TrainingHistory


def history(losses, rates=None, steps_per_epoch=1, **changes) -> TrainingHistory:
    losses = torch.tensor(losses)
    rates = torch.full_like(losses, 0.1) if rates is None else torch.tensor(rates)
    return TrainingHistory(losses=losses, learning_rates=rates, steps_per_epoch=steps_per_epoch, **changes)


def test_a_run_shows_its_losses():
    (figure,) = figures_of(history([4.0, 3.0, 2.0]))
    (line,) = figure.marks
    assert line.y == (4.0, 3.0, 2.0) and line.x == (0.0, 1.0, 2.0) and "the run finished" in figure.caption
    assert not figure.y_log and figures_of(history([100.0, 1.0]))[0].y_log


def test_epochs_are_means_in_their_middle():
    (figure,) = figures_of(history([4.0, 2.0, 3.0, 1.0, 9.0], steps_per_epoch=2))
    steps, epochs = figure.marks
    assert steps.name == "each step"
    assert epochs.x == (1.0, 3.0) and epochs.y == (3.0, 2.0)


def test_long_runs_are_drawn_by_epoch():
    (figure,) = figures_of(history([1.0] * 6000, steps_per_epoch=60))
    (epochs,) = figure.marks
    assert len(epochs.y) == 100


def test_an_early_end_is_told_and_an_empty_run_has_no_figure():
    (figure,) = figures_of(history([4.0, 3.0], outcome="diverged at step 2: the loss is nan"))
    assert "ended early: diverged at step 2" in figure.caption
    assert figures_of(history([])) == ()


def test_a_changing_rate_is_shown():
    _, rates = figures_of(history([4.0, 3.0], [0.1, 0.01]))
    assert rates.marks[0].y == pytest.approx((0.1, 0.01))


def along(values, name="condition number", along="loss") -> QuantityAlong:
    return QuantityAlong(name=name, along=along, places=torch.tensor([2.0, 1.0]), by_run=torch.tensor(values))


def test_a_quantity_has_its_mean_and_its_range(tmp_path):
    (figure,) = figures_of(along([[1.0, 10.0], [3.0, 30.0]]))
    points, band = figure.marks
    assert points.y == (2.0, 20.0) and points.error == pytest.approx((1.0, 10.0))
    assert isinstance(band, Band) and band.low == (1.0, 10.0) and band.high == (3.0, 30.0)
    assert figure.x_label == "training loss" and not figure.y_log and figure.name == "condition_number_by_loss"
    save_figure(figure, tmp_path / "along.png")


def test_a_quantity_survives_its_file(tmp_path):
    reading = along([[1.0, math.nan], [3.0, 30.0]])
    write_file(tmp_path / "along.npz", reading)
    back = read_file(tmp_path / "along.npz")
    assert torch.equal(back.runs, reading.runs) and torch.equal(back.lowest, torch.tensor([1.0, 30.0]))


def test_networks_are_compared_by_name():
    figure = quantities_along({"2-shortcut": along([[1.0, 2.0]]), "plain": along([[50.0, math.nan]])})
    assert [mark.name for mark in figure.marks] == ["2-shortcut", "plain"]
    assert figure.y_log and figure.marks[0].error == ()
    assert "after each number of steps" in quantities_along({"a": along([[1.0, 2.0]], along="step")}).caption
