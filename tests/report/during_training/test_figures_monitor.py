import math

import torch

from skiplens.plots.figure import Band, Line
from skiplens.report.during_training.page import (
    curvature_while_training,
    jacobian_while_training,
    scales_while_training,
)
from skiplens.report.during_training.record import MonitorReading
from skiplens.report.lenses import figures_of

NAN = math.nan


def reading(**changes) -> MonitorReading:
    """Three looks; the curvature was skipped at the second, and the second block has no scale."""
    values = {
        "steps": torch.tensor([0, 10, 20]),
        "losses": torch.tensor([NAN, 2.0, 1.0]),
        "measured": {
            "mean_depth": torch.tensor([1.0, 1.5, 2.5]),
            "coherent_depth": torch.tensor([0.5, 1.0, 2.0]),
            "scales": torch.tensor([[1.0, NAN], [1.1, NAN], [1.2, NAN]]),
            "weight_norm": torch.tensor([3.0, 4.0, 5.0]),
            "largest_eigenvalue": torch.tensor([8.0, NAN, 9.0]),
            "smallest_eigenvalue": torch.tensor([-2.0, NAN, -1.0]),
            "eigenvalue_error": torch.tensor([0.5, NAN, 0.25]),
            "jacobian_quantiles": torch.tensor([[0.1, 1.0], [0.2, 1.0], [0.3, 1.0]]),
            "kernel_drift": torch.tensor([0.0, 0.1, 0.4]),
            "kernel_alignment": torch.tensor([1.0, 0.99, 0.9]),
        },
        "block_names": ("a", "b"),
        "quantile_levels": torch.tensor([0.05, 0.5]),
        "costs": {"depth": torch.tensor([1.0, 0.5, 0.5]), "curvature": torch.tensor([2.0, NAN, 2.0])},
        "shared_seconds": 1.0,
        "run_seconds": 70.0,
        "share": 0.1,
        "skipped": {"curvature": 1},
        "left_out": {"kernel": "No reason."},
        "notes": ("A note.",),
    }
    return MonitorReading(**(values | changes))


def test_every_quantity_has_its_figure():
    assert [figure.name for figure in figures_of(reading())] == [
        "depth_while_training",
        "scales_while_training",
        "weight_norm_while_training",
        "curvature_while_training",
        "jacobian_while_training",
        "kernel_while_training",
        "cost_of_looking",
    ]


def test_what_was_seen_less_than_twice_is_not_drawn():
    once = {"mean_depth": torch.tensor([1.0, NAN, NAN])}
    assert figures_of(reading(measured=once, costs={})) == ()


def test_lines_pass_over_looks_that_were_skipped():
    figure = curvature_while_training(reading())
    largest, band, smallest, _, _ = figure.marks
    assert (largest.x, largest.y) == ((0.0, 20.0), (8.0, 9.0)) and smallest.y == (-2.0, -1.0)
    assert isinstance(band, Band) and (band.low, band.high) == ((7.5, 8.75), (8.5, 9.25))


def test_a_block_without_a_scale_is_not_drawn():
    assert [(mark.name, len(mark.y)) for mark in scales_while_training(reading()).marks] == [("a", 3)]


def test_many_blocks_are_a_band():
    scales = torch.arange(30.0).reshape(3, 10)
    many = reading(measured={"scales": scales}, block_names=tuple("abcdefghij"))
    band, mean = scales_while_training(many).marks
    assert band.low == (0.0, 10.0, 20.0) and band.high == (9.0, 19.0, 29.0) and band.name == "all 10 blocks"
    assert mean.y == (4.5, 14.5, 24.5)


def test_quantiles_are_logarithmic_unless_one_is_zero():
    figure = jacobian_while_training(reading())
    assert figure.y_log and [mark.name for mark in figure.marks] == ["5 %", "50 %"]
    assert all(isinstance(mark, Line) for mark in figure.marks)
    lost = reading().measured | {"jacobian_quantiles": torch.tensor([[0.0, 1.0]] * 3)}
    assert not jacobian_while_training(reading(measured=lost)).y_log


def test_the_cost_is_told():
    figure = figures_of(reading())[-1]
    (bars,) = figure.marks
    assert bars.labels == ("depth", "curvature", "shared") and bars.y == (2.0, 4.0, 1.0)
    assert "7 s beside 70 s of the run itself (10 %; asked for: at most 10 %)" in figure.caption
